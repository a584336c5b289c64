//! The scrubber: reads the journal, then every lump in the order of the disk, in the background, and
//! has their bytes compared with their checksums.
//!
//! One I/O of at most 1 MiB is in flight at a time, beside the slots of the foreground. Its budget
//! is a rate in bytes a second; while requests wait for a slot it uses no more than a twentieth of
//! the time, whatever the budget says. Neighbouring lumps are read together, large ones piece by
//! piece. What is read is pinned for that one I/O only. How far a pass has come is kept in the
//! journal header block, so it goes on there after a restart.

mod journal;
mod plan;
mod results;
mod verify;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::budget::Budget;
use super::ctx::Ctx;
use super::io_table::Tag;
use crate::buffer::AlignedBuf;
use crate::clock::{monotonic_ns, wall_ns};
use crate::error::Error;
use crate::format::journal_header::ScrubMark;
use crate::format::sums::PayloadSums;
use crate::format::trailer::Trailer;
use crate::format::verify::Subject;
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::scrub::ScrubPass;
use crate::storage::index::IndexEntry;
use crate::units::{RingPosition, to_usize};

use plan::{Scanned, ScrubPlan, ScrubTarget, place};
use verify::{Verified, Work};

/// Most bytes of one read.
const MOST: u64 = 1024 * 1024;
/// Bytes between two lumps that are read along, rather than to read twice.
const GAP: u64 = 32 * 1024;
/// The end of a large lump is read with at least this many bytes.
const END: u64 = 4096;
/// Entries of the index gone through in one turn of the owner thread.
const SLICE: usize = 2048;
/// While requests wait, a read is followed by a pause of this many times what it took.
const FAIR_PAUSE: u64 = 19;
/// The mark in the journal header is renewed this often in a pass.
const MARKS: u64 = 64;

/// Where a lump is.
#[derive(Clone, Copy, Debug)]
enum ScrubPlace {
    Portion(Portion, Subject),
    Record(RingPosition),
}

/// A lump in a read.
#[derive(Debug)]
struct ScrubLump {
    id: LumpId,
    /// Its newest record when it was read.
    record: RingPosition,
    place: ScrubPlace,
    /// First byte in the device.
    offset: u64,
    /// First byte in the buffer, and bytes.
    at: usize,
    len: usize,
}

/// A lump that takes several reads.
struct Large {
    id: LumpId,
    record: RingPosition,
    portion: Portion,
    offset: u64,
    len: u64,
    /// Bytes verified from the start.
    done: u64,
    subject: Subject,
    /// The sums so far, and what its end says; `None`: its end is to be read first.
    begun: Option<(PayloadSums, (u64, Option<Trailer>))>,
}

impl ScrubLump {
    fn target(&self) -> ScrubTarget {
        ScrubTarget {
            offset: self.offset,
            id: self.id,
        }
    }
}

impl Large {
    fn target(&self) -> ScrubTarget {
        ScrubTarget {
            offset: self.offset,
            id: self.id,
        }
    }
}

/// The lumps that a read is for.
struct ScrubRead {
    work: Work,
    offset: u64,
    len: u64,
}

/// State of the scrubber.
pub(crate) struct Scrub {
    /// Pause from the start of one pass to the start of the next, in nanoseconds.
    interval_ns: u64,
    budget: Budget,
    plan: Option<ScrubPlan>,
    /// Lumps before this byte of the device have been dealt with.
    position: u64,
    /// When the present pass began, or the last one, in nanoseconds since 1970; 0: none has.
    began_ns: u64,
    /// Lumps of a read that failed, to be read one by one.
    singles: VecDeque<ScrubTarget>,
    /// The record that comes next; `None`: the journal has been read in this pass.
    journal: Option<RingPosition>,
    /// The tail when its read began.
    journal_end: RingPosition,
    large: Option<Box<Large>>,
    /// A read is in flight, or being verified.
    busy: bool,
    /// Of lumps, while it is in flight.
    reading: Option<ScrubRead>,
    read_began_ns: u64,
    /// While requests wait, nothing begins before this.
    fair_ns: u64,
    /// When there is something to do again.
    due_ns: Option<u64>,
    /// The mark in the journal header is to be written.
    mark_wanted: bool,
    verified: (Sender<Verified>, Receiver<Verified>),
}

impl Scrub {
    /// `mark`: of the journal header; `base`: first byte of the image.
    pub(crate) fn new(mark: ScrubMark, base: u64, interval_ns: u64) -> Self {
        Self {
            interval_ns,
            budget: Budget::new(0),
            plan: None,
            position: base.saturating_add(mark.position),
            began_ns: mark.began_ns,
            singles: VecDeque::new(),
            journal: None,
            journal_end: RingPosition(0),
            large: None,
            busy: false,
            reading: None,
            read_began_ns: 0,
            fair_ns: 0,
            due_ns: None,
            mark_wanted: false,
            verified: unbounded(),
        }
    }

    /// When the owner thread must look again, if nothing else happens.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// True: nothing is under way that closing has to wait for.
    pub(super) fn is_idle(&self) -> bool {
        self.plan.is_none() && !self.busy && !self.mark_wanted
    }

    /// Has the mark renewed when at least `step` bytes have been passed since the last time.
    fn note(&mut self, ctx: &mut Ctx, step: u64) {
        let base = ctx.storage.geometry.base().0;
        let mark = ScrubMark {
            position: self.position.saturating_sub(base),
            began_ns: self.began_ns,
        };
        let marked = &mut ctx.header.mark;
        let moved = mark.position.abs_diff(marked.position);
        if moved >= step || (step == 1 && mark != *marked) {
            *marked = mark;
            self.mark_wanted = true;
        }
    }

    /// Does the next step, if it may; `requests_wait`: some wait for a slot at the disk.
    pub(super) fn step(&mut self, ctx: &mut Ctx, requests_wait: bool) {
        while let Ok(verified) = self.verified.1.try_recv() {
            self.busy = false;
            self.verdict(ctx, verified);
        }
        self.due_ns = None;
        self.write_mark(ctx);
        let control = &ctx.shared.scrub;
        if ctx.closing || !control.on.load(Ordering::Acquire) {
            return self.rest(ctx);
        }
        let now_ns = monotonic_ns();
        let rate = control.rate.load(Ordering::Relaxed);
        self.budget.set_rate(rate, now_ns);
        // A disk that cannot be read says nothing of its lumps.
        if self.busy || ctx.health.state.is_out() {
            return;
        }
        if let Some(due_ns) = self.wait_until(ctx, requests_wait, now_ns) {
            self.due_ns = Some(due_ns);
            return;
        }
        if self.plan.is_none() && !self.begin_pass(ctx, now_ns) {
            return;
        }
        self.read_next(ctx, now_ns);
    }

    /// Not at work: what a pass would hold in memory is given back, its place is kept.
    fn rest(&mut self, ctx: &mut Ctx) {
        if !self.busy && self.plan.take().is_some() {
            self.large = None;
            self.journal = None;
            self.singles.clear();
            self.note(ctx, 1);
            self.write_mark(ctx);
        }
    }

    /// Writes the journal header block with the present head and the new mark. The head's own
    /// moves write the same block, and the two never at the same time.
    fn write_mark(&mut self, ctx: &mut Ctx) {
        if !self.mark_wanted {
            return;
        }
        if ctx.writes_nothing() {
            self.mark_wanted = false;
        } else if !ctx.header.busy {
            let head = ctx.storage.journal.head_and_sums();
            ctx.write_header(Tag::ScrubMark, head);
            self.mark_wanted = false;
        }
    }

    /// Until when the budget, or the foreground, has the scrubber wait.
    fn wait_until(&self, ctx: &Ctx, requests_wait: bool, now_ns: u64) -> Option<u64> {
        let full = ctx.io.data_in_flight() >= ctx.limits.data_ios;
        let foreground_waits = full || requests_wait;
        let fair = Some(self.fair_ns).filter(|&due| foreground_waits && due > now_ns);
        self.budget.wait_until(now_ns).max(fair)
    }

    /// Begins a pass, or goes on with one from before the last open. False: it is not time yet.
    fn begin_pass(&mut self, ctx: &mut Ctx, now_ns: u64) -> bool {
        let geometry = &ctx.storage.geometry;
        let (base, end) = (geometry.base().0, geometry.end().0);
        let position = self.position;
        let goes_on = self.began_ns > 0 && position > base && position < end;
        let wall = wall_ns();
        let next_ns = self.began_ns.saturating_add(self.interval_ns);
        let asked = ctx.shared.scrub.now.load(Ordering::Relaxed);
        if !goes_on && !asked && self.began_ns > 0 && wall < next_ns {
            // The wall clock may be set meanwhile: then this is only looked at again.
            self.due_ns = Some(now_ns.saturating_add(next_ns - wall));
            return false;
        }
        let from = if goes_on { position } else { base };
        if !goes_on {
            self.began_ns = wall;
        }
        self.position = from;
        self.plan = Some(ScrubPlan::new(from, ctx.storage.index.len()));
        self.journal = Some(ctx.storage.journal.head());
        let mut status = ctx.shared.scrub.locked();
        status.running = true;
        ctx.shared.scrub.now.store(false, Ordering::Relaxed);
        status.position = from;
        status.end = end;
        if !goes_on {
            status.this_pass = ScrubPass::default();
        }
        true
    }

    /// Starts the next read, or goes through a slice of the index for it.
    fn read_next(&mut self, ctx: &mut Ctx, now_ns: u64) {
        if self.read_journal(ctx, now_ns) {
            return;
        }
        if let Some(large) = self.large.take() {
            return self.read_large(ctx, large, now_ns);
        }
        if let Some(single) = self.singles.pop_front() {
            return self.read_group(ctx, vec![single], now_ns);
        }
        let group = self.next_group(ctx);
        if !group.is_empty() {
            return self.read_group(ctx, group, now_ns);
        }
        let Some(plan) = self.plan.as_mut() else {
            return;
        };
        match plan.scan(&ctx.storage.index, &ctx.storage.geometry, SLICE) {
            // More to do at once; what the foreground wants comes between.
            Scanned::Going => self.due_ns = Some(now_ns),
            Scanned::PassEnds => self.end_pass(ctx, now_ns),
        }
    }

    fn end_pass(&mut self, ctx: &mut Ctx, now_ns: u64) {
        let geometry = &ctx.storage.geometry;
        let (base, end) = (geometry.base().0, geometry.end().0);
        self.plan = None;
        self.position = end;
        self.note(ctx, 1);
        let ended_ns = wall_ns();
        let mut status = ctx.shared.scrub.locked();
        status.position = end;
        status.running = false;
        status.passes += 1;
        status.this_pass.ended_ns = ended_ns;
        status.last_pass = Some(status.this_pass);
        drop(status);
        let counters = &ctx.shared.counters;
        counters.scrub_passes.add(1);
        counters.scrub_last_pass_ns.set(ended_ns);
        counters.scrub_position_bytes.set(end - base);
        self.due_ns = Some(now_ns);
    }

    /// The next lumps of the plan that one read can serve.
    fn next_group(&mut self, ctx: &Ctx) -> Vec<ScrubTarget> {
        let mut group = Vec::new();
        let mut range = None;
        let Some(plan) = self.plan.as_mut() else {
            return group;
        };
        while let Some(target) = plan.pop() {
            let Some(entry) = ctx.storage.index.get(target.id) else {
                continue;
            };
            // One that has moved was written since, or read by the collection: it is in order.
            if place(&ctx.storage.geometry, entry) != target.offset {
                continue;
            }
            let end = target.offset + stored_len(entry, &ctx.storage.geometry);
            let (first, last) = range.unwrap_or((target.offset, target.offset));
            let fits = target.offset.saturating_sub(last) <= GAP && end - first <= MOST;
            if range.is_some() && !fits {
                plan.put_back(target);
                break;
            }
            group.push(target);
            range = Some((first, end.max(last)));
        }
        group
    }

    /// Reads whole lumps, or begins with a large one.
    fn read_group(&mut self, ctx: &mut Ctx, group: Vec<ScrubTarget>, now_ns: u64) {
        let geometry = ctx.storage.geometry;
        let unit = ctx.storage.journal.unit();
        let mut parts: Vec<ScrubLump> = Vec::with_capacity(group.len());
        for ScrubTarget { offset, id } in group {
            let Some(entry) = ctx.storage.index.get(id) else {
                continue;
            };
            if place(&geometry, entry) != offset {
                continue;
            }
            let len = stored_len(entry, &geometry);
            let place = match entry.portion() {
                Some(portion) if len > MOST => {
                    let large = Large {
                        id,
                        record: entry.record(),
                        portion,
                        offset,
                        len,
                        done: 0,
                        subject: ctx.subject(id, portion, entry),
                        begun: None,
                    };
                    return self.read_large(ctx, Box::new(large), now_ns);
                }
                Some(portion) => ScrubPlace::Portion(portion, ctx.subject(id, portion, entry)),
                None => ScrubPlace::Record(entry.record()),
            };
            parts.push(ScrubLump {
                id,
                record: entry.record(),
                place,
                offset,
                at: 0,
                len: to_usize(len),
            });
        }
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            // All of them have gone since.
            self.due_ns = Some(now_ns);
            return;
        };
        let start = first.offset - first.offset % unit;
        let end = (last.offset + last.len as u64).next_multiple_of(unit);
        for part in &mut parts {
            part.at = to_usize(part.offset - start);
        }
        self.submit(ctx, Work::Group(parts), start, end - start, now_ns);
    }

    /// Reads the end of a large lump, then the pieces from its start.
    fn read_large(&mut self, ctx: &mut Ctx, large: Box<Large>, now_ns: u64) {
        if !is_current(ctx, large.id, large.record) {
            // Written anew, or its record has moved: it is looked at as it is now.
            self.singles.push_back(large.target());
            self.due_ns = Some(now_ns);
            return;
        }
        if large.begun.is_some() {
            let (offset, len) = (large.offset + large.done, MOST.min(large.len - large.done));
            return self.submit(ctx, Work::Piece(large), offset, len, now_ns);
        }
        let block = ctx.storage.geometry.block_size().bytes();
        let len = END.next_multiple_of(block).min(large.len);
        let offset = large.offset + large.len - len;
        self.submit(ctx, Work::End(large), offset, len, now_ns);
    }

    fn submit(&mut self, ctx: &mut Ctx, work: Work, offset: u64, len: u64, now_ns: u64) {
        self.budget.spend(len, now_ns);
        self.busy = true;
        self.read_began_ns = now_ns;
        pin(ctx, &work, true);
        self.reading = Some(ScrubRead { work, offset, len });
        ctx.io.read(Tag::Scrub, offset, len, Vec::new());
    }

    /// A read has ended; its bytes are verified elsewhere.
    pub(super) fn ended(
        &mut self,
        ctx: &mut Ctx,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let Some(ScrubRead { work, offset, len }) = self.reading.take() else {
            return;
        };
        let now_ns = monotonic_ns();
        let took_ns = now_ns.saturating_sub(self.read_began_ns);
        self.fair_ns = now_ns.saturating_add(took_ns.saturating_mul(FAIR_PAUSE));
        pin(ctx, &work, false);
        let buf = match (result, buf) {
            (Ok(()), Some(buf)) => buf,
            (Ok(()), None) => {
                self.busy = false;
                return;
            }
            (Err(error), _) => {
                self.busy = false;
                return self.failed(ctx, work, offset, len, &error);
            }
        };
        ctx.shared.counters.scrub_bytes.add(len);
        let mut status = ctx.shared.scrub.locked();
        status.bytes += len;
        status.this_pass.bytes += len;
        drop(status);
        let (verified, waker) = (self.verified.0.clone(), ctx.io.device.backend.waker());
        // Nobody waits for the answer, so no job is short enough for this thread.
        ctx.finisher.run(usize::MAX, move |_| {
            // The owner goes only after the finisher's threads, or has no use for it any more.
            let result = work.verify(&buf);
            drop(buf);
            let _ = verified.send(result);
            waker.wake();
        });
    }
}

/// Keeps the blocks and records of a read where they are while it is in flight, or no longer.
fn pin(ctx: &mut Ctx, work: &Work, pin: bool) {
    let pin_portion = |ctx: &mut Ctx, portion| {
        if pin {
            ctx.storage.data.pin(portion);
        } else {
            ctx.unpin(portion);
        }
    };
    match work {
        Work::End(large) | Work::Piece(large) => pin_portion(ctx, large.portion),
        Work::Group(parts) => {
            for part in parts {
                match part.place {
                    ScrubPlace::Portion(portion, _) => pin_portion(ctx, portion),
                    ScrubPlace::Record(position) if pin => ctx.storage.journal.pin(position),
                    ScrubPlace::Record(position) => ctx.storage.journal.unpin(position),
                }
            }
        }
    }
}

fn is_current(ctx: &Ctx, id: LumpId, record: RingPosition) -> bool {
    ctx.storage.index.get(id).map(IndexEntry::record) == Some(record)
}

fn stored_len(entry: IndexEntry, geometry: &Geometry) -> u64 {
    match entry.portion() {
        Some(portion) => portion.byte_len(geometry.block_size()).0,
        None => entry.record_len(),
    }
}
