//! Reading an object: whole or a range of it, under conditions; the version that was found is read
//! to its end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use lumpscope_objects::{ObjectError, ObjectInfo, Pairs, Reader};
use s3s::dto::{
    ChecksumMode, ChecksumType, ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput,
    HeadObjectOutput, Metadata, Range, StreamingBlob, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::endpoint::{Endpoint, etag, names, no_version, signed, timestamp};
use super::{attributes, checks};
use lumpscope_server::request::{CHUNK, Scope};

/// When a read is made.
#[derive(Default)]
pub(super) struct Conditions {
    pub(super) matches: Option<ETagCondition>,
    pub(super) none_match: Option<ETagCondition>,
    pub(super) modified_since: Option<Timestamp>,
    pub(super) unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Judges an object, as RFC 9110, section 13.2.2 wants it. Dates have whole seconds.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NotModified`.
    pub(super) fn check(&self, info: &ObjectInfo) -> S3Result<()> {
        let modified = timestamp(info.modified_ms / 1000 * 1000);
        let failed = || Err(S3Error::new(S3ErrorCode::PreconditionFailed));
        match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) if !names(condition, info.etag) => return failed(),
            (None, Some(date)) if modified > *date => return failed(),
            _ => {}
        }
        let same = match (&self.none_match, &self.modified_since) {
            (Some(condition), _) => names(condition, info.etag),
            (None, Some(date)) => modified <= *date,
            (None, None) => false,
        };
        if !same {
            return Ok(());
        }
        let mut error = S3Error::new(S3ErrorCode::NotModified);
        if let Ok(value) = etag(info.etag).to_http_header() {
            let mut headers = http::HeaderMap::new();
            headers.insert(http::header::ETAG, value);
            error.set_headers(headers);
        }
        Err(error)
    }
}

/// The bytes that a range means; `None`: all of them.
///
/// # Errors
/// `InvalidRange`.
fn chosen(range: Option<&Range>, size: u64) -> S3Result<Option<std::ops::Range<u64>>> {
    let Some(range) = range else { return Ok(None) };
    let chosen = range.check(size);
    chosen.map(Some).map_err(|_| {
        let mut error = S3Error::new(S3ErrorCode::InvalidRange);
        let mut headers = http::HeaderMap::new();
        if let Ok(value) = format!("bytes */{size}").parse() {
            headers.insert(http::header::CONTENT_RANGE, value);
        }
        error.set_headers(headers);
        error
    })
}

/// An object may be asked for by the number of one part: the first is all of what came in one.
///
/// # Errors
/// `NotImplemented`.
fn one_part(part: Option<i32>, info: &ObjectInfo) -> S3Result<()> {
    match part {
        None => Ok(()),
        Some(1) if info.etag.parts <= 1 => Ok(()),
        Some(_) => Err(S3Error::with_message(
            S3ErrorCode::NotImplemented,
            "parts of an object cannot be read by their numbers: use a range",
        )),
    }
}

fn user(metadata: &Pairs) -> Option<Metadata> {
    let map: Metadata = metadata.iter().cloned().collect();
    (!map.is_empty()).then_some(map)
}

fn wants_checksums(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// Metadata of an object for the headers of a reply.
struct Told {
    info: ObjectInfo,
    /// The bytes that are meant; `None`: all of them.
    range: Option<std::ops::Range<u64>>,
    /// True: its checksums are told.
    sums: bool,
}

/// The input of a read, as far as it says which object and which bytes of it are meant.
macro_rules! wanted {
    ($input:expr) => {
        Wanted {
            conditions: Conditions {
                matches: $input.if_match,
                none_match: $input.if_none_match,
                modified_since: $input.if_modified_since,
                unmodified_since: $input.if_unmodified_since,
            },
            part: $input.part_number,
            range: $input.range,
            sums: wants_checksums($input.checksum_mode.as_ref()),
        }
    };
}

struct Wanted {
    conditions: Conditions,
    part: Option<i32>,
    range: Option<Range>,
    sums: bool,
}

impl Wanted {
    /// Judges the object that was found.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NotModified`, `InvalidRange`, `NotImplemented`.
    fn of(self, info: ObjectInfo) -> S3Result<Told> {
        self.conditions.check(&info)?;
        one_part(self.part, &info)?;
        let range = chosen(self.range.as_ref(), info.size)?;
        Ok(Told {
            info,
            // Those of the whole say nothing of a part.
            sums: self.sums && range.is_none(),
            range,
        })
    }
}

impl Told {
    fn bytes(&self) -> u64 {
        let range = self.range.as_ref();
        range.map_or(self.info.size, |range| range.end - range.start)
    }
}

/// The reply of a read: its headers, and `$more`.
macro_rules! output {
    ($output:ident, $told:expr, { $($more:tt)* }) => {{
        let told: Told = $told;
        let len = told.bytes();
        let Told { info, range, sums } = told;
        let found = match sums {
            true => checks::kept(info.crc32c, &info.attributes),
            false => s3s::dto::Checksum::default(),
        };
        let full = ChecksumType::from_static(ChecksumType::FULL_OBJECT);
        let checksum_type = checks::any(&found).then_some(full);
        let [cache_control, content_disposition, content_encoding, content_language, expires] =
            attributes::back(&info.attributes);
        $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control,
            checksum_crc32: found.checksum_crc32,
            checksum_crc32c: found.checksum_crc32c,
            checksum_crc64nvme: found.checksum_crc64nvme,
            checksum_sha1: found.checksum_sha1,
            checksum_sha256: found.checksum_sha256,
            checksum_type,
            content_disposition,
            content_encoding,
            content_language,
            content_length: Some(signed(len)),
            content_range: range
                .map(|range| format!("bytes {}-{}/{}", range.start, range.end - 1, info.size)),
            content_type: info.content_type,
            e_tag: Some(etag(info.etag)),
            expires: attributes::timestamp(expires),
            last_modified: Some(timestamp(info.modified_ms)),
            metadata: user(&info.metadata),
            $($more)*
            ..$output::default()
        }
    }};
}

impl Endpoint {
    pub(super) async fn get(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        no_version(input.version_id)?;
        let inside = self.enter(&asked)?;
        let wanted = |size| chosen(input.range.as_ref(), size).ok().flatten();
        let (ctx, bucket, key) = (asked.scope.context(), &input.bucket, &input.key);
        let read = inside.objects.read_part(ctx, bucket, key, wanted).await;
        let mut reader = read.map_err(|failure| self.failed(failure))?;
        let told = wanted!(input).of(reader.info().clone())?;
        if let Some(range) = &told.range {
            let selected = reader.select(range.clone());
            selected.map_err(|failure| self.failed(failure))?;
        }
        let len = told.bytes();
        let scope = Arc::clone(&asked.scope);
        let outgoing = Outgoing::new(reader, scope, len, self.store.clone());
        let body = StreamingBlob::from(s3s::Body::http_body_unsync(outgoing));
        let output = output!(GetObjectOutput, told, { body: Some(body), });
        Ok(S3Response::new(output))
    }

    pub(super) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        no_version(input.version_id)?;
        let inside = self.enter(&asked)?;
        let ctx = asked.scope.context();
        let info = inside.objects.head(ctx, &input.bucket, &input.key).await;
        let info = info.map_err(|failure| self.failed(failure))?;
        let told = wanted!(input).of(info)?;
        let partial = told.range.is_some();
        let output = output!(HeadObjectOutput, told, {});
        Ok(match partial {
            true => S3Response::with_status(output, http::StatusCode::PARTIAL_CONTENT),
            false => S3Response::new(output),
        })
    }
}

type Next = (Reader, Option<Result<Bytes, ObjectError>>);

/// The bytes of an object on their way out.
struct Outgoing {
    /// `None`: it has ended.
    next: Option<Pin<Box<dyn Future<Output = Next> + Send>>>,
    scope: Arc<Scope>,
    ready: VecDeque<Bytes>,
    left: u64,
    store: String,
}

impl Outgoing {
    fn new(reader: Reader, scope: Arc<Scope>, left: u64, store: String) -> Self {
        Self {
            next: (left > 0).then(|| next(reader, Arc::clone(&scope))),
            scope,
            ready: VecDeque::new(),
            left,
            store,
        }
    }

    /// Cuts a piece into what one write takes: who is slow is seen by the chunks that were taken.
    fn cut(&mut self, mut piece: Bytes) {
        while !piece.is_empty() {
            let chunk = piece.split_to(CHUNK.min(piece.len()));
            self.ready.push_back(chunk);
        }
    }
}

fn next(mut reader: Reader, scope: Arc<Scope>) -> Pin<Box<dyn Future<Output = Next> + Send>> {
    Box::pin(async move {
        let bytes = reader.next(scope.context()).await;
        (reader, bytes)
    })
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = ObjectError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ObjectError>>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                self.left = self.left.saturating_sub(chunk.len() as u64);
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            let Some(reading) = &mut self.next else {
                return Poll::Ready(None);
            };
            let (reader, bytes) = ready!(reading.as_mut().poll(context));
            self.next = None;
            match bytes {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    // The status has been sent: all that is left is to end the connection.
                    let store = &self.store;
                    tracing::warn!(store, %error, "an object could not be read to its end");
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(piece)) => {
                    let len = piece.len() as u64;
                    if len < self.left {
                        let scope = Arc::clone(&self.scope);
                        self.next = Some(next(reader, scope));
                    }
                    self.cut(piece);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
