//! Keeps `format` away from what belongs to somebody.
//!
//! A target is refused when anything known is on it, and when anything uses it. The first can be
//! overruled by the operator, the second cannot. What cannot be found out counts as a refusal.

pub mod error;

pub(crate) mod aliases;
mod by_uuid;
pub(crate) mod in_use;
mod new_file;
pub(crate) mod partitions;
mod twins;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use aliases::Taken;

use crate::layout;
use crate::signature::blkid;
use crate::sysfs::DeviceNumber;

pub use crate::error::User;
pub use crate::medium::VolatileMedium;
pub use crate::signature::{Signature, SignatureKind};
pub use by_uuid::find_image;
pub use error::FormatError;
pub use new_file::{check_new_file, check_output, folder_of};

/// Takes every other way to the bytes of `target`, which is open for this process alone, and keeps
/// them while the answer lives.
///
/// # Errors
/// Somebody uses them, or the kernel does not say.
pub(crate) fn hold(target: &File) -> Result<Vec<File>, Taken> {
    let mut held = aliases::hold(target)?;
    let metadata = target.metadata()?;
    if metadata.file_type().is_block_device() {
        twins::take(target, DeviceNumber::of(metadata.rdev()), &mut held)?;
    }
    Ok(held)
}

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
