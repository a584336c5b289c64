//! How a store is opened, and what is known of it once it is open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::declaration::IoSink;
use crate::facts::DeviceFacts;
use crate::finding::Finding;
use crate::finding::salvage::SalvageReport;
use crate::lump::LumpId;
use crate::machine::Machine;
use crate::medium::VolatileMedium;
use crate::units::ByteOffset;

/// Default pause from one pass of the scrubber to the next: a week.
const SCRUB_INTERVAL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Default time after which an I/O hangs: the kernel's own for a command of SCSI or NVMe.
const IO_TIMEOUT: Duration = Duration::from_secs(30);

/// Default number of records after which a checkpoint is written: they are replayed in a second.
const CHECKPOINT_RECORDS: u64 = 1_000_000;

/// Default size of a piece. Of 512 KiB they cost more than they save: three requests of a lump of
/// 1 MiB where one would do, and a third more processor time.
const PIECE_BYTES: u64 = 1024 * 1024;

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageIdentity {
    /// Instance UUID of the header.
    pub uuid: uuid::Uuid,
    /// Name of the store (FORMAT.md section 4.4).
    pub name: Option<String>,
}

/// Decides whether an image is the one that is meant; an error's text says why not.
pub type Admission = Arc<dyn Fn(&ImageIdentity) -> Result<(), String> + Send + Sync>;

/// How to open a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// Name of the store in metrics and messages.
    pub name: String,
    /// Asked before anything is written; an image without a name then gets `name`. `None`: any image is
    /// opened, and keeps the name it has.
    pub admission: Option<Admission>,
    /// The machine that claims the image while the store is open for writing (FORMAT.md section 4.5).
    /// `None`: no claim is written, and that of another machine keeps nobody away.
    pub machine: Option<Machine>,
    /// True: another machine's claim is replaced. It must be gone for good: nothing stops it.
    pub take_over: bool,
    /// Receives a declaration of every disk I/O.
    pub io_sink: Option<Arc<dyn IoSink>>,
    /// Most data I/Os in flight at the disk, 1 to 4096. Where it has no arm, gets of more than 128
    /// KiB begin while less than 4 MiB of them are being read, puts while less than 8 MiB of them are
    /// being written, not counting what has been under way for 10 ms.
    pub queue_depth: usize,
    /// Most requests that wait to be started; more are refused with `Busy`. At least 1.
    pub queue_limit: usize,
    /// Which waiting request starts next.
    pub queue_policy: QueuePolicy,
    /// With [`QueuePolicy::Position`]: most younger requests that start before a waiting one. If it
    /// is less than about half of `queue_limit`, a long queue is worked off in the order of arrival
    /// instead of that of the disk.
    pub max_overtakes: u32,
    /// The store is overloaded when at least so many requests have waited without a break for
    /// `overload_after`; requests that are not prioritized are then refused with `Busy` until
    /// half as many wait. At least 1; more than `queue_limit`: never.
    pub overload_threshold: usize,
    /// How long the queue must have been that long; see `overload_threshold`.
    pub overload_after: Duration,
    /// Most bytes of memory for lumps that are put or were got, whoever holds them; see
    /// [`Store::lump_buf`](crate::Store::lump_buf).
    pub buffer_budget: u64,
    /// How much of it gets may use; a get waits in the queue while no more is left. More than
    /// `buffer_budget`: all of it.
    pub get_budget: u64,
    /// Most bytes of a piece of a lump that is written while it comes in
    /// ([`Store::lump_buf_in_pieces`](crate::Store::lump_buf_in_pieces)); 0: lumps are written whole.
    pub piece_bytes: u64,
    /// Which I/O backend to use.
    pub io_backend: IoBackendChoice,
    /// An I/O in flight for longer than this hangs, and the store is out of service until it has
    /// ended; 0: however long it takes.
    pub io_timeout: Duration,
    /// How a put becomes durable.
    pub commit: CommitMode,
    /// True: nothing is written, changes are refused.
    pub read_only: bool,
    /// True: a store that is damaged opens without what is lost (FORMAT.md section 13), and says so
    /// in [`StoreInfo::salvage`]. Unless it is read-only, it is repaired before it can be used: what
    /// was left out is gone for good then. Without damage this changes nothing, except that a
    /// checkpoint of the index is not used.
    pub salvage: bool,
    /// Budget of the scrubber in bytes a second; 0: it does not run until it is told to.
    pub scrub_rate: u64,
    /// From the start of one pass of the scrubber to the start of the next, at least.
    pub scrub_interval: Duration,
    /// Budget of the journal's garbage collection in bytes a second, read and written; 0: no
    /// limit. It is exceeded when the journal is nearly full.
    pub gc_rate: u64,
    /// Records appended since the last checkpoint of the index that make the next one due, unless
    /// they are less than half as many as there are lumps; at close a 64th of them is enough. At
    /// open no more than these are replayed, if nothing goes wrong. 0: none is written.
    pub checkpoint_records: u64,
}

impl StoreOptions {
    /// Defaults: 32 I/Os in flight, 1024 requests waiting, in the order of the disk with at most
    /// 512 overtakes, overloaded after 10 s with at least 768 of them, 1 GiB of memory for lumps,
    /// the backend chosen by probe.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            admission: None,
            machine: None,
            take_over: false,
            io_sink: None,
            queue_depth: 32,
            queue_limit: 1024,
            queue_policy: QueuePolicy::default(),
            max_overtakes: 512,
            overload_threshold: 768,
            overload_after: Duration::from_secs(10),
            buffer_budget: 1 << 30,
            get_budget: u64::MAX,
            piece_bytes: PIECE_BYTES,
            io_backend: IoBackendChoice::Auto,
            io_timeout: IO_TIMEOUT,
            commit: CommitMode::default(),
            read_only: false,
            salvage: false,
            scrub_rate: 0,
            scrub_interval: SCRUB_INTERVAL,
            gc_rate: 0,
            checkpoint_records: CHECKPOINT_RECORDS,
        }
    }
}

/// How a put becomes durable (FORMAT.md section 8.2). A store may be opened with any,
/// whatever it was opened with before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitMode {
    /// The data of puts that follow one another, in one stretch of the disk, and one flush, or none
    /// where the device writes past its cache (FUA); the records follow many at a time. After a power
    /// cut opening reads what of that stretch has no records, 32 MiB at most. A put that fits in no
    /// such stretch is committed as ordered.
    #[default]
    Runs,
    /// The data and a flush, then the record and a flush: a record never points to data that may
    /// not be there, so CannyLS can open the store after a power cut, too.
    Ordered,
}

impl CommitMode {
    /// Longest lump that goes into the journal by itself, in bytes. Ordered, that saves a flush; in
    /// runs it saves a block, and what is longer than a sector would cost the journal two.
    #[must_use]
    pub const fn max_small(self) -> u64 {
        match self {
            Self::Ordered => 16 * 1024,
            Self::Runs => 1024,
        }
    }

    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Ordered => "ordered",
        }
    }
}

/// The puts of a run that had no records yet (FORMAT.md section 8.2). Or the last batch of a journal
/// that a version before 0.3 left unsettled: its puts were compared with their data (8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsettledTail {
    /// Ring position where the batch begins; of a run: where the journal ends.
    pub ring_position: u64,
    /// Puts that were compared.
    pub puts: u64,
    /// What became of the batch.
    pub outcome: TailOutcome,
    /// The lumps whose data was not whole.
    pub lumps: Vec<LumpId>,
}

/// What became of the last batch of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailOutcome {
    /// All data is there: it counts.
    Whole,
    /// Writes of it never reached the medium, so its flush never ended and none of it was
    /// acknowledged: the journal ends before it.
    Dropped,
    /// Data of it has changed since it was written, or cannot be read: it may have been
    /// acknowledged, so it counts. One bit is flipped back; reading lumps with other damage fails.
    Damaged,
}

impl TailOutcome {
    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Dropped => "dropped",
            Self::Damaged => "damaged",
        }
    }
}

/// In which order waiting gets, heads and puts are started when more come than the disk takes at
/// once. What needs no I/O of its own (lists, deletes, embedded puts) never waits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// In the order of arrival.
    Fifo,
    /// Earliest deadline first, in the order of arrival among equals and among those without a
    /// deadline, which come last and may wait for ever: the order of CannyLS.
    Deadline,
    /// Deadlines at risk first (those that the request would probably miss if it waited longer,
    /// by the service times observed lately), the others in the order of their place on the disk
    /// (C-SCAN). No request is overtaken by more than `max_overtakes` others, not counting those
    /// that start while it could not: a get while there is no memory for it, a put while
    /// `queue_limit` changes are unfinished, either while the disk has enough of its kind (see
    /// [`queue_depth`](StoreOptions::queue_depth)).
    #[default]
    Position,
}

impl QueuePolicy {
    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Deadline => "deadline",
            Self::Position => "position",
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

/// Use of the checkpoint of the index at open (FORMAT.md section 12). Without a trusted one the
/// whole journal is replayed, with an equal result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointUse {
    /// There is none, or no place for one.
    #[default]
    Absent,
    /// The index was loaded from it, and only later records were replayed.
    Used,
    /// It cannot be read.
    Unreadable,
    /// A checksum does not fit, or it says what cannot be: it was torn or rotted.
    Damaged,
    /// It was made for a store with another instance UUID.
    OtherStore,
    /// Another engine has appended to the journal since.
    OtherEpoch,
    /// The journal's head has been moved past the records to be replayed.
    Overtaken,
    /// The journal ends before the checkpoint was made.
    AheadOfLog,
    /// The records to be replayed cannot be read as such.
    NoRecords,
    /// Salvage mode does not look at it.
    Salvage,
}

impl CheckpointUse {
    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Used => "used",
            Self::Unreadable => "unreadable",
            Self::Damaged => "damaged",
            Self::OtherStore => "other-store",
            Self::OtherEpoch => "other-epoch",
            Self::Overtaken => "overtaken",
            Self::AheadOfLog => "ahead-of-log",
            Self::NoRecords => "no-records",
            Self::Salvage => "salvage",
        }
    }
}

/// Findings of the journal's replay at open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Records read.
    pub records: u64,
    /// Bytes of the ring read.
    pub bytes: u64,
    /// Lumps the store holds.
    pub lumps: u64,
    /// Whether a checkpoint of the index made the replay shorter, and why not.
    pub checkpoint: CheckpointUse,
    /// Wall time of the replay in nanoseconds.
    pub elapsed_ns: u64,
}

/// Properties of an open store, all fixed.
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
    /// Name that the image has.
    pub image_name: Option<String>,
    /// First byte of the image in the device or file.
    pub base_offset: ByteOffset,
    /// Bytes of the data region.
    pub data_capacity: u64,
    /// Bytes of the journal's ring.
    pub journal_capacity: u64,
    /// The I/O backend in use.
    pub backend: IoBackendKind,
    /// Which waiting request starts next.
    pub queue_policy: QueuePolicy,
    /// The kernel's description of the disk below; `None`: a file, or the kernel does not say.
    pub disk: Option<DeviceFacts>,
    /// The medium, if it loses the store; `None`: it does not, or nothing is known of it.
    pub volatile: Option<VolatileMedium>,
    /// How a put becomes durable there, in words.
    pub durable_by: &'static str,
    /// The order of its writes and flushes.
    pub commit: CommitMode,
    /// Smallest unit of direct I/O in bytes.
    pub logical_block_size: u32,
    /// The other machine whose claim was replaced at open, and since when it had the store; `None`:
    /// there was none.
    pub taken_from: Option<String>,
    /// True: at open the end of the journal carried this engine's seal (FORMAT.md section 5.3).
    /// False: another engine, or a version before the seal, has appended last; until the first
    /// change nothing on the disk says otherwise.
    pub sealed: bool,
    /// Summary of the replay.
    pub replay: ReplaySummary,
    /// Damage of header, ring head, journal or seal that opening has got over by copies and
    /// checksums; unless opened read-only, the disk is mended.
    pub mended: Vec<Finding>,
    /// The last batch of the journal, if it was not settled; `None`: it was.
    pub unsettled: Option<UnsettledTail>,
    /// Findings and actions of salvage mode; `None`: opened without it.
    pub salvage: Option<SalvageReport>,
}
