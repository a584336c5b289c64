//! Keeps `format` away from what belongs to somebody.
//!
//! A target is refused when anything known is on it, and when anything uses it. The first can be
//! overruled by the operator, the second cannot. What cannot be found out counts as a refusal.

pub mod error;
pub mod signature;

pub(crate) mod blkid;
pub(crate) mod in_use;

pub use error::{FormatError, User};
pub use signature::{Signature, SignatureKind};

/// "ext4 file system (signature at byte 1080), gpt partition table (...)".
pub(crate) fn list_of(found: &[Signature]) -> String {
    found
        .iter()
        .map(Signature::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
