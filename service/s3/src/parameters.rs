//! The parameters that each operation takes. A subresource that is not served never runs the plain
//! operation: `PUT key?renameObject` would write and `DELETE bucket?metadataConfiguration` delete
//! the bucket.

use percent_encoding::percent_decode_str;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::operations::Operation;

/// What every operation takes: the name of itself.
const NAMED: &str = "x-id";

/// Decoded names and values, as s3s decodes them.
pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let parts = query.split('&').filter(|part| !part.is_empty());
    let parts = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    parts
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// Refuses a parameter that the operation does not have, or that is given twice.
///
/// # Errors
/// `NotImplemented` with its name, `InvalidArgument`.
pub(super) fn check(operation: &Operation, query: &[(String, String)]) -> S3Result<()> {
    // They sign, or became headers when the signature was looked at.
    let is_ours = |name: &str| !name.to_ascii_lowercase().starts_with("x-amz-");
    let mut pairs: Vec<_> = query.iter().filter(|(name, _)| is_ours(name)).collect();
    for (name, value) in pairs.iter().copied() {
        let known = match name.as_str() {
            NAMED => value == operation.protocol,
            name => operation.takes.contains(&name),
        };
        if !known {
            let shown = if name == NAMED { value } else { name };
            let why = format!(
                "{} with {:?} is not offered by this service",
                operation.protocol,
                shown.chars().take(64).collect::<String>()
            );
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
        }
    }
    pairs.sort();
    match pairs.windows(2).find(|two| two[0].0 == two[1].0) {
        None => Ok(()),
        Some(two) => {
            let why = format!("the parameter {} is given twice", two[0].0);
            Err(S3Error::with_message(S3ErrorCode::InvalidArgument, why))
        }
    }
}
