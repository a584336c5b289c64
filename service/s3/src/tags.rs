//! Tags of objects: attributes with names of their own, which change without the object.

use http::StatusCode;
use lumpscope_objects::{ObjectInfo, Pairs, TAG};
use percent_encoding::percent_decode_str;
use s3s::dto::{GetObjectTaggingOutput, Tag, Tagging, TaggingDirective};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::call::{Call, wrong as wrong_argument};
use super::endpoint::{Endpoint, no_version};
use super::reply::{self, Answer};
use super::xml;

/// Most tags of an object; most characters of the key and of the value of one.
pub(super) const MOST: (usize, usize, usize) = (10, 128, 256);

fn wrong(why: impl Into<String>) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidTag, why.into())
}

/// Tags as attributes.
///
/// # Errors
/// `InvalidTag`.
fn attributes(tags: Vec<(String, String)>) -> S3Result<Pairs> {
    let (most, of_key, of_value) = MOST;
    if tags.len() > most {
        return Err(wrong(format!("an object has at most {most} tags")));
    }
    for (at, (key, value)) in tags.iter().enumerate() {
        if key.is_empty() || key.chars().count() > of_key || value.chars().count() > of_value {
            let why = format!("a tag has a key of 1 to {of_key} and a value of 0 to {of_value}");
            return Err(wrong(why + " characters"));
        }
        if !key.chars().chain(value.chars()).all(xml::is_char) {
            return Err(wrong("a tag has characters that XML cannot hold"));
        }
        if tags[..at].iter().any(|(before, _)| before == key) {
            return Err(wrong(format!("the tag {key:?} is given twice")));
        }
    }
    let tags = tags.into_iter();
    Ok(tags
        .map(|(key, value)| (TAG.to_owned() + &key, value))
        .collect())
}

/// The tags that a header names, as attributes.
///
/// # Errors
/// `InvalidArgument`, `InvalidTag`.
pub(super) fn of_header(header: Option<&str>) -> S3Result<Pairs> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8();
        let decoded = decoded.map(std::borrow::Cow::into_owned);
        decoded.map_err(|_| wrong_argument("x-amz-tagging is KEY=VALUE&..., encoded as in a URL"))
    };
    let parts = header.unwrap_or_default().split('&');
    let parts = parts.filter(|part| !part.is_empty());
    let parts = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    let tags = parts.map(|(key, value)| Ok((decode(key)?, decode(value)?)));
    attributes(tags.collect::<S3Result<_>>()?)
}

/// Those of the attributes of an object that are tags.
fn kept(info: &ObjectInfo) -> impl Iterator<Item = &(String, String)> {
    let all = info.attributes.iter();
    all.filter(|(name, _)| name.starts_with(TAG))
}

/// How many there are.
pub(super) fn count(info: &ObjectInfo) -> usize {
    kept(info).count()
}

/// The tags of a copy.
///
/// # Errors
/// `InvalidArgument`, and as [`of_header`].
pub(super) fn of_copy(
    from: &ObjectInfo,
    (directive, header): (Option<&str>, Option<&str>),
) -> S3Result<Pairs> {
    match directive {
        None | Some(TaggingDirective::COPY) => Ok(kept(from).cloned().collect()),
        Some(TaggingDirective::REPLACE) => of_header(header),
        Some(_) => Err(wrong_argument("x-amz-tagging-directive is COPY or REPLACE")),
    }
}

impl Endpoint {
    pub(super) async fn tags(&self, call: &Call) -> S3Result<Answer> {
        no_version(call.parameter("versionId"))?;
        let inside = self.enter(call, &call.bucket)?;
        let ctx = call.scope.context();
        let info = inside.objects.head(ctx, &call.bucket, &call.key).await;
        let info = info.map_err(|failure| inside.failed(failure))?;
        let mut tags: Vec<_> = kept(&info).collect();
        tags.sort_unstable();
        let tags = tags.into_iter().map(|(name, value)| Tag {
            key: name.strip_prefix(TAG).map(str::to_owned),
            value: Some(value.clone()),
        });
        reply::xml(&GetObjectTaggingOutput {
            tag_set: tags.collect(),
            version_id: None,
        })
    }

    pub(super) async fn put_tags(&self, call: &Call) -> S3Result<Answer> {
        let tagging: Tagging = call.need()?;
        let tags = tagging.tag_set.into_iter();
        let tags = tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
        self.retag(call, attributes(tags.collect())?).await?;
        Ok(reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_tags(&self, call: &Call) -> S3Result<Answer> {
        self.retag(call, Pairs::new()).await?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    async fn retag(&self, call: &Call, tags: Pairs) -> S3Result<()> {
        no_version(call.parameter("versionId"))?;
        let inside = self.enter(call, &call.bucket)?;
        let tagged = inside
            .objects
            .retag(call.scope.context(), call.place(), tags);
        tagged.await.map_err(|failure| inside.failed(failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_urls_are() {
        let told = |header: &str| of_header(Some(header)).ok();
        let tags = |all: &[(&str, &str)]| {
            let all = all.iter();
            Some(
                all.map(|(key, value)| (format!("{TAG}{key}"), (*value).to_owned()))
                    .collect::<Pairs>(),
            )
        };
        assert_eq!(told(""), tags(&[]));
        assert_eq!(told("a=1&b&c="), tags(&[("a", "1"), ("b", ""), ("c", "")]));
        assert_eq!(told("a%3D+b=%C3%BC"), tags(&[("a= b", "ü")]));
        let long = |key: usize, value: usize| format!("{}={}", "k".repeat(key), "v".repeat(value));
        assert!(told(&long(128, 256)).is_some());
        for wrong in [
            "=v",
            "a=1&a=2",
            "a=%FF",
            "a=%00",
            &long(129, 0),
            &long(1, 257),
        ] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
        let many = |count: usize| (0..count).map(|at| format!("{at}=x&")).collect::<String>();
        assert!(told(&many(10)).is_some() && told(&many(11)).is_none());
    }
}
