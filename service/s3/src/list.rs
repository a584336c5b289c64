//! Listing the keys of a bucket, in both versions of the protocol.

use lumpscope_objects::{ListAfter, ListPage, ListQuery};
use percent_encoding::utf8_percent_encode;
use s3s::dto::{
    CommonPrefix, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, ObjectStorageClass, Owner,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::attributes::timestamp;
use super::endpoint::{Endpoint, etag, given, signed};
use super::xml;
use lumpscope_server::door::Access;

/// Most entries of a page, and how many there are when nothing is said.
pub(super) const MAX_KEYS: i32 = 1000;

/// How keys are written into replies.
#[derive(Clone, Copy)]
pub(super) struct Encoding(bool);

impl Encoding {
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn of(given: Option<&EncodingType>) -> S3Result<Self> {
        match given.map(EncodingType::as_str) {
            None | Some("") => Ok(Self(false)),
            Some(EncodingType::URL) => Ok(Self(true)),
            Some(_) => Err(S3Error::with_message(
                S3ErrorCode::InvalidArgument,
                "encoding-type is url, or it is left out",
            )),
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

/// Entries of a page.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn page_size(given: Option<i32>) -> S3Result<usize> {
    let size = given.unwrap_or(MAX_KEYS).min(MAX_KEYS);
    usize::try_from(size).map_err(|_| {
        let why = "the size of a page cannot be negative";
        S3Error::with_message(S3ErrorCode::InvalidArgument, why)
    })
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
    let wrong = || {
        let why = "the continuation token is not one of this service";
        S3Error::with_message(S3ErrorCode::InvalidArgument, why)
    };
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token);
    let text = String::from_utf8(bytes.map_err(|_| wrong())?).map_err(|_| wrong())?;
    match text.split_at_checked(1) {
        Some(("k", key)) => Ok(ListAfter::Key(key.to_owned())),
        Some(("p", prefix)) => Ok(ListAfter::Prefix(prefix.to_owned())),
        _ => Err(wrong()),
    }
}

/// The marker of version 1 is a key or a common prefix: what ends with the delimiter is one.
pub(super) fn of_marker(marker: String, delimiter: Option<&str>) -> ListAfter {
    match delimiter {
        Some(delimiter) if marker.ends_with(delimiter) => ListAfter::Prefix(marker),
        _ => ListAfter::Key(marker),
    }
}

/// The text of a place behind which a list goes on.
pub(super) fn marker_text(after: ListAfter) -> String {
    match after {
        ListAfter::Key(text) | ListAfter::Prefix(text) => text,
    }
}

/// What of a page and of its question is going to be in a list.
pub(super) fn texts<'a>(page: &'a ListPage, query: &'a ListQuery) -> impl Iterator<Item = &'a str> {
    let keys = page.entries.iter().map(|entry| entry.key.as_str());
    let prefixes = page.prefixes.iter().map(String::as_str);
    let asked = [Some(query.prefix.as_str()), query.delimiter.as_deref()];
    keys.chain(prefixes).chain(asked.into_iter().flatten())
}

/// A list in the requested form.
pub(super) struct Listed {
    pub(super) contents: Vec<Object>,
    pub(super) prefixes: Vec<CommonPrefix>,
}

impl Listed {
    pub(super) fn of(page: ListPage, encoding: Encoding, owner: Option<&Owner>) -> Self {
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
    pub(super) async fn page(
        &self,
        asked: &Asked,
        bucket: &str,
        query: &ListQuery,
    ) -> S3Result<ListPage> {
        asked.check(Access::Read, bucket, &query.prefix)?;
        let inside = self.enter(asked, bucket)?;
        let page = inside.objects.list(bucket, query).await;
        page.map_err(|failure| inside.failed(failure))
    }

    pub(super) async fn list_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys)?;
        // An empty one is told again, and means nothing.
        let (token_given, start) = (input.continuation_token, given(input.start_after));
        let after = match (given(token_given.clone()).as_ref(), &start) {
            (Some(token), _) => Some(of_token(token)?),
            (None, Some(key)) => Some(ListAfter::Key(key.clone())),
            (None, None) => None,
        };
        let query = ListQuery {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: given(input.delimiter),
            after,
            max,
        };
        let page = self.page(&asked, &input.bucket, &query).await?;
        let encoding = encoding.fit(texts(&page, &query).chain(start.as_deref()));
        let next = page.next.as_ref().map(token);
        let owner = input.fetch_owner.unwrap_or(false).then(|| owner(&asked));
        let listed = Listed::of(page, encoding, owner.as_ref());
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encoding.text(query.prefix)),
            max_keys: Some(input.max_keys.unwrap_or(MAX_KEYS).min(MAX_KEYS)),
            key_count: Some(listed.len()),
            continuation_token: token_given,
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            delimiter: query.delimiter.map(|text| encoding.text(text)),
            encoding_type: encoding.name(),
            start_after: start.map(|text| encoding.text(text)),
            request_charged: None,
        }))
    }

    pub(super) async fn list_v1(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys)?;
        let (marker, delimiter) = (given(input.marker), given(input.delimiter));
        let after = marker.clone();
        let query = ListQuery {
            prefix: input.prefix.clone().unwrap_or_default(),
            after: after.map(|marker| of_marker(marker, delimiter.as_deref())),
            delimiter,
            max,
        };
        let page = self.page(&asked, &input.bucket, &query).await?;
        let encoding = encoding.fit(texts(&page, &query).chain(marker.as_deref()));
        let next = page.next.clone().map(marker_text);
        let next_marker = next.map(|text| encoding.text(text));
        let listed = Listed::of(page, encoding, Some(&owner(&asked)));
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(encoding.text(query.prefix)),
            marker: Some(encoding.text(marker.unwrap_or_default())),
            max_keys: Some(input.max_keys.unwrap_or(MAX_KEYS).min(MAX_KEYS)),
            is_truncated: Some(next_marker.is_some()),
            contents: Some(listed.contents),
            common_prefixes: Some(listed.prefixes),
            delimiter: query.delimiter.map(|text| encoding.text(text)),
            next_marker,
            encoding_type: encoding.name(),
            request_charged: None,
        }))
    }
}

/// Objects are of whoever may see them.
pub(super) fn owner(asked: &Asked) -> Owner {
    let name = asked.grants.name().to_owned();
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
        let url = Encoding::of(Some(&EncodingType::from_static(EncodingType::URL))).unwrap();
        assert_eq!(url.text("a b/%+ü\n".to_owned()), "a%20b/%25%2B%C3%BC%0A");
        let plain = Encoding::of(None).unwrap();
        assert_eq!(plain.text("a b".to_owned()), "a b");
    }
}
