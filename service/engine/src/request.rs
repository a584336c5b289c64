//! The operands of requests and their results: plain values.

use std::time::Duration;

use crate::buffer::Payer;
use crate::clock::{duration_ns, monotonic_ns};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::lump::LumpId;
pub use crate::lump::Placement;
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
    /// Who pays for the memory of its bytes, if it is a get.
    pub payer: Payer,
}

impl RequestCtx {
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

/// How a lump is put. The default: where the store chooses, on stable storage, whatever was there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Where its bytes go; `None`: the store [chooses](crate::Store::chosen_placement).
    pub placement: Option<Placement>,
    /// When the put is acknowledged.
    pub durability: Durability,
    /// Whether it is carried out.
    pub condition: PutCondition,
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

    /// True: the id is one of the range.
    #[must_use]
    pub fn contains(self, id: LumpId) -> bool {
        self.start <= id && self.end.is_none_or(|end| id < end)
    }

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

/// Result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// True: the id was not there before. False: an older lump was replaced.
    pub created: bool,
    /// Durability reached: what was asked for or stronger.
    pub durability: Durability,
    /// Where its bytes went; of a group, those of its data.
    pub placement: Placement,
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
    /// CRC-32C of its bytes, as it is stored with them; `None`: it was not asked for, or none is.
    pub crc32c: Option<u32>,
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
    /// Rises by one with each lump that is put or removed in the whole store. It begins anywhere when
    /// the store is opened: two equal numbers say that nothing was changed in between.
    pub changes: u64,
}
