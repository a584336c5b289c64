//! Options of requests that are not offered. Ignoring them silently would be worse than refusing:
//! an object would not be encrypted, not locked, or written over the one that bytes were to be
//! appended to. A condition that is ignored, or empty, lets a change through.

use http::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::call::wrong;
use super::checks::{CHECKSUM, KINDS, TRAILER};
use super::operations::Operation;

/// Headers that are refused, unless they have one of these values, or none; `...`: all that begin
/// so, whatever their value.
pub(super) const UNSERVED: [(&str, &[&str]); 14] = [
    (
        "x-amz-acl",
        &["private", "bucket-owner-read", "bucket-owner-full-control"],
    ),
    ("x-amz-bucket-object-lock-enabled", &["false"]),
    ("x-amz-copy-source-server-side-encryption...", &[]),
    ("x-amz-grant-full-control", &[]),
    ("x-amz-grant-read", &[]),
    ("x-amz-grant-read-acp", &[]),
    ("x-amz-grant-write", &[]),
    ("x-amz-grant-write-acp", &[]),
    ("x-amz-object-lock-legal-hold", &["OFF"]),
    ("x-amz-object-lock-mode", &[]),
    ("x-amz-object-lock-retain-until-date", &[]),
    ("x-amz-server-side-encryption...", &[]),
    ("x-amz-website-redirect-location", &[]),
    ("x-amz-write-offset-bytes", &[]),
];

/// Operations that decide the `ETag` of the object that they replace; of an upload, when it is
/// completed.
const REPLACING: [&str; 5] = [
    "PutObject",
    "CopyObject",
    "CompleteMultipartUpload",
    "CreateMultipartUpload",
    "UploadPart",
];
const COPYING: &[&str] = &["CopyObject", "UploadPartCopy"];
const DELETING: &[&str] = &["DeleteObject"];

/// Conditions, and the operations that decide them; others refuse them. Those of HTTP are for reads
/// to decide, too, or mean nothing there.
const CONDITIONS: [(&str, &[&[&str]]); 11] = [
    ("if-match", &[&REPLACING, DELETING]),
    ("if-modified-since", &[]),
    ("if-none-match", &[&REPLACING]),
    ("if-unmodified-since", &[]),
    ("x-amz-copy-source-if-match", &[COPYING]),
    ("x-amz-copy-source-if-modified-since", &[COPYING]),
    ("x-amz-copy-source-if-none-match", &[COPYING]),
    ("x-amz-copy-source-if-unmodified-since", &[COPYING]),
    ("x-amz-if-match-initiated-time", &[]),
    ("x-amz-if-match-last-modified-time", &[DELETING]),
    ("x-amz-if-match-size", &[DELETING]),
];

/// The storage classes of S3: each is taken, and means nothing here. Any other is refused, as S3 does.
const CLASSES: [&str; 8] = [
    "DEEP_ARCHIVE",
    "GLACIER",
    "GLACIER_IR",
    "INTELLIGENT_TIERING",
    "ONEZONE_IA",
    "REDUCED_REDUNDANCY",
    "STANDARD",
    "STANDARD_IA",
];

/// Ends the beginning of names.
const BEGINS: &str = "...";
/// Headers of checksums that hold none.
const ABOUT: [&str; 3] = [
    "x-amz-checksum-algorithm",
    "x-amz-checksum-mode",
    "x-amz-checksum-type",
];
/// Headers that name kinds of checksums.
const NAMING: [&str; 2] = ["x-amz-checksum-algorithm", "x-amz-sdk-checksum-algorithm"];

/// Refuses what the operation does not have.
///
/// # Errors
/// `NotImplemented`, with the name of the header; `InvalidArgument`, `InvalidStorageClass`.
pub(super) fn check(operation: &Operation, headers: &HeaderMap) -> S3Result<()> {
    for (name, value) in headers {
        let (name, value) = (name.as_str(), value.as_bytes());
        if !is_decided(operation, name)
            || !is_served(name, value)
            || !is_known_checksum(name, value)
        {
            return Err(S3Error::with_message(
                S3ErrorCode::NotImplemented,
                format!("{name} asks for what this service does not do"),
            ));
        }
        // A date of HTTP that cannot be read counts as absent (RFC 9110, 13.1.3).
        let is_date = matches!(name, "if-modified-since" | "if-unmodified-since");
        if value.is_empty() && !is_date && CONDITIONS.iter().any(|(it, _)| *it == name) {
            return Err(wrong(format!("the condition {name} is empty")));
        }
        if name == "x-amz-storage-class" && !is_class(value) {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidStorageClass,
                format!("{name} is one of {}", CLASSES.join(", ")),
            ));
        }
    }
    Ok(())
}

/// False: a condition that the operation would ignore.
fn is_decided(operation: &Operation, name: &str) -> bool {
    let condition = CONDITIONS.iter().find(|(condition, _)| *condition == name);
    let is_read = !operation.changes() && !name.starts_with("x-amz-");
    condition
        .is_none_or(|(_, by)| is_read || by.iter().any(|them| them.contains(&operation.protocol)))
}

fn is_class(value: &[u8]) -> bool {
    value.is_empty() || CLASSES.iter().any(|class| class.as_bytes() == value)
}

fn is_served(name: &str, value: &[u8]) -> bool {
    let mut all = UNSERVED.iter();
    all.all(|(unserved, good)| match unserved.strip_suffix(BEGINS) {
        Some(begin) => !name.starts_with(begin),
        None => {
            let taken = value.is_empty() || good.iter().any(|good| good.as_bytes() == value);
            name != *unserved || taken
        }
    })
}

/// False: a checksum that nobody would compare.
fn is_known_checksum(name: &str, value: &[u8]) -> bool {
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    let kind = |kind: &str| KINDS.contains(&kind);
    let mut named = value
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    if NAMING.contains(&name) {
        return named.all(|name| kind(&format!("{CHECKSUM}{name}")));
    }
    if name == TRAILER {
        return named.all(kind);
    }
    !name.starts_with(CHECKSUM) || ABOUT.contains(&name) || kind(name)
}

#[cfg(test)]
mod tests {
    use super::super::operations::OPERATIONS;
    use super::super::operations::tests::{documented, find};
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
            check(find("PutObject"), &headers)
        };
        for encryption in [
            "x-amz-server-side-encryption",
            "x-amz-server-side-encryption-customer-key",
            "x-amz-server-side-encryption-aws-kms-key-id",
            "x-amz-copy-source-server-side-encryption-customer-key-md5",
        ] {
            assert!(of(encryption, "").is_err() && of(encryption, "AES256").is_err());
        }
        for (name, value) in [
            ("x-amz-checksum-sha512", "x"),
            ("x-amz-checksum-md5", "x"),
            ("x-amz-checksum-xxhash64", "x"),
            ("x-amz-trailer", "x-amz-checksum-sha512"),
            (
                "x-amz-trailer",
                "x-amz-checksum-crc32, x-amz-checksum-xxhash3",
            ),
            ("x-amz-sdk-checksum-algorithm", "SHA512"),
            ("x-amz-checksum-algorithm", "XXHASH64"),
        ] {
            let refused = of(name, value).unwrap_err();
            assert!(refused.message().unwrap().contains(name), "{refused}");
        }
        for (name, value) in [
            ("x-amz-checksum-crc32", "x"),
            ("x-amz-checksum-mode", "ENABLED"),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("x-amz-trailer", "x-amz-checksum-crc64nvme"),
            ("x-amz-sdk-checksum-algorithm", "CRC32C"),
            ("x-amz-checksum-algorithm", "sha256"),
        ] {
            assert!(of(name, value).is_ok(), "{name}");
        }
        let whole = UNSERVED.into_iter();
        for (name, good) in whole.filter(|(name, _)| !name.ends_with(BEGINS)) {
            assert_eq!(name, name.to_ascii_lowercase());
            let refused = of(name, "x").unwrap_err();
            assert!(refused.message().unwrap().contains(name), "{refused}");
            for value in good.iter().chain(&[""]) {
                assert!(of(name, value).is_ok(), "{name}: {value}");
            }
        }
        assert!(of("x-amz-meta-a", "1").is_ok());
        for class in CLASSES.iter().chain(&[""]) {
            assert!(of("x-amz-storage-class", class).is_ok(), "{class}");
        }
        let refused = of("x-amz-storage-class", "standard").unwrap_err();
        assert_eq!(*refused.code(), S3ErrorCode::InvalidStorageClass);
    }

    #[test]
    fn a_condition_is_decided_or_refused() {
        let of = |operation, name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            check(find(operation), &headers).map_err(|refused| refused.code().clone())
        };
        for (name, by) in CONDITIONS {
            let by = by.concat();
            for operation in OPERATIONS {
                let is_read = !name.starts_with("x-amz-") && !operation.changes();
                let operation = operation.protocol;
                let (given, empty) = (of(operation, name, "1"), of(operation, name, ""));
                if by.contains(&operation) || is_read {
                    assert_eq!(given, Ok(()), "{operation} {name}");
                    let expected = match name.ends_with("-since") && is_read {
                        true => Ok(()),
                        false => Err(S3ErrorCode::InvalidArgument),
                    };
                    assert_eq!(empty, expected, "{operation} {name}");
                } else {
                    let refused = Err(S3ErrorCode::NotImplemented);
                    assert_eq!((&given, &empty), (&refused, &refused), "{operation} {name}");
                }
            }
        }
    }
}
