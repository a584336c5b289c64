//! Listing the keys of a bucket, in both versions of the protocol.

use lumpscope_objects::{ListAfter, ListPage, ListQuery};
use percent_encoding::utf8_percent_encode;
use s3s::S3Result;
use s3s::dto::{
    CommonPrefix, EncodingType, ListObjectVersionsOutput, ListObjectsOutput, ListObjectsV2Output,
    Object, ObjectStorageClass, ObjectVersion, ObjectVersionStorageClass, Owner,
};

use super::attributes::timestamp;
use super::call::{Call, wrong};
use super::endpoint::{Endpoint, etag, signed};
use super::reply::{self, Answer};
use super::xml;
use lumpscope_server::door::Access;

/// The version of what has none.
const NULL: &str = "null";
/// Most entries of a page, and how many there are when nothing is said.
pub(super) const MAX_KEYS: i32 = 1000;

/// How keys are written into replies.
#[derive(Clone, Copy)]
pub(super) struct Encoding(bool);

impl Encoding {
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn of(call: &Call) -> S3Result<Self> {
        match call.parameter("encoding-type") {
            None | Some("") => Ok(Self(false)),
            Some(EncodingType::URL) => Ok(Self(true)),
            Some(_) => Err(wrong("encoding-type is url, or it is left out")),
        }
    }

    /// This, or one that can hold these texts: XML cannot have every character.
    pub(super) fn fit<'a>(self, mut texts: impl Iterator<Item = &'a str>) -> Self {
        let cannot = |char: char| char == '\r' || !xml::is_char(char);
        Self(self.0 || texts.any(|text| text.contains(cannot)))
    }

    pub(super) fn text(self, text: String) -> String {
        match self.0 {
            true => utf8_percent_encode(&text, xml::PLAIN).to_string(),
            false => text,
        }
    }

    pub(super) fn name(self) -> Option<EncodingType> {
        self.0.then(|| EncodingType::from_static(EncodingType::URL))
    }
}

/// A key in a reply that has no encoding: as it is, or encoded where XML cannot hold it.
pub(super) fn readable(key: String) -> String {
    Encoding(false).fit(std::iter::once(key.as_str())).text(key)
}

/// Entries of a page, of those that are asked for.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn page_size(asked: Option<i32>) -> S3Result<usize> {
    let size = usize::try_from(asked.unwrap_or(MAX_KEYS).min(MAX_KEYS));
    size.map_err(|_| wrong("the size of a page cannot be negative"))
}

/// The size of a page as it is told.
pub(super) fn told(size: usize) -> Option<i32> {
    i32::try_from(size).ok()
}

/// Where the next page begins, as text that means nothing to the client.
pub(super) fn token(after: &ListAfter) -> String {
    let text = match after {
        ListAfter::Key(key) => format!("k{key}"),
        ListAfter::Prefix(prefix) => format!("p{prefix}"),
    };
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(text.as_bytes())
}

pub(super) fn of_token(token: &str) -> S3Result<ListAfter> {
    let other = || wrong("the continuation token is not one of this service");
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token);
    let text = String::from_utf8(bytes.map_err(|_| other())?).map_err(|_| other())?;
    match text.split_at_checked(1) {
        Some(("k", key)) => Ok(ListAfter::Key(key.to_owned())),
        Some(("p", prefix)) => Ok(ListAfter::Prefix(prefix.to_owned())),
        _ => Err(other()),
    }
}

/// The marker of version 1 is a key or a common prefix: what ends with the delimiter is one.
fn of_marker(marker: String, delimiter: Option<&str>) -> ListAfter {
    match delimiter {
        Some(delimiter) if marker.ends_with(delimiter) => ListAfter::Prefix(marker),
        _ => ListAfter::Key(marker),
    }
}

/// What of a page and of its question is going to be in a list.
fn texts<'a>(page: &'a ListPage, query: &'a ListQuery) -> impl Iterator<Item = &'a str> {
    let keys = page.entries.iter().map(|entry| entry.key.as_str());
    let prefixes = page.prefixes.iter().map(String::as_str);
    let asked = [Some(query.prefix.as_str()), query.delimiter.as_deref()];
    keys.chain(prefixes).chain(asked.into_iter().flatten())
}

/// A list in the requested form.
struct ListContents {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
}

impl ListContents {
    fn of(page: ListPage, encoding: Encoding, owner: Option<&Owner>) -> Self {
        let contents = page.entries.into_iter().map(|entry| Object {
            e_tag: entry.etag.map(etag),
            key: Some(encoding.text(entry.key)),
            last_modified: Some(timestamp(entry.modified_ms)),
            owner: owner.cloned(),
            size: Some(signed(entry.size)),
            storage_class: Some(ObjectStorageClass::from_static(
                ObjectStorageClass::STANDARD,
            )),
            ..Object::default()
        });
        let prefixes = page.prefixes.into_iter().map(|prefix| CommonPrefix {
            prefix: Some(encoding.text(prefix)),
        });
        Self {
            contents: contents.collect(),
            prefixes: prefixes.collect(),
        }
    }

    fn len(&self) -> i32 {
        i32::try_from(self.contents.len() + self.prefixes.len()).unwrap_or(i32::MAX)
    }
}

impl Endpoint {
    async fn page(&self, call: &Call, query: &ListQuery) -> S3Result<ListPage> {
        call.check(Access::Read, &call.bucket, &query.prefix)?;
        let inside = self.enter(call, &call.bucket)?;
        let page = inside.objects.list(&call.bucket, query).await;
        page.map_err(|failure| inside.failed(failure))
    }

    pub(super) async fn list_v2(&self, call: &Call) -> S3Result<Answer> {
        if call.parameter("list-type") != Some("2") {
            return Err(wrong("list-type is 2, or it is left out"));
        }
        let encoding = Encoding::of(call)?;
        let start = call.given("start-after");
        let after = match (call.given("continuation-token"), &start) {
            (Some(token), _) => Some(of_token(&token)?),
            (None, Some(key)) => Some(ListAfter::Key(key.clone())),
            (None, None) => None,
        };
        let query = ListQuery {
            prefix: call.given("prefix").unwrap_or_default(),
            delimiter: call.given("delimiter"),
            after,
            max: page_size(call.number("max-keys")?)?,
        };
        let page = self.page(call, &query).await?;
        let encoding = encoding.fit(texts(&page, &query).chain(start.as_deref()));
        let next = page.next.as_ref().map(token);
        let with_owner = call.parameter("fetch-owner") == Some("true");
        let owner = with_owner.then(|| owner(call));
        let listed = ListContents::of(page, encoding, owner.as_ref());
        reply::xml(&ListObjectsV2Output {
            name: Some(call.bucket.clone()),
            prefix: Some(encoding.text(query.prefix)),
            max_keys: told(query.max),
            key_count: Some(listed.len()),
            // An empty one is told again, and means nothing.
            continuation_token: call.parameter("continuation-token").map(str::to_owned),
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            delimiter: query.delimiter.map(|text| encoding.text(text)),
            encoding_type: encoding.name(),
            start_after: start.map(|text| encoding.text(text)),
            request_charged: None,
        })
    }

    /// A list by markers: of version 1, and of versions.
    async fn marked(&self, call: &Call, marker: &str) -> S3Result<Marked> {
        let encoding = Encoding::of(call)?;
        let (marker, delimiter) = (call.given(marker), call.given("delimiter"));
        let after = marker.clone();
        let query = ListQuery {
            prefix: call.given("prefix").unwrap_or_default(),
            after: after.map(|marker| of_marker(marker, delimiter.as_deref())),
            delimiter,
            max: page_size(call.number("max-keys")?)?,
        };
        let page = self.page(call, &query).await?;
        let encoding = encoding.fit(texts(&page, &query).chain(marker.as_deref()));
        let next = page.next.clone().map(|after| match after {
            ListAfter::Key(text) | ListAfter::Prefix(text) => encoding.text(text),
        });
        Ok(Marked {
            listed: ListContents::of(page, encoding, Some(&owner(call))),
            prefix: encoding.text(query.prefix),
            delimiter: query.delimiter.map(|text| encoding.text(text)),
            marker: encoding.text(marker.unwrap_or_default()),
            max: told(query.max),
            encoding: encoding.name(),
            next,
        })
    }

    pub(super) async fn list_v1(&self, call: &Call) -> S3Result<Answer> {
        let page = self.marked(call, "marker").await?;
        reply::xml(&ListObjectsOutput {
            name: Some(call.bucket.clone()),
            prefix: Some(page.prefix),
            marker: Some(page.marker),
            max_keys: page.max,
            is_truncated: Some(page.next.is_some()),
            contents: Some(page.listed.contents),
            common_prefixes: Some(page.listed.prefixes),
            delimiter: page.delimiter,
            next_marker: page.next,
            encoding_type: page.encoding,
            request_charged: None,
        })
    }

    /// Each key has one version, which is the latest.
    pub(super) async fn versions(&self, call: &Call) -> S3Result<Answer> {
        let page = self.marked(call, "key-marker").await?;
        let standard = ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD);
        let versions = page
            .listed
            .contents
            .into_iter()
            .map(|object| ObjectVersion {
                e_tag: object.e_tag,
                is_latest: Some(true),
                key: object.key,
                last_modified: object.last_modified,
                owner: object.owner,
                size: object.size,
                storage_class: Some(standard.clone()),
                version_id: Some(NULL.to_owned()),
                ..ObjectVersion::default()
            });
        let version = call.given("version-id-marker");
        reply::xml(&ListObjectVersionsOutput {
            name: Some(call.bucket.clone()),
            prefix: Some(page.prefix),
            delimiter: page.delimiter,
            encoding_type: page.encoding,
            key_marker: Some(page.marker),
            version_id_marker: Some(readable(version.unwrap_or_default())),
            max_keys: page.max,
            is_truncated: Some(page.next.is_some()),
            next_version_id_marker: page.next.is_some().then(|| NULL.to_owned()),
            next_key_marker: page.next,
            versions: Some(versions.collect()),
            common_prefixes: Some(page.listed.prefixes),
            ..ListObjectVersionsOutput::default()
        })
    }
}

/// A page of a list by markers, its texts as they are told.
struct Marked {
    listed: ListContents,
    prefix: String,
    delimiter: Option<String>,
    marker: String,
    max: Option<i32>,
    encoding: Option<EncodingType>,
    next: Option<String>,
}

/// Objects are of whoever may see them.
pub(super) fn owner(call: &Call) -> Owner {
    let name = call.grants.name().to_owned();
    Owner {
        display_name: Some(name.clone()),
        id: Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_others_are_refused() {
        for after in [
            ListAfter::Key("a/\u{7}\"ü".to_owned()),
            ListAfter::Prefix("a/".to_owned()),
        ] {
            assert_eq!(of_token(&token(&after)).ok(), Some(after));
        }
        for other in ["", "eA", "%", "a/b"] {
            assert!(of_token(other).is_err(), "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_key_passes_through_a_token(key in ".{0,300}", prefix: bool) {
            let after = match prefix {
                true => ListAfter::Prefix(key),
                false => ListAfter::Key(key),
            };
            assert_eq!(of_token(&token(&after)).ok(), Some(after));
        }

        #[test]
        fn any_text_is_a_token_or_refused(text in ".{0,40}") {
            if let Ok(after) = of_token(&text) {
                assert_eq!(of_token(&token(&after)).ok(), Some(after));
            }
        }
    }

    #[test]
    fn a_marker_is_a_key_or_a_common_prefix() {
        let prefix = ListAfter::Prefix("a/".to_owned());
        assert_eq!(of_marker("a/".to_owned(), Some("/")), prefix);
        let key = ListAfter::Key("a/".to_owned());
        assert_eq!(of_marker("a/".to_owned(), None), key);
    }

    #[test]
    fn keys_are_encoded_when_asked() {
        let url = Encoding(true);
        assert_eq!(url.text("a b/%+ü\n".to_owned()), "a%20b/%25%2B%C3%BC%0A");
        let plain = Encoding(false);
        assert_eq!(plain.text("a b".to_owned()), "a b");
    }
}
