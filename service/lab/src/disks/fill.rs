//! Writes the raw disk of the lab once before it is used, and erases the store afterwards.
//!
//! The stores on file systems are written whole when they are formatted. Were the raw one not, its
//! first write to every place would make the host allocate a piece of the sparse image, journal
//! that, and wait for it at the next flush: the comparison would measure the host's file system,
//! and on the raw disk only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

const STEP_BYTES: usize = 4 << 20;
/// Enough for every disk.
const ALIGNMENT: usize = 4096;

/// Writes zeros from the beginning up to `bytes` (rounded up to 4 MiB), past the page cache.
///
/// `stop` is asked every 4 MiB; once it says yes, the error is of the kind `Interrupted`.
pub(crate) fn fill(device: &Path, bytes: u64, stop: &dyn Fn() -> bool) -> io::Result<()> {
    let disk = OpenOptions::new()
        .write(true)
        .custom_flags(direct())
        .open(device)?;
    let buffer = vec![0; STEP_BYTES + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let zeros = &buffer[start..start + STEP_BYTES];
    let mut written = 0;
    while written < bytes {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        disk.write_all_at(zeros, written)?;
        written += u64::try_from(STEP_BYTES).unwrap_or(u64::MAX);
    }
    disk.sync_all()
}

/// The flag with which a file is opened past the page cache.
pub(crate) fn direct() -> i32 {
    i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0)
}

/// Room for the header of a store, and for the rest of its last blocks.
const BESIDE: u64 = 1 << 20;

/// Erases what a store of this capacity has left on a device: `format` takes one only when all of it is empty. Behind
/// the store lie two checkpoints of its index ([`Area`](lumpscope_engine::format::checkpoint::Area)), the second
/// half-way to the end of the device. Neither is longer than the journal, which is the smaller part of a store.
pub(crate) fn erase(device: &File, capacity: u64) -> io::Result<()> {
    let size = rustix::fs::seek(device, SeekFrom::End(0))?;
    let zeroed = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    let checkpoint = capacity / 2 / BESIDE * BESIDE + BESIDE;
    let half_way = (capacity + size) / 2 / BESIDE * BESIDE;
    for (from, to) in [
        (0, capacity + BESIDE + checkpoint),
        (
            half_way.saturating_sub(BESIDE),
            half_way + BESIDE + checkpoint,
        ),
    ] {
        if from < size {
            rustix::fs::fallocate(device, zeroed, from, to.min(size) - from)?;
        }
    }
    device.sync_all()
}
