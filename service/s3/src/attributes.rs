//! Headers that are kept with an object and given back, and mean nothing here.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderName;
use http::header::CONTENT_TYPE;
use lumpscope_objects::{ObjectInfo, Pairs, PutInfo};
use s3s::S3Result;
use s3s::dto::{Timestamp, TimestampFormat};

use super::call::{Call, wrong};
use super::checks::kept_as;
use super::encoded_words;
use super::reply::{self, Answer};

/// Prefix of the headers that are user metadata.
const USER: &str = "x-amz-meta-";
/// The media type of an object that was given none.
const UNKNOWN_TYPE: &str = "binary/octet-stream";
/// Headers of an object.
const NAMES: [&str; 5] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
];
/// How a body came, which is nothing about the object.
const CHUNKED: &str = "aws-chunked";

/// Properties of the new object that the headers of a request give it; `size`: its bytes, if known.
///
/// # Errors
/// As [`Call::header`].
pub(super) fn put_info(call: &Call, size: Option<u64>) -> S3Result<PutInfo> {
    let mut attributes = Pairs::new();
    for name in NAMES {
        let value = call.header(name)?.unwrap_or_default();
        let value = match name {
            "content-encoding" => without_chunks(value),
            _ => value.to_owned(),
        };
        if !value.is_empty() {
            attributes.push((name.to_owned(), value));
        }
    }
    Ok(PutInfo {
        content_type: call.header("content-type")?.map(str::to_owned),
        metadata: metadata(call)?,
        attributes,
        size,
    })
}

/// User metadata in an order that is always the same.
fn metadata(call: &Call) -> S3Result<Pairs> {
    let mut pairs = Pairs::new();
    for name in call.headers.keys() {
        let Some(key) = name
            .as_str()
            .strip_prefix(USER)
            .filter(|key| !key.is_empty())
        else {
            continue;
        };
        let mut values = call.headers.get_all(name).iter();
        let value = values
            .next()
            .map(|value| std::str::from_utf8(value.as_bytes()));
        let (Some(Ok(value)), None) = (value, values.next()) else {
            return Err(wrong(format!("the header {name} is given once, as UTF-8")));
        };
        pairs.push((key.to_owned(), encoded_words::decode(value)));
    }
    pairs.sort_unstable();
    Ok(pairs)
}

/// The headers of an answer that were given with the object.
pub(super) fn set(answer: &mut Answer, info: &ObjectInfo) {
    for name in NAMES {
        let value = kept_as(&info.attributes, name);
        reply::set(answer, HeaderName::from_static(name), value);
    }
    let kind = info.content_type.as_deref().unwrap_or(UNKNOWN_TYPE);
    reply::set(answer, CONTENT_TYPE, Some(kind));
    for (key, value) in &info.metadata {
        if let Ok(name) = format!("{USER}{key}").parse() {
            reply::set(answer, name, Some(encoded_words::encode(value)));
        }
    }
}

/// Properties of a copy that is like its source.
pub(super) fn of_copy(info: &ObjectInfo) -> PutInfo {
    let is_kept = |name: &str| NAMES.contains(&name);
    let all = info.attributes.iter();
    PutInfo {
        content_type: info.content_type.clone(),
        metadata: info.metadata.clone(),
        attributes: all.filter(|(name, _)| is_kept(name)).cloned().collect(),
        size: Some(info.size),
    }
}

fn without_chunks(encoding: &str) -> String {
    let all = encoding.split(',').map(str::trim);
    let rest: Vec<&str> = all
        .filter(|one| !one.is_empty() && !one.eq_ignore_ascii_case(CHUNKED))
        .collect();
    rest.join(", ")
}

/// A date as HTTP has it.
pub(super) fn date(given: Option<&Timestamp>) -> Option<String> {
    let mut text = Vec::new();
    given?.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Milliseconds since 1970 as HTTP has them.
pub(super) fn http_date(ms: u64) -> Option<String> {
    date(Some(&timestamp(ms)))
}

/// Milliseconds since 1970 as S3 has them.
pub(super) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_told_as_they_were_given_without_the_chunks() {
        for (given, kept) in [
            ("deflate, gzip", "deflate, gzip"),
            ("gzip,aws-chunked,br", "gzip, br"),
        ] {
            assert_eq!(without_chunks(given), kept);
        }
    }
}
