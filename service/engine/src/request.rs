//! The operands of requests and their results: plain values.

use std::time::Duration;

use crate::clock::{duration_ns, monotonic_ns};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::lump::LumpId;
use crate::payload::{LumpBuf, LumpData};

/// Context of every request beside its operands. The default: no deadline, no limit of its own, not
/// prioritized.
///
/// A deadline orders requests, as in CannyLS: it is no timeout, and a request that is late is
/// still carried out, unless `drop_when_late` says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCtx {
    /// The caller's id of this request.
    pub id: RequestId,
    /// When the answer is wanted, in nanoseconds of [`monotonic_ns`]; `None`: whenever it comes.
    pub deadline: Option<u64>,
    /// True: once the deadline has passed and the request has not touched the disk, it is
    /// answered with [`Error::DeadlineExceeded`] and never will. No effect without a deadline.
    pub drop_when_late: bool,
    /// True: not refused because the store is overloaded, only when its queue is full.
    pub prioritized: bool,
    /// Refused with [`Error::Busy`] when more requests than this wait already; `None`: only the
    /// limits of the store count.
    pub max_queue_len: Option<u32>,
}

impl RequestCtx {
    /// Sets the deadline to now, so that the request is answered before all without a deadline or
    /// with a later one. Not to be combined with `drop_when_late`, which would drop it.
    #[must_use]
    pub fn immediate(self) -> Self {
        self.within(Duration::ZERO)
    }

    /// Sets the deadline to `time` from now.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self {
            deadline: Some(monotonic_ns().saturating_add(duration_ns(time))),
            ..self
        }
    }

    /// How late the request is at `now_ns`; `None`: it has time left, or late ones are done too.
    pub(crate) fn late_ns(&self, now_ns: u64) -> Option<u64> {
        let deadline = self.deadline.filter(|_| self.drop_when_late)?;
        now_ns.checked_sub(deadline).filter(|late| *late > 0)
    }
}

/// Meaning of "acknowledged" for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Data and journal record are on stable storage: they survive a power cut.
    #[default]
    Synced,
    /// Data and journal record are written: they survive the death of the process; the flush
    /// follows at once.
    Journaled,
}

/// When a put is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PutCondition {
    /// Always; an older lump of this id is replaced.
    #[default]
    Always,
    /// Only if there is no lump of this id; else [`Error::AlreadyExists`]. Decided in the order
    /// of the journal: of concurrent puts of one id with this condition exactly one succeeds.
    IfAbsent,
}

/// How a lump is put. The default: data region, on stable storage, whatever was there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Where its bytes go.
    pub placement: Placement,
    /// When the put is acknowledged.
    pub durability: Durability,
    /// Whether it is carried out.
    pub condition: PutCondition,
}

/// Where the bytes of a lump live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Data region: one contiguous portion of whole blocks.
    #[default]
    Data,
    /// Inside the journal record itself; at most 65,535 bytes.
    Embedded,
}

/// The ids `start <= id < end`; no end: all ids from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LumpRange {
    /// First id of the range.
    pub start: LumpId,
    /// First id after the range; `None`: the range includes the largest id.
    pub end: Option<LumpId>,
}

impl LumpRange {
    /// Every id there is.
    pub const ALL: Self = Self {
        start: LumpId(0),
        end: None,
    };

    /// Refuses a range that ends before it starts.
    ///
    /// # Errors
    /// [`Error::ReversedRange`].
    pub fn check(self) -> Result<Self, Error> {
        match self.end {
            Some(end) if end < self.start => Err(Error::ReversedRange {
                start: self.start,
                end,
            }),
            _ => Ok(self),
        }
    }
}

/// Called once with the result of a request, on an engine thread: it must not block.
pub type OnDone<T> = Box<dyn FnOnce(Result<T, Error>, EngineTimes) + Send>;

/// Where the time of one request went, in nanoseconds of the monotonic clock. The seven add up to
/// the time from the call of `submit_*` to the call of its callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineTimes {
    /// Handed to the engine until its owner thread starts it, plus waits for a free I/O slot.
    pub sched_ns: u64,
    /// The owner thread's work for it: lookup and allocation.
    pub index_ns: u64,
    /// Its data I/O, from submission to completion.
    pub data_ns: u64,
    /// Its commit, until acknowledged, as far as it is none of the next three: the owner thread
    /// makes the batch and applies it.
    pub journal_ns: u64,
    /// Its commit waits for the batch or flush in flight to end.
    pub wait_ns: u64,
    /// The batch with its record is written to the journal.
    pub write_ns: u64,
    /// A flush that its data or its record needs is in flight.
    pub flush_ns: u64,
    /// Its longest wait of those in `wait_ns`.
    pub longest_wait: Option<BatchWait>,
}

impl EngineTimes {
    /// Nanoseconds in all.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.sched_ns + self.index_ns + self.data_ns + self.commit_ns()
    }

    /// Nanoseconds of the commit.
    #[must_use]
    pub fn commit_ns(&self) -> u64 {
        self.journal_ns + self.wait_ns + self.write_ns + self.flush_ns
    }

    /// These times scaled down to `room_ns` if they are more: work for several lumps at a time, or
    /// while bytes came or went, shares the time in which the request waited for it.
    #[must_use]
    pub fn within(self, room_ns: u64) -> Self {
        let used = self.total_ns();
        if used <= room_ns {
            return self;
        }
        let part = |ns: u64| {
            let part = u128::from(ns) * u128::from(room_ns) / u128::from(used);
            u64::try_from(part).unwrap_or(room_ns)
        };
        Self {
            sched_ns: part(self.sched_ns),
            index_ns: part(self.index_ns),
            data_ns: part(self.data_ns),
            journal_ns: part(self.journal_ns),
            wait_ns: part(self.wait_ns),
            write_ns: part(self.write_ns),
            flush_ns: part(self.flush_ns),
            longest_wait: self.longest_wait,
        }
    }
}

impl std::ops::AddAssign for EngineTimes {
    fn add_assign(&mut self, more: Self) {
        self.sched_ns += more.sched_ns;
        self.index_ns += more.index_ns;
        self.data_ns += more.data_ns;
        self.journal_ns += more.journal_ns;
        self.wait_ns += more.wait_ns;
        self.write_ns += more.write_ns;
        self.flush_ns += more.flush_ns;
        self.longest_wait = self.longest_wait.max(more.longest_wait);
    }
}

/// A commit's wait for a batch before its own. The longer one is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchWait {
    /// Nanoseconds.
    pub ns: u64,
    /// First of the requests that were being committed; 0: the store's own work was.
    pub behind: RequestId,
}

/// Result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// True: the id was not there before. False: an older lump was replaced.
    pub created: bool,
    /// Durability reached: what was asked for or stronger.
    pub durability: Durability,
}

/// Puts and deletes that are one change ([`Store::submit_put_group`]): after a crash all of it has
/// happened, or nothing; readers see all of it at the same moment.
///
/// [`Store::submit_put_group`]: crate::Store::submit_put_group
#[derive(Debug)]
pub struct PutGroup {
    /// A lump in the data region, if there is one to be put.
    pub data: Option<(LumpId, LumpBuf)>,
    /// A lump in the journal.
    pub embedded: (LumpId, LumpBuf),
    /// Lumps that are removed, after the puts; those that are not there do no harm.
    pub deletes: Vec<LumpId>,
}

/// A page of the embedded lumps of a range ([`Store::embedded`](crate::Store::embedded)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedPage {
    /// Lumps with their bytes, verified, in the order of their records in the journal.
    pub lumps: Vec<(LumpId, Vec<u8>)>,
    /// Where the next page begins; `None`: the journal has been read to its end.
    pub next: Option<u64>,
}

/// Result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteOutcome {
    /// False: there was no such lump.
    pub existed: bool,
    /// Durability reached: what was asked for or stronger.
    pub durability: Durability,
}

/// Result of a range delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteRangeOutcome {
    /// Number of lumps removed.
    pub deleted: u64,
    /// Durability reached: what was asked for or stronger.
    pub durability: Durability,
}

/// Result of a delete of many ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteManyOutcome {
    /// For each id, in the order asked for: false when there was no such lump. Of an id that
    /// comes twice, the first one deletes.
    pub existed: Vec<bool>,
    /// Durability reached by all: what was asked for or stronger.
    pub durability: Durability,
}

/// Result of a round of the journal's garbage collection that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CollectOutcome {
    /// Bytes of the ring that became free; less than was garbage when requests came meanwhile.
    pub freed_bytes: u64,
    /// Records moved to the tail.
    pub relocated: u64,
    /// Records dropped.
    pub dropped: u64,
    /// Bytes of the ring in use afterwards.
    pub used_bytes: u64,
    /// Bytes of them that are live.
    pub live_bytes: u64,
}

/// Result of a range read.
#[derive(Debug)]
pub struct RangeOutcome {
    /// The bytes: as many as were asked for, fewer where the lump ends, none at its end.
    pub data: LumpData,
    /// First of them within the lump.
    pub offset: u64,
    /// Bytes of the whole lump.
    pub total_length: u64,
}

/// Result of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOutcome {
    /// Exact size of the lump in bytes.
    pub length: u64,
    /// Where the lump lives.
    pub placement: Placement,
}

/// Result of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOutcome {
    /// Ids in ascending order, at most as many as asked for.
    pub ids: Vec<LumpId>,
    /// First id of the rest of the range; `None`: the range is exhausted.
    pub next: Option<LumpId>,
}

/// Result of a usage query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageOutcome {
    /// Lumps in the range.
    pub lumps: u64,
    /// Bytes of disk they take: whole blocks in the data region, exact when embedded.
    pub stored_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_parallel_shares_the_time_it_took() {
        // Sixteen writes at a time, as a PutMany makes them.
        let mut sum = EngineTimes::default();
        for _ in 0..16 {
            sum += EngineTimes {
                sched_ns: 3,
                index_ns: 1,
                data_ns: 20,
                journal_ns: 1,
                wait_ns: 2,
                write_ns: 1,
                flush_ns: 3,
                longest_wait: None,
            };
        }
        let within = sum.within(197);
        assert!(
            within.total_ns() <= 197 && within.total_ns() > 186,
            "{within:?}"
        );
        assert!(within.data_ns > within.flush_ns && within.flush_ns > within.wait_ns);
        assert_eq!(sum.within(496), sum);
    }
}
