//! Readers of bytes from strangers, for the fuzz targets: no part of what this crate promises.

use std::collections::BTreeMap;

use http::Request;
use s3s::Body;

use super::{form, signed, xml};

/// The request as it is obeyed once the rules of its signature are met; `None`: it is refused.
#[must_use]
pub fn signed(request: Request<()>) -> Option<Request<()>> {
    let mut request = request.map(|()| Body::empty());
    signed::check(&mut request).ok()?;
    Some(request.map(drop))
}

/// A document of plain text that means the same; `None`: it is refused.
#[must_use]
pub fn plain(document: &[u8]) -> Option<Vec<u8>> {
    xml::plain(document).ok()
}

/// The names of a document's elements, and how many there are of each; `None`: it is refused.
#[must_use]
pub fn elements(document: &[u8]) -> Option<BTreeMap<String, usize>> {
    xml::elements(document).ok()
}

/// A form up to its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Names and values before the file.
    pub fields: Vec<(String, String)>,
    /// The name of the file.
    pub file: String,
    /// The place of the file's first byte.
    pub begins: usize,
}

/// Outcome of reading a form: `Some(None)` as long as its file has not begun; `None`: it is refused.
#[must_use]
pub fn form(bytes: &[u8], boundary: &str) -> Option<Option<Form>> {
    let found = form::fields(bytes, boundary).ok()?;
    Some(found.map(|found| Form {
        fields: found.fields,
        file: found.file,
        begins: found.begins,
    }))
}
