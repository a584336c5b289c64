//! Parameters without a value count as absent. s3s reads some of them as numbers and refuses the
//! empty ones; they are part of what was signed, so they can be taken away only behind the check of
//! the signature. A route of s3s is asked just there.

use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, Method, Request, Uri};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

/// Parameters that s3s reads as something else than text.
const READ: [&str; 7] = [
    "fetch-owner",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "response-expires",
];
/// Prefix of the parameters of a presigned URL, which are dropped after the check.
const PRESIGNED: &str = "X-Amz-";

/// The access key whose signature was checked already.
#[derive(Clone)]
pub(super) struct Signed(pub(super) String);

/// Asks again without the empty parameters.
pub(super) struct WithoutEmpty(pub(super) S3Service);

fn is_empty(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    value.is_empty() && READ.contains(&name)
}

/// The query without what is empty, and without the signature.
fn rest(query: &str) -> String {
    let kept = query
        .split('&')
        .filter(|parameter| !is_empty(parameter) && !parameter.starts_with(PRESIGNED));
    kept.collect::<Vec<_>>().join("&")
}

/// The address with the rest of its query.
fn without(uri: &Uri) -> S3Result<Uri> {
    let text = format!("{}?{}", uri.path(), rest(uri.query().unwrap_or_default()));
    let path: Result<PathAndQuery, _> = text.parse();
    let path = path.map_err(|_| S3Error::new(S3ErrorCode::InvalidURI))?;
    Ok(Uri::from(path))
}

#[async_trait::async_trait]
impl S3Route for WithoutEmpty {
    /// Reads have no body that could be lost on the way.
    fn is_match(&self, method: &Method, uri: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        let reads = method == Method::GET || method == Method::HEAD;
        reads && uri.query().unwrap_or_default().split('&').any(is_empty)
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let signed = request.credentials.map(|known| Signed(known.access_key));
        let mut again = Request::new(Body::empty());
        *again.method_mut() = request.method;
        *again.uri_mut() = without(&request.uri)?;
        *again.headers_mut() = request.headers;
        again.headers_mut().remove(AUTHORIZATION);
        *again.extensions_mut() = request.extensions;
        if let Some(signed) = signed {
            again.extensions_mut().insert(signed);
        }
        let reply = self.0.call(again).await;
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
            let left = rest(&query);
            assert!(!left.split('&').any(is_empty) && rest(&left) == left);
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
            assert_eq!(rest(query), left);
        }
        let uri: Uri = "/b/k%20%3F?max-keys=&prefix=%2B".parse().unwrap();
        assert_eq!(without(&uri).unwrap(), "/b/k%20%3F?prefix=%2B");
        assert!(is_empty("max-keys=") && is_empty("max-parts"));
        assert!(!is_empty("max-keys=1") && !is_empty("") && !is_empty("prefix="));
    }
}
