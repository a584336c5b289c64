//! A batch of records on its way into the ring.
//!
//! A batch becomes visible by one write of one unit: the unit that holds the old `EndOfRecords`.
//! Everything else (later units, and at the wrap the records at the front of the ring, all up to
//! and with the new `EndOfRecords`) is written first and made durable. Cut anywhere, replay finds
//! either the old end or the new one. That write takes the whole page with it, where it can: the
//! bytes before the unit are those that are there, the bytes behind it mean nothing, or are those
//! just written. The new `EndOfRecords` and the seal behind it never straddle
//! two sectors (a record without effect moves them), so that the next batch can rely on the same.

use std::sync::Arc;

use super::{FILLER, Journal, TailSeal};
use crate::buffer::{AlignedBuf, BufferPool};
use crate::crc32c;
use crate::format::mark::MARK_LEN;
use crate::format::record::{END_OF_RECORDS_LEN, Record};
use crate::format::ring::RingPlace;
use crate::format::run::{OpenRun, RUN_END_LEN, RUN_SEAL_LEN};
use crate::format::seal::{SEAL_LEN, SEALED_END_LEN};
use crate::units::{RingPosition, SECTOR_LEN, to_usize};

/// Bytes of the log between two places whose sum is kept.
const WAYPOINTS_APART: u64 = 64 * 1024;

/// Contiguous bytes of the ring from the start of a unit.
#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: Vec<u8>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Records that will be written together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// One, or two when the batch goes round the end of the ring.
    segments: Vec<Segment>,
    old_tail: RingPosition,
    /// Start of its unit.
    unit_start: u64,
    records: u64,
    /// Bytes of marks of foreign lumps among them.
    mark_bytes: u64,
    /// True: all records so far are to count as foreign.
    disown: bool,
}

/// One write into the ring.
#[derive(Debug)]
pub(crate) struct RingWrite {
    /// Start of a unit.
    pub(crate) position: RingPosition,
    pub(crate) buf: AlignedBuf,
}

/// The writes that make a batch durable, in two steps with a flush between and one after.
#[derive(Debug)]
pub(crate) struct BatchWrites {
    /// In any order, before `first`; usually none.
    pub(crate) rest: Vec<RingWrite>,
    /// Makes the batch visible.
    pub(crate) first: RingWrite,
    /// The tail of the journal once it is written.
    pub(crate) new_tail: NewTail,
    pub(crate) records: u64,
}

/// The end of the journal after a batch.
#[derive(Debug)]
pub(crate) struct NewTail {
    tail: RingPosition,
    tail_bytes: Vec<u8>,
    seal: TailSeal,
    mark_bytes: u64,
}

impl NewTail {
    /// True: the seal names a run.
    pub(crate) fn names_run(&self) -> bool {
        self.seal.run.is_some()
    }
}

impl Batch {
    /// An empty batch at the tail of the journal.
    pub(crate) fn new(journal: &Journal) -> Self {
        let start = journal.tail.0 - journal.tail_bytes.len() as u64;
        let bytes = journal.tail_bytes.clone();
        Self {
            segments: vec![Segment { start, bytes }],
            old_tail: journal.tail,
            unit_start: journal.tail.0 - journal.tail.0 % journal.unit,
            records: 0,
            mark_bytes: 0,
            disown: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes the batch has so far.
    pub(crate) fn len(&self) -> usize {
        let segments = self.segments.iter();
        let all: usize = segments.map(|segment| segment.bytes.len()).sum();
        all - self.before_unit()
    }

    /// Bytes of the page before the unit with the old end.
    fn before_unit(&self) -> usize {
        let start = self.segments.first().map_or(0, |segment| segment.start);
        to_usize(self.unit_start.saturating_sub(start))
    }

    fn at(&self) -> RingPosition {
        self.segments
            .last()
            .map_or(self.old_tail, |segment| RingPosition(segment.end()))
    }

    /// True: a record of `len` bytes fits with `keep` bytes left over.
    pub(crate) fn has_room(&self, journal: &Journal, len: usize, keep: u64) -> bool {
        journal.place(self.at(), len as u64, keep).is_some()
    }

    /// Appends an encoded record if it fits with `keep` bytes left over, and returns where it is.
    pub(crate) fn append(
        &mut self,
        journal: &Journal,
        record: &[u8],
        keep: u64,
    ) -> Option<RingPosition> {
        if journal.place(self.at(), record.len() as u64, keep)? == RingPlace::AtFront {
            self.push(&Record::GoToFront.to_bytes());
            self.segments.push(Segment {
                start: 0,
                bytes: Vec::new(),
            });
        }
        let at = self.at();
        self.push(record);
        self.records += 1;
        Some(at)
    }

    /// Appends records if they all fit with `keep` bytes left over, and returns where they are.
    /// Else nothing is appended.
    pub(crate) fn append_all(
        &mut self,
        journal: &Journal,
        records: &[&[u8]],
        keep: u64,
    ) -> Option<Vec<RingPosition>> {
        let segments = self.segments.len();
        let len = self.segments.last().map_or(0, |last| last.bytes.len());
        let count = self.records;
        let mut positions = Vec::new();
        for record in records {
            let Some(position) = self.append(journal, record, keep) else {
                self.segments.truncate(segments);
                if let Some(last) = self.segments.last_mut() {
                    last.bytes.truncate(len);
                }
                self.records = count;
                return None;
            };
            positions.push(position);
        }
        Some(positions)
    }

    /// Notes that a mark of foreign lumps was appended.
    pub(crate) fn note_mark(&mut self) {
        self.mark_bytes += MARK_LEN as u64;
    }

    /// Lets all records up to the end of the batch count as foreign: for lack of room there are no
    /// marks in it.
    pub(crate) fn disown(&mut self) {
        self.disown = true;
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(segment) = self.segments.last_mut() {
            segment.bytes.extend_from_slice(bytes);
        }
    }

    /// Records without effect that must stand before a seal with a run, so that it is in one sector
    /// with the end; `None`: there is no room.
    fn fillers_before_run(&self, journal: &Journal) -> Option<u64> {
        let (at, filler) = (self.at().0, FILLER.encoded_len() as u64);
        let straddles =
            |count: &u64| (at + count * filler) % SECTOR_LEN > SECTOR_LEN - RUN_END_LEN as u64;
        let count = (0..3).find(|count| !straddles(count))?;
        // The room kept behind each record is for a filler and a settled seal.
        let more = count * filler + (RUN_SEAL_LEN - SEAL_LEN) as u64;
        let fits = journal.place(self.at(), more, 0) == Some(RingPlace::AtTail);
        fits.then_some(count)
    }

    /// Ends the batch with an `EndOfRecords` and a seal, which names the wanted run if there is room
    /// for that.
    pub(crate) fn finish(
        mut self,
        journal: &Journal,
        pool: &Arc<BufferPool>,
        wanted: Option<OpenRun>,
    ) -> BatchWrites {
        let unit = journal.unit;
        let eor = END_OF_RECORDS_LEN as u64;
        self.leave_front();
        let named = wanted.and_then(|run| Some((run, self.fillers_before_run(journal)?)));
        for _ in 0..named.map_or(0, |(_, fillers)| fillers) {
            self.push(&FILLER.to_bytes());
        }
        if self.at().0 % SECTOR_LEN > SECTOR_LEN - SEALED_END_LEN as u64 {
            // `Journal::place` has kept room for both.
            self.push(&FILLER.to_bytes());
        }
        let tail = self.at();
        let tail_bytes = self.bytes_between(journal.page_start(tail), tail);
        let how = (self.disown, self.sum(journal.end_sum().sum));
        let run = named.map(|(run, _)| run);
        let (seal, seal_bytes) = journal.seal_at(tail, &tail_bytes, how, run);
        let new_tail = NewTail {
            tail,
            tail_bytes,
            seal,
            mark_bytes: self.mark_bytes,
        };
        self.push(&Record::EndOfRecords.to_bytes());
        self.push(&seal_bytes);
        // The old end decides how much must become visible in one write: one unit, but two when
        // a foreign writer left it across a boundary.
        let straddles = self.old_tail.0 % unit > unit - eor;
        let visible = if straddles { 2 * unit } else { unit };
        let visible = self.before_unit() + to_usize(visible);
        let records = self.records;
        let mut writes = Vec::new();
        for (number, segment) in self.segments.into_iter().enumerate() {
            let padded = segment.bytes.len().next_multiple_of(to_usize(unit));
            let cut = if number == 0 { visible.min(padded) } else { 0 };
            let first = to_usize(journal.padded(segment.start + cut as u64) - segment.start);
            for (from, cut, to) in [(0, cut, first), (cut, padded, padded)] {
                if from < cut {
                    let mut buf = pool.zeroed(to - from);
                    let bytes = &segment.bytes[from.min(segment.bytes.len())..];
                    let bytes = &bytes[..bytes.len().min(to - from)];
                    buf[..bytes.len()].copy_from_slice(bytes);
                    let position = RingPosition(segment.start + from as u64);
                    writes.push(RingWrite { position, buf });
                }
            }
        }
        let first = writes.remove(0);
        BatchWrites {
            rest: writes,
            first,
            new_tail,
            records,
        }
    }

    /// The sum of the log behind the records, when it was `sum` before them.
    fn sum(&self, sum: u32) -> u32 {
        let mut old = self.old_tail.0;
        self.segments.iter().fold(sum, |sum, segment| {
            let from = to_usize(old.saturating_sub(segment.start));
            old = 0;
            crc32c::append(sum, segment.bytes.get(from..).unwrap_or_default())
        })
    }

    /// A batch that goes round the end of the ring writes its front, too, which may be in the page of
    /// the old end.
    fn leave_front(&mut self) {
        let before_unit = self.before_unit();
        if let [first, _] = self.segments.as_mut_slice() {
            first.bytes.drain(..before_unit.min(first.bytes.len()));
            first.start = self.unit_start;
        }
    }

    /// The bytes before the tail, from `start` on or, if that is later, from where the batch begins.
    fn bytes_between(&self, start: u64, tail: RingPosition) -> Vec<u8> {
        let Some(segment) = self.segments.last() else {
            return Vec::new();
        };
        let at = |position: u64| to_usize(position.saturating_sub(segment.start));
        let bytes = segment.bytes.get(at(start)..at(tail.0));
        bytes.unwrap_or_default().to_vec()
    }
}

impl Journal {
    /// The batch is visible on the disk.
    pub(crate) fn advance(&mut self, new_tail: NewTail) {
        self.tail = new_tail.tail;
        self.tail_bytes = new_tail.tail_bytes;
        self.seal = new_tail.seal.seal;
        self.names_run = new_tail.seal.run.is_some();
        self.mark_bytes += new_tail.mark_bytes;
        self.sealed = true;
        let (end, apart) = (self.end_sum(), WAYPOINTS_APART.min(self.ring_len / 32));
        if self
            .waypoints
            .back()
            .is_none_or(|last| end.at - last.at >= apart)
        {
            self.waypoints.push_back(end);
        }
    }
}
