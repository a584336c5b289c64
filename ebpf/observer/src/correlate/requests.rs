//! Requests that have not been counted yet, with the block requests made for them.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::api::Purpose;
use crate::event::Event;

use super::Ended;
use super::lost::Lost;
use super::owner::Owner;
use super::recent::Recent;

/// Requests open at once; more are counted without their block requests.
const MAX_OPEN: usize = 65_536;
/// Ended requests that wait to be counted; more are not counted at all.
const MAX_ENDED: usize = 1 << 20;
/// Block requests kept of one request.
pub(super) const MAX_BLOCKS: usize = 64;
/// Intervals kept of one request: a lump of 64 MiB makes fewer.
const MAX_INTERVALS: usize = 4096;
/// A request that nobody ends is dropped after this time...
const ABANDONED_NS: u64 = 120_000_000_000;
/// ...looked for this often.
const SWEEP_NS: u64 = 1_000_000_000;

/// A request's share of a block request.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub(super) request: u64,
    pub(super) purpose: Purpose,
    pub(super) own_bytes: u64,
    /// Of an I/O that was done for it: with what those have who share the I/O.
    pub(super) of_io: u64,
    /// Others have something of it too.
    pub(super) shared: bool,
    /// It may be another's altogether.
    pub(super) uncertain: bool,
}

/// One block request, as seen by one request.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) event: Arc<Event>,
    pub(super) share: Share,
    /// Owner of the data request that the disk was sent before; `None`: unknown so far.
    pub(super) previous: Option<Owner>,
    /// Block requests of others that were sent before it and completed while it waited.
    pub(super) ahead: u32,
}

/// Beginnings and ends of times.
pub(super) type Intervals = SmallVec<[(u64, u64); 4]>;

/// A request that has not been counted yet.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The first of its block requests.
    pub(super) blocks: Vec<Block>,
    pub(super) count: u32,
    /// Those of them that may be another's.
    pub(super) uncertain: u32,
    /// When a block request of its data was at the disk.
    pub(super) device: Intervals,
    /// When one was made but not yet at the disk.
    pub(super) queue: Intervals,
    /// Time it lost to others.
    pub(super) lost: Lost,
    /// Bytes of the I/Os done for it that no block request has covered.
    pub(super) lacks: u64,
    /// Why something may be missing, beside what the block requests say themselves.
    pub(super) gaps: Gaps,
    pub(super) begin_ns: u64,
}

/// Gaps in the knowledge of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gaps {
    /// It was not remembered: too many were open.
    pub(super) not_remembered: bool,
    /// More intervals than are kept.
    pub(super) too_many_intervals: bool,
    /// Block requests of others that its own may have been merged into.
    pub(super) perhaps_merged: u32,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    open: HashMap<u64, Open>,
    ended: Vec<Ended>,
    swept_ns: u64,
    pub(super) dropped: u64,
}

impl Requests {
    /// A request has its first I/O.
    pub(super) fn open(&mut self, request: u64, begin_ns: u64) {
        if self.open.contains_key(&request) {
            return;
        }
        if self.open.len() >= MAX_OPEN {
            self.dropped += 1;
            return;
        }
        self.open.insert(
            request,
            Open {
                begin_ns,
                ..Open::default()
            },
        );
    }

    /// So many bytes will be read or written for it.
    pub(super) fn lacks(&mut self, request: u64, bytes: u64) {
        if let Some(open) = self.open.get_mut(&request) {
            open.lacks = open.lacks.saturating_add(bytes);
        }
    }

    /// A block request was made for it. `recent`: what its disk was sent
    /// lately, and whether all of that is known by now. False: the
    /// request is not open; perhaps it was counted already.
    pub(super) fn add(
        &mut self,
        event: &Arc<Event>,
        share: Share,
        previous: Option<&Owner>,
        (recent, all_known): (&Recent, bool),
    ) -> bool {
        let Some(open) = self.open.get_mut(&share.request) else {
            return false;
        };
        open.count = open.count.saturating_add(1);
        open.lacks = open.lacks.saturating_sub(share.of_io);
        open.uncertain = open.uncertain.saturating_add(u32::from(share.uncertain));
        let ahead = open.lost.add(event, share.request, recent);
        open.lost.at_least |= !all_known;
        if share.purpose == Purpose::Data {
            open.add_times(event);
        }
        if open.blocks.len() < MAX_BLOCKS {
            open.blocks.push(Block {
                event: Arc::clone(event),
                previous: previous.cloned(),
                ahead,
                share,
            });
        }
        true
    }

    /// A block request of somebody else may have something of it.
    pub(super) fn doubt(&mut self, request: u64) {
        if let Some(open) = self.open.get_mut(&request) {
            open.gaps.perhaps_merged = open.gaps.perhaps_merged.saturating_add(1);
        }
    }

    /// It has ended; it is counted when its block requests are known.
    pub(super) fn end(&mut self, ended: Ended) {
        if self.ended.len() < MAX_ENDED {
            self.ended.push(ended);
        } else {
            self.dropped += 1;
        }
    }

    /// The requests that ended up to a time, with what was done for them.
    pub(super) fn take_ended(&mut self, until_ns: u64) -> Vec<(Ended, Open)> {
        let due = |ended: &mut Ended| ended.end_ns <= until_ns;
        let ended: Vec<Ended> = self.ended.extract_if(.., due).collect();
        let dropped = self.dropped > 0;
        let with_open = |ended: Ended| {
            let open = self.open.remove(&ended.request).unwrap_or_else(|| Open {
                gaps: Gaps {
                    not_remembered: dropped,
                    ..Gaps::default()
                },
                ..Open::default()
            });
            (ended, open)
        };
        ended.into_iter().map(with_open).collect()
    }

    pub(super) fn expire(&mut self, until_ns: u64) {
        if self.open.is_empty() || until_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return;
        }
        self.swept_ns = until_ns;
        let before = self.open.len();
        self.open
            .retain(|_, open| open.begin_ns.saturating_add(ABANDONED_NS) >= until_ns);
        let gone = before - self.open.len();
        self.dropped += u64::try_from(gone).unwrap_or(u64::MAX);
    }
}

impl Open {
    /// When a block request of its data was queued, and when at the disk.
    fn add_times(&mut self, event: &Event) {
        let Some(issue) = event.issue_ns else {
            return;
        };
        if self.device.len() >= MAX_INTERVALS {
            self.gaps.too_many_intervals = true;
            return;
        }
        self.device.extend(event.at_device_ns());
        self.queue
            .extend(event.queue_ns.map(|queued| (queued, issue)));
    }
}
