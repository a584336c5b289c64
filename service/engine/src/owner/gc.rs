//! Drives the reclaiming of the journal's head: when it runs, its reads, its moves of the head.
//!
//! It runs in the background of commits, a step at a time: relocated records ride in the batches
//! of clients' records or make batches of their own, of at most 128 KiB. It starts when more than
//! half of the ring is in use and an eighth of it is garbage, when a record finds no room, or when
//! it is asked to; it rests when there is little to gain. Its reads and its records have a budget,
//! which does not hold while the ring is nearly full: no request waits for a budget.

use super::budget::Budget;
use super::command::{Stage, TimedReply};
use super::ctx::Ctx;
use super::io_table::Tag;
use crate::buffer::AlignedBuf;
use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::finding::FindingKind;
use crate::format::seal::LogSum;
use crate::request::CollectOutcome;
use crate::storage::Storage;
use crate::storage::journal::Journal;
use crate::storage::journal::gc::{Collector, Taken};
use crate::storage::journal::writer::Batch;
use crate::units::{RingPosition, to_usize};

/// State of the collection.
pub(super) struct Gc {
    collector: Collector,
    active: bool,
    /// Bytes of the read in flight.
    reading: Option<u64>,
    /// A chunk that was read and is not taken yet.
    chunk: Option<Chunk>,
    failure: Option<Error>,
    /// A record finds no room: what the collector had passed when that began.
    pressed_since: Option<u64>,
    /// Bytes the collector had passed at the place where the head is moving to.
    goal_passed: u64,
    /// The sum of the log there, or behind it.
    goal_sums: LogSum,
    asked: Vec<CollectRound>,
    /// It goes on until the collector has passed this, for the sake of damaged records.
    round_until: u64,
    budget: Budget,
    /// When the budget allows the next read.
    due_ns: Option<u64>,
}

/// Bytes of the ring, or why there are none.
struct Chunk {
    start: RingPosition,
    len: u64,
    buf: Option<AlignedBuf>,
    result: Result<(), Error>,
}

/// A round that somebody waits for.
struct CollectRound {
    reply: TimedReply<CollectOutcome>,
    /// It is over when the head is where the collector had passed this.
    until: u64,
    /// When it was asked for: bytes of the ring in use, records moved and dropped.
    used: u64,
    relocated: u64,
    dropped: u64,
}

impl Gc {
    /// `rate`: its budget in bytes a second; 0: no limit.
    pub(super) fn new(journal: &Journal, rate: u64) -> Self {
        Self {
            collector: Collector::new(journal),
            active: false,
            reading: None,
            chunk: None,
            failure: None,
            pressed_since: None,
            goal_passed: 0,
            goal_sums: journal.sums(),
            asked: Vec::new(),
            round_until: 0,
            budget: Budget::new(rate),
            due_ns: None,
        }
    }

    /// When the owner thread must look again, if nothing else happens.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Goes round the journal once, because something in it is damaged.
    pub(super) fn go_round(&mut self, ctx: &Ctx) {
        let (collector, journal) = (&self.collector, &ctx.storage.journal);
        let left = journal.distance(collector.position(), journal.tail());
        self.round_until = collector.passed() + left;
    }

    /// Answers everybody who waits for a round.
    pub(super) fn refuse_all(&mut self, error: &Error) {
        for asked in self.asked.drain(..) {
            asked.reply.send(Err(error.clone()), Stage::Journal);
        }
    }

    /// The first change that is ready finds room, or none waits.
    pub(super) fn relax(&mut self) {
        self.pressed_since = None;
    }

    /// A record finds no room: the collection runs until it does. True: it has gone round the
    /// ring twice for that record, so it never will.
    pub(super) fn press(&mut self, storage: &Storage) -> bool {
        let passed = self.collector.passed();
        let since = *self.pressed_since.get_or_insert(passed);
        passed - since > 2 * storage.journal.capacity()
    }

    /// True: it has gone round the ring once for the record that finds no room.
    pub(super) fn has_gone_round(&self, storage: &Storage) -> bool {
        let passed = self.collector.passed();
        self.pressed_since
            .is_some_and(|since| passed - since > storage.journal.capacity())
    }

    /// To be asked when a record finds no room and the collection has just had nothing to move.
    /// True: it never will have.
    pub(super) fn is_stuck(&self, ctx: &Ctx) -> bool {
        let journal = &ctx.storage.journal;
        let at_rest = !self.is_reading() && !ctx.header.busy && !journal.has_readers();
        let everything_passed = self.collector.position() == journal.tail();
        at_rest
            && self.collector.head_goal() == journal.head()
            && (everything_passed || !self.collector.needs_chunk())
    }

    /// Bytes lost at the end of the ring and to rounding are no gain: without a waiting record they
    /// are not worth a round.
    fn decide(&mut self, ctx: &Ctx) {
        let (storage, was_active) = (&ctx.storage, self.active);
        let journal = &storage.journal;
        let (used, capacity) = (journal.used(), journal.capacity());
        let needed = storage.index.record_bytes() + journal.mark_bytes();
        let garbage = used.saturating_sub(needed);
        let unavoidable = journal.gc_reserve();
        let worth = if self.active {
            (capacity / 16).max(unavoidable)
        } else {
            (capacity / 8).max(2 * unavoidable)
        };
        self.active = self.pressed_since.is_some()
            || self.round_until > self.collector.passed()
            || self
                .asked
                .iter()
                .any(|asked| asked.until > self.collector.passed())
            || (used > capacity / 2 && garbage > worth);
        if self.active && !was_active {
            ctx.shared.counters.gc_runs.add(1);
        }
    }

    /// True: it has records to put into a batch.
    pub(super) fn has_work(&mut self, ctx: &Ctx) -> bool {
        self.decide(ctx);
        self.collects(ctx) && (self.chunk.is_some() || !self.collector.needs_chunk())
    }

    /// True: the ring is so full that the budget does not count.
    fn is_urgent(&self, storage: &Storage) -> bool {
        let journal = &storage.journal;
        self.pressed_since.is_some() || journal.used() > journal.capacity() / 8 * 7
    }

    /// Lets the collection put the records it keeps into an empty batch. Everything applied must
    /// be durable. `blocked`: the next change finds no room.
    ///
    /// Only then may relocated records use the last room; and a change that has waited for the
    /// collection goes before them as soon as it finds room.
    pub(super) fn relocate(&mut self, ctx: &mut Ctx, batch: &mut Batch, blocked: bool) -> Taken {
        self.decide(ctx);
        if !self.collects(ctx) || (self.pressed_since.is_some() && !blocked) {
            return Taken::default();
        }
        self.take_chunk(ctx);
        let Storage { index, journal, .. } = &ctx.storage;
        let keep = if blocked { 0 } else { 2 * journal.gc_reserve() };
        let taken = self.collector.fill(index, journal, batch, keep);
        ctx.storage.journal.passed_marks(taken.mark_bytes);
        if !taken.relocations.is_empty() {
            let bytes = batch.len() as u64;
            self.budget.spend(bytes, monotonic_ns());
        }
        let counters = &ctx.shared.counters;
        counters.gc_dropped.add(taken.dropped);
        counters.gc_relocated.add(taken.relocations.len() as u64);
        taken
    }

    /// True: a chunk is on its way.
    fn is_reading(&self) -> bool {
        self.reading.is_some() || self.chunk.is_some()
    }

    /// While closing, only what a waiting record needs is done.
    fn collects(&self, ctx: &Ctx) -> bool {
        self.active && (!ctx.closing || self.pressed_since.is_some())
    }

    /// Reads the next chunk of the ring when the last one is dealt with.
    pub(super) fn read_next(&mut self, ctx: &mut Ctx) {
        let (collects, now_ns) = (self.collects(ctx), monotonic_ns());
        let urgent = self.is_urgent(&ctx.storage);
        self.due_ns = None;
        if !collects || self.is_reading() || !self.collector.needs_chunk() {
            return;
        }
        if let (false, Some(due_ns)) = (urgent, self.budget.wait_until(now_ns)) {
            self.due_ns = Some(due_ns);
            return;
        }
        if let Some((start, len)) = self.collector.next_read(&ctx.storage.journal) {
            self.reading = Some(len);
            self.budget.spend(len, now_ns);
            ctx.shared.counters.gc_read_bytes.add(len);
            let offset = ctx.storage.geometry.ring_byte(start).0;
            ctx.io.read(Tag::Collect(start), offset, len, Vec::new());
        }
    }

    /// A chunk was read.
    pub(super) fn chunk_read(
        &mut self,
        start: RingPosition,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let len = self.reading.take().unwrap_or(0);
        self.chunk = Some(Chunk {
            start,
            len,
            buf,
            result,
        });
    }

    /// Takes the chunk that was read, when the index knows every record before the tail. What cannot
    /// be read, or is damaged, the index knows: it is no reason to refuse changes, unless the only
    /// bytes of an embedded lump cannot be read. They may be readable another time, so they are not
    /// given up.
    fn take_chunk(&mut self, ctx: &Ctx) {
        let Some(chunk) = self.chunk.take() else {
            return;
        };
        let Chunk {
            start,
            len,
            buf,
            result,
        } = chunk;
        let Storage { index, journal, .. } = &ctx.storage;
        let stretch = (start, len);
        if result.is_err() && self.collector.has_embedded(index, journal, stretch) {
            self.failure = result.err();
            return;
        }
        let nothing = vec![0; to_usize(len)];
        let bytes = match (&result, &buf) {
            (Ok(()), Some(buf)) => buf,
            _ => nothing.as_slice(),
        };
        let rotted = match self.collector.scan(start, bytes, (index, journal)) {
            Ok(rotted) => rotted,
            Err(error) => {
                self.failure = Some(error);
                return;
            }
        };
        for rotted in rotted {
            let mut finding = rotted.finding(&ctx.storage.geometry);
            if let Err(error) = &result {
                finding.kind = FindingKind::Read;
                finding.why = format!("{error}; {}", finding.why);
            }
            ctx.report(finding);
        }
    }

    /// Why the collection cannot go on.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Writes the journal's header when the head can move. To be called only when everything the
    /// collection has passed is durable.
    pub(super) fn move_head(&mut self, ctx: &mut Ctx) {
        let goal = self.collector.head_goal();
        if ctx.header.busy || goal == ctx.storage.journal.head() {
            return;
        }
        self.goal_passed = self.collector.passed();
        self.goal_sums = self.collector.sums(&ctx.storage.journal);
        ctx.write_header(Tag::Header(goal), (goal, self.goal_sums));
    }

    /// The new head is on stable storage: what lies before it is free.
    pub(super) fn head_durable(&mut self, ctx: &mut Ctx, head: RingPosition) {
        ctx.header.busy = false;
        ctx.storage.journal.set_head(head, self.goal_sums);
        ctx.shared.counters.header_writes.add(1);
        let passed = self.goal_passed;
        self.answer(ctx, |asked| asked.until <= passed);
    }

    /// Goes round the journal once for somebody who waits for it.
    pub(super) fn collect(&mut self, ctx: &Ctx, mut reply: TimedReply<CollectOutcome>) {
        reply.timing.lap(Stage::Sched);
        let Storage { journal, index, .. } = &ctx.storage;
        let collector = &self.collector;
        let (used, live) = (journal.used(), index.record_bytes());
        let needed = live + journal.mark_bytes();
        if used.saturating_sub(needed) <= journal.gc_reserve() {
            let outcome = CollectOutcome {
                used_bytes: used,
                live_bytes: live,
                ..CollectOutcome::default()
            };
            return reply.send(Ok(outcome), Stage::Index);
        }
        let left = journal.distance(collector.position(), journal.tail());
        let counters = &ctx.shared.counters;
        self.asked.push(CollectRound {
            reply,
            until: collector.passed() + left,
            used,
            relocated: counters.gc_relocated.get(),
            dropped: counters.gc_dropped.get(),
        });
    }

    /// To be called when a batch would be empty: a round that cannot go on is over.
    pub(super) fn end_stuck(&mut self, ctx: &Ctx) {
        if !self.asked.is_empty() && self.is_stuck(ctx) {
            self.answer(ctx, |_| true);
        }
    }

    fn answer(&mut self, ctx: &Ctx, over: impl Fn(&CollectRound) -> bool) {
        let counters = &ctx.shared.counters;
        let (used, live) = (ctx.storage.journal.used(), ctx.storage.index.record_bytes());
        for asked in self.asked.extract_if(.., |asked| over(asked)) {
            let outcome = CollectOutcome {
                freed_bytes: asked.used.saturating_sub(used),
                relocated: counters.gc_relocated.get() - asked.relocated,
                dropped: counters.gc_dropped.get() - asked.dropped,
                used_bytes: used,
                live_bytes: live,
            };
            asked.reply.send(Ok(outcome), Stage::Journal);
        }
    }
}
