//! Types of the interface between service and observer.

use std::path::PathBuf;

pub use lumpscope_proto::v1::{EventPolicy, TraceRequest};
use serde::{Deserialize, Serialize};

/// The stages of a request, in the order in which they happen.
pub const STAGES: [&str; 11] = [
    "recv", "sched", "index", "submit", "queue", "device", "journal", "wait", "write", "flush",
    "reply",
];

/// Stores to observe, and probes to observe them with.
#[derive(Debug, Clone, Default)]
pub struct ObserverOptions {
    /// The stores; their position here is the `store` of every later call.
    pub stores: Vec<WatchedStore>,
    /// Where the probe object comes from.
    pub object: ObjectSource,
    /// False: no probe is loaded; requests are still timed.
    pub enabled: bool,
    /// Choices that only tests and curious people make.
    pub tuning: Tuning,
}

/// A store to be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedStore {
    /// By which reports and metrics name it.
    pub name: String,
    /// Block device or file that holds it.
    pub path: PathBuf,
    /// Policy for foreign opens of its device for writing.
    pub guard: GuardPolicy,
}

/// Reaction when another process opens a store's block device for writing.
///
/// In the order of strictness.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum GuardPolicy {
    /// Such opens are neither counted nor denied.
    #[default]
    Off,
    /// It is counted and told, and allowed.
    Audit,
    /// It is counted, told and denied.
    Deny,
}

impl GuardPolicy {
    /// As settings and reports say it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            GuardPolicy::Off => "off",
            GuardPolicy::Audit => "audit",
            GuardPolicy::Deny => "deny",
        }
    }
}

/// Where the probe object comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ObjectSource {
    /// The object embedded in this program, or the one that the environment variable
    /// `LUMPSCOPE_PROBE_OBJECT` names.
    #[default]
    Prebuilt,
    /// A file.
    Path(PathBuf),
}

/// How the probes are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    /// BTF tracepoints: the kernel checks each program for recursion by itself.
    TpBtf,
    /// Raw tracepoints: the kernel checks each program for recursion by itself.
    RawTp,
    /// Classic tracepoints: one recursion check for all programs of a CPU; needs tracefs.
    Classic,
}

/// Choices that only tests and curious people make.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    /// Use this flavour or none; `None`: what suits the kernel.
    pub flavour: Option<Flavour>,
    /// Size of the event ring in bytes, a power of two of at least one page; `None`: 16 MiB.
    pub ring_bytes: Option<u32>,
    /// True: the background thread does not drain; only [`crate::Observer::settle`] does.
    pub paused: bool,
    /// The kernel counts how often the programs run and how long: see [`crate::ProbeProgram`]. It
    /// does so for every BPF program of the machine, which costs each run two looks at the clock,
    /// and it can be switched on only while this process has CAP_SYS_ADMIN. What could not be
    /// switched on is a warning, and the counts are 0.
    pub program_statistics: bool,
    /// Room for requests in flight in the kernel side's table; `None`: 16,384.
    pub in_flight: Option<u32>,
    /// The kernel side overlooks about one completion in so many, as a busy machine makes it;
    /// 0: none.
    pub overlook_one_in: u32,
    /// First sectors of the access ranges that disks count as having; empty: those they have.
    pub access_ranges: Vec<u64>,
    /// Tracepoints that count as missing, as on another kernel.
    pub hidden_hooks: Vec<String>,
    /// Pin maps for bpftool in this folder of a bpffs, until the probes are detached.
    pub pin_maps: Option<PathBuf>,
    /// Write everything the correlator learns to this file, one JSON object a line, for replay.
    pub record: Option<PathBuf>,
    /// Keep the last minute of that, and write it to a file when something is slow.
    pub flight: Option<FlightOptions>,
}

/// The flight recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightOptions {
    /// The folder of its files.
    pub dir: PathBuf,
    /// A request or a disk I/O that takes so long, in nanoseconds, causes a file.
    pub slower_than_ns: u64,
    /// In place of this, of stores whose disk says that it has no arm.
    pub slower_than_without_arm_ns: u64,
}

/// Whether and how one store is observed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreObservation {
    /// Whole disk below the store, e.g. `loop3`.
    pub device: Option<String>,
    /// Major and minor number of that disk.
    pub devno: Option<(u32, u32)>,
    /// True: that disk says that it has no arm.
    pub armless: bool,
    /// True: the probes watch that disk.
    pub observed: bool,
    /// Why not, in words; empty when observed.
    pub why_not: String,
    /// `tp_btf`, `raw_tp` or `classic`; `bio`: the disk makes no requests, what it is given is
    /// watched; or `none`.
    pub mode: String,
}

/// Purpose of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Bytes of a lump.
    Data,
    /// Journal records.
    Journal,
    /// Header of the journal or of the store.
    Header,
    /// A flush of the device's cache.
    Flush,
    /// Replay at open.
    Recovery,
    /// Lumps, read by the scrubber.
    Scrub,
    /// A checkpoint of the index.
    Checkpoint,
}

/// Kind of a declared I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// `fdatasync`.
    Flush,
}

/// Where a request stands in a distributed trace: <https://www.w3.org/TR/trace-context/>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceContext {
    /// Id of the trace; never zero.
    pub trace_id: u128,
    /// Id of the request's own span; never zero.
    pub span_id: u64,
    /// Id of the client's span above it; 0: there is none.
    pub parent_span_id: u64,
}

/// Every completed block request becomes an event. Histograms and counters do not depend on the
/// policy: they count every request.
pub const EVERY_EVENT: EventPolicy = EventPolicy {
    one_in: 1,
    slower_than_ns: 0,
};

/// I/Os that io_urings handed to workers of the kernel, because they would have had to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PuntedIos {
    /// Flushes: every one is.
    pub flushes: u64,
    /// Reads and writes.
    pub data: u64,
    /// On kernels that do not say what it is.
    pub unknown: u64,
}

/// One finding of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The thing checked.
    pub topic: String,
    /// How bad it is.
    pub level: Level,
    /// The result.
    pub found: String,
    /// The feature that does not work because of it; empty when all is well.
    pub consequence: String,
    /// How to get it; empty when all is well.
    pub remedy: String,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn good(topic: &str, found: impl Into<String>) -> Finding {
        Finding::lacking(topic, Level::Good, found, "", "")
    }

    /// Things that do not work because of it, and how to get it.
    #[must_use]
    pub fn lacking(
        topic: &str,
        level: Level,
        found: impl Into<String>,
        consequence: &str,
        remedy: &str,
    ) -> Finding {
        Finding {
            topic: topic.to_owned(),
            level,
            found: found.into(),
            consequence: consequence.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// Something works less well.
    Degraded,
    /// Something does not work.
    Missing,
}
