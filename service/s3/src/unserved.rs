//! Options of requests that are not offered. Ignoring them silently would be worse than refusing:
//! an object would not be encrypted, not locked, or written over the one that bytes were to be
//! appended to.

use http::{HeaderMap, HeaderValue};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Headers that are refused, unless they have one of these values, or none.
pub(super) const UNSERVED: [(&str, &[&str]); 18] = [
    (
        "x-amz-acl",
        &["private", "bucket-owner-read", "bucket-owner-full-control"],
    ),
    ("x-amz-bucket-object-lock-enabled", &["false"]),
    (
        "x-amz-copy-source-server-side-encryption-customer-algorithm",
        &[],
    ),
    ("x-amz-grant-full-control", &[]),
    ("x-amz-grant-read", &[]),
    ("x-amz-grant-read-acp", &[]),
    ("x-amz-grant-write", &[]),
    ("x-amz-grant-write-acp", &[]),
    ("x-amz-if-match-last-modified-time", &[]),
    ("x-amz-if-match-size", &[]),
    ("x-amz-object-lock-legal-hold", &["OFF"]),
    ("x-amz-object-lock-mode", &[]),
    ("x-amz-object-lock-retain-until-date", &[]),
    ("x-amz-server-side-encryption", &[]),
    ("x-amz-server-side-encryption-customer-algorithm", &[]),
    ("x-amz-tagging", &[]),
    ("x-amz-website-redirect-location", &[]),
    ("x-amz-write-offset-bytes", &[]),
];

/// Refuses what is not there.
///
/// # Errors
/// `NotImplemented`, with the name of the header.
pub(super) fn check(headers: &HeaderMap) -> S3Result<()> {
    let refused = |name: &str, good: &[&str]| {
        let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        values.any(|value| !value.is_empty() && good.iter().all(|good| good.as_bytes() != value))
    };
    let found = UNSERVED
        .into_iter()
        .find(|(name, good)| refused(name, good));
    match found {
        None => Ok(()),
        Some((name, _)) => Err(S3Error::with_message(
            S3ErrorCode::NotImplemented,
            format!("{name} asks for what this service does not do"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::tests::documented;
    use super::*;

    #[test]
    fn the_page_names_them_all() {
        let told = documented("refused headers");
        assert_eq!(told.len(), UNSERVED.len());
        for (told, (name, good)) in told.iter().zip(UNSERVED) {
            assert_eq!(told[..2], [name, good.join(", ").as_str()]);
        }
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            check(&headers)
        };
        for (name, good) in UNSERVED {
            assert_eq!(name, name.to_ascii_lowercase());
            let refused = of(name, "x").unwrap_err();
            assert!(refused.message().unwrap().contains(name), "{refused}");
            for value in good.iter().chain(&[""]) {
                assert!(of(name, value).is_ok(), "{name}: {value}");
            }
        }
        assert!(check(&HeaderMap::new()).is_ok());
    }
}
