//! Requests that have not been counted yet, with the block requests made for them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::api::Purpose;
use crate::event::{BlockOp, Event};

use super::lost::Lost;
use super::owner::Owner;
use super::recent::Recent;
use super::stages::{joined, union};
use super::{Declared, EndedRequest};

/// Requests open at once; more are counted without their block requests.
const MAX_OPEN: usize = 65_536;
/// Ended requests that wait to be counted; more are not counted at all.
const MAX_ENDED: usize = 1 << 20;
/// Block requests kept of one request.
pub(super) const MAX_BLOCKS: usize = 64;
/// Intervals kept of one request: a lump of 64 MiB makes fewer.
const MAX_INTERVALS: usize = 4096;
/// A request that nobody ends is dropped so long after its last I/O began...
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
    /// All that have something of it, when it is more than one.
    pub(super) sharers: Option<Arc<[u64]>>,
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
    pub(super) ahead: BlocksAhead,
}

/// Block requests of others that completed while one was queued.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlocksAhead {
    pub(super) count: u32,
    /// There may have been more.
    pub(super) at_least: bool,
}

/// Beginnings and ends of times.
pub(super) type Intervals = SmallVec<[(u64, u64); 4]>;

/// What was done for the data of a request, or for its commit.
#[derive(Debug, Default)]
pub(super) struct IoWork {
    /// Its I/Os, from their declaration until the system call had returned...
    pub(super) asked: Intervals,
    /// ...and the tokens of those that have not.
    pub(super) open: SmallVec<[(u64, usize); 2]>,
    /// When a block request of it was at the disk.
    pub(super) device: Intervals,
    /// When one was made but not yet at the disk.
    pub(super) queue: Intervals,
    /// Its block requests.
    pub(super) reads: u32,
    pub(super) writes: u32,
    pub(super) flushes: u32,
}

/// Where the time of I/Os went, in nanoseconds that exclude each other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WorkTimes {
    /// A block request was at the disk...
    pub(super) device: u64,
    /// ...or else one was queued...
    pub(super) queue: u64,
    /// ...or else an I/O was asked for, and no block request had been made...
    pub(super) asked: u64,
    /// ...or its last block request had completed, and its system call had not returned.
    pub(super) back: u64,
}

impl WorkTimes {
    pub(super) fn in_all(self) -> u64 {
        self.device + self.queue + self.asked + self.back
    }

    fn apart(&mut self, is_back: bool) -> &mut u64 {
        match is_back {
            true => &mut self.back,
            false => &mut self.asked,
        }
    }
}

/// A request that has not been counted yet.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The first of its block requests.
    pub(super) blocks: Vec<Block>,
    pub(super) count: u32,
    /// Those of them that may be another's.
    pub(super) uncertain: u32,
    pub(super) data: IoWork,
    pub(super) commit: IoWork,
    /// The block request of its data for which the head travelled farthest.
    pub(super) farthest: Option<Block>,
    /// The most that one of its data was behind.
    pub(super) most_ahead: BlocksAhead,
    /// Time it lost to others.
    pub(super) lost: Lost,
    /// Bytes of the I/Os done for it that no block request has covered.
    pub(super) lacks: u64,
    /// Why something may be missing, beside what the block requests say themselves.
    pub(super) gaps: Gaps,
    /// When its last I/O began.
    pub(super) last_ns: u64,
}

/// Gaps in the knowledge of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gaps {
    /// It was not remembered, or not from its beginning.
    pub(super) not_remembered: bool,
    /// More intervals than are kept.
    pub(super) too_many_intervals: bool,
    /// Block requests of others that its own may have been merged into.
    pub(super) perhaps_merged: u32,
    /// Reads and writes that were not seen being queued.
    pub(super) unqueued: u32,
    /// Block requests that were not seen being sent to the disk.
    pub(super) unsent: u32,
    /// Block requests that were not seen completing.
    pub(super) unfinished: u32,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    open: HashMap<u64, Open>,
    ended: Vec<EndedRequest>,
    swept_ns: u64,
    pub(super) dropped: u64,
    /// The highest of those that were not remembered. Ids rise.
    forgotten_to: Option<u64>,
}

impl Requests {
    /// A request has an I/O.
    pub(super) fn open(&mut self, request: u64, begin_ns: u64) {
        if let Some(open) = self.open.get_mut(&request) {
            open.last_ns = open.last_ns.max(begin_ns);
            return;
        }
        if self.open.len() >= MAX_OPEN {
            self.forget(request);
            return;
        }
        let open = Open {
            last_ns: begin_ns,
            ..self.unknown(request)
        };
        self.open.insert(request, open);
    }

    fn forget(&mut self, request: u64) {
        self.dropped += 1;
        self.forgotten_to = self.forgotten_to.max(Some(request));
    }

    /// One of which nothing is known: it had no I/O, or it was forgotten.
    fn unknown(&self, request: u64) -> Open {
        Open {
            gaps: Gaps {
                not_remembered: Some(request) <= self.forgotten_to,
                ..Gaps::default()
            },
            ..Open::default()
        }
    }

    /// An I/O is about to be done for it, which moves so many bytes of the disk.
    pub(super) fn begin_io(&mut self, request: u64, io: &Declared, bytes: u64) {
        let Some(open) = self.open.get_mut(&request) else {
            return;
        };
        open.lacks = open.lacks.saturating_add(bytes);
        if let Some(work) = open.work(io.purpose) {
            let fits = work.begin_io(io.token, io.begin_ns);
            open.gaps.too_many_intervals |= !fits;
        }
    }

    /// The system call of that I/O has returned.
    pub(super) fn end_io(&mut self, request: u64, io: &Declared, end_ns: u64) {
        let open = self.open.get_mut(&request);
        if let Some(work) = open.and_then(|open| open.work(io.purpose)) {
            work.end_io(io.token, end_ns);
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
        let mut ahead = open.lost.add(event, share.request, recent);
        open.lost.at_least |= !all_known;
        ahead.at_least |= !all_known;
        open.add_times(event, share.purpose);
        let block = Block {
            event: Arc::clone(event),
            previous: previous.cloned(),
            ahead,
            share,
        };
        if block.share.purpose == Purpose::Data {
            open.most_ahead = open.most_ahead.max(ahead);
            if open
                .farthest
                .as_ref()
                .is_none_or(|far| far.distance() < block.distance())
            {
                open.farthest = Some(block.clone());
            }
        }
        if open.blocks.len() < MAX_BLOCKS {
            open.blocks.push(block);
        }
        true
    }

    /// A block request was found of which nobody knows how long the disk worked on it.
    pub(super) fn doubt_lost(&mut self) {
        for open in self.open.values_mut() {
            open.lost.at_least |= open.count > 0;
        }
    }

    /// A block request of somebody else may have something of it.
    pub(super) fn doubt(&mut self, request: u64) {
        if let Some(open) = self.open.get_mut(&request) {
            open.gaps.perhaps_merged = open.gaps.perhaps_merged.saturating_add(1);
        }
    }

    /// It has ended; it is counted when its block requests are known.
    pub(super) fn end(&mut self, ended: EndedRequest) {
        if self.ended.len() < MAX_ENDED {
            self.ended.push(ended);
        } else {
            self.dropped += 1;
        }
    }

    /// The requests that ended up to a time, with what was done for them.
    pub(super) fn take_ended(&mut self, until_ns: u64) -> Vec<(EndedRequest, Open)> {
        let due = |ended: &mut EndedRequest| ended.end_ns <= until_ns;
        let ended: Vec<EndedRequest> = self.ended.extract_if(.., due).collect();
        let with_open = |ended: EndedRequest| {
            let open = self.open.remove(&ended.request);
            let open = open.unwrap_or_else(|| self.unknown(ended.request));
            (ended, open)
        };
        ended.into_iter().map(with_open).collect()
    }

    /// Drops those that nobody ends; answers which.
    pub(super) fn expire(&mut self, until_ns: u64) -> Vec<u64> {
        if self.open.is_empty() || until_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return Vec::new();
        }
        self.swept_ns = until_ns;
        let abandoned =
            |_: &u64, open: &mut Open| open.last_ns.saturating_add(ABANDONED_NS) < until_ns;
        let gone = self.open.extract_if(abandoned).map(|(request, _)| request);
        let gone: Vec<u64> = gone.collect();
        for request in &gone {
            self.forget(*request);
        }
        gone
    }
}

impl Block {
    /// How far the head travelled for it; the first of two that are as far is the farther.
    fn distance(&self) -> (Option<u64>, Reverse<Option<u64>>) {
        let event = &self.event;
        (event.seek.map(i64::unsigned_abs), Reverse(event.issue_ns))
    }
}

impl Open {
    /// How many of its I/Os had not returned at a time.
    pub(super) fn unreturned_at(&self, at_ns: u64) -> usize {
        let all = self.data.asked.iter().chain(&self.commit.asked);
        all.filter(|(_, returned_ns)| *returned_ns > at_ns).count()
    }

    /// What an I/O of this purpose is part of; `None`: of neither.
    fn work(&mut self, purpose: Purpose) -> Option<&mut IoWork> {
        match purpose {
            Purpose::Data => Some(&mut self.data),
            Purpose::Journal | Purpose::Header | Purpose::Flush => Some(&mut self.commit),
            Purpose::Recovery | Purpose::Scrub | Purpose::Checkpoint => None,
        }
    }

    /// When a block request was queued, and when at the device.
    fn add_times(&mut self, event: &Event, purpose: Purpose) {
        let gaps = &mut self.gaps;
        gaps.unqueued += u32::from(event.op.is_data() && event.queue_ns.is_none());
        gaps.unsent += u32::from(event.issue_ns.is_none());
        gaps.unfinished += u32::from(event.done_unknown);
        let Some(work) = self.work(purpose) else {
            return;
        };
        match event.op {
            BlockOp::Read => work.reads += 1,
            BlockOp::Flush => work.flushes += 1,
            _ => work.writes += 1,
        }
        let fits = work.device.len() < MAX_INTERVALS;
        if fits && let Some(issue) = event.issue_ns {
            work.device.extend(event.at_device_ns());
            work.queue
                .extend(event.queue_ns.map(|queued| (queued, issue)));
        }
        self.gaps.too_many_intervals |= !fits;
    }
}

impl IoWork {
    /// False: there are too many.
    fn begin_io(&mut self, token: u64, begin_ns: u64) -> bool {
        if self.asked.len() >= MAX_INTERVALS {
            return false;
        }
        self.open.push((token, self.asked.len()));
        // Until it returns it lasts.
        self.asked.push((begin_ns, u64::MAX));
        true
    }

    fn end_io(&mut self, token: u64, end_ns: u64) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == token) {
            let (_, at) = self.open.swap_remove(at);
            self.asked[at].1 = end_ns;
        }
    }

    /// Where the time of its I/Os went until `end_ns`.
    pub(super) fn times(&self, end_ns: u64) -> WorkTimes {
        let until = |all: &[(u64, u64)]| -> Intervals {
            let clipped = all.iter().map(|(from, to)| (*from, (*to).min(end_ns)));
            clipped.collect()
        };
        let (mut made, mut known) = (until(&self.device), until(&self.asked));
        let device = union(made.clone());
        made.extend(until(&self.queue));
        let made = joined(made);
        known.extend_from_slice(&made);
        let mut times = WorkTimes {
            device,
            queue: union(made.clone()) - device,
            ..WorkTimes::default()
        };
        let mut made = made.into_iter().peekable();
        for (from, to) in joined(known) {
            let mut at = from;
            while let Some((begin, end)) = made.next_if(|(begin, _)| *begin < to) {
                *times.apart(at > from) += begin - at;
                at = end;
            }
            *times.apart(at > from) += to - at;
        }
        times
    }
}
