//! Requests of the emulated disk, their times, and how closely the answers followed the model.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::disk::{Request, Served};
use crate::trace::{Op, Trace, Traced};

/// So many requests are remembered; older ones are forgotten and counted. Some 15 MiB.
pub const LOG_REQUESTS: usize = 1 << 18;
/// Latest reply that the histogram of lateness tells apart, in nanoseconds: ten minutes.
const LATEST_NS: u64 = 600_000_000_000;

/// One request that an emulated disk has taken. Times are nanoseconds of its virtual time, which
/// begins with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Kind of request.
    pub op: Op,
    /// First sector of 512 bytes; 0 for a flush.
    pub sector: u64,
    /// Number of sectors; 0 for a flush.
    pub sectors: u32,
    /// When it came.
    pub arrived_ns: u64,
    /// When the model says that it is done.
    pub due_ns: u64,
    /// When the answer was given to the kernel; `None`: not yet.
    pub replied_ns: Option<u64>,
    /// The model served it from its cache or took it into it.
    pub cached: bool,
}

impl Logged {
    /// As a block request. What has not been answered yet is done when the model says so.
    #[must_use]
    pub fn traced(&self) -> Traced {
        Traced {
            op: self.op,
            fua: false,
            sector: self.sector,
            sectors: self.sectors,
            queue_ns: self.arrived_ns,
            issue_ns: self.arrived_ns,
            done_ns: self.replied_ns.unwrap_or(self.due_ns),
            own: true,
        }
    }
}

/// Log of an emulated disk's requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// In the order in which they came.
    pub requests: Vec<Logged>,
    /// Older ones that were forgotten: more than [`LOG_REQUESTS`] came.
    pub missing: u64,
}

impl Log {
    /// The log as the trace of a whole disk, for a replay through a model.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::new(
            self.requests.iter().map(Logged::traced).collect(),
            self.missing,
        )
    }
}

/// How late the answers were, in real nanoseconds behind the time that the model says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Arithmetic mean over all answers.
    pub mean_ns: u64,
    /// 99 of 100 answers were no later.
    pub p99_ns: u64,
    /// The latest.
    pub max_ns: u64,
}

/// Counts of an emulated disk's work since it was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Reads answered or under way.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes that were taken.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes that were refused because the memory's bound was reached.
    pub refused: u64,
    /// Reads and writes that touched a bad spot.
    #[serde(default)]
    pub failed: u64,
    /// Requests under way now.
    pub in_flight: u64,
    /// Virtual nanoseconds from arrival to the end by the model, of all requests together.
    pub device_ns: u64,
}

/// Everything that is counted and remembered.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) counts: Counts,
    lateness: Histogram<u64>,
    requests: VecDeque<Logged>,
    missing: u64,
}

impl Ledger {
    /// An empty one; its memory is taken now.
    pub(super) fn new() -> Ledger {
        // Two digits are enough to see whether a machine keeps up; the bounds are fixed and valid.
        let lateness = Histogram::new_with_bounds(1, LATEST_NS, 2);
        Ledger {
            counts: Counts::default(),
            lateness: lateness.unwrap_or_else(|_| unreachable!("the bounds are constants")),
            requests: VecDeque::with_capacity(LOG_REQUESTS),
            missing: 0,
        }
    }

    /// Notes a request that came; answers its number.
    pub(super) fn taken(&mut self, arrived_ns: u64, request: &Request, served: &Served) -> u64 {
        let counts = &mut self.counts;
        let bytes = u64::from(request.sectors) * 512;
        match request.op {
            Op::Read => {
                counts.reads += 1;
                counts.read_bytes += bytes;
            }
            Op::Write => {
                counts.writes += 1;
                counts.written_bytes += bytes;
            }
            Op::Flush | Op::Discard => counts.flushes += 1,
        }
        counts.in_flight += 1;
        counts.device_ns += served.done_ns.saturating_sub(arrived_ns);
        if self.requests.len() == LOG_REQUESTS {
            self.requests.pop_front();
            self.missing += 1;
        }
        self.requests.push_back(Logged {
            op: request.op,
            sector: request.sector,
            sectors: request.sectors,
            arrived_ns,
            due_ns: served.done_ns,
            replied_ns: None,
            cached: served.cached,
        });
        self.missing + u64::try_from(self.requests.len()).unwrap_or(0) - 1
    }

    /// Notes that the request of this number was answered.
    pub(super) fn answered(&mut self, number: u64, replied_ns: u64, late: Duration) {
        self.counts.in_flight = self.counts.in_flight.saturating_sub(1);
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.lateness.saturating_record(late);
        let place = number
            .checked_sub(self.missing)
            .and_then(|n| usize::try_from(n).ok());
        if let Some(request) = place.and_then(|place| self.requests.get_mut(place)) {
            request.replied_ns = Some(replied_ns);
        }
    }

    pub(super) fn lateness(&self) -> Lateness {
        if self.lateness.is_empty() {
            return Lateness::default();
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean lies between the least and the largest value"
        )]
        let mean_ns = self.lateness.mean() as u64;
        Lateness {
            mean_ns,
            p99_ns: self.lateness.value_at_quantile(0.99),
            max_ns: self.lateness.max(),
        }
    }

    /// A copy of what is remembered.
    pub(super) fn log(&self) -> Log {
        Log {
            requests: self.requests.iter().copied().collect(),
            missing: self.missing,
        }
    }
}
