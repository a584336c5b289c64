//! Drives the reclaiming of the journal's head: when it runs, its reads, its moves of the head.
//!
//! It runs in the background of commits: relocated records ride in the batches of clients' records
//! or make batches of their own. It starts when more than half of the ring is in use and an eighth
//! of it is garbage, or when a record finds no room, and rests when there is little to gain.

use super::Owner;
use super::io_table::Tag;
use crate::buffer::AlignedBuf;
use crate::error::Error;
use crate::format::journal_header::JournalHeader;
use crate::storage::Storage;
use crate::storage::journal::gc::{Collector, Taken};
use crate::storage::journal::writer::Batch;
use crate::units::RingPosition;

/// State of the collection.
#[derive(Debug)]
pub(super) struct Collection {
    collector: Collector,
    active: bool,
    reading: bool,
    /// A move of the head is being written or waits for its flush.
    moving_head: bool,
    /// A record finds no room: what the collector had passed when that began.
    pressed_since: Option<u64>,
}

impl Collection {
    pub(super) fn new(head: RingPosition) -> Self {
        Self {
            collector: Collector::new(head),
            active: false,
            reading: false,
            moving_head: false,
            pressed_since: None,
        }
    }

    /// Records find room.
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

    /// To be asked when a record finds no room and the collection has just had nothing to move.
    /// True: it never will have.
    pub(super) fn is_stuck(&self, storage: &Storage) -> bool {
        let Storage { journal, .. } = storage;
        let at_rest = !self.reading && !self.moving_head && !journal.has_readers();
        let everything_passed = self.collector.position() == journal.tail();
        at_rest
            && self.collector.head_goal() == journal.head()
            && (everything_passed || !self.collector.needs_chunk())
    }

    /// What is lost at the end of the ring and to rounding is no gain: without a waiting record
    /// it is not worth a round.
    fn decide(&mut self, storage: &Storage) {
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
        self.active = self.pressed_since.is_some() || (used > capacity / 2 && garbage > worth);
    }
}

impl Owner {
    /// Lets the collection put the records it keeps into an empty batch. Everything applied must
    /// be durable. `blocked`: the next change finds no room.
    ///
    /// Only then may relocated records use the last room; and a change that has waited for the
    /// collection goes before them as soon as it finds room.
    pub(super) fn relocate(&mut self, batch: &mut Batch, blocked: bool) -> Taken {
        self.collection.decide(&self.storage);
        if !self.collects() || (self.collection.pressed_since.is_some() && !blocked) {
            return Taken::default();
        }
        let Storage { index, journal, .. } = &self.storage;
        let keep = if blocked { 0 } else { 2 * journal.gc_reserve() };
        let taken = self.collection.collector.fill(index, journal, batch, keep);
        self.storage.journal.passed_marks(taken.mark_bytes);
        let counters = &self.shared.counters;
        counters.gc_dropped.add(taken.dropped);
        counters.gc_relocated.add(taken.relocations.len() as u64);
        taken
    }

    /// While closing, only what a waiting record needs is done.
    fn collects(&self) -> bool {
        self.collection.active && (!self.closing || self.collection.pressed_since.is_some())
    }

    /// Reads the next chunk of the ring when the last one is dealt with.
    pub(super) fn start_collecting(&mut self) {
        let collects = self.collects();
        let collection = &mut self.collection;
        if !collects || collection.reading || !collection.collector.needs_chunk() {
            return;
        }
        if let Some((start, len)) = collection.collector.next_read(&self.storage.journal) {
            collection.reading = true;
            let offset = self.storage.geometry.ring_byte(start).0;
            self.io.read(Tag::Collect(start), offset, len, Vec::new());
        }
    }

    pub(super) fn chunk_read(
        &mut self,
        start: RingPosition,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        self.collection.reading = false;
        let scanned = result.and_then(|()| {
            let bytes = buf.as_deref().unwrap_or_default();
            self.collection.collector.scan(start, bytes)
        });
        if let Err(error) = scanned {
            self.fail(&error);
        }
    }

    /// Writes the journal's header when the head can move. To be called only when everything the
    /// collection has passed is durable.
    pub(super) fn move_head(&mut self) {
        let goal = self.collection.collector.head_goal();
        if self.collection.moving_head || goal == self.storage.journal.head() {
            return;
        }
        let geometry = &self.storage.geometry;
        let len = usize::from(geometry.block_size().get());
        let mut block = self.io.pool.zeroed(len);
        let header = JournalHeader { ring_head: goal }.encode();
        block[..header.len()].copy_from_slice(&header);
        let offset = geometry.journal_header_offset().0;
        self.collection.moving_head = true;
        self.io.write(Tag::Header(goal), offset, block, Vec::new());
    }

    pub(super) fn header_written(&mut self, head: RingPosition, result: Result<(), Error>) {
        match result {
            Ok(()) => self.commit.await_flush_for_header(head),
            Err(error) => self.fail(&error),
        }
    }

    /// The new head is on stable storage: what lies before it is free.
    pub(super) fn head_durable(&mut self, head: RingPosition) {
        self.collection.moving_head = false;
        self.storage.journal.set_head(head);
        self.shared.counters.header_writes.add(1);
    }
}
