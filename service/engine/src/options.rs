//! How a store is opened, and what is known of it once it is open.

use std::path::PathBuf;
use std::sync::Arc;

use crate::request::IoSink;
use crate::units::ByteOffset;

/// How to open a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// Name of the store in metrics and messages.
    pub name: String,
    /// Receives a declaration of every disk I/O.
    pub io_sink: Option<Arc<dyn IoSink>>,
    /// Most data I/Os in flight at the disk, 1 to 4096.
    pub queue_depth: usize,
    /// Most requests waiting for the owner thread; more are refused with `Busy`. At least 1.
    pub queue_limit: usize,
    /// Which I/O backend to use.
    pub io_backend: IoBackendChoice,
    /// True: nothing is written, changes are refused.
    pub read_only: bool,
}

impl StoreOptions {
    /// Defaults: 32 I/Os in flight, 1024 requests waiting, the backend chosen by probe.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            io_sink: None,
            queue_depth: 32,
            queue_limit: 1024,
            io_backend: IoBackendChoice::Auto,
            read_only: false,
        }
    }
}

/// Which I/O backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoBackendChoice {
    /// `io_uring` where it works, else threads.
    #[default]
    Auto,
    /// A pool of threads that call pread and pwrite.
    Threads,
    /// `io_uring`; open fails where it does not work.
    Uring,
}

/// The I/O backend in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackendKind {
    /// A pool of threads that call pread and pwrite.
    Threads,
    /// `io_uring`.
    Uring,
    /// One given by the caller (a simulated disk).
    Custom,
}

impl IoBackendKind {
    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Uring => "uring",
            Self::Custom => "custom",
        }
    }
}

/// How the lusf image lies on its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The single file of a minfs on a raw block device, at byte 61,440.
    Minfs,
    /// At byte 0 of a file or device.
    Lusf,
}

impl Layout {
    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minfs => "minfs",
            Self::Lusf => "lusf",
        }
    }
}

/// What the replay of the journal at open found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Records read.
    pub records: u64,
    /// Bytes of the ring read.
    pub bytes: u64,
    /// Lumps the store holds.
    pub lumps: u64,
    /// Wall time of the replay in nanoseconds.
    pub elapsed_ns: u64,
}

/// What is fixed for an open store.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    /// Name given at open.
    pub name: String,
    /// Path of the device or file.
    pub path: PathBuf,
    /// How the image lies on it.
    pub layout: Layout,
    /// Block size of the format in bytes.
    pub block_size: u16,
    /// Largest lump in bytes.
    pub max_lump_bytes: u64,
    /// Instance UUID of the header.
    pub uuid: uuid::Uuid,
    /// First byte of the image in the device or file.
    pub base_offset: ByteOffset,
    /// Bytes of the data region.
    pub data_capacity: u64,
    /// Bytes of the journal's ring.
    pub journal_capacity: u64,
    /// The I/O backend in use.
    pub backend: IoBackendKind,
    /// Smallest unit of direct I/O in bytes.
    pub logical_block_size: u32,
    /// True: at open the end of the journal carried this engine's seal (FORMAT.md section 5.3).
    /// False: another engine, or a version before the seal, has appended last; until the first
    /// change nothing on the disk says otherwise.
    pub sealed: bool,
    /// What the replay found.
    pub replay: ReplaySummary,
}

/// Numbers about a running store, read without asking its owner thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Lumps in the store.
    pub lumps: u64,
    /// Bytes of the data region.
    pub data_capacity_bytes: u64,
    /// Bytes of it in use (whole blocks), those about to be freed included.
    pub data_used_bytes: u64,
    /// Bytes of the largest free extent.
    pub largest_free_bytes: u64,
    /// Free extents.
    pub free_extents: u64,
    /// Share of the free bytes that lies outside the largest free extent, in parts per million: 0
    /// is one extent, near a million are many small ones.
    pub fragmentation_ppm: u64,
    /// Bytes of memory that the index of the lumps takes.
    pub index_memory_bytes: u64,
    /// Bytes of the journal's ring.
    pub journal_capacity_bytes: u64,
    /// Bytes of it between head and tail.
    pub journal_used_bytes: u64,
    /// Bytes of it that hold live records.
    pub journal_live_bytes: u64,
    /// Journal batches committed since open.
    pub commits: u64,
    /// Records in these batches, relocated ones included.
    pub commit_records: u64,
    /// Flushes of the device completed since open.
    pub flushes: u64,
    /// Records the garbage collection moved to the tail since open.
    pub gc_relocated: u64,
    /// Records the garbage collection dropped since open.
    pub gc_dropped: u64,
    /// Times the journal's head was moved since open.
    pub header_writes: u64,
    /// Requests waiting for the owner thread.
    pub queue_length: u64,
    /// Requests the owner thread has started and not finished.
    pub pending: u64,
    /// I/Os at the backend.
    pub in_flight_ios: u64,
    /// I/Os that failed since open.
    pub io_errors: u64,
    /// Gets since open of lumps that carry no checksum.
    pub unverified_gets: u64,
    /// Gets since open whose checksum did not match.
    pub checksum_failures: u64,
}
