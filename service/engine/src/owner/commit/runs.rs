//! Puts that are durable before their records (FORMAT.md section 8.2).
//!
//! A run is a stretch of the disk. A batch announces it: its seal names the run, and puts that
//! are placed there from then on need their data and one flush, but no batch of their own. They are
//! applied in the order of their numbers, when no batch is in flight, and every batch begins with
//! the records of all that are applied: so the journal, and then the run, is the order of the log.
//!
//! ```text
//! placed ─▶ written ─▶ durable (it was forced and all before it are durable; or by a flush that
//!                               began after it and all before it were written)
//!        ─▶ applied and answered, not recorded ─▶ recorded (by the next batch)
//! ```
//!
//! Puts that come while no run is announced go into the next one too, but are committed as ordered.

use std::collections::VecDeque;

use super::{BATCH_LIMIT, Commit, Phase};
use crate::clock::{self, monotonic_ns};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::format::run::{Link, OpenRun};
use crate::mutant::{self, Mutant};
use crate::owner::command::Stage;
use crate::owner::command::put::{Misplaced, Put};
use crate::owner::ctx::Ctx;
use crate::request::Durability;
use crate::storage::Storage;
use crate::storage::journal::gc::{Relocation, Taken};
use crate::storage::journal::writer::{Batch, NewTail};
use crate::units::{BlockCount, BlockIndex};

/// Most bytes of a run: as many may be read when a store is opened.
const RUN_BYTES: u64 = 32 * 1024 * 1024;
/// Most puts without a record.
const MOST_UNRECORDED: usize = 4096;
/// Bytes that pass below the head of a disk at 7200 turns a minute in 3.6 ms; shorter lumps leave no
/// gap, so that they can be read one after the other.
const GAP_BYTES: u64 = 768 * 1024;
/// Most puts that wait for others that are being written, to share a flush.
const MOST_AT_ONCE: usize = 32;
/// From the first put without a record until its record is written, if no batch is before.
const RECORD_AFTER_NS: u64 = 1_000_000_000;

/// A run in which puts are placed.
struct PutRun {
    key: u64,
    portion: Portion,
    /// Its free blocks, ascending: first one, and first one behind.
    free: Vec<(u64, u64)>,
    /// First block behind what was taken last.
    at: u64,
    /// Numbers of the next put to be placed, and of the next to be applied.
    placed: u64,
    applied: u64,
}

/// A put that was placed in the open run.
struct Placed {
    portion: Portion,
    request: RequestId,
    /// Of its records.
    bytes: u64,
    /// Once it is written.
    put: Option<Box<Put>>,
}

/// State of the runs.
#[derive(Default)]
pub(super) struct Runs {
    /// Named by the seal of the last batch, or of the one in flight.
    open: Option<PutRun>,
    /// To be named by a later one.
    next: Option<PutRun>,
    /// Puts in the open run that are not applied, in the order of their places.
    placed: VecDeque<Placed>,
    /// The first so many of them are served by the flush in flight, and are durable.
    flushing: usize,
    durable: usize,
    /// True: the batch in flight names a run that the seal on the disk does not.
    announces: bool,
    /// True: the file system had no space for their records, so they are tried again in time only.
    lacks_space: bool,
    /// True: their records are to be written as soon as possible.
    wanted: bool,
    /// When they are to be written.
    due_ns: u64,
    /// True: the seal on the disk may name a run that was given up, with puts without records.
    abandoned: bool,
    /// True: puts have lost whose links the run still has, so their blocks are kept.
    has_beaten: bool,
    /// Puts whose place the device has refused, while the seal on the disk may name their run.
    pub(super) broken: Vec<Misplaced>,
}

impl PutRun {
    /// Takes blocks, the first ones `gap` blocks or more behind those taken last; else the first ones.
    fn take(&mut self, blocks: BlockCount, gap: u64) -> Option<Portion> {
        let (len, wanted) = (u64::from(blocks.0), self.at + gap);
        let behind = |&(start, end): &(u64, u64)| {
            let start = start.max(wanted);
            (start + len <= end).then_some(start)
        };
        let anywhere = |&(start, end): &(u64, u64)| (start + len <= end).then_some(start);
        let find = |place: &dyn Fn(&(u64, u64)) -> Option<u64>| {
            let mut places = self.free.iter().map(place).enumerate();
            places.find_map(|(which, start)| Some((which, start?)))
        };
        let (which, start) = find(&behind).or_else(|| find(&anywhere))?;
        let portion = Portion::new(BlockIndex(start), blocks).ok()?;
        let &(first, end) = self.free.get(which)?;
        self.at = start + len;
        let left = [(first, start), (self.at, end)];
        let left = left.into_iter().filter(|(start, end)| start < end);
        self.free.splice(which..=which, left);
        Some(portion)
    }

    /// True: these blocks are among its own.
    fn holds(&self, portion: Portion) -> bool {
        self.portion.start() <= portion.start() && portion.end() <= self.portion.end()
    }

    /// Gives the blocks back that no put has.
    fn free_rest(&mut self, ctx: &mut Ctx) {
        for (start, end) in std::mem::take(&mut self.free) {
            let len = u16::try_from(end - start).map(BlockCount);
            if let Ok(Ok(rest)) = len.map(|len| Portion::new(BlockIndex(start), len)) {
                ctx.storage.data.free_unused(rest);
            }
        }
    }

    fn of_size(ctx: &mut Ctx, blocks: BlockCount) -> Option<Self> {
        let block = ctx.storage.geometry.block_size().bytes();
        let most = ctx.storage.data.allocator().largest() / 4;
        let len = (RUN_BYTES / block).min(most).min(u16::MAX.into());
        let len = u16::try_from(len).ok().filter(|&len| len / 2 >= blocks.0)?;
        let portion = ctx.storage.data.allocate(BlockCount(len))?;
        let start = portion.start().0;
        Some(Self {
            key: clock::random_u64(),
            portion,
            free: vec![(start, portion.end().0)],
            at: start,
            placed: 0,
            applied: 0,
        })
    }

    /// As the seal names it; `None`: nothing of it is left.
    fn name(&self) -> Option<OpenRun> {
        (!self.free.is_empty() || self.applied < self.placed).then_some(OpenRun {
            key: self.key,
            start: self.portion.start().0,
            blocks: self.portion.len().0,
            number: self.applied,
        })
    }
}

impl Runs {
    /// True: a put in a run, or one that was, is not answered.
    pub(super) fn are_waited_for(&self) -> bool {
        !self.placed.is_empty() || !self.broken.is_empty() || self.abandoned
    }

    /// True: the end of the journal is to name a run while the store is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// True: a flush would make puts durable, and there is nothing that it had better wait for.
    ///
    /// One flush for all that is being written costs a disk with an arm less than two: what comes
    /// while it is flushed has missed its turn.
    pub(super) fn awaits_flush(&self) -> bool {
        let written = self.written();
        written > self.durable && (written == self.placed.len() || written >= MOST_AT_ONCE)
    }

    /// Counts those that are written first, whatever was placed before them.
    fn leave_holes(&mut self) {
        if mutant::is(Mutant::LeavesHoles) {
            let placed = self.placed.make_contiguous();
            placed.sort_by_key(|placed| placed.put.is_none());
        }
    }

    /// The first puts behind those that are durable are, too, if their writes were forced.
    fn note_forced(&mut self) {
        self.leave_holes();
        let is_forced = |placed: &&Placed| placed.put.as_ref().is_some_and(|put| put.is_forced());
        let behind = self.placed.iter().skip(self.durable);
        self.durable += behind.take_while(is_forced).count();
    }

    /// Tells those who wait for puts that are written of an error: they may still come about.
    pub(super) fn answer_early(&mut self, error: &Error) {
        let written = self.placed.iter_mut().filter_map(|it| it.put.as_mut());
        written.for_each(|put| put.reply.answer_early(error));
    }

    /// How many of the first puts are written.
    fn written(&self) -> usize {
        self.placed.iter().take_while(|it| it.put.is_some()).count()
    }

    /// True: a batch of nothing but their records is to be written.
    pub(super) fn must_record(&self, ctx: &Ctx) -> bool {
        let closes = ctx.closing && self.placed.is_empty();
        let is_wanted = (self.wanted || self.open.is_none()) && !self.lacks_space;
        let is_time = is_wanted || closes;
        let is_time = is_time || monotonic_ns() >= self.due_ns;
        is_time && !ctx.storage.unrecorded.is_empty()
    }

    /// True: it is time that the end of the journal names no run with puts that have lost, and no
    /// record does it.
    fn forgets_beaten(&self, ctx: &Ctx) -> bool {
        let is_alone = ctx.storage.unrecorded.is_empty() && self.placed.is_empty();
        let is_time = self.wanted || ctx.closing || monotonic_ns() >= self.due_ns;
        self.has_beaten && is_alone && is_time
    }

    /// Everything that was applied is durable, and the end of the journal is behind it.
    pub(super) fn forget_beaten(&mut self, ctx: &mut Ctx) {
        if std::mem::take(&mut self.has_beaten) {
            ctx.freed |= ctx.storage.data.all_durable();
        }
    }

    /// The seal that the next batch is to have.
    pub(super) fn ending(&mut self, ctx: &Ctx) -> Option<OpenRun> {
        let is_done = self.placed.is_empty();
        self.announces = is_done && !ctx.closing && self.next.is_some();
        if is_done && ctx.closing {
            self.open = None;
        } else if is_done && self.next.is_some() {
            self.open = self.next.take();
        }
        self.open.as_ref().and_then(PutRun::name)
    }
}

/// Blocks to be left before a put that comes alone, if any: while the client thought and its bytes
/// were on their way, a disk with an arm has turned on, and the blocks directly behind the put before
/// have passed. Another put of this length will fit into them. None in a run of a few lumps, as on a
/// disk that is known to have no arm.
fn gap_before(blocks: BlockCount, run: &PutRun, ctx: &Ctx) -> Option<u64> {
    let len = u64::from(blocks.0);
    let is_large = len * ctx.storage.geometry.block_size().bytes() >= GAP_BYTES;
    let is_small = 7 * len <= u64::from(run.portion.len().0);
    (is_large && is_small && ctx.limits.may_have_arm).then_some(len)
}

/// Puts the records of all that are applied into an empty batch; `None`: no room.
pub(super) fn record(ctx: &Ctx, batch: &mut Batch) -> Option<Vec<Relocation>> {
    if mutant::is(Mutant::LeavesRecords) {
        return Some(Vec::new());
    }
    let Storage {
        index,
        journal,
        unrecorded,
        ..
    } = &ctx.storage;
    unrecorded.append(index, journal, batch)
}

/// True: of these records of the batch in flight the collection moves none; it only begins with those
/// of runs, and a store that is being closed does not wait for them.
pub(super) fn moves_only_runs<'a>(
    ctx: &Ctx,
    mut moved: impl Iterator<Item = &'a Relocation>,
) -> bool {
    let tail = ctx.storage.journal.tail();
    moved.all(|moved| moved.from == tail && !ctx.closing)
}

impl Commit {
    /// A batch with the records of all puts that are applied has begun. True: it may be given up,
    /// which leaves the seal on the disk as it is.
    pub(super) fn run_batch_begun(&mut self, ctx: &mut Ctx, new_tail: &NewTail) -> bool {
        ctx.storage.unrecorded.begin_recording();
        (self.runs.wanted, self.runs.lacks_space) = (false, false);
        if !new_tail.names_run() {
            self.abandon_run(ctx);
        }
        !std::mem::take(&mut self.runs.abandoned) && self.runs.broken.is_empty()
    }

    /// A batch was given up before anything of it could be seen: the seal on the disk names the run
    /// that it named before, and the records are as unwritten as they were.
    pub(super) fn run_batch_undone(&mut self, ctx: &mut Ctx) {
        ctx.storage.unrecorded.not_recorded();
        self.runs.lacks_space = true;
        self.runs.due_ns = monotonic_ns().saturating_add(RECORD_AFTER_NS);
        if std::mem::take(&mut self.runs.announces) {
            self.abandon_run(ctx);
            self.runs.abandoned = false;
        }
    }

    /// Finds a place in a run for the data of a put, which must ask for `blocks` blocks and have
    /// room for a link. `None`: there is none.
    pub(in crate::owner) fn place_in_run(
        &mut self,
        ctx: &mut Ctx,
        put: &mut Put,
    ) -> Option<Portion> {
        let blocks = put.blocks_in_run().filter(|_| ctx.limits.runs)?;
        let Storage {
            unrecorded,
            journal,
            ..
        } = &ctx.storage;
        let placed = self.runs.placed.iter().map(|placed| placed.bytes);
        let bytes = unrecorded.bytes() + placed.sum::<u64>() + put.record_bytes();
        let puts = unrecorded.puts() + self.runs.placed.len();
        let is_much = puts >= MOST_UNRECORDED || bytes > BATCH_LIMIT as u64;
        if is_much || !journal.has_room_for_puts(bytes) {
            self.runs.wanted = true;
            return None;
        }
        let portion = match put.begun_at() {
            Some(begun) => begun,
            None => self.take_blocks(ctx, blocks)?,
        };
        let Runs { open, placed, .. } = &mut self.runs;
        if let Some(run) = open.as_mut().filter(|run| run.holds(portion)) {
            let link = Link {
                key: run.key,
                number: run.placed,
                durable: run.applied,
                log_end: ctx.storage.journal.log_end(),
                ..Link::default()
            };
            put.link(link, ctx.io.can_force());
            run.placed += 1;
            placed.push_back(Placed {
                portion,
                request: put.request,
                bytes: put.record_bytes(),
                put: None,
            });
            for written in self.runs.unserved_puts() {
                written.reply.timing.wait_behind(Some(put.request));
            }
        }
        Some(portion)
    }

    /// Takes blocks out of the open run, or of the one that is to follow.
    pub(in crate::owner) fn take_blocks(
        &mut self,
        ctx: &mut Ctx,
        blocks: BlockCount,
    ) -> Option<Portion> {
        let Runs {
            open, next, placed, ..
        } = &mut self.runs;
        if let Some(run) = open {
            let gap = gap_before(blocks, run, ctx).filter(|_| placed.is_empty());
            if let Some(portion) = run.take(blocks, gap.unwrap_or(0)) {
                return Some(portion);
            }
            run.free_rest(ctx);
        }
        if let Some(portion) = next.as_mut().and_then(|run| run.take(blocks, 0)) {
            return Some(portion);
        }
        if let Some(run) = next {
            run.free_rest(ctx);
        }
        *next = PutRun::of_size(ctx, blocks);
        next.as_mut()?.take(blocks, 0)
    }

    /// Blocks of runs that no put has.
    pub(in crate::owner) fn spare_blocks(&self) -> u64 {
        let runs = self.runs.open.iter().chain(&self.runs.next);
        runs.flat_map(|run| &run.free)
            .map(|(start, end)| end - start)
            .sum()
    }

    /// Gives back the blocks of runs that no put has, and wants the records that keep others.
    pub(in crate::owner) fn give_blocks_back(&mut self, ctx: &mut Ctx) {
        let has_some = !ctx.storage.unrecorded.is_empty() || self.runs.has_beaten;
        self.runs.wanted |= has_some || self.runs.are_waited_for();
        for run in [&mut self.runs.open, &mut self.runs.next]
            .into_iter()
            .flatten()
        {
            run.free_rest(ctx);
        }
        self.runs.next = None;
    }

    /// The data of a put that was placed in a run is written. It waits for those before it if it was
    /// forced; else for the flush in flight, or for others that are being written, to share one with
    /// them.
    pub(in crate::owner) fn linked_written(&mut self, ctx: &mut Ctx, mut put: Box<Put>) {
        let place = put.place();
        let is_it = |placed: &Placed| Some(placed.portion) == place;
        let is_written = |placed: &Placed| placed.put.is_some() || is_it(placed);
        let writing = self.runs.placed.iter().find(|placed| !is_written(placed));
        let behind = self.in_flight().or(writing.map(|placed| placed.request));
        match self.runs.placed.iter_mut().find(|placed| is_it(placed)) {
            Some(placed) => {
                put.reply.timing.wait_behind(behind);
                placed.put = Some(put);
                self.runs.note_forced();
                self.apply_run(ctx);
            }
            // The run is no more.
            None => self.await_flush_for_put(put),
        }
    }

    /// The device has refused the place of a put in a run. What it was told to write may be there
    /// all the same, so the put goes elsewhere when the journal does not name the run any more.
    pub(in crate::owner) fn linked_refused(&mut self, ctx: &mut Ctx, misplaced: Misplaced) {
        if let Some(error) = ctx.failure() {
            return misplaced.put.refuse(ctx, error, Stage::Data, true);
        }
        self.abandon_run(ctx);
        self.runs.broken.push(misplaced);
    }

    /// Takes no more puts into the open run: those that are not applied are committed as ordered.
    fn abandon_run(&mut self, ctx: &mut Ctx) {
        if let Some(mut run) = self.runs.open.take() {
            run.free_rest(ctx);
        }
        self.runs.abandoned |= !self.runs.placed.is_empty();
        (self.runs.flushing, self.runs.durable) = (0, 0);
        for Placed { put, .. } in std::mem::take(&mut self.runs.placed) {
            if let Some(put) = put {
                self.await_flush_for_put(put);
            }
        }
    }

    /// Makes an end of the journal durable that does not name the run which was given up, before any
    /// put that was placed there can be refused, or goes elsewhere. True: it is being written.
    pub(super) fn close_abandoned(&mut self, ctx: &mut Ctx) -> bool {
        if !self.runs.abandoned && self.runs.broken.is_empty() && !self.runs.forgets_beaten(ctx) {
            return false;
        }
        if mutant::is(Mutant::LeavesRun) {
            self.runs.abandoned = false;
            return false;
        }
        if ctx.storage.unrecorded.is_empty() {
            self.misplaced.append(&mut self.runs.broken);
            self.abandon_run(ctx);
            self.write_end(ctx);
            return true;
        }
        let mut batch = Batch::new(&ctx.storage.journal);
        let Some(relocations) = record(ctx, &mut batch) else {
            return false;
        };
        let taken = Taken {
            relocations,
            ..Taken::default()
        };
        self.start_batch(ctx, batch, taken, Default::default());
        true
    }

    /// An end with a settled seal is written. True: it must be flushed.
    pub(super) fn run_closed(&mut self) -> bool {
        std::mem::take(&mut self.runs.abandoned)
            || !self.misplaced.is_empty()
            || self.runs.has_beaten
    }

    /// A flush begins, also for puts in the run. Their requests.
    pub(super) fn run_flush_began(&mut self) {
        self.runs.leave_holes();
        self.runs.flushing = self.runs.written();
        let now_ns = monotonic_ns();
        for put in self.runs.flushed_puts() {
            put.reply.timing.lap_waited(now_ns);
        }
    }

    /// The flush has ended.
    pub(super) fn run_flush_ended(&mut self) {
        for put in self.runs.flushed_puts() {
            put.reply.timing.lap(Stage::Flush);
        }
        let flushed = std::mem::take(&mut self.runs.flushing);
        self.runs.durable = self.runs.durable.max(flushed);
        self.runs.note_forced();
    }

    /// Applies and answers the puts of the run that are durable, unless a batch is in flight, which
    /// is before them in the log.
    pub(super) fn apply_run(&mut self, ctx: &mut Ctx) {
        if self.batch.is_some() {
            let behind = self.in_flight();
            let durable = self.runs.placed.iter_mut().take(self.runs.durable);
            for put in durable.filter_map(|placed| placed.put.as_mut()) {
                put.reply.timing.wait_behind(behind);
            }
            return;
        }
        let (mut answers, mut beaten) = (Vec::new(), Vec::new());
        // What a flush serves is counted from the first: it is not applied before that has ended.
        debug_assert!(self.runs.durable == 0 || self.runs.flushing == 0);
        while self.runs.durable > 0 {
            let bytes = self.runs.placed.front().map_or(0, |placed| placed.bytes);
            let bytes = ctx.storage.unrecorded.bytes() + bytes;
            if !ctx.storage.journal.has_room_for_puts(bytes) {
                self.runs.wanted = true;
                self.abandon_run(ctx);
                break;
            }
            let Some(Placed { put, .. }) = self.runs.placed.pop_front() else {
                break;
            };
            self.runs.durable -= 1;
            let Some(mut put) = put else { continue };
            if ctx.storage.unrecorded.is_empty() {
                self.runs.due_ns = monotonic_ns().saturating_add(RECORD_AFTER_NS);
            }
            if let Some(run) = &mut self.runs.open {
                run.applied += 1;
            }
            if let Some(id) = put.absent()
                && ctx.storage.index.get(id).is_some()
            {
                // Opening may still read its link, and decides as we do.
                if let Some(portion) = put.take_place() {
                    ctx.storage.data.defer(portion);
                }
                if ctx.storage.unrecorded.is_empty() {
                    self.runs.due_ns = monotonic_ns().saturating_add(RECORD_AFTER_NS);
                }
                self.runs.has_beaten = true;
                beaten.push(*put);
                continue;
            }
            put.note_unrecorded(&mut ctx.storage);
            let position = ctx.storage.journal.tail();
            answers.push(put.apply(ctx, (position, false), Durability::Synced));
        }
        if mutant::is(Mutant::ReusesEarly) {
            ctx.freed |= ctx.storage.data.all_durable();
        }
        self.carried_out(ctx, answers);
        beaten.into_iter().for_each(|put| self.beat(ctx, put));
    }

    /// Gives up the puts of the runs: the store takes no changes any more.
    pub(super) fn refuse_run(&mut self, ctx: &mut Ctx, error: &Error) {
        let runs = std::mem::take(&mut self.runs);
        let written = runs.placed.into_iter().filter_map(|placed| placed.put);
        let broken = runs.broken.into_iter().map(|misplaced| misplaced.put);
        for put in written.chain(broken) {
            put.refuse(ctx, error.clone(), Stage::Journal, true);
        }
    }

    /// True: the disk is out, and nobody waits for a batch or a flush. What the store would write for
    /// itself waits until the disk is back: one such write that fails, and no change is taken any more.
    pub(in crate::owner) fn rests(&self, ctx: &Ctx) -> bool {
        let waits = !self.ready.is_empty() || !self.unflushed.is_empty();
        let is_out = ctx.health.state.is_out() && !ctx.closing;
        is_out && !waits && !self.runs.are_waited_for()
    }

    /// When something is to be done about runs though nothing happens.
    pub(super) fn run_due_ns(&self, ctx: &Ctx) -> Option<u64> {
        let has_some = !ctx.storage.unrecorded.is_empty() || self.runs.has_beaten;
        let waits = self.phase == Phase::Idle && has_some;
        waits.then_some(self.runs.due_ns)
    }
}

impl Runs {
    /// Requests that the flush in flight serves.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        let served = self.placed.iter().take(self.flushing);
        served.map(|placed| placed.request)
    }

    /// Puts that the flush in flight serves.
    pub(super) fn flushed_puts(&mut self) -> impl Iterator<Item = &mut Box<Put>> {
        let served = self.placed.iter_mut().take(self.flushing);
        served.filter_map(|placed| placed.put.as_mut())
    }

    /// Puts that are written and that it does not serve.
    pub(super) fn unserved_puts(&mut self) -> impl Iterator<Item = &mut Box<Put>> {
        let unserved = self.placed.iter_mut().skip(self.flushing);
        unserved.filter_map(|placed| placed.put.as_mut())
    }
}
