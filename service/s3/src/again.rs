//! Requests that are asked again, behind the check of their signature, in words that s3s
//! understands. A route of s3s is asked just there.
//!
//! - Parameters of a read without a value count as absent: s3s reads some of them as numbers and
//!   refuses the empty ones. They are part of what was signed.
//! - Ranges and dates that cannot be read count as absent, and an `ETag` needs no quotes. `Expires`
//!   is kept as it is.
//! - XML is read as a parser of XML reads it ([`xml`](super::xml)), and its checksums are compared,
//!   which s3s does not do.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, EXPIRES};
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body::Body as _;
use lumpscope_server::config::S3Etag;
use percent_encoding::percent_decode_str;
use s3s::dto::{Range, Timestamp, TimestampFormat};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::{Document, Keys, Malformed, Signed};
use super::attributes::Expires;
use super::body::Flow;
use super::checks::Checks;
use super::parameters::pairs;
use super::{MAX_XML, error, xml};

/// Parameters that s3s reads as something else than text.
const READ: [&str; 8] = [
    "fetch-owner",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "response-expires",
];
/// Prefix of the parameters of a presigned URL, which are dropped after the check.
const PRESIGNED: &str = "X-Amz-";

/// Asks again, in other words.
pub(super) struct Again {
    pub(super) s3: S3Service,
    pub(super) keys: Keys,
}

/// True: a request with this method changes nothing.
fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn is_empty(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    value.is_empty() && READ.contains(&name)
}

/// Headers of a read, or a delete, that s3s reads.
const OF_READS: [&str; 5] = [
    "range",
    "if-modified-since",
    "if-unmodified-since",
    "if-match",
    "if-none-match",
];
/// Those of a change that has a body, or a source.
const OF_WRITES: [&str; 5] = [
    "expires",
    "if-match",
    "if-none-match",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-none-match",
];

/// Headers that s3s would refuse, as it should be told: `None`: not at all.
fn odd(method: &Method, headers: &HeaderMap) -> Vec<(HeaderName, Option<HeaderValue>)> {
    let is_date = |text: &str| Timestamp::parse(TimestampFormat::HttpDate, text).is_ok();
    let names = match *method {
        Method::GET | Method::HEAD | Method::DELETE => OF_READS,
        _ => OF_WRITES,
    };
    let mut odd = Vec::new();
    for name in names {
        let Some(value) = headers.get(name) else {
            continue;
        };
        let text = value.to_str().unwrap_or_default();
        let is_tag = name.ends_with("-match");
        let good = match name {
            "range" => Range::parse(text).is_ok(),
            _ if is_tag => text == "*" || text.contains('"'),
            _ => is_date(text),
        };
        let quoted = is_tag.then(|| HeaderValue::from_str(&format!("\"{text}\"")).ok());
        if !good {
            odd.push((HeaderName::from_static(name), quoted.flatten()));
        }
    }
    odd
}

/// The query without the signature and, of a read, without what is empty.
fn rest(method: &Method, query: &str) -> String {
    let goes = |parameter: &str| {
        parameter.starts_with(PRESIGNED) || (is_read(method) && is_empty(parameter))
    };
    let kept = query.split('&').filter(|parameter| !goes(parameter));
    kept.collect::<Vec<_>>().join("&")
}

/// The address with the rest of its query.
fn without(method: &Method, uri: &Uri) -> S3Result<Uri> {
    let rest = rest(method, uri.query().unwrap_or_default());
    let text = format!("{}?{rest}", uri.path());
    let path: Result<PathAndQuery, _> = text.parse();
    let path = path.map_err(|_| S3Error::new(S3ErrorCode::InvalidURI))?;
    Ok(Uri::from(path))
}

/// True: names no key.
fn is_bucket(path: &str) -> bool {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let path = path.strip_prefix('/').unwrap_or(&path);
    path.split_once('/').is_none_or(|(_, key)| key.is_empty())
}

/// True: the body, if there is one, is XML. Of the bodies that are objects none is posted, or put
/// to a bucket, or to the tags of an object.
fn is_xml(method: &Method, uri: &Uri) -> bool {
    let path = uri.path();
    let is_tags = || {
        let mut query = pairs(uri.query().unwrap_or_default()).into_iter();
        query.any(|(name, _)| name == "tagging")
    };
    *method == Method::POST || (*method == Method::PUT && (is_bucket(path) || is_tags()))
}

/// All of a body of XML.
async fn read(body: &mut Body, flow: Option<&Flow>) -> S3Result<Vec<u8>> {
    let mut document = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        let frame = frame.map_err(|failure| match flow.and_then(Flow::fault) {
            Some(fault) => error::fault(fault),
            None => error::broken(&failure),
        })?;
        if let Some(flow) = flow {
            flow.taken();
        }
        document.extend(frame.into_data().unwrap_or_default());
        if document.len() > MAX_XML {
            return Err(error::long_xml());
        }
    }
    Ok(document)
}

impl Again {
    /// The body as s3s understands it; the memory for it goes with the request.
    async fn document(&self, request: &mut S3Request<Body>) -> S3Result<Body> {
        let announced = request.input.size_hint().exact();
        let room = self.keys.room(&request.headers, announced).await?;
        let flow = request.extensions.get::<Arc<Flow>>().cloned();
        let document = read(&mut request.input, flow.as_deref()).await?;
        request.extensions.insert(Arc::new(room));
        // The checksums of an upload that is completed are those of the object.
        if is_bucket(request.uri.path()) || request.method == Method::PUT {
            let mut checks = Checks::of(&request.headers, S3Etag::Crc)?;
            checks.update(&document);
            let trailers = request.trailing_headers.take();
            checks.finish(trailers.and_then(|trailers| trailers.take()).as_ref())?;
        }
        let document = xml::plain(&document).unwrap_or_else(|error| {
            let why = error.message().unwrap_or_default().to_owned();
            request.extensions.insert(Malformed(why));
            Vec::new()
        });
        if request.method == Method::PUT {
            let document = Document(Arc::from(document.as_slice()));
            request.extensions.insert(document);
        }
        let length = HeaderValue::from(document.len());
        request.headers.insert(CONTENT_LENGTH, length);
        Ok(Body::from(document))
    }
}

#[async_trait::async_trait]
impl S3Route for Again {
    fn is_match(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        _: &mut Extensions,
    ) -> bool {
        let query = uri.query().unwrap_or_default();
        (is_read(method) && query.split('&').any(is_empty))
            || !odd(method, headers).is_empty()
            || is_xml(method, uri)
    }

    async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let body = match is_xml(&request.method, &request.uri) {
            true => self.document(&mut request).await?,
            false => std::mem::take(&mut request.input),
        };
        for (name, value) in odd(&request.method, &request.headers) {
            let given = request.headers.remove(&name);
            if name == EXPIRES {
                request.extensions.insert(given.map(Expires));
            }
            request.headers.extend(value.map(|value| (name, value)));
        }
        if let Some(trailers) = request.trailing_headers.take() {
            request.extensions.insert(trailers);
        }
        let signed = request.credentials.map(|known| Signed(known.access_key));
        let mut again = Request::new(body);
        *again.uri_mut() = without(&request.method, &request.uri)?;
        *again.method_mut() = request.method;
        *again.headers_mut() = request.headers;
        again.headers_mut().remove(AUTHORIZATION);
        *again.extensions_mut() = request.extensions;
        if let Some(signed) = signed {
            again.extensions_mut().insert(signed);
        }
        let reply = self.s3.call(again).await;
        let (parts, body) = reply
            .map_err(|_| S3Error::new(S3ErrorCode::InternalError))?
            .into_parts();
        let mut response = S3Response::with_headers(body, parts.headers);
        response.status = Some(parts.status);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_rest_has_nothing_empty_and_all_else(
            query in "((max-keys|partNumber|prefix|X-Amz-Date|%6D|ü| )?(=|&|1|%26)){0,20}",
        ) {
            let left = rest(&Method::GET, &query);
            assert!(!left.split('&').any(is_empty) && rest(&Method::GET, &left) == left);
            let stays = |text: &&str| !is_empty(text) && !text.starts_with(PRESIGNED);
            let kept: Vec<&str> = query.split('&').filter(stays).collect();
            assert_eq!(left, kept.join("&"));
        }
    }

    #[test]
    fn only_what_is_empty_and_what_signs_is_taken_away() {
        for (query, left) in [
            ("list-type=2&max-keys=&prefix=", "list-type=2&prefix="),
            ("max-keys&uploads=", "uploads="),
            (
                "X-Amz-Date=1&max-keys=0&partNumber=&X-Amz-Signature=a%3D",
                "max-keys=0",
            ),
            ("a=max-keys=&%6Dax-keys=", "a=max-keys=&%6Dax-keys="),
        ] {
            assert_eq!(rest(&Method::HEAD, query), left);
        }
        let uri: Uri = "/b/k%20%3F?max-keys=&prefix=%2B".parse().unwrap();
        assert_eq!(
            without(&Method::GET, &uri).unwrap(),
            "/b/k%20%3F?prefix=%2B"
        );
        assert_eq!(rest(&Method::DELETE, "max-keys="), "max-keys=");
        assert!(is_empty("max-keys=") && is_empty("max-parts"));
        assert!(!is_empty("max-keys=1") && !is_empty("") && !is_empty("prefix="));
    }

    #[test]
    fn only_bodies_of_buckets_tags_and_posts_are_xml() {
        let is_xml = |method: &Method, uri: &str| is_xml(method, &uri.parse().unwrap());
        for path in ["/b", "/b/", "/"] {
            assert!(is_xml(&Method::PUT, path) && is_xml(&Method::POST, path));
        }
        assert!(is_xml(&Method::POST, "/b/k") && !is_xml(&Method::GET, "/b"));
        assert!(is_xml(&Method::PUT, "/b/k?tagging") && is_xml(&Method::PUT, "/b/k?%74agging="));
        for path in [
            "/b/k",
            "/b/k/",
            "/b//",
            "/b/%2F",
            "/b/tagging",
            "/b/k?x=tagging",
        ] {
            assert!(!is_xml(&Method::PUT, path), "{path}");
        }
    }
}
