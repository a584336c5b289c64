//! Which pages of the web may ask: the rules of a bucket, the question that a browser asks before,
//! and the headers by which it learns the answer.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::dto::{CORSConfiguration, CORSRule};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Methods that a rule may allow.
const METHODS: [&str; 5] = ["DELETE", "GET", "HEAD", "POST", "PUT"];
/// Most rules of a bucket.
pub(super) const MOST: usize = 100;
/// The headers of a request that decide whether an answer has these.
const VARIES: &str = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";
const ANY: &str = "*";

/// Refuses rules that could never be met, or not as they are meant.
///
/// # Errors
/// `InvalidRequest`, `MalformedXML`.
pub(super) fn check(configuration: &CORSConfiguration) -> S3Result<()> {
    let rules = &configuration.cors_rules;
    if !(1..=MOST).contains(&rules.len()) {
        let why = format!("a bucket has 1 to {MOST} rules");
        return Err(S3Error::with_message(S3ErrorCode::MalformedXML, why));
    }
    for rule in rules {
        let wrong = |why: String| Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
            return wrong("a rule has an AllowedMethod and an AllowedOrigin".to_owned());
        }
        let mut methods = rule.allowed_methods.iter();
        if let Some(other) = methods.find(|method| !METHODS.contains(&method.as_str())) {
            return wrong(format!(
                "AllowedMethod is one of {METHODS:?}, not {other:?}"
            ));
        }
        let headers = rule.allowed_headers.iter().flatten();
        let mut patterns = rule.allowed_origins.iter().chain(headers);
        if let Some(other) = patterns.find(|pattern| pattern.matches(ANY).count() > 1) {
            return wrong(format!("{other:?} has more than one *"));
        }
        let told = rule.expose_headers.iter().flatten();
        let mut told = told.chain(&rule.allowed_origins);
        if let Some(other) = told.find(|text| HeaderValue::from_str(text).is_err()) {
            return wrong(format!("{other:?} is not what a header can have"));
        }
    }
    Ok(())
}

/// True: a text is meant by a pattern of which one `*` stands for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once(ANY) {
        None => pattern == text,
        Some((begin, end)) => {
            let inside = text.strip_prefix(begin);
            inside.is_some_and(|rest| rest.ends_with(end))
        }
    }
}

/// The headers that a browser asks for, in small letters.
fn asked(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let names = names.map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty()).collect()
}

/// The first rule for a page and a method, and its origin as the rule has it.
fn found<'rules>(
    configuration: &'rules CORSConfiguration,
    (origin, method): (&str, &str),
    asked: &[String],
) -> Option<(&'rules CORSRule, &'rules str)> {
    configuration.cors_rules.iter().find_map(|rule| {
        let mut origins = rule.allowed_origins.iter();
        let pattern = origins.find(|pattern| is_like(pattern, origin))?;
        let allows = |name: &String| {
            let mut headers = rule.allowed_headers.iter().flatten();
            headers.any(|pattern| is_like(&pattern.to_ascii_lowercase(), name))
        };
        let meets = rule.allowed_methods.iter().any(|it| it == method) && asked.iter().all(allows);
        meets.then_some((rule, pattern.as_str()))
    })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The headers by which a page may know of the answer to its request.
pub(super) fn answer(
    configuration: &CORSConfiguration,
    (method, headers): (&str, &HeaderMap),
    asked: &[String],
) -> Option<HeaderMap> {
    let origin = text(headers, ORIGIN)?;
    let (rule, pattern) = found(configuration, (origin, method), asked)?;
    let mut told = HeaderMap::new();
    let mut tell = |name: HeaderName, value: &str| {
        told.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
    };
    if pattern == ANY {
        tell(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    } else {
        tell(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        tell(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    tell(
        ACCESS_CONTROL_ALLOW_METHODS,
        &rule.allowed_methods.join(", "),
    );
    if !asked.is_empty() {
        tell(ACCESS_CONTROL_ALLOW_HEADERS, &asked.join(", "));
    }
    let exposed = rule.expose_headers.as_deref().unwrap_or_default();
    if !exposed.is_empty() {
        tell(ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
    }
    if let Some(seconds) = rule.max_age_seconds {
        tell(ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
    }
    Some(told)
}

/// Headers of an answer to a page; nothing of it is told that no rule allows.
pub(super) fn headers(
    configuration: &CORSConfiguration,
    method: &str,
    headers: &HeaderMap,
) -> HeaderMap {
    let mut told = answer(configuration, (method, headers), &[]).unwrap_or_default();
    told.insert(VARY, HeaderValue::from_static(VARIES));
    told
}

/// The answer to what a browser asks before a page may ask.
///
/// # Errors
/// `AccessForbidden`, which does not tell whether there is such a bucket; `BadRequest`.
pub(super) fn preflight(
    configuration: Option<&CORSConfiguration>,
    headers: &HeaderMap,
) -> S3Result<HeaderMap> {
    let method = text(headers, ACCESS_CONTROL_REQUEST_METHOD);
    let Some(method) = method.filter(|_| headers.contains_key(ORIGIN)) else {
        let why = "OPTIONS has the headers Origin and Access-Control-Request-Method";
        return Err(refused("BadRequest", StatusCode::BAD_REQUEST, why));
    };
    let told = configuration
        .and_then(|configuration| answer(configuration, (method, headers), &asked(headers)));
    let why = "no rule of the bucket (PutBucketCors) allows this origin, method and these headers";
    let forbidden = || refused("AccessForbidden", StatusCode::FORBIDDEN, why);
    let mut told = told.ok_or_else(forbidden)?;
    told.insert(VARY, HeaderValue::from_static(VARIES));
    Ok(told)
}

fn refused(code: &'static str, status: StatusCode, why: &str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), why.to_owned());
    error.set_status_code(status);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_star_stands_for_any_characters() {
        for (pattern, text, is) in [
            ("*", "", true),
            ("*", "https://a", true),
            ("https://*.a", "https://b.a", true),
            ("https://*.a", "https://.a", true),
            ("https://*.a", "http://b.a", false),
            ("https://a", "https://a", true),
            ("https://a", "https://A", false),
            ("https://a", "https://a:80", false),
            // The beginning and the end do not overlap.
            ("ab*ba", "aba", false),
            ("ab*ba", "abba", true),
        ] {
            assert_eq!(is_like(pattern, text), is, "{pattern} {text}");
        }
    }
}
