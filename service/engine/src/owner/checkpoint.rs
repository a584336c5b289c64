//! Writes checkpoints of the index (FORMAT.md section 12): in the background, and at close.
//!
//! A checkpoint begins when the records since the last one are more than
//! `StoreOptions::checkpoint_records` and more than half as many as there are lumps (so that
//! copying costs no more than appending did), and between two batches, when the index knows every
//! record of the journal. Then rows are copied in slices of 2048 while the store goes on. One I/O
//! of 256 KiB is in flight at a time, beside the slots of the foreground; while the foreground has
//! I/Os in flight, each is followed by a pause of three times what it took.
//!
//! A checkpoint that cannot be written (no space, an I/O error, no room for so many lumps) is
//! given up and counted; the store does without. Only a failed flush is everybody's concern.

use super::ctx::Ctx;
use super::io_table::Tag;
use crate::buffer::AlignedBuf;
use crate::clock::monotonic_ns;
use crate::crc32c;
use crate::error::Error;
use crate::format::checkpoint::{
    CHUNK_LEN, CheckpointHeader, HEADER_SPACE, ROWS_PER_CHUNK, put_row, seal_chunk,
};
use crate::lump::LumpId;
use crate::request::LumpRange;
use crate::storage::Storage;
use crate::storage::checkpoint::CheckpointPlace;

/// Rows copied in one turn of the owner thread; few in tests, so that much happens meanwhile.
const SLICE: usize = if cfg!(test) { 3 } else { 2048 };
/// While others use the disk, a write is followed by a pause of this many times what it took.
const FAIR_PAUSE: u64 = 3;
/// At close a checkpoint is written when the records since the last one are more than this part
/// of what it takes in the background; fewer are replayed in no time.
const AT_CLOSE: u64 = 64;

/// A copy under way.
struct Copying {
    header: CheckpointHeader,
    /// First id of the next row; `None`: all are copied.
    next: Option<LumpId>,
    /// Taken while it is written.
    chunk: Option<AlignedBuf>,
    rows: usize,
    number: u32,
    /// Begin of the write in flight.
    began_ns: u64,
    /// Not before this time the copy goes on.
    resume_ns: u64,
    /// Records counted when it began.
    records: u64,
}

#[derive(Default)]
enum CheckpointState {
    #[default]
    Rest,
    Copying(Box<Copying>),
    /// The flush after the last chunk, the header, the flush after it.
    Ending(Box<Copying>),
}

/// State of the checkpoints.
pub(crate) struct Checkpointer {
    place: Option<CheckpointPlace>,
    state: CheckpointState,
    /// Records in the background that make a checkpoint due; 0: none is ever written.
    threshold: u64,
    /// Records behind the last checkpoint.
    records: u64,
    /// Log offset of the last checkpoint's begin, or of what was replayed at open.
    begun_at: u64,
    /// The next attempt is not made before there are so many records.
    not_before: u64,
    /// An attempt failed; there is no other one at close.
    gave_up: bool,
}

impl Checkpointer {
    /// `replayed`: records and bytes that were replayed at open.
    pub(crate) fn new(
        place: Option<CheckpointPlace>,
        threshold: u64,
        (records, bytes): (u64, u64),
        storage: &Storage,
    ) -> Self {
        Self {
            place,
            state: CheckpointState::Rest,
            threshold,
            records,
            begun_at: storage.journal.log_end().saturating_sub(bytes),
            not_before: 0,
            gave_up: false,
        }
    }

    /// Records were appended to the journal.
    pub(super) fn appended(&mut self, records: u64) {
        self.records += records;
    }

    /// Shows the present numbers to other threads.
    pub(super) fn publish(&self, ctx: &Ctx) {
        let (counters, journal) = (&ctx.shared.counters, &ctx.storage.journal);
        counters.checkpoint_lag_records.set(self.records);
        let lag = journal.log_end().saturating_sub(self.begun_at);
        counters.checkpoint_lag_bytes.set(lag.min(journal.used()));
    }

    /// When it goes on though nothing happens.
    pub(super) fn due_ns(&self) -> Option<u64> {
        match &self.state {
            CheckpointState::Copying(copying) if copying.chunk.is_some() => Some(copying.resume_ns),
            _ => None,
        }
    }

    /// True: nothing is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.state, CheckpointState::Rest)
    }

    /// True: nothing is under way and nothing is to begin before the store is closed.
    pub(super) fn rests(&self, closing: bool, storage: &Storage) -> bool {
        self.is_at_rest() && !(closing && self.is_due(true, storage))
    }

    fn is_due(&self, closing: bool, storage: &Storage) -> bool {
        let lumps = storage.index.len();
        let wanted = if closing {
            self.threshold.div_ceil(AT_CLOSE)
        } else {
            self.threshold.max(lumps / 2).max(self.not_before)
        };
        let room = self.place.is_some_and(|place| place.area.has_room(lumps));
        let tries = self.threshold > 0 && !(closing && self.gave_up);
        tries && room && self.records >= wanted && storage.journal.is_sealed()
    }

    /// Begins one. The index must know every record of the journal.
    pub(super) fn begin(&mut self, ctx: &Ctx) {
        let Some(place) = self.place else { return };
        let (storage, chunk) = (&ctx.storage, ctx.io.pool.zeroed(CHUNK_LEN));
        let journal = &storage.journal;
        let header = CheckpointHeader {
            uuid: journal.uuid(),
            sequence: place.sequence,
            epoch: journal.epoch(),
            log_begin: journal.log_end(),
            log_end: journal.log_end(),
            lumps: 0,
            chunks_crc: 0,
            log_sum: Some(journal.end_sum().sum),
        };
        self.state = CheckpointState::Copying(Box::new(Copying {
            header,
            next: Some(LumpId::MIN),
            chunk: Some(chunk),
            rows: 0,
            number: 0,
            began_ns: 0,
            resume_ns: 0,
            records: self.records,
        }));
    }

    fn give_up(&mut self) {
        self.state = CheckpointState::Rest;
        self.gave_up = true;
        self.not_before = self.records + self.threshold;
    }

    fn done(&mut self, copying: &Copying) {
        self.records -= copying.records;
        self.begun_at = copying.header.log_begin;
        self.not_before = 0;
        self.gave_up = false;
        self.place = self.place.and_then(|place| {
            let sequence = place.sequence.checked_add(1)?;
            Some(CheckpointPlace { sequence, ..place })
        });
    }

    /// True: one is to begin. It may, as soon as no batch is in flight.
    pub(super) fn wants_to_begin(&self, ctx: &Ctx) -> bool {
        matches!(self.state, CheckpointState::Rest) && self.is_due(ctx.closing, &ctx.storage)
    }

    /// Goes on with the one that is under way.
    pub(super) fn go_on(&mut self, ctx: &mut Ctx) {
        let CheckpointState::Copying(copying) = &mut self.state else {
            return;
        };
        if copying.chunk.is_none() || monotonic_ns() < copying.resume_ns {
            return;
        }
        if !copying.copy_slice(&ctx.storage) {
            return;
        }
        let has_room = self
            .place
            .is_some_and(|place| place.area.has_room(copying.header.lumps));
        if !has_room {
            // Lumps were added since it began.
            return self.failed(ctx);
        }
        match copying.take_chunk() {
            Some((at, chunk)) => {
                copying.began_ns = monotonic_ns();
                self.write(ctx, at, chunk);
            }
            None => self.end_copying(ctx),
        }
    }

    fn write(&mut self, ctx: &mut Ctx, at: u64, buf: AlignedBuf) {
        if let Some(place) = self.place {
            let offset = place.area.slot(place.sequence) + at;
            ctx.io
                .write((Tag::Checkpoint, false), offset, buf, Vec::new());
        }
    }

    /// A chunk or the header is written.
    pub(super) fn written(
        &mut self,
        ctx: &mut Ctx,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        match (std::mem::take(&mut self.state), buf) {
            _ if result.is_err() => self.failed(ctx),
            (CheckpointState::Copying(copying), Some(buf)) => self.chunk_written(ctx, copying, buf),
            (CheckpointState::Ending(copying), _) => {
                self.state = CheckpointState::Ending(copying);
                ctx.io.flush_as(Tag::CheckpointFlush, Vec::new());
            }
            _ => {}
        }
    }

    /// The chunks, or the header, are on stable storage.
    /// A flush that failed may have lost anybody's bytes, so it is an error of the store.
    pub(super) fn flushed(
        &mut self,
        ctx: &mut Ctx,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        if result.is_err() {
            self.failed(ctx);
            return result;
        }
        if let CheckpointState::Ending(copying) = std::mem::take(&mut self.state) {
            if copying.next.is_none() {
                self.write_header(ctx, copying);
            } else {
                self.done(&copying);
                ctx.shared.counters.checkpoints_written.add(1);
            }
        }
        Ok(())
    }

    fn chunk_written(&mut self, ctx: &mut Ctx, mut copying: Box<Copying>, mut buf: AlignedBuf) {
        let now_ns = monotonic_ns();
        if ctx.io.len() > 0 && !ctx.closing {
            let took_ns = now_ns.saturating_sub(copying.began_ns);
            copying.resume_ns = now_ns + FAIR_PAUSE * took_ns;
        }
        buf.fill(0);
        let ended = copying.next.is_none();
        copying.chunk = Some(buf);
        self.state = CheckpointState::Copying(copying);
        if ended {
            self.end_copying(ctx);
        }
    }

    /// Everything is copied: one flush for the chunks and for the journal up to now.
    fn end_copying(&mut self, ctx: &mut Ctx) {
        if let CheckpointState::Copying(mut copying) = std::mem::take(&mut self.state) {
            copying.header.log_end = ctx.storage.journal.log_end();
            copying.chunk = None;
            self.state = CheckpointState::Ending(copying);
            ctx.io.flush_as(Tag::CheckpointFlush, Vec::new());
        }
    }

    fn write_header(&mut self, ctx: &mut Ctx, mut copying: Box<Copying>) {
        let journal = &ctx.storage.journal;
        if journal.log_offset_of(journal.head()) > copying.header.log_begin {
            // The collection was faster.
            return self.failed(ctx);
        }
        let block = ctx.io.pool.copy_of(&copying.header.block());
        // The flush that comes next is the last one.
        copying.next = Some(LumpId::MAX);
        self.state = CheckpointState::Ending(copying);
        self.write(ctx, 0, block);
    }

    fn failed(&mut self, ctx: &Ctx) {
        self.give_up();
        ctx.shared.counters.checkpoints_failed.add(1);
    }
}

impl Copying {
    /// Copies the next rows. True: the chunk is full, or there are no more.
    fn copy_slice(&mut self, storage: &Storage) -> bool {
        let (Some(start), Some(chunk)) = (self.next, self.chunk.as_mut()) else {
            return false;
        };
        let most = SLICE.min(ROWS_PER_CHUNK - self.rows);
        let mut rows = storage.index.range(LumpRange { start, end: None });
        for (id, entry) in rows.by_ref().take(most) {
            put_row(chunk, self.rows, &entry.to_row(id));
            self.rows += 1;
            self.header.lumps += 1;
        }
        self.next = rows.next().map(|(id, _)| id);
        self.next.is_none() || self.rows == ROWS_PER_CHUNK
    }

    /// Completes the chunk; `None`: it has no rows.
    fn take_chunk(&mut self) -> Option<(u64, AlignedBuf)> {
        let mut chunk = self.chunk.take()?;
        if self.rows == 0 {
            return None;
        }
        let crc = seal_chunk(&mut chunk, self.header.sequence, self.number, self.rows);
        let crcs = self.header.chunks_crc;
        self.header.chunks_crc = crc32c::append(crcs, &crc.to_be_bytes());
        let at = HEADER_SPACE + u64::from(self.number) * CHUNK_LEN as u64;
        self.number += 1;
        self.rows = 0;
        Some((at, chunk))
    }
}
