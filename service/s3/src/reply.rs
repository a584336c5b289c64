//! Answers: a status, headers, a document.

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use s3s::dto::Checksum;
use s3s::xml::{Serialize, Serializer};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::checks::{KINDS, TYPE, of_kind};

pub(super) type Answer = Response<Body>;

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// A document as bytes, with or without the declaration that it begins with.
///
/// # Errors
/// `InternalError`.
pub(super) fn document<T: Serialize>(value: &T, declared: bool) -> S3Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(256);
    let mut writer = Serializer::new(&mut bytes);
    let begun = if declared { writer.decl() } else { Ok(()) };
    let written = begun.and_then(|()| value.serialize(&mut writer));
    written.map_err(|error| S3Error::with_source(S3ErrorCode::InternalError, Box::new(error)))?;
    // A parser would read an end of a line (XML 1.0, section 2.11).
    if bytes.contains(&b'\r') {
        let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\r').collect();
        bytes = parts.join(&b"&#13;"[..]);
    }
    Ok(bytes)
}

/// An answer whose body is a document.
///
/// # Errors
/// `InternalError`.
pub(super) fn xml<T: Serialize>(value: &T) -> S3Result<Answer> {
    Ok(of_xml(document(value, true)?))
}

pub(super) fn of_xml(document: Vec<u8>) -> Answer {
    let mut answer = Response::new(Body::from(document));
    let xml = HeaderValue::from_static("application/xml");
    answer.headers_mut().insert(CONTENT_TYPE, xml);
    answer
}

/// Sets a header if there is a value for it.
pub(super) fn set(answer: &mut Answer, name: HeaderName, value: Option<impl AsRef<str>>) {
    let value = value.and_then(|value| HeaderValue::from_str(value.as_ref()).ok());
    if let Some(value) = value {
        answer.headers_mut().insert(name, value);
    }
}

/// Sets the headers of checksums.
pub(super) fn set_sums(answer: &mut Answer, sums: &Checksum) {
    for kind in KINDS {
        set(answer, HeaderName::from_static(kind), of_kind(sums, kind));
    }
    let type_ = sums.checksum_type.as_ref().map(|it| it.as_str());
    set(answer, HeaderName::from_static(TYPE), type_);
}
