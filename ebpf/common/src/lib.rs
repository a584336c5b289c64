//! Layout of what the probes hand to user space: the same source is compiled for the kernel
//! side (`ebpf/probes`) and for the observer.
//!
//! Everything is `repr(C)`, fixed in size and without implicit padding; the assertions below
//! keep it so. Sectors are always 512 bytes. Times are `CLOCK_MONOTONIC` in nanoseconds.
#![no_std]

pub mod event;
pub mod histogram;
pub mod stats;

pub use event::{BlockEvent, NO_SEEK};

/// How many disks can be watched at once.
pub const MAX_DEVICES: u32 = 64;

/// Requests in flight on all watched disks that the kernel side can remember.
pub const MAX_IN_FLIGHT: u32 = 16_384;

/// Size of the event ring in bytes, unless the loader overrides it.
pub const RING_BYTES: u32 = 16 << 20;

/// Bytes in a sector, as the block layer counts.
pub const SECTOR_BYTES: u64 = 512;

/// A device number as the kernel keeps it inside: 12 bits major, 20 bits minor.
#[must_use]
pub const fn kernel_dev(major: u32, minor: u32) -> u32 {
    (major << 20) | (minor & 0xf_ffff)
}

/// Major and minor of a [`kernel_dev`].
#[must_use]
pub const fn split_dev(dev: u32) -> (u32, u32) {
    (dev >> 20, dev & 0xf_ffff)
}

/// What a block request does.
pub mod op {
    /// From the disk.
    pub const READ: u8 = 0;
    /// To the disk.
    pub const WRITE: u8 = 1;
    /// Flush of the disk's write cache.
    pub const FLUSH: u8 = 2;
    /// Discard or secure erase.
    pub const DISCARD: u8 = 3;
    /// Anything else, e.g. write zeroes.
    pub const OTHER: u8 = 4;
    /// Number of operations.
    pub const COUNT: u32 = 5;
    /// Names, by number.
    pub const NAMES: [&str; 5] = ["read", "write", "flush", "discard", "other"];
}

/// Whose a block request seems to be, from its flags and the task that started it.
pub mod class {
    /// The service's own process, without the metadata flag.
    pub const OWN: u8 = 0;
    /// A file system's journal or log.
    pub const FS_JOURNAL: u8 = 1;
    /// Other file-system metadata.
    pub const FS_METADATA: u8 = 2;
    /// Written back by a kernel worker.
    pub const WRITEBACK: u8 = 3;
    /// Another process.
    pub const OTHER: u8 = 4;
    /// Number of classes.
    pub const COUNT: u32 = 5;
    /// Names, by number. The kernel side does not know request ids: what it calls `request`
    /// includes what the service does for itself.
    pub const NAMES: [&str; 5] = ["request", "fs-journal", "fs-metadata", "writeback", "other"];
}

/// Bits of [`BlockEvent::flags`].
pub mod flag {
    /// Sent to the disk more than once (the driver was busy).
    pub const REISSUED: u8 = 1;
    /// Asked for a flush and carried no data: never sent itself, the block layer sends a flush.
    pub const FLUSH_PARENT: u8 = 1 << 1;
    /// Forced unit access asked for.
    pub const FUA: u8 = 1 << 2;
    /// A flush before it asked for.
    pub const PREFLUSH: u8 = 1 << 3;
    /// File-system metadata.
    pub const META: u8 = 1 << 4;
    /// Started by the service's own process.
    pub const OWN: u8 = 1 << 5;
    /// Its start was not seen: the queue time and the process are unknown.
    pub const NO_START: u8 = 1 << 6;
    /// [`BlockEvent::error`](crate::BlockEvent::error) is a `blk_status_t`, not an errno.
    pub const RAW_STATUS: u8 = 1 << 7;
}
