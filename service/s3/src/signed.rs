//! The rules of a signature, before s3s obeys anything: s3s checks that a signature is right, and
//! then obeys headers that it does not cover, which whoever holds a presigned URL could add.

use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::call::parsed_date;
use super::parameters::pairs;
use super::reply::REGION;

/// Seconds that a presigned URL is good for at most: seven days.
pub(super) const LONGEST: u64 = 604_800;
/// Parameters of a presigned URL.
pub(super) const PRESIGNED: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];
/// The time of a signature.
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// Parameters that sign with version 2.
const OLD: [&str; 2] = ["AWSAccessKeyId", "Signature"];

/// What a request says of its signature.
struct Signature<'a> {
    credential: &'a str,
    headers: &'a str,
}

fn refused(code: S3ErrorCode, why: impl Into<String>) -> S3Error {
    S3Error::with_message(code, why.into())
}

/// Refuses what is signed by rules that are not those of version 4, or not signed and obeyed.
/// Parameters that stand for headers, as in presigned URLs, become headers: the URL is signed.
///
/// # Errors
/// `AccessDenied`, `AuthorizationHeaderMalformed`, `AuthorizationQueryParametersError`,
/// `InvalidArgument`, `NotImplemented` for a form of a browser.
pub(super) fn check(request: &mut Request<Body>) -> S3Result<()> {
    let query = pairs(request.uri().query().unwrap_or_default());
    let headers = request.headers();
    refuse_old(headers, &query)?;
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    if types.any(|kind| {
        kind.as_bytes()
            .to_ascii_lowercase()
            .starts_with(b"multipart/")
    }) {
        let why = "a body of several parts is a form of a browser: POST, multipart/form-data";
        return Err(refused(S3ErrorCode::NotImplemented, why));
    }
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let presigned = query.iter().any(|(name, _)| name == "X-Amz-Signature");
    let signature = match (presigned, given.next(), given.next()) {
        // Nobody: refused by its rights.
        (false, None, None) => return Ok(()),
        (false, Some(header), None) => of_header(header)?,
        (true, None, None) => of_query(&query)?,
        _ => {
            let why = "a request is signed once: by its URL, or by one header Authorization";
            return Err(refused(S3ErrorCode::InvalidArgument, why));
        }
    };
    check_headers(headers, signature.headers)?;
    check_scope(signature.credential)?;
    let mut more = headers_of(&query)?;
    if !presigned && !headers.contains_key(AMZ_DATE) {
        more.extend(dated(headers, signature.headers));
    }
    request.headers_mut().extend(more);
    Ok(())
}

fn refuse_old(headers: &HeaderMap, query: &[(String, String)]) -> S3Result<()> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let by_header = given.any(|value| value.as_bytes().starts_with(b"AWS "));
    if !by_header && !query.iter().any(|(name, _)| OLD.contains(&name.as_str())) {
        return Ok(());
    }
    let why = "signatures of version 2 are not accepted: sign with version 4 (AWS4-HMAC-SHA256); \
               in boto3 Config(signature_version='s3v4'), in ~/.aws/config s3 = \
               signature_version=s3v4";
    Err(refused(S3ErrorCode::AccessDenied, why))
}

/// The one value of a parameter.
fn one<'a>(query: &'a [(String, String)], name: &str) -> S3Result<&'a str> {
    let mut values = query.iter().filter(|(found, _)| found == name);
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Ok(value),
        _ => {
            let why = format!("a presigned URL has {name} once");
            Err(refused(S3ErrorCode::AuthorizationQueryParametersError, why))
        }
    }
}

fn of_query(query: &[(String, String)]) -> S3Result<Signature<'_>> {
    let seconds = one(query, "X-Amz-Expires")?;
    if seconds.parse().is_ok_and(|seconds: u64| seconds > LONGEST) {
        let why = format!("X-Amz-Expires is at most {LONGEST} seconds, which are seven days");
        return Err(refused(S3ErrorCode::AuthorizationQueryParametersError, why));
    }
    Ok(Signature {
        credential: one(query, "X-Amz-Credential")?,
        headers: one(query, "X-Amz-SignedHeaders")?,
    })
}

fn of_header(value: &HeaderValue) -> S3Result<Signature<'_>> {
    let parsed = value.to_str().ok().and_then(|text| {
        let rest = text.strip_prefix("AWS4-HMAC-SHA256 ")?;
        let parts: Vec<&str> = rest.split(',').map(str::trim).collect();
        let [credential, headers, signature] = parts[..] else {
            return None;
        };
        signature.strip_prefix("Signature=")?;
        Some(Signature {
            credential: credential.strip_prefix("Credential=")?,
            headers: headers.strip_prefix("SignedHeaders=")?,
        })
    });
    parsed.ok_or_else(|| {
        let why =
            "Authorization is AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...";
        refused(S3ErrorCode::AuthorizationHeaderMalformed, why)
    })
}

/// The time of a signature that covers `Date` instead, for s3s, which does not read that.
fn dated(headers: &HeaderMap, signed: &str) -> Option<(HeaderName, HeaderValue)> {
    let date = headers
        .get(DATE)
        .filter(|_| signed.split(';').any(|name| name == "date"))?;
    let time = parsed_date(date.to_str().ok()?)?;
    let time = time::OffsetDateTime::from(time);
    let text = format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    Some((AMZ_DATE, HeaderValue::from_str(&text).ok()?))
}

/// True: s3s obeys it, or this service does.
fn is_obeyed(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-amz-")
}

fn check_headers(headers: &HeaderMap, signed: &str) -> S3Result<()> {
    let is_signed = |name: &str| signed.split(';').any(|signed| signed == name);
    if !is_signed("host") {
        let why = "the header host must be signed";
        return Err(refused(S3ErrorCode::AccessDenied, why));
    }
    for (name, value) in headers.iter().filter(|(name, _)| is_obeyed(name)) {
        // s3s leaves out of what it checks what is not UTF-8.
        if !is_signed(name.as_str()) || std::str::from_utf8(value.as_bytes()).is_err() {
            let why = format!("the header {name} was not signed");
            return Err(refused(S3ErrorCode::AccessDenied, why));
        }
    }
    Ok(())
}

/// Refuses regions that s3s cannot read: a client that is told the right one uses it.
fn check_scope(credential: &str) -> S3Result<()> {
    let region = credential.rsplit('/').nth(2).unwrap_or_default();
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !region.is_empty() && region.bytes().all(known) {
        return Ok(());
    }
    let why = format!(
        "the authorization header is malformed; the region '{}' is wrong; expecting '{REGION}'",
        region.escape_default()
    );
    Err(refused(S3ErrorCode::AuthorizationHeaderMalformed, why))
}

/// Parameters of a signed URL that stand for headers.
fn headers_of(query: &[(String, String)]) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in query {
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("x-amz-") || PRESIGNED.contains(&name.as_str()) {
            continue;
        }
        let header = lower.parse::<HeaderName>().ok();
        let header = header.zip(HeaderValue::from_str(value).ok());
        let Some((header, value)) = header else {
            let why = format!("the parameter {} is no header", name.escape_default());
            return Err(refused(S3ErrorCode::InvalidArgument, why));
        };
        headers.append(header, value);
    }
    Ok(headers)
}
