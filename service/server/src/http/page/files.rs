//! The files of the page, which are part of this program (see `build.rs`).
//!
//! Only what is in the table is served: a path of a request is compared, never opened.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

/// A file of the page.
struct PageFile {
    path: &'static str,
    /// Its content type.
    kind: &'static str,
    plain: &'static [u8],
    /// The file packed; `None`: no smaller.
    gzip: Option<&'static [u8]>,
}

static FILES: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Content policy of the page: run and load only files of this service. No other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// A form in which a file is sent.
struct EncodedFile {
    bytes: &'static [u8],
    /// Of exactly these bytes.
    tag: HeaderValue,
}

/// The routes of all files.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let plain = Arc::new(form(file.plain));
        let gzip = file.gzip.map(|bytes| Arc::new(form(bytes)));
        let serve = async move |request: Request| {
            let headers = request.headers();
            let packed = gzip.as_deref().filter(|_| takes_gzip(headers));
            answer(file.kind, packed, &plain, headers)
        };
        router.route(file.path, get(serve))
    })
}

fn form(bytes: &'static [u8]) -> EncodedFile {
    let digest = Sha256::digest(bytes);
    let hex: String = digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let tag = HeaderValue::try_from(format!("\"{hex}\""));
    EncodedFile {
        bytes,
        tag: tag.expect("digits can stand in a header"),
    }
}

fn answer(
    kind: &'static str,
    packed: Option<&EncodedFile>,
    plain: &EncodedFile,
    asked: &HeaderMap,
) -> Response {
    let form = packed.unwrap_or(plain);
    let value = HeaderValue::from_static;
    let always: [(HeaderName, HeaderValue); 6] = [
        (ETAG, form.tag.clone()),
        // Kept, but asked for each time: after an update the page is the new one.
        (CACHE_CONTROL, value("no-cache")),
        (VARY, value("accept-encoding")),
        (CONTENT_SECURITY_POLICY, value(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (REFERRER_POLICY, value("no-referrer")),
    ];
    if has(asked, &form.tag) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    let mut response = (always, form.bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, value(kind));
    if packed.is_some() {
        headers.insert(CONTENT_ENCODING, value("gzip"));
    }
    response
}

/// True: who asks has these very bytes.
fn has(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let weak = |word: &str| word.strip_prefix("W/").unwrap_or(word) == tag;
    words(asked, &IF_NONE_MATCH).any(|word| word == "*" || weak(word))
}

/// True: packed bytes are welcome (RFC 9110, 12.5.3).
fn takes_gzip(asked: &HeaderMap) -> bool {
    let (mut named, mut any) = (None, None);
    for word in words(asked, &ACCEPT_ENCODING) {
        let (coding, weight) = word.split_once(';').unwrap_or((word, ""));
        let weight = weight
            .trim()
            .strip_prefix("q=")
            .map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0));
        match coding.trim() {
            coding if coding.eq_ignore_ascii_case("gzip") => named = Some(weight > 0.0),
            "*" => any = Some(weight > 0.0),
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

/// The words of a header that is a list.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_go_only_to_who_takes_them() {
        for (asked, takes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("deflate, *;q=0.1", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, *", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, asked.parse().unwrap());
            assert_eq!(takes_gzip(&headers), takes, "{asked}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn the_page_is_in_the_program_and_its_files_have_a_type() {
        assert!(FILES.iter().any(|file| file.path == "/"));
        for file in FILES {
            assert!(file.path == "/" || file.path.starts_with("/page/"));
            assert!(file.kind.contains('/'), "{}", file.path);
        }
    }
}
