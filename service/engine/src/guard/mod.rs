//! Keeps `format` away from what belongs to somebody.
//!
//! A target is refused when anything known is on it, and when anything uses it. The first can be
//! overruled by the operator, the second cannot. What cannot be found out counts as a refusal.

pub mod error;

pub(crate) mod aliases;
pub(crate) mod in_use;
mod medium;
mod number;
pub(crate) mod partitions;
mod twins;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::layout;
use crate::signature::blkid;

pub use crate::error::User;
pub use crate::signature::{Signature, SignatureKind};
pub use error::FormatError;
pub(crate) use medium::folder_of;
pub use medium::{VolatileMedium, check_new_file};
pub(crate) use twins::is_same_disk;

/// Everything known that is on an open device or file: signatures that libblkid finds, and stores.
///
/// # Errors
/// The target cannot be read or libblkid cannot tell: it must be left alone.
pub(crate) fn find_signatures(file: &File) -> io::Result<Vec<Signature>> {
    let mut found = layout::own_signatures(&layout::read_head(file)?);
    // The very file that is open, whatever its path names by now. Another descriptor, because
    // libblkid's buffers are not aligned for direct I/O.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    found.extend(blkid::signatures(Path::new(&path))?);
    Ok(found)
}
