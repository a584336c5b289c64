//! The directory for the images.

use std::path::{Path, PathBuf};

use super::refused;
use crate::failure::no_room;

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
pub fn free_bytes(dir: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(dir).map_err(refused("look at directory", &dir))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Refuses a directory that would run full.
pub(super) fn check_room(dir: &Path, expected_bytes: u64) -> anyhow::Result<()> {
    let free = free_bytes(dir)?;
    // A little is kept free for everybody else.
    let needed = expected_bytes.saturating_add(expected_bytes / 16);
    if expected_bytes > 0 && needed > free {
        return Err(no_room(dir, needed, free));
    }
    Ok(())
}
