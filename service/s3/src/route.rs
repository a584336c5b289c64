//! From a request whose signature s3s has checked to its operation, and from there to the answer.

use std::sync::Arc;

use http::{Extensions, HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;
use s3s::path::check_bucket_name;
use s3s::route::S3Route;
use s3s::validation::NameValidation;
use s3s::{Body, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::{Keys, check_owner, check_rights};
use super::body::Flow;
use super::call::Call;
use super::endpoint::Endpoint;
use super::operations::{self, Level, Operation};
use super::parameters::{self, pairs};
use super::reply::Answer;
use super::{error, unserved};
use lumpscope_server::request::Scope;

/// Marks answers that are not of s3s.
#[derive(Clone)]
pub(super) struct Routed;

/// Operations of s3s: none is asked there.
pub(super) struct Nothing;

impl S3 for Nothing {}

/// Lets every name of a bucket through to the router, which says what is wrong with it.
pub(super) struct AnyName;

impl NameValidation for AnyName {
    fn validate_bucket_name(&self, _: &str) -> bool {
        true
    }
}

/// Runs operations.
#[derive(Clone)]
pub(super) struct Router {
    pub(super) endpoint: Endpoint,
    pub(super) keys: Keys,
}

/// Bucket and key of a request, whose path has both unless the host name has the bucket.
fn place(path: &str, host: Option<&str>) -> S3Result<(String, String)> {
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| S3Error::new(S3ErrorCode::InvalidURI))?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = match host {
        Some(bucket) => (bucket, path),
        None => path.split_once('/').unwrap_or((path, "")),
    };
    let is_named = host.is_some() || !path.is_empty();
    if is_named && !check_bucket_name(bucket) {
        let why = "the name of a bucket has 3 to 63 small letters, digits, dots and hyphens";
        return Err(S3Error::with_message(S3ErrorCode::InvalidBucketName, why));
    }
    Ok((bucket.to_owned(), key.to_owned()))
}

/// The operation that a request names.
fn resolve(
    method: &Method,
    (bucket, key): (&str, &str),
    (query, headers): (&[(String, String)], &HeaderMap),
) -> S3Result<&'static Operation> {
    let level = match (bucket.is_empty(), key.is_empty()) {
        (true, _) => Level::Service,
        (false, true) => Level::Bucket,
        (false, false) => Level::Object,
    };
    let has = |name: &str| match name.starts_with("x-amz-") {
        true => headers.contains_key(name),
        false => query.iter().any(|(found, _)| found == name),
    };
    let found = operations::resolve(method, level, has);
    let operation = found.ok_or_else(|| {
        let names: Vec<&str> = query
            .iter()
            .map(|(name, _)| name.as_str())
            .take(8)
            .collect();
        let why = format!("{method} of a {level:?} with {names:?} is not offered by this service");
        S3Error::with_message(S3ErrorCode::NotImplemented, why)
    })?;
    parameters::check(operation, query)?;
    Ok(operation)
}

impl Router {
    /// The answer to a request.
    pub(super) async fn answer(&self, request: S3Request<Body>) -> Answer {
        let scope = request.extensions.get::<Arc<Scope>>().cloned();
        let Some(scope) = scope else {
            return error::answer(&S3Error::new(S3ErrorCode::InternalError), 0);
        };
        let answer = async {
            let mut call = self.call(request, Arc::clone(&scope)).await?;
            Box::pin(operations::serve(&self.endpoint, &mut call)).await
        };
        let answer = answer.await;
        answer.unwrap_or_else(|refused| error::answer(&refused, scope.id()))
    }

    /// Finds the operation, and whether the caller may ask for it like this.
    async fn call(&self, mut request: S3Request<Body>, scope: Arc<Scope>) -> S3Result<Call> {
        let Some(credentials) = request.credentials else {
            let why = "this service asks for a signature";
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
        };
        let host = self.endpoint.bucket_of_host(&request.headers)?;
        let (bucket, key) = place(request.uri.path(), host.as_deref())?;
        let query = pairs(request.uri.query().unwrap_or_default());
        let named = (query.as_slice(), &request.headers);
        let operation = resolve(&request.method, (&bucket, &key), named)?;
        scope.set_method(operation.name);
        // Withdrawn since the signature was checked.
        let grants = self.keys.reloader.s3().grants(&credentials.access_key);
        let grants = grants.ok_or_else(|| S3Error::new(S3ErrorCode::InvalidAccessKeyId))?;
        check_rights(operation.needs, &grants, (&bucket, &key))?;
        unserved::check(operation, &request.headers)?;
        check_owner(&request.headers, &grants)?;
        scope.set_payer(grants.name(), None);
        let flow = request.extensions.remove::<Arc<Flow>>();
        let mut call = Call {
            scope,
            grants,
            protocol: operation.protocol,
            bucket,
            key,
            headers: request.headers,
            query,
            body: request.input,
            trailers: request.trailing_headers,
            flow: flow.unwrap_or_default(),
            within: request.extensions.remove(),
            document: Vec::new(),
            memory: None,
        };
        if operation.xml {
            call.receive_document(&self.keys, &request.method).await?;
        }
        call.flow.received(call.scope.age());
        Ok(call)
    }
}

#[async_trait::async_trait]
impl S3Route for Router {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let (parts, body) = self.answer(request).await.into_parts();
        let mut response = S3Response::with_headers(body, parts.headers);
        response.status = Some(parts.status);
        response.extensions.insert(Routed);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(method: Method, uri: &str, header: Option<&'static str>) -> Option<&'static str> {
        let uri: Uri = uri.parse().unwrap();
        let (bucket, key) = place(uri.path(), None).unwrap();
        let mut headers = HeaderMap::new();
        headers.extend(header.map(|name| (name.parse().ok(), "x".parse().unwrap())));
        let query = pairs(uri.query().unwrap_or_default());
        let found = resolve(&method, (&bucket, &key), (&query, &headers));
        found.ok().map(|operation| operation.protocol)
    }

    #[test]
    fn a_request_names_one_operation() {
        let source = Some("x-amz-copy-source");
        for (method, uri, header, operation) in [
            (Method::GET, "/", None, Some("ListBuckets")),
            (Method::GET, "/bbb/", None, Some("ListObjects")),
            (Method::GET, "/bbb?list-type=2", None, Some("ListObjectsV2")),
            (Method::GET, "/bbb/?c%6Frs", None, Some("GetBucketCors")),
            (Method::GET, "/bbb?cors&policy", None, None),
            (Method::PUT, "/bbb/k", None, Some("PutObject")),
            (Method::PUT, "/bbb//", None, Some("PutObject")),
            (Method::PUT, "/bbb/k", source, Some("CopyObject")),
            (Method::PUT, "/bbb/k?partNumber=1", None, None),
            (
                Method::PUT,
                "/bbb/k?partNumber=1&uploadId=x",
                None,
                Some("UploadPart"),
            ),
            (
                Method::PUT,
                "/bbb/k?partNumber=1&uploadId=x",
                source,
                Some("UploadPartCopy"),
            ),
            (
                Method::PUT,
                "/bbb/k?tagging",
                None,
                Some("PutObjectTagging"),
            ),
            (
                Method::PUT,
                "/bbb/k?tagging",
                source,
                Some("PutObjectTagging"),
            ),
            (Method::POST, "/bbb/k", None, None),
            (Method::PATCH, "/bbb/k", None, None),
        ] {
            let found = named(method.clone(), uri, header);
            assert_eq!(found, operation, "{method} {uri}");
        }
    }
}
