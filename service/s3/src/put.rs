//! Storing an object: the body goes piece by piece into the store while it comes, and counts only
//! when all of it has come as announced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::ETAG;
use http::{HeaderMap, HeaderName, StatusCode};
use lumpscope_objects::{CommitInfo, Condition, Ctx, ETag, ObjectError, Writer};
use s3s::dto::{ChecksumType, ETag as ETagDto, Timestamp};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, TrailingHeaders};
use tokio_stream::StreamExt as _;

use super::attributes::put_info;
use super::body::Flow;
use super::call::{Call, Tags, Within, wrong};
use super::checks::{Checked, Checks, KINDS, of_kind};
use super::endpoint::{EXPIRATION, Endpoint, Holds, PieceMemory, quoted};
use super::inside::Inside;
use super::reply::{self, Answer};
use super::{error, tags};
use lumpscope_server::config::S3Etag;
use lumpscope_server::request::Scope;

/// Bytes of the object that was put.
const OBJECT_SIZE: HeaderName = HeaderName::from_static("x-amz-object-size");
/// Says what of the body is signed.
const CONTENT_SHA256: &str = "x-amz-content-sha256";
/// Each of its chunks, and nothing follows them.
const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
/// Bytes of a body without what frames its chunks.
const DECODED: &str = "x-amz-decoded-content-length";

/// An `ETag` of more parts than there can be.
const NO_OBJECT: ETag = ETag {
    md5: [0; 16],
    parts: u16::MAX,
};

/// Receiver of the bytes of a body.
pub(super) trait Sink: Send {
    fn write(
        &mut self,
        ctx: Ctx<'_>,
        bytes: &[u8],
    ) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

impl Sink for Writer {
    async fn write(&mut self, ctx: Ctx<'_>, bytes: &[u8]) -> Result<(), ObjectError> {
        Self::write(self, ctx, bytes).await
    }
}

/// The body of a request, and what is said of it.
pub(super) struct Incoming {
    body: Body,
    /// Its bytes.
    pub(super) len: u64,
    /// What is kept of it meanwhile.
    pub(super) holds: Holds,
    /// The file of a form, of which `len` are the most that there can be.
    within: Option<Within>,
    flow: Arc<Flow>,
    /// Ends with a chunk without bytes. Where a trailer follows, that has to come instead.
    needs_end: bool,
    checks: Checks,
    trailers: Option<TrailingHeaders>,
}

impl Incoming {
    /// Understands what the headers say.
    ///
    /// # Errors
    /// `MissingContentLength`, and as [`Checks::of`].
    pub(super) fn of(call: &mut Call, etag: S3Etag) -> S3Result<Self> {
        let chunked = is_chunked(&call.headers);
        // Where HTTP has chunks of its own too, only this one tells: boto3 does so over TLS.
        let len = match call.parsed::<u64>("content-length")? {
            None if chunked => call.parsed(DECODED)?,
            len => len,
        };
        let mut len = len.ok_or_else(|| S3Error::new(S3ErrorCode::MissingContentLength))?;
        let within = call.within;
        if let Some(Within(_, most)) = within {
            len = len.min(most);
        }
        Ok(Self {
            body: std::mem::take(&mut call.body),
            len,
            holds: match (chunked, within) {
                (true, _) => Holds::Chunk,
                // Of a form nobody knows how long its file is.
                (false, Some(_)) => Holds::Twice,
                (false, None) => Holds::Nothing,
            },
            within,
            flow: Arc::clone(&call.flow),
            needs_end: call.header(CONTENT_SHA256)? == Some(SIGNED_CHUNKS),
            checks: Checks::of(&call.headers, etag)?,
            trailers: call.trailers.take(),
        })
    }

    /// Computes and keeps a checksum of this kind, too.
    pub(super) fn want(&mut self, kind: &'static str) {
        self.checks.want(kind);
    }

    /// The next bytes. A signed chunk is read as far as there is memory for it.
    async fn next(&mut self, room: &mut PieceMemory) -> S3Result<Option<Bytes>> {
        let body = &mut self.body;
        let next = loop {
            tokio::select! {
                biased;
                next = body.next() => break next,
                () = self.flow.full() => {
                    room.grow().await?;
                    self.flow.allow(room.chunk());
                    self.flow.has(room.bytes());
                }
            }
        };
        self.flow.taken();
        let next = next.transpose();
        next.map_err(|failure| match self.flow.fault() {
            Some(fault) => error::fault(fault),
            None => error::broken(&failure),
        })
    }

    /// Hands the bytes over as they come.
    ///
    /// # Errors
    /// A body that is not what was announced, or what the store says.
    pub(super) async fn into_sink(
        mut self,
        (inside, scope): (&Inside, &Scope),
        room: &mut PieceMemory,
        sink: &mut impl Sink,
    ) -> S3Result<Checked> {
        let ctx = scope.context();
        let (mut got, mut stored) = (0_u64, Duration::ZERO);
        self.flow.allow(room.chunk());
        while let Some(bytes) = self.next(room).await? {
            got = got.saturating_add(bytes.len() as u64);
            if got > self.len {
                return Err(self.another_length(got));
            }
            room.cover(got).await?;
            self.flow.has(room.bytes());
            self.checks.update(&bytes);
            let since = Instant::now();
            let written = sink.write(ctx, &bytes).await;
            written.map_err(|failure| inside.failed(failure))?;
            stored += since.elapsed();
        }
        if self.needs_end && !self.flow.has_final_chunk() {
            let why = "the chunk without bytes, which ends a body of signed chunks, did not come";
            return Err(S3Error::with_message(S3ErrorCode::IncompleteBody, why));
        }
        match self.within {
            None if got != self.len => return Err(self.another_length(got)),
            Some(Within(least, _)) if got < least => {
                let why = format!("the policy wants at least {least} bytes and {got} came");
                return Err(S3Error::with_message(S3ErrorCode::EntityTooSmall, why));
            }
            _ => {}
        }
        let trailers = self.trailers.and_then(|trailers| trailers.take());
        let checked = self.checks.finish(trailers.as_ref());
        // Receiving is what was not storing: waiting for the client, signatures, checksums.
        self.flow.received(scope.age().saturating_sub(stored));
        checked
    }

    /// Its bytes, if they are known.
    fn size(&self) -> Option<u64> {
        self.within.is_none().then_some(self.len)
    }

    fn another_length(&self, got: u64) -> S3Error {
        if self.within.is_some() {
            let why = format!("the policy allows {} bytes", self.len);
            return S3Error::with_message(S3ErrorCode::EntityTooLarge, why);
        }
        let why = format!("{} bytes were announced and {got} came", self.len);
        S3Error::with_message(S3ErrorCode::IncompleteBody, why)
    }
}

/// True: the body is cut into chunks below HTTP.
fn is_chunked(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_SHA256);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"STREAMING-"))
}

/// When a put is made.
///
/// # Errors
/// As [`of_tags`], and as [`Call::tags`].
pub(super) fn condition(call: &Call) -> S3Result<Condition> {
    of_tags(
        call.tags("if-match")?.as_ref(),
        call.tags("if-none-match")?.as_ref(),
    )
}

/// When a change is made.
///
/// # Errors
/// `NotImplemented` for what S3 does not know either.
fn of_tags(matches: Option<&Tags>, none_match: Option<&Tags>) -> S3Result<Condition> {
    match (matches, none_match) {
        (None, None) => Ok(Condition::Always),
        (None, Some(Tags::Any)) => Ok(Condition::IfAbsent),
        (Some(Tags::Any), None) => Ok(Condition::IfPresent),
        (Some(Tags::These(tags)), None) => {
            // Whether there is an object at all is decided first. None has a weak ETag.
            let etag = only(tags)?.as_strong().map(str::parse);
            Ok(Condition::IfMatch(
                etag.and_then(Result::ok).unwrap_or(NO_OBJECT),
            ))
        }
        // No object has an ETag that is none.
        (None, Some(Tags::These(tags))) => {
            let etag = only(tags)?.value().parse();
            Ok(etag.map_or(Condition::Always, Condition::UnlessMatch))
        }
        (Some(_), Some(_)) => Err(S3Error::with_message(
            S3ErrorCode::NotImplemented,
            "a put takes If-None-Match or If-Match, one of them",
        )),
    }
}

/// The one ETag of a change.
///
/// # Errors
/// `NotImplemented`: there are more.
fn only(tags: &[ETagDto]) -> S3Result<&ETagDto> {
    let [tag] = tags else {
        let why = "the condition of a change names one ETag, or *: not a list";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
    };
    Ok(tag)
}

/// When a delete is made: `like`, the size and the time that the object must have.
///
/// # Errors
/// `InvalidArgument`, `NotImplemented`.
pub(super) fn of_delete(
    matches: Option<&Tags>,
    like: (Option<i64>, Option<&Timestamp>),
) -> S3Result<Condition> {
    let condition = of_tags(matches, None)?;
    let (size, time) = like;
    if size.is_none() && time.is_none() {
        return Ok(condition);
    }
    let etag = match condition {
        Condition::Always => None,
        Condition::IfMatch(etag) => Some(etag),
        _ => {
            let why = "If-Match: * does not go with a size or a time: name the ETag";
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
        }
    };
    let seconds = |time: &Timestamp| time::OffsetDateTime::from(time.clone()).unix_timestamp();
    let number = |number: i64| {
        let why = "no object has a size below 0, or is from before 1970";
        u64::try_from(number).map_err(|_| wrong(why))
    };
    Ok(Condition::IfLike {
        size: size.map(number).transpose()?,
        modified_s: time.map(seconds).map(number).transpose()?,
        etag,
    })
}

impl Endpoint {
    pub(super) async fn put(&self, call: &mut Call) -> S3Result<Answer> {
        let incoming = Incoming::of(call, self.etag)?;
        let call = &*call;
        let condition = condition(call)?;
        let inside = self.enter(call, &call.bucket)?;
        let mut room = self
            .room(&inside, call, incoming.len, incoming.holds)
            .await?;
        let mut info = put_info(call, incoming.size())?;
        let tags = tags::of_header(call.header("x-amz-tagging")?)?;
        info.attributes.extend(tags);
        let begun = inside.objects.begin(&call.bucket, &call.key, info);
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let checked = incoming
            .into_sink((&inside, &call.scope), &mut room, &mut writer)
            .await?;
        let len = writer.written();
        call.scope.add_bytes(len);
        let commit = CommitInfo {
            etag: checked.etag,
            crc32c: checked.crc32c,
            attributes: checked.attributes,
            condition,
        };
        let committed = writer.commit(call.scope.context(), commit).await;
        let committed = committed.map_err(|failure| inside.failed(failure))?;
        drop(room);
        let mut sums = checked.checksum;
        let any = KINDS.into_iter().any(|kind| of_kind(&sums, kind).is_some());
        sums.checksum_type = any.then(|| ChecksumType::from_static(ChecksumType::FULL_OBJECT));
        let mut answer = reply::empty(StatusCode::OK);
        reply::set(&mut answer, ETAG, Some(quoted(committed.info.etag)));
        reply::set_sums(&mut answer, &sums);
        reply::set(&mut answer, OBJECT_SIZE, Some(len.to_string()));
        let ends = self.ends(&inside, call.place(), &committed.info);
        reply::set(&mut answer, EXPIRATION, ends);
        Ok(answer)
    }
}
