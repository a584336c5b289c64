//! Headers that are kept with an object and given back, and mean nothing here.

use std::time::{Duration, UNIX_EPOCH};

use http::{Extensions, HeaderValue};
use lumpscope_objects::Pairs;
use s3s::dto::{Metadata, Timestamp, TimestampFormat};

/// Their names, in the order in which they are handed over.
const NAMES: [&str; 5] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
];
/// How a body came, which is nothing about the object.
const CHUNKED: &str = "aws-chunked";

/// When the client wants it to expire in caches, where that is no date: `0`.
#[derive(Clone)]
pub(super) struct Expires(pub(super) HeaderValue);

/// The header `Expires` as it is kept.
pub(super) fn expires(given: &Extensions, date: Option<&Timestamp>) -> Option<String> {
    let odd = given.get::<Option<Expires>>().cloned().flatten();
    let odd = odd.and_then(|Expires(value)| value.to_str().ok().map(str::to_owned));
    odd.or_else(|| self::date(date))
}

/// Metadata of the new object, taken out of an input; `$size`: its bytes, if known; `$extensions`:
/// those of its request.
macro_rules! put_info {
    ($input:expr, $size:expr, $extensions:expr) => {
        lumpscope_objects::PutInfo {
            content_type: $input.content_type.take(),
            metadata: $crate::attributes::metadata($input.metadata.take()),
            attributes: $crate::attributes::of([
                $input.cache_control.take(),
                $input.content_disposition.take(),
                $input.content_encoding.take(),
                $input.content_language.take(),
                $crate::attributes::expires($extensions, $input.expires.as_ref()),
            ]),
            size: $size,
        }
    };
}
pub(super) use put_info;

/// User metadata in an order that is always the same.
pub(super) fn metadata(given: Option<Metadata>) -> Pairs {
    let mut pairs: Pairs = given.unwrap_or_default().into_iter().collect();
    pairs.sort_unstable();
    pairs
}

/// The headers that were given, as pairs to be kept.
pub(super) fn of(values: [Option<String>; 5]) -> Pairs {
    let pairs = NAMES.into_iter().zip(values);
    let pairs = pairs.filter_map(|(name, value)| {
        let value = match name {
            "content-encoding" => without_chunks(&value?),
            _ => value?,
        };
        (!value.is_empty()).then(|| (name.to_owned(), value))
    });
    pairs.collect()
}

/// The headers that were kept.
pub(super) fn back(pairs: &Pairs) -> [Option<String>; 5] {
    NAMES.map(|wanted| {
        let mut all = pairs.iter();
        all.find(|(name, _)| name == wanted)
            .map(|(_, value)| value.clone())
    })
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

/// Milliseconds since 1970 as S3 has them.
pub(super) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms))
}

/// Parses a date of HTTP.
pub(super) fn parsed_date(text: Option<String>) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, &text?).ok()
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

    #[test]
    fn what_is_kept_comes_back_without_the_chunks() {
        let text = |text: &str| Some(text.to_owned());
        let date = text("Wed, 21 Oct 2015 07:28:00 GMT");
        let kept = of([
            None,
            text("x"),
            text("aws-chunked, gzip"),
            None,
            date.clone(),
        ]);
        let all = back(&kept);
        assert_eq!(all, [None, text("x"), text("gzip"), None, date.clone()]);
        let parsed = parsed_date(all[4].clone());
        assert_eq!(super::date(parsed.as_ref()), date);
        assert!(of([None, None, text("aws-chunked"), None, None]).is_empty());
    }
}
