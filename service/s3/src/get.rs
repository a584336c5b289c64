//! Reading an object: whole or a range of it, under conditions; the version that was found is read
//! to its end.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, ETAG, EXPIRES, IF_RANGE,
    LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Body, Frame, SizeHint};
use lumpscope_objects::{ObjectError, ObjectInfo, Reader};
use s3s::dto::{
    Checksum, ChecksumMode, GetObjectAttributesParts, ObjectAttributes, ObjectPart, Range,
    StorageClass, Timestamp,
};
use s3s::xml::{SerResult, Serialize, Serializer};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::attributes::timestamp;
use super::call::{Call, Tags, parsed_date, wrong};
use super::endpoint::{EXPIRATION, Endpoint, no_version, quoted, signed};
use super::error::DAMAGE;
use super::inside::Inside;
use super::list::page_size;
use super::reply::{self, Answer};
use super::whole::Promised;
use super::{attributes, checks, tags};
use lumpscope_server::request::{CHUNK, Scope};

/// How many tags an object has.
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
/// How many parts an object has.
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
/// Headers of an answer that parameters of its request give: the parameter is `response-...`.
const OVERRIDDEN: [&str; 6] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
];

/// When a read is made.
#[derive(Default)]
pub(super) struct Conditions {
    pub(super) matches: Option<Tags>,
    pub(super) none_match: Option<Tags>,
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
            (Some(tags), _) if !tags.match_strongly(info.etag) => return failed(),
            (None, Some(date)) if modified > *date => return failed(),
            _ => {}
        }
        let same = match (&self.none_match, &self.modified_since) {
            (Some(tags), _) => tags.match_weakly(info.etag),
            (None, Some(date)) => modified <= *date,
            (None, None) => false,
        };
        if !same {
            return Ok(());
        }
        Err(S3Error::new(S3ErrorCode::NotModified))
    }
}

/// An error of a read, with the headers by which a client knows the version that was found (RFC
/// 9110, 15.4.5 and 15.5.17).
fn of_version(mut error: S3Error, info: &ObjectInfo) -> S3Error {
    let mut headers = error.headers().cloned().unwrap_or_default();
    let kept = |name: &str| checks::kept_as(&info.attributes, name).map(str::to_owned);
    let is_same = *error.code() == S3ErrorCode::NotModified;
    for (name, value) in [
        (ETAG, Some(quoted(info.etag))),
        (LAST_MODIFIED, attributes::http_date(info.modified_ms)),
        (CACHE_CONTROL, kept("cache-control").filter(|_| is_same)),
        (EXPIRES, kept("expires").filter(|_| is_same)),
    ] {
        let value = value.and_then(|value| HeaderValue::from_str(&value).ok());
        headers.extend(value.map(|value| (name, value)));
    }
    error.set_headers(headers);
    error
}

/// A range of bytes; `None`: it cannot be read. An end beyond 64 bits is behind every object.
fn range(text: &str) -> Option<Range> {
    let (unit, places) = text.split_once('=')?;
    let (first, last) = places.split_once('-')?;
    let order = |digits: &str| {
        let digits = digits.trim_start_matches('0');
        (digits.len(), digits.to_owned())
    };
    match (first, last) {
        ("", "") => return None,
        ("", _) | (_, "") => {}
        (first, last) if order(first) > order(last) => return None,
        _ => {}
    }
    let bounded = |digits: &str| {
        let is_large = digits.trim_start_matches('0').len() > 18;
        match is_large && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => i64::MAX.to_string(),
            false => digits.to_owned(),
        }
    };
    let text = format!("bytes={}-{}", bounded(first), bounded(last));
    let range = Range::parse(&text).ok();
    range.filter(|_| unit.eq_ignore_ascii_case("bytes"))
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
        let mut headers = HeaderMap::new();
        let all = format!("bytes */{size}").parse().ok();
        headers.extend(all.map(|all| (CONTENT_RANGE, all)));
        let mut error = S3Error::new(S3ErrorCode::InvalidRange);
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
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    let text = value.to_str().unwrap_or_default();
    let modified = timestamp(info.modified_ms / 1000 * 1000);
    let date = parsed_date(text);
    text.trim_matches('"') == info.etag.to_string() || date == Some(modified)
}

/// What of an object is meant, and what is told of it.
struct ObjectSelection {
    info: ObjectInfo,
    /// The bytes that are meant; `None`: all of them.
    range: Option<std::ops::Range<u64>>,
    /// Its checksums, or those of the part that is meant, if they are told.
    sums: Checksum,
    /// How many parts it has, if one was asked for.
    parts: Option<usize>,
}

impl ObjectSelection {
    fn bytes(&self) -> u64 {
        let range = self.range.as_ref();
        range.map_or(self.info.size, |range| range.end - range.start)
    }
}

/// Which object is meant, and which bytes of it.
struct Wanted {
    conditions: Conditions,
    part: Option<i32>,
    range: Option<Range>,
    sums: bool,
}

impl Wanted {
    fn of(call: &Call) -> S3Result<Self> {
        // A date or a range that cannot be read counts as absent (RFC 9110, 13.1.3 and 14.2).
        let date = |name| call.date(name).unwrap_or_default();
        let text = call.header("range").unwrap_or_default();
        no_version(call.parameter("versionId"))?;
        Ok(Self {
            conditions: Conditions {
                matches: call.tags("if-match")?,
                none_match: call.tags("if-none-match")?,
                modified_since: date("if-modified-since"),
                unmodified_since: date("if-unmodified-since"),
            },
            part: call.number("partNumber")?,
            range: text.and_then(range),
            sums: call.header("x-amz-checksum-mode")? == Some(ChecksumMode::ENABLED),
        })
    }

    /// Judges the object that was found.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NotModified`, `InvalidRange`, `InvalidRequest`, `InvalidPart`.
    fn judge(
        self,
        headers: &HeaderMap,
        info: ObjectInfo,
        parts: &[u64],
    ) -> S3Result<ObjectSelection> {
        let of_version = |error| of_version(error, &info);
        self.conditions.check(&info).map_err(of_version)?;
        let range = self.range.filter(|_| is_of(headers, &info));
        let range = match (self.part, range) {
            (Some(_), Some(_)) => {
                let why = "an object is read by a range or by the number of a part";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
            }
            (Some(part), None) => {
                let range = one_part(part, info.size, parts)?;
                Some(range).filter(|range| !range.is_empty())
            }
            (None, range) => chosen(range.as_ref(), info.size).map_err(of_version)?,
        };
        let part = self.part.filter(|_| !parts.is_empty());
        let all = range.as_ref().is_none_or(|range| *range == (0..info.size));
        let promised = Promised::kept(&info.attributes);
        let sums = match (part, promised) {
            _ if !self.sums => None,
            (Some(part), Some(promised)) => promised.of_part(&info.attributes, part),
            // Those of the whole say nothing of a part.
            _ => all.then(|| checks::told(info.crc32c, &info.attributes)),
        };
        Ok(ObjectSelection {
            sums: sums.unwrap_or_default(),
            info,
            range,
            parts: part.map(|_| parts.len()),
        })
    }
}

impl Endpoint {
    pub(super) async fn get(&self, call: &Call) -> S3Result<Answer> {
        let wanted = Wanted::of(call)?;
        let inside = self.enter(call, &call.bucket)?;
        let ahead = wanted
            .range
            .filter(|_| !call.headers.contains_key(IF_RANGE));
        let ahead = |size| chosen(ahead.as_ref(), size).ok().flatten();
        let (ctx, (bucket, key)) = (call.scope.context(), call.place());
        let read = inside.objects.read_part(ctx, bucket, key, ahead).await;
        let mut reader = read.map_err(|failure| inside.failed(failure))?;
        let parts = reader.parts();
        let found = wanted.judge(&call.headers, reader.info().clone(), &parts)?;
        if let Some(range) = &found.range {
            let selected = reader.select(range.clone());
            selected.map_err(|failure| inside.failed(failure))?;
        }
        let mut answer = self.described(call, &inside, &found)?;
        let (scope, store) = (Arc::clone(&call.scope), inside.named.name.clone());
        let outgoing = Outgoing::new(reader, scope, found.bytes(), store);
        *answer.body_mut() = s3s::Body::http_body_unsync(outgoing);
        Ok(answer)
    }

    pub(super) async fn head(&self, call: &Call) -> S3Result<Answer> {
        let wanted = Wanted::of(call)?;
        let inside = self.enter(call, &call.bucket)?;
        let (ctx, (bucket, key)) = (call.scope.context(), call.place());
        let found = match wanted.part {
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
        let found = wanted.judge(&call.headers, info, &parts)?;
        self.described(call, &inside, &found)
    }

    /// Status and headers of the answer to a read.
    fn described(&self, call: &Call, inside: &Inside, found: &ObjectSelection) -> S3Result<Answer> {
        let info = &found.info;
        let mut answer = reply::empty(match found.range {
            Some(_) => StatusCode::PARTIAL_CONTENT,
            None => StatusCode::OK,
        });
        let content = found.range.as_ref();
        let content =
            content.map(|range| format!("bytes {}-{}/{}", range.start, range.end - 1, info.size));
        let tags = Some(tags::count(info)).filter(|count| *count > 0);
        attributes::set(&mut answer, info);
        reply::set_sums(&mut answer, &found.sums);
        for (name, value) in [
            (ACCEPT_RANGES, Some("bytes".to_owned())),
            (CONTENT_LENGTH, Some(found.bytes().to_string())),
            (CONTENT_RANGE, content),
            (ETAG, Some(quoted(info.etag))),
            (LAST_MODIFIED, attributes::http_date(info.modified_ms)),
            (PARTS_COUNT, found.parts.map(|count| count.to_string())),
            (TAG_COUNT, tags.map(|count| count.to_string())),
            (EXPIRATION, self.ends(inside, call.place(), info)),
        ] {
            reply::set(&mut answer, name, value);
        }
        for name in OVERRIDDEN {
            let parameter = format!("response-{name}");
            let Some(value) = call.given(&parameter) else {
                continue;
            };
            if HeaderValue::from_str(&value).is_err() {
                return Err(wrong(format!("{parameter} cannot be a header")));
            }
            reply::set(&mut answer, HeaderName::from_static(name), Some(value));
        }
        Ok(answer)
    }

    pub(super) async fn object_attributes(&self, call: &Call) -> S3Result<Answer> {
        no_version(call.parameter("versionId"))?;
        let inside = self.enter(call, &call.bucket)?;
        let (ctx, (bucket, key)) = (call.scope.context(), call.place());
        let reader = inside.objects.read(ctx, bucket, key).await;
        let reader = reader.map_err(|failure| inside.failed(failure))?;
        let (info, parts) = (reader.info(), reader.parts());
        // One header has all names, or several have some.
        let wanted = call.headers.get_all("x-amz-object-attributes");
        let wanted = wanted.iter().filter_map(|names| names.to_str().ok());
        let wanted: Vec<&str> = wanted
            .flat_map(|names| names.split(','))
            .map(str::trim)
            .collect();
        if wanted.is_empty() {
            return Err(wrong("x-amz-object-attributes names what is asked for"));
        }
        let checksum = checks::told(info.crc32c, &info.attributes);
        let page = (
            call.parsed("x-amz-part-number-marker")?.unwrap_or(0),
            page_size(call.parsed("x-amz-max-parts")?)?,
        );
        let wants = |name| wanted.contains(&name);
        let told = wants(ObjectAttributes::CHECKSUM) && checksum.checksum_type.is_some();
        let has_parts = !parts.is_empty() && wants(ObjectAttributes::OBJECT_PARTS);
        let mut answer = reply::xml(&Attributes {
            checksum: told.then_some(checksum),
            etag: wants(ObjectAttributes::ETAG).then(|| info.etag.to_string()),
            parts: has_parts.then(|| listed(info, &parts, page)),
            size: wants(ObjectAttributes::OBJECT_SIZE).then(|| signed(info.size)),
            class: wants(ObjectAttributes::STORAGE_CLASS).then_some(StorageClass::STANDARD),
        })?;
        let modified = attributes::http_date(info.modified_ms);
        reply::set(&mut answer, LAST_MODIFIED, modified);
        Ok(answer)
    }
}

/// The document of GetObjectAttributes: the only one with an entity tag without quotes.
struct Attributes {
    checksum: Option<Checksum>,
    etag: Option<String>,
    parts: Option<GetObjectAttributesParts>,
    size: Option<i64>,
    class: Option<&'static str>,
}

impl Serialize for Attributes {
    fn serialize<W: Write>(&self, writer: &mut Serializer<W>) -> SerResult {
        let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
        writer.element_with_ns("GetObjectAttributesResponse", namespace, |writer| {
            let mut checksum = self.checksum.iter();
            checksum.try_for_each(|it| writer.content("Checksum", it))?;
            let mut etag = self.etag.iter();
            etag.try_for_each(|it| writer.content("ETag", it.as_str()))?;
            let mut parts = self.parts.iter();
            parts.try_for_each(|it| writer.content("ObjectParts", it))?;
            let mut size = self.size.iter();
            size.try_for_each(|it| writer.content("ObjectSize", it))?;
            let mut class = self.class.iter();
            class.try_for_each(|it| writer.content("StorageClass", *it))
        })
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
