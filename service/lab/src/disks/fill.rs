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

use crate::failure::cannot;
use crate::process::Interrupt;

const STEP_BYTES: usize = 4 << 20;
/// Enough for every disk.
const ALIGNMENT: usize = 4096;

/// Writes zeros from the beginning up to `bytes` (rounded up to 4 MiB), past the page cache.
///
/// Ends early when a signal comes.
pub(crate) fn fill(device: &Path, bytes: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
    let failed = || cannot("write", device);
    let mut options = OpenOptions::new();
    let disk = options.write(true).custom_flags(direct()).open(device);
    let disk = disk.map_err(failed())?;
    let buffer = vec![0; STEP_BYTES + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let zeros = &buffer[start..start + STEP_BYTES];
    let mut written = 0;
    while written < bytes {
        interrupt.check()?;
        disk.write_all_at(zeros, written).map_err(failed())?;
        written += u64::try_from(STEP_BYTES).unwrap_or(u64::MAX);
    }
    disk.sync_all().map_err(failed())
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
pub(super) fn erase(device: &File, capacity: u64) -> io::Result<()> {
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
