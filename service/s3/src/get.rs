//! Reading an object: whole or a range of it, under conditions; the version that was found is read
//! to its end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::EXPIRES;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use lumpscope_objects::{ObjectError, ObjectInfo, Pairs, Reader};
use s3s::dto::{
    Checksum, ChecksumMode, ETagCondition, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    Metadata, ObjectAttributes, ObjectPart, Range, StorageClass, StreamingBlob, Timestamp,
    TimestampFormat,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::attributes::timestamp;
use super::endpoint::{Endpoint, etag, names, no_version, signed};
use super::error::DAMAGE;
use super::inside::Inside;
use super::list::page_size;
use super::whole::Promised;
use super::{attributes, checks, tags};
use lumpscope_server::request::{CHUNK, Scope};

/// How many tags an object has.
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
/// When it expires.
const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");

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
            let mut headers = HeaderMap::new();
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
    // The end of nothing is nothing, and no range can say so: all of it is meant.
    let chosen = range
        .check(size)
        .map(|range| Some(range).filter(|range| !range.is_empty()));
    chosen.map_err(|_| {
        let mut error = S3Error::new(S3ErrorCode::InvalidRange);
        let mut headers = HeaderMap::new();
        if let Ok(value) = format!("bytes */{size}").parse() {
            headers.insert(http::header::CONTENT_RANGE, value);
        }
        error.set_headers(headers);
        error
    })
}

/// The bytes of a part, whose number is given: what came whole is one part.
///
/// # Errors
/// `InvalidPart`.
fn one_part(part: i32, size: u64, parts: &[u64]) -> S3Result<std::ops::Range<u64>> {
    let all = if parts.is_empty() { &[size] } else { parts };
    let before = usize::try_from(part)
        .ok()
        .and_then(|part| part.checked_sub(1));
    let found = before.and_then(|before| Some((before, all.get(before)?)));
    let Some((before, bytes)) = found else {
        let why = format!("the object has the parts 1 to {}", all.len());
        return Err(S3Error::with_message(S3ErrorCode::InvalidPart, why));
    };
    let start = all[..before].iter().sum::<u64>();
    Ok(start..start + bytes)
}

/// False: the range is of another version, and all is sent.
fn is_of(headers: &HeaderMap, info: &ObjectInfo) -> bool {
    let Some(value) = headers.get(http::header::IF_RANGE) else {
        return true;
    };
    let text = value.to_str().unwrap_or_default();
    let modified = timestamp(info.modified_ms / 1000 * 1000);
    let date = Timestamp::parse(TimestampFormat::HttpDate, text);
    text.trim_matches('"') == info.etag.to_string() || date.is_ok_and(|date| date == modified)
}

/// The media type of what was given none.
const UNKNOWN_TYPE: &str = "binary/octet-stream";

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
    /// Its checksums, or those of the part that is meant, if they are told.
    sums: Checksum,
    /// How many parts it has, if one was asked for.
    parts: Option<i32>,
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
    /// `PreconditionFailed`, `NotModified`, `InvalidRange`, `InvalidRequest`, `InvalidPart`.
    fn of(self, info: ObjectInfo, parts: &[u64]) -> S3Result<Told> {
        self.conditions.check(&info)?;
        let range = match (self.part, &self.range) {
            (Some(_), Some(_)) => {
                let why = "an object is read by a range or by the number of a part";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
            }
            (Some(part), None) => {
                let range = one_part(part, info.size, parts)?;
                Some(range).filter(|range| !range.is_empty())
            }
            (None, range) => chosen(range.as_ref(), info.size)?,
        };
        let count = self.part.filter(|_| !parts.is_empty());
        let all = range.as_ref().is_none_or(|range| *range == (0..info.size));
        let promised = Promised::kept(&info.attributes);
        let sums = match (count, promised) {
            _ if !self.sums => None,
            (Some(part), Some(promised)) => promised.of_part(&info.attributes, part),
            // Those of the whole say nothing of a part.
            _ => all.then(|| checks::told(info.crc32c, &info.attributes)),
        };
        Ok(Told {
            sums: sums.unwrap_or_default(),
            info,
            range,
            parts: count.and_then(|_| i32::try_from(parts.len()).ok()),
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
        let Told {
            info,
            range,
            sums,
            parts,
        } = told;
        let [cache_control, content_disposition, content_encoding, content_language, expires] =
            attributes::back(&info.attributes);
        $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control,
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
            content_disposition,
            content_encoding,
            content_language,
            content_length: Some(signed(len)),
            content_range: range
                .map(|range| format!("bytes {}-{}/{}", range.start, range.end - 1, info.size)),
            content_type: info.content_type.or_else(|| Some(UNKNOWN_TYPE.to_owned())),
            e_tag: Some(etag(info.etag)),
            expires: attributes::parsed_date(expires),
            last_modified: Some(timestamp(info.modified_ms)),
            metadata: user(&info.metadata),
            parts_count: parts,
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
        let mut input = request.input;
        no_version(input.version_id)?;
        let inside = self.enter(&asked, &input.bucket)?;
        let whole = request.headers.contains_key(http::header::IF_RANGE);
        let range = input.range.filter(|_| !whole);
        let wanted = |size| chosen(range.as_ref(), size).ok().flatten();
        let (ctx, bucket, key) = (asked.scope.context(), &input.bucket, &input.key);
        let read = inside.objects.read_part(ctx, bucket, key, wanted).await;
        let mut reader = read.map_err(|failure| inside.failed(failure))?;
        input.range = input
            .range
            .filter(|_| is_of(&request.headers, reader.info()));
        let parts = reader.parts();
        let told = wanted!(input).of(reader.info().clone(), &parts)?;
        if let Some(range) = &told.range {
            let selected = reader.select(range.clone());
            selected.map_err(|failure| inside.failed(failure))?;
        }
        let mut headers = self.extra(&inside, (&input.bucket, &input.key), &told.info);
        if input.response_expires.is_some() {
            headers.remove(EXPIRES);
        }
        let len = told.bytes();
        let scope = Arc::clone(&asked.scope);
        let outgoing = Outgoing::new(reader, scope, len, inside.named.name.clone());
        let body = StreamingBlob::from(s3s::Body::http_body_unsync(outgoing));
        let output = output!(GetObjectOutput, told, { body: Some(body), });
        Ok(S3Response::with_headers(output, headers))
    }

    pub(super) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let asked = Asked::of(&request)?;
        let mut input = request.input;
        no_version(input.version_id.take())?;
        let inside = self.enter(&asked, &input.bucket)?;
        let (ctx, bucket, key) = (asked.scope.context(), &input.bucket, &input.key);
        let found = match input.part_number {
            None => {
                let info = inside.objects.head(ctx, bucket, key).await;
                info.map(|info| (info, Vec::new()))
            }
            Some(_) => {
                let reader = inside.objects.read(ctx, bucket, key).await;
                reader.map(|reader| (reader.info().clone(), reader.parts()))
            }
        };
        let (info, parts) = found.map_err(|failure| inside.failed(failure))?;
        input.range = input.range.filter(|_| is_of(&request.headers, &info));
        let mut headers = self.extra(&inside, (&input.bucket, &input.key), &info);
        headers.extend(overridden(&mut input)?);
        let told = wanted!(input).of(info, &parts)?;
        let output = output!(HeadObjectOutput, told, {});
        Ok(S3Response::with_headers(output, headers))
    }

    /// Headers of a read for which its output has no place everywhere.
    fn extra(&self, inside: &Inside, place: (&str, &str), info: &ObjectInfo) -> HeaderMap {
        let count = Some(tags::count(info)).filter(|count| *count > 0);
        let count = count.map(|count| (TAG_COUNT, HeaderValue::from(count)));
        let ends = self.ends(inside, place, info);
        let ends = ends.and_then(|ends| Some((EXPIRATION, ends.parse().ok()?)));
        let [.., expires] = attributes::back(&info.attributes);
        // The output has no place for other than a date.
        let odd = expires.filter(|text| attributes::parsed_date(Some(text.clone())).is_none());
        let odd = odd.and_then(|text| Some((EXPIRES, text.parse().ok()?)));
        count.into_iter().chain(ends).chain(odd).collect()
    }

    pub(super) async fn object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        no_version(input.version_id)?;
        let inside = self.enter(&asked, &input.bucket)?;
        let ctx = asked.scope.context();
        let reader = inside.objects.read(ctx, &input.bucket, &input.key).await;
        let reader = reader.map_err(|failure| inside.failed(failure))?;
        let (info, parts) = (reader.info(), reader.parts());
        // One header has all names, or several have some.
        let wants = |name: &str| {
            let mut all = input.object_attributes.iter();
            all.any(|names| names.as_str().split(',').any(|one| one.trim() == name))
        };
        let checksum = checks::told(info.crc32c, &info.attributes);
        let told = wants(ObjectAttributes::CHECKSUM) && checksum.checksum_type.is_some();
        let (after, max) = (
            input.part_number_marker.unwrap_or(0),
            page_size(input.max_parts)?,
        );
        let has_parts = !parts.is_empty() && wants(ObjectAttributes::OBJECT_PARTS);
        Ok(S3Response::new(GetObjectAttributesOutput {
            checksum: told.then_some(checksum),
            e_tag: wants(ObjectAttributes::ETAG).then(|| etag(info.etag)),
            last_modified: Some(timestamp(info.modified_ms)),
            object_parts: has_parts.then(|| listed(info, &parts, (after, max))),
            object_size: wants(ObjectAttributes::OBJECT_SIZE).then(|| signed(info.size)),
            storage_class: wants(ObjectAttributes::STORAGE_CLASS)
                .then(|| StorageClass::from_static(StorageClass::STANDARD)),
            ..GetObjectAttributesOutput::default()
        }))
    }
}

/// A page of the parts of an object: those with numbers above `after`.
fn listed(
    info: &ObjectInfo,
    parts: &[u64],
    (after, max): (i32, usize),
) -> GetObjectAttributesParts {
    let promised = Promised::kept(&info.attributes);
    let sums = |number| promised?.of_part(&info.attributes, number);
    let numbered = (1..).zip(parts).filter(|(number, _)| *number > after);
    let numbered = numbered.take(max).map(|(number, &size)| {
        let sums = sums(number).unwrap_or_default();
        ObjectPart {
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            part_number: Some(number),
            size: Some(signed(size)),
        }
    });
    let page: Vec<ObjectPart> = numbered.collect();
    let last = page.last().and_then(|part| part.part_number);
    let count = i32::try_from(parts.len()).unwrap_or(i32::MAX);
    let more = last.is_some_and(|last| last < count);
    GetObjectAttributesParts {
        is_truncated: Some(more),
        max_parts: i32::try_from(max).ok(),
        next_part_number_marker: last,
        part_number_marker: Some(after),
        parts: Some(page),
        total_parts_count: Some(count),
    }
}

/// The headers of a reply that its request gives; s3s reads them of GetObject only.
fn overridden(input: &mut HeadObjectInput) -> S3Result<HeaderMap> {
    use http::header as names;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (names::CACHE_CONTROL, input.response_cache_control.take()),
        (
            names::CONTENT_DISPOSITION,
            input.response_content_disposition.take(),
        ),
        (
            names::CONTENT_ENCODING,
            input.response_content_encoding.take(),
        ),
        (
            names::CONTENT_LANGUAGE,
            input.response_content_language.take(),
        ),
        (names::CONTENT_TYPE, input.response_content_type.take()),
        (EXPIRES, attributes::date(input.response_expires.as_ref())),
    ] {
        let Some(value) = value else { continue };
        let parsed = value.parse().map_err(|_| {
            let why = format!("response-{name} is no header");
            S3Error::with_message(S3ErrorCode::InvalidArgument, why)
        });
        headers.insert(name, parsed?);
    }
    Ok(headers)
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
                    if let Some(not_logged) = DAMAGE.allows() {
                        tracing::warn!(store, %error, not_logged, "an object could not be read to its end");
                    }
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
