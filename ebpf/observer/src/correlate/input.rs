//! The correlator's inputs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::api::{Op, Purpose, TraceContext};
use crate::event::Event;
use crate::extents::Placement;
use crate::report::AuditReport;

/// Names of the inputs in recordings.
pub(crate) const KINDS: [&str; 11] = [
    "clock", "added", "removed", "placed", "audited", "declared", "finished", "ended", "event",
    "drained", "cgroup",
];

/// One input of the correlator, and one line of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The time of day when a recording began; its first line.
    Clock {
        /// `CLOCK_MONOTONIC` in nanoseconds, as everywhere else in it.
        monotonic_ns: u64,
        /// Nanoseconds since 1970 at that moment.
        unix_ns: u64,
        /// What began before this time may be missing; absent in old recordings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_ns: Option<u64>,
        /// The request that a file of the flight recorder was written for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<u64>,
        /// Inputs that the flight recorder had no room for.
        #[serde(default, skip_serializing_if = "is_none")]
        left_out: u64,
    },
    /// There is a store more.
    Added {
        /// Its index, which no store had before.
        store: usize,
        /// Its name; empty: unknown, as in old recordings.
        #[serde(default)]
        name: String,
    },
    /// A store is gone, and everything known of it.
    Removed {
        /// Its index, which no store will have again.
        store: usize,
    },
    /// Where a store lies. Again whenever it changes.
    Placed {
        /// Index of the store.
        store: usize,
        /// Disk and sectors that hold it.
        placement: Placement,
        /// Name of the whole disk, e.g. `loop3`; empty: unknown, as in old recordings.
        #[serde(default)]
        disk: String,
    },
    /// How far what was told of a disk can be trusted, as of now.
    Audited {
        /// Whole disk: see [`lumpscope_ebpf_common::kernel_dev`].
        dev: u32,
        /// Counts of the probes against the kernel's.
        report: Box<AuditReport>,
    },
    /// An I/O is about to be done.
    Declared(Declared),
    /// Its system call has returned.
    Finished {
        /// Index of the store.
        store: usize,
        /// Token of the I/O.
        token: u64,
        /// `CLOCK_MONOTONIC` in nanoseconds, taken after the system call.
        end_ns: u64,
    },
    /// A request has ended.
    Ended(EndedRequest),
    /// The path of a cgroup, told before the first block request that was made in it.
    Cgroup {
        /// See [`Event::cgroup`].
        id: u64,
        /// From the root of the hierarchy, as far as the service sees it.
        path: String,
    },
    /// A block request has completed.
    Event(Event),
    /// Everything that completed up to this time has been told.
    Drained {
        /// `CLOCK_MONOTONIC` in nanoseconds.
        until_ns: u64,
    },
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_none(number: &u64) -> bool {
    *number == 0
}

/// An I/O that the service is about to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Index of the store.
    pub store: usize,
    /// Unique among the store's I/Os in flight.
    pub token: u64,
    /// Ids of the requests it is done for; empty: for the store itself.
    pub requests: Vec<u64>,
    /// Whose bytes it moves.
    pub purpose: Purpose,
    /// Read, write or flush.
    pub op: Op,
    /// Byte offset in the device or file; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds, taken before the system call.
    pub begin_ns: u64,
}

/// A request that has ended; the stage times add up to `end_ns - begin_ns`, but for one that ended before
/// the engine had answered it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRequest {
    /// Id of the request.
    pub request: u64,
    /// Index of its store.
    pub store: usize,
    /// `put`, `get`, ...
    pub method: Cow<'static, str>,
    /// Body bytes moved.
    pub bytes: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds when it was accepted.
    pub begin_ns: u64,
    /// When its last byte was handed to the transport.
    pub end_ns: u64,
    /// False: it failed.
    pub ok: bool,
    /// It asked the service about itself, or told it what to do: no lump was its object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// Nanoseconds in the stages as the service measured them: recv, sched, index, data, journal, reply. The observer
    /// splits those of data I/O into submit, queue and device.
    pub stages_ns: [u64; 6],
    /// Of its commit, which is no part of `journal` there: wait, write, flush. Old recordings have
    /// all of it in `journal`.
    #[serde(default)]
    pub commit_ns: [u64; 3],
    /// The request whose batch it waited for the longest; 0: the store's own work; absent: it did not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<u64>,
    /// The trace it is exported in; absent: it is not exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

impl EndedRequest {
    /// Whole time in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}
