//! A request whose signature is right, as its operation reads it.

use std::future::poll_fn;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, Method};
use http_body::Body as _;
use s3s::dto::{ETag as ETagDto, Timestamp};
use s3s::xml::{Deserialize, Deserializer};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, TrailingHeaders};

use super::access::{Keys, denied};
use super::body::Flow;
use super::checks::Checks;
use super::{MAX_XML, error, xml};
use lumpscope_objects::ETag;
use lumpscope_server::config::S3Etag;
use lumpscope_server::door::{Access, Grants};
use lumpscope_server::request::{Reserved, Scope};

/// Bytes of a body that are announced within bounds; `Incoming` compares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within(pub(super) u64, pub(super) u64);

/// What is asked, by whom.
pub(super) struct Call {
    pub(super) scope: Arc<Scope>,
    pub(super) grants: Arc<Grants>,
    pub(super) protocol: &'static str,
    /// Empty where the path names none, and so is the key.
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) headers: HeaderMap,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Body,
    pub(super) trailers: Option<TrailingHeaders>,
    pub(super) flow: Arc<Flow>,
    /// Bounds of the file of a form.
    pub(super) within: Option<Within>,
    /// The body, where it is XML: a document of plain text.
    pub(super) document: Vec<u8>,
    /// Memory of the document.
    pub(super) memory: Option<Reserved>,
}

/// The entity tags that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    /// Those of all objects.
    Any,
    /// Those of a list.
    These(Vec<ETagDto>),
}

impl Tags {
    /// Reads `*` or a list of entity tags, which need no quotes (RFC 9110, 8.8.3 and 13.1.1).
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let skipped = |byte: char| matches!(byte, ' ' | '\t' | ',');
        let (mut tags, mut rest) = (Vec::new(), text.trim_start_matches(skipped));
        while !rest.is_empty() {
            let weak = rest.strip_prefix("W/\"");
            let behind = match weak.or_else(|| rest.strip_prefix('"')) {
                Some(inside) => {
                    let (value, behind) = inside.split_once('"')?;
                    tags.push(match weak {
                        Some(_) => ETagDto::Weak(value.to_owned()),
                        None => ETagDto::Strong(value.to_owned()),
                    });
                    behind.trim_start()
                }
                None => {
                    let (value, behind) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                    let value = value.trim_end();
                    if value.contains(['"', '*', '/', ' ', '\t']) {
                        return None;
                    }
                    tags.push(ETagDto::Strong(value.to_owned()));
                    behind
                }
            };
            if !behind.is_empty() && !behind.starts_with(',') {
                return None;
            }
            rest = behind.trim_start_matches(skipped);
        }
        (!tags.is_empty()).then_some(Self::These(tags))
    }

    /// True: `If-Match` holds for an object with this `ETag`, by the strong comparison.
    pub(super) fn match_strongly(&self, etag: ETag) -> bool {
        self.any(etag, ETagDto::strong_cmp)
    }

    /// True: `If-None-Match` fails for an object with this `ETag`, by the weak comparison.
    pub(super) fn match_weakly(&self, etag: ETag) -> bool {
        self.any(etag, ETagDto::weak_cmp)
    }

    fn any(&self, etag: ETag, equal: impl Fn(&ETagDto, &ETagDto) -> bool) -> bool {
        let etag = ETagDto::Strong(etag.to_string());
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|tag| equal(tag, &etag)),
        }
    }
}

/// The time of a date of HTTP, in any of the three forms that are read (RFC 9110, 5.6.7).
pub(super) fn parsed_date(text: &str) -> Option<Timestamp> {
    Some(httpdate::parse_http_date(text).ok()?.into())
}

pub(super) fn wrong(why: impl Into<String>) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, why.into())
}

impl Call {
    /// Refuses a caller without this right.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(super) fn check(&self, access: Access, bucket: &str, key: &str) -> S3Result<()> {
        match self.grants.allow(access, bucket, key) {
            true => Ok(()),
            false => Err(denied()),
        }
    }

    /// The value of a header; an empty one counts as absent.
    ///
    /// # Errors
    /// `InvalidRequest`: it is given twice; `InvalidArgument`: it is not ASCII.
    pub(super) fn header(&self, name: &str) -> S3Result<Option<&str>> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next();
        if values.next().is_some() {
            let why = format!("the header {name} is given twice");
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        let text = value.map(|value| value.to_str()).transpose();
        let text = text.map_err(|_| wrong(format!("the header {name} is not ASCII")))?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// A header that is a number, or another value with a text form.
    ///
    /// # Errors
    /// As [`Self::header`].
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> S3Result<Option<T>> {
        let parsed = self.header(name)?.map(str::parse).transpose();
        parsed.map_err(|_| wrong(format!("the header {name} cannot be read")))
    }

    /// A header with a date.
    ///
    /// # Errors
    /// As [`Self::header`].
    pub(super) fn date(&self, name: &str) -> S3Result<Option<Timestamp>> {
        let invalid = || wrong(format!("the header {name} is not a date"));
        let parse = |text| parsed_date(text).ok_or_else(invalid);
        self.header(name)?.map(parse).transpose()
    }

    /// A header with entity tags, or `*`.
    ///
    /// # Errors
    /// As [`Self::header`].
    pub(super) fn tags(&self, name: &str) -> S3Result<Option<Tags>> {
        let parse = |text| {
            let invalid = || wrong(format!("the header {name} is a list of ETags, or *"));
            Tags::parse(text).ok_or_else(invalid)
        };
        self.header(name)?.map(parse).transpose()
    }

    /// The value of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let mut all = self.query.iter();
        all.find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that is not empty.
    pub(super) fn given(&self, name: &str) -> Option<String> {
        let value = self.parameter(name).filter(|value| !value.is_empty());
        value.map(str::to_owned)
    }

    /// A parameter that is a number; an empty one counts as absent.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn number(&self, name: &str) -> S3Result<Option<i32>> {
        let value = self.parameter(name).filter(|value| !value.is_empty());
        let number = value.map(str::parse).transpose();
        number.map_err(|_| wrong(format!("the parameter {name} is not a number")))
    }

    /// The id of the upload.
    pub(super) fn upload(&self) -> &str {
        self.parameter("uploadId").unwrap_or_default()
    }

    /// Bucket and key.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.bucket, &self.key)
    }

    /// What the document says; `None`: there is no body.
    ///
    /// # Errors
    /// `MalformedXML`.
    pub(super) fn read<'xml, T: Deserialize<'xml>>(&'xml self) -> S3Result<Option<T>> {
        if self.document.is_empty() {
            return Ok(None);
        }
        let mut reader = Deserializer::new(&self.document);
        let read = T::deserialize(&mut reader);
        let read = read.and_then(|read| reader.expect_eof().map(|()| read));
        let malformed = |error| S3Error::with_source(S3ErrorCode::MalformedXML, Box::new(error));
        read.map(Some).map_err(|failure| {
            let why = format!("the document is not one of {}: {failure}", self.protocol);
            let mut error = malformed(failure);
            error.set_message(why);
            error
        })
    }

    /// As [`Self::read`], of an operation that needs a document.
    ///
    /// # Errors
    /// As there; `MissingRequestBodyError`.
    pub(super) fn need<'xml, T: Deserialize<'xml>>(&'xml self) -> S3Result<T> {
        let missing = || {
            let why = "the operation needs a document";
            S3Error::with_message(S3ErrorCode::MissingRequestBodyError, why)
        };
        self.read()?.ok_or_else(missing)
    }

    /// Reads the body as a parser of XML reads it, and compares its checksums: s3s does neither.
    ///
    /// # Errors
    /// `MalformedXML`, `BadDigest`, `MaxMessageLengthExceeded`, `SlowDown`.
    pub(super) async fn receive_document(&mut self, keys: &Keys, method: &Method) -> S3Result<()> {
        let announced = self.body.size_hint().exact();
        let payer = self.scope.payer();
        self.memory = Some(keys.room(&self.headers, (payer, announced)).await?);
        let document = self.receive().await?;
        // The checksums of an upload that is completed are those of the object.
        if self.key.is_empty() || *method == Method::PUT {
            let mut checks = Checks::of(&self.headers, S3Etag::Auto)?;
            checks.update(&document);
            let trailers = self.trailers.take();
            checks.finish(trailers.and_then(|trailers| trailers.take()).as_ref())?;
        }
        self.document = xml::plain(&document)?;
        Ok(())
    }

    async fn receive(&mut self) -> S3Result<Vec<u8>> {
        let mut document = Vec::new();
        let body = &mut self.body;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            let frame = frame.map_err(|failure| match self.flow.fault() {
                Some(fault) => error::fault(fault),
                None => error::broken(&failure),
            })?;
            self.flow.taken();
            document.extend(frame.into_data().unwrap_or_default());
            if document.len() > MAX_XML {
                return Err(error::long_xml());
            }
        }
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_all_tags_or_a_list_of_them() {
        let strong = |value: &str| ETagDto::Strong(value.to_owned());
        let weak = |value: &str| ETagDto::Weak(value.to_owned());
        for (text, tags) in [
            ("a", vec![strong("a")]),
            ("\"a\"", vec![strong("a")]),
            ("W/\"a\"", vec![weak("a")]),
            (
                "\"a\", W/\"b\",c",
                vec![strong("a"), weak("b"), strong("c")],
            ),
            ("a , \"b,c\" ,, d", ["a", "b,c", "d"].map(strong).to_vec()),
            (", \"\"", vec![strong("")]),
        ] {
            assert_eq!(Tags::parse(text), Some(Tags::These(tags)), "{text}");
        }
        assert_eq!(Tags::parse("*"), Some(Tags::Any));
        for text in [
            "",
            ",",
            "\"",
            "\"a",
            "a\"",
            "\"a\"b",
            "\"a\" \"b\"",
            "a b",
            "*, a",
            "\"a\", *",
            "W/a",
            "w/\"a\"",
        ] {
            assert_eq!(Tags::parse(text), None, "{text}");
        }
    }
}
