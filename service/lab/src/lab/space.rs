//! The directory for the images.

use std::path::{Path, PathBuf};

use super::LabError;

/// `$TMPDIR`, else `/var/tmp` (not `/tmp`, which is often in memory).
#[must_use]
pub fn default_dir() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from("/var/tmp"),
    }
}

/// Bytes that an unprivileged user could still write in the file system of `dir`.
///
/// # Errors
/// The directory is not there, or cannot be looked at.
pub fn free_bytes(dir: &Path) -> Result<u64, LabError> {
    let stat = rustix::fs::statvfs(dir).map_err(LabError::io("look at directory", dir))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Refuses a directory that would run full.
pub(super) fn check_room(dir: &Path, expected_bytes: u64) -> Result<(), LabError> {
    let free = free_bytes(dir)?;
    // A little is kept free for everybody else.
    let needed = expected_bytes.saturating_add(expected_bytes / 16);
    if expected_bytes > 0 && needed > free {
        return Err(LabError::NoRoom {
            dir: dir.to_owned(),
            needed_mib: needed.div_ceil(1 << 20),
            free_mib: free >> 20,
        });
    }
    Ok(())
}
