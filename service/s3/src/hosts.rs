//! Whose a host name is: the endpoint's, or that of one of its buckets.
//!
//! A client whose bucket is in the host name (`vdata.s3.example.org`) has only the key in the path.
//! Taken for bucket and key, `PUT /vlogs/2024` would overwrite an object of the bucket vlogs.

use std::net::{IpAddr, Ipv6Addr};

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The name of this machine for itself.
const LOCAL: &str = "localhost";

/// The name or the address before the port; `None`: the host cannot be read.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(inside) => inside.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = port.is_empty() || port.starts_with(':');
    let is_digits = port.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let address = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let good = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.bytes().all(known),
    };
    (good && is_port && is_digits).then_some(name)
}

/// The host name of a request in small letters; `None`: an address, or nothing.
///
/// # Errors
/// `InvalidRequest`: there are several, or it cannot be read.
fn name(headers: &HeaderMap) -> S3Result<Option<String>> {
    let invalid = |why: &str| S3Error::with_message(S3ErrorCode::InvalidRequest, why.to_owned());
    let mut all = headers.get_all(HOST).iter();
    let Some(host) = all.next() else {
        return Ok(None);
    };
    if all.next().is_some() {
        return Err(invalid("the header host is given twice"));
    }
    let name = host.to_str().ok().and_then(without_port);
    let name = name.ok_or_else(|| invalid("the header host is NAME:PORT or ADDRESS:PORT"))?;
    let is_address = name.starts_with('[') || name.parse::<IpAddr>().is_ok();
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    Ok((!is_address).then_some(name))
}

/// Gives a request the one host that it is for: an absolute target wins (RFC 9112, 3.2.2).
///
/// # Errors
/// `InvalidRequest`: it has several, or one that cannot be read.
pub(super) fn settle<B>(request: &mut Request<B>) -> S3Result<()> {
    name(request.headers())?;
    let target = request.uri().authority();
    let target = target.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = target {
        request.headers_mut().insert(HOST, host);
        name(request.headers())?;
    }
    Ok(())
}

/// The bucket in the host name of a request; `None`: the path has it.
///
/// Where `domains` are set, other names than these are refused. Where none are, a name is the
/// endpoint's unless a bucket stands at its beginning: endpoints are reached by a DNS name and path
/// style without any setting.
///
/// # Errors
/// `InvalidRequest`: the name may be that of a bucket, or cannot be read. As `is_bucket`.
pub(super) fn bucket(
    domains: &[String],
    headers: &HeaderMap,
    is_bucket: impl Fn(&str) -> S3Result<bool>,
) -> S3Result<Option<String>> {
    let Some(name) = name(headers)? else {
        return Ok(None);
    };
    // There is no bucket in a name without a dot.
    if name == LOCAL || !name.contains('.') || domains.contains(&name) {
        return Ok(None);
    }
    let buckets = domains.iter();
    let buckets = buckets.filter_map(|domain| name.strip_suffix(domain)?.strip_suffix('.'));
    if let Some(bucket) = buckets.min_by_key(|bucket| bucket.len()) {
        return Ok(Some(bucket.to_owned()));
    }
    let mut is_own = domains.is_empty();
    for (at, _) in name.match_indices('.') {
        is_own = is_own && !is_bucket(&name[..at])?;
    }
    if is_own {
        return Ok(None);
    }
    let why = format!(
        "{name} is not known as a name of this endpoint: use path style, or set s3-domain to the \
         name that follows the bucket"
    );
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(domains: &[&str], host: &str) -> Option<Option<String>> {
        let domains: Vec<String> = domains.iter().map(|it| (*it).to_owned()).collect();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        bucket(&domains, &headers, |name| {
            Ok(matches!(name, "data" | "a.b"))
        })
        .ok()
    }

    #[test]
    fn a_host_name_is_of_the_endpoint_or_of_a_bucket() {
        let (own, refused) = (Some(None), None);
        for host in [
            "10.0.0.1:9000",
            "[::1]:9000",
            "[::1]",
            "LOCALHOST:1",
            "data",
            "data:9000",
        ] {
            assert_eq!(of(&[], host), own, "{host}");
            assert_eq!(of(&["s3.lan"], host), own, "{host}");
        }
        assert_eq!(of(&[], "objects.lan:9000"), own);
        for host in [
            "[vdata].s3.lan",
            "[::1].s3.lan",
            "[::1",
            "[::1]x",
            "[10.0.0.1]",
            "[]",
            "::1",
            "data.s3.lan:80:80",
            "s3.lan:http",
            "a@s3.lan",
            "a/s3.lan",
            "s3%2elan",
            "s3 lan",
        ] {
            for domains in [&[][..], &["s3.lan"]] {
                assert_eq!(of(domains, host), refused, "{host}");
            }
        }
        for host in [
            "data.objects.lan",
            "DATA.localhost",
            "a.b.objects.lan.",
            "data.1",
        ] {
            assert_eq!(of(&[], host), refused, "{host}");
        }
        let domains = ["lan", "s3.lan"];
        let bucket = |name: &str| Some(Some(name.to_owned()));
        for (host, found) in [
            ("s3.lan:80", own.clone()),
            ("data.s3.lan", bucket("data")),
            ("a.b.s3.lan", bucket("a.b")),
            ("other.lan", bucket("other")),
            ("xs3.lan.", bucket("xs3")),
            ("s3.lan.evil.test", refused.clone()),
            ("objects.test", refused),
        ] {
            assert_eq!(of(&domains, host), found, "{host}");
        }
    }
}
