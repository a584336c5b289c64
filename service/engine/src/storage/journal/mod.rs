//! The journal: a ring of records that says which lumps there are.
//!
//! [`Journal`] knows where the ring begins and ends, [`writer`] turns records into writes that
//! survive tearing, [`gc`] finds out what at the head is still needed. None of them does I/O.

pub(crate) mod gc;
pub(crate) mod rotted;
pub(crate) mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::clock;
use crate::format::Geometry;
use crate::format::record::{MAX_RECORD_LEN, PUT_LEN, Record};
use crate::format::ring::{RingPlace, room_for};
use crate::format::run::{OpenRun, RunSeal};
use crate::format::seal::{LogSum, SEAL_LEN, SEALED_END_LEN, Seal, SealPlace, UnsettledSeal};
use crate::format::verify::Provenance;
use crate::lump::LumpId;
use crate::storage::index::IndexEntry;
use crate::units::{ByteLen, RingPosition, SECTOR_LEN, to_usize};

/// A record without effect, to move the tail away from the end of a sector.
pub(super) const FILLER: Record<'static> = Record::DeleteRange {
    start: LumpId(0),
    end: LumpId(0),
};

/// Bytes that disks write at a time, even those that take less: these read the rest first, which
/// costs one with platters a turn.
pub(super) const PAGE: u64 = 4096;

/// State of the ring, as it is on the disk.
#[derive(Debug)]
pub(crate) struct Journal {
    ring_len: u64,
    /// First byte of the ring on the device.
    ring_start: u64,
    /// Bytes that the device writes without tearing.
    unit: u64,
    /// First record that replay would read. What lies before it may be overwritten.
    head: RingPosition,
    /// The `EndOfRecords`.
    tail: RingPosition,
    /// The bytes from the start of the tail's page, or at least of its unit, to the tail.
    tail_bytes: Vec<u8>,
    /// Instance UUID of the store.
    uuid: [u8; 16],
    /// The seal at the tail; it stands on the disk if `sealed`. It has a sum.
    seal: Seal,
    /// A sum of the log that the checked copies have, at the head or behind it.
    sums: LogSum,
    /// Sums at ends of batches since open, some way apart: the collection can prove what it reads up
    /// to one of them.
    waypoints: VecDeque<LogSum>,
    sealed: bool,
    /// True: the seal there names a run.
    names_run: bool,
    /// Bytes of marks of foreign lumps between head and tail.
    mark_bytes: u64,
    /// Records that are being read, whose space must not be overwritten yet.
    pinned: BTreeMap<u64, u32>,
    /// Bytes of the largest record seen since open.
    largest_record: u64,
}

/// Findings of the replay about the journal.
#[derive(Debug)]
pub(crate) struct JournalFindings {
    /// Instance UUID of the store.
    pub(crate) uuid: [u8; 16],
    pub(crate) head: RingPosition,
    pub(crate) end: FoundEnd,
    /// Bytes of the largest live record.
    pub(crate) largest_record: u64,
    /// Bytes of marks of foreign lumps that were read.
    pub(crate) mark_bytes: u64,
    /// The sum that the checked copies have, if the one in the seal follows from it.
    pub(crate) sums: Option<LogSum>,
}

/// The end of the journal on the disk.
#[derive(Debug)]
pub(crate) struct FoundEnd {
    /// The `EndOfRecords`.
    pub(crate) tail: RingPosition,
    /// The bytes from the start of the tail's page, or at least of its unit, to the tail.
    pub(crate) tail_bytes: Vec<u8>,
    /// The seal behind it, if it fits.
    pub(crate) seal: Option<Seal>,
    /// True: what stands there is not quite this seal.
    pub(crate) mended: bool,
    /// The seal in its unsettled form, if that is what stands there.
    pub(crate) unsettled: Option<UnsettledSeal>,
    /// The run whose puts may have no records yet, if the seal names one.
    pub(crate) run: Option<OpenRun>,
}

/// The seal of a new end.
#[derive(Clone, Copy, Debug)]
struct TailSeal {
    seal: Seal,
    /// With puts that have no records (FORMAT.md section 5.6).
    run: Option<OpenRun>,
}

impl FoundEnd {
    /// `behind`: the bytes of the ring behind the `EndOfRecords`.
    pub(crate) fn new(
        (uuid, ring_len): ([u8; 16], u64),
        tail: RingPosition,
        tail_bytes: Vec<u8>,
        behind: &[u8],
    ) -> Self {
        let place = seal_place(uuid, tail, &tail_bytes);
        let is_here = |seal: &Seal| seal.log_end.checked_rem(ring_len) == Some(tail.0);
        let find =
            |settled: Option<Seal>, unsettled: Option<UnsettledSeal>, run: Option<RunSeal>| {
                let settled = settled.map(|seal| (seal, None, None));
                let unsettled = unsettled.map(|found| (found.seal, Some(found), None));
                let run = run.map(|found| (found.seal, None, Some(found.run)));
                let mut seals = [settled, unsettled, run].into_iter().flatten();
                seals.find(|(seal, ..)| is_here(seal))
            };
        let sound = find(
            Seal::decode(behind, place),
            UnsettledSeal::decode(behind, place),
            RunSeal::decode(behind, place),
        );
        let found = sound.or_else(|| {
            find(
                Seal::decode_mended(behind, place),
                UnsettledSeal::decode_mended(behind, place),
                RunSeal::decode_mended(behind, place),
            )
        });
        let (seal, unsettled, run) = found
            .map_or_else(Default::default, |(seal, unsettled, run)| {
                (Some(seal), unsettled, run)
            });
        Self {
            tail,
            mended: sound.is_none() && seal.is_some(),
            seal,
            tail_bytes,
            unsettled,
            run,
        }
    }
}

impl FoundEnd {
    /// Where the records of the last batch are, if it is not settled.
    pub(crate) fn unsettled_records(&self) -> Range<RingPosition> {
        let len = self
            .unsettled
            .map_or(0, |unsettled| unsettled.seal.log_end - unsettled.begin);
        RingPosition(self.tail.0.saturating_sub(len))..self.tail
    }

    /// Flips bits of the bytes before the tail back.
    pub(crate) fn flip(&mut self, flips: &[(RingPosition, u8)]) {
        let start = self.tail.0 - self.tail_bytes.len() as u64;
        for (position, mask) in flips {
            let at = position.0.checked_sub(start);
            let byte = at.and_then(|at| self.tail_bytes.get_mut(usize::try_from(at).ok()?));
            if let Some(byte) = byte {
                *byte ^= mask;
            }
        }
    }
}

/// `before`: at least the bytes of the tail's sector before it.
fn seal_place(uuid: [u8; 16], tail: RingPosition, before: &[u8]) -> SealPlace<'_> {
    let in_sector = to_usize(tail.0 % SECTOR_LEN);
    let from = before.len().saturating_sub(in_sector);
    SealPlace {
        uuid,
        tail,
        before: before.get(from..).unwrap_or_default(),
    }
}

/// State of a journal whose end another engine wrote.
fn takeover(ring_len: u64, head: RingPosition, tail: RingPosition) -> Seal {
    // Log offsets are ring positions modulo the ring, and the head's must not be negative.
    let log_end = if tail < head {
        ring_len + tail.0
    } else {
        tail.0
    };
    Seal {
        epoch: new_epoch(),
        log_end,
        foreign_end: log_end,
        log_sum: None,
    }
}

/// A new epoch, drawn at random: never 0, and less than 2^32.
pub(crate) fn new_epoch() -> u64 {
    (clock::random_u64() >> 32).max(1)
}

impl Journal {
    /// A journal as replay found it.
    ///
    /// Without a seal another engine, or an older version of this one, has written its end: a new
    /// epoch begins, and all records so far count as foreign.
    pub(crate) fn new(geometry: &Geometry, unit: u64, found: JournalFindings) -> Self {
        let JournalFindings {
            uuid,
            head,
            end,
            largest_record,
            mark_bytes,
            sums,
        } = found;
        let ring_len = geometry.ring_len().0;
        let seal = end
            .seal
            .unwrap_or_else(|| takeover(ring_len, head, end.tail));
        let sum = seal.log_sum.unwrap_or(0);
        let at = seal.log_end;
        Self {
            ring_len,
            ring_start: geometry.ring_byte(RingPosition(0)).0,
            unit,
            head,
            tail: end.tail,
            tail_bytes: end.tail_bytes,
            uuid,
            sums: sums.unwrap_or(LogSum { at, sum }),
            seal: Seal {
                epoch: u32::try_from(seal.epoch).map_or_else(|_| new_epoch(), u64::from),
                log_sum: Some(sum),
                ..seal
            },
            sealed: end.seal.is_some(),
            names_run: false,
            mark_bytes,
            waypoints: VecDeque::new(),
            pinned: BTreeMap::new(),
            largest_record: largest_record.max(PUT_LEN as u64),
        }
    }

    /// Names the unbroken run of appends by this engine that the present end belongs to.
    pub(crate) fn epoch(&self) -> u64 {
        self.seal.epoch
    }

    /// Instance UUID of the store.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Log offset of the tail; it grows with every append, round after round of the ring.
    pub(crate) fn log_end(&self) -> u64 {
        self.seal.log_end
    }

    /// Records at log offsets below this may come from another engine.
    pub(crate) fn foreign_end(&self) -> u64 {
        self.seal.foreign_end
    }

    /// True: the end of the journal on the disk carries the seal of this epoch. False until the
    /// first append after another engine's.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// The seal of the present end; its epoch is 0 if another engine has written that.
    pub(crate) fn end_seal(&self) -> Seal {
        let epoch = if self.sealed { self.seal.epoch } else { 0 };
        Seal { epoch, ..self.seal }
    }

    /// The sum of the log at its end.
    pub(crate) fn end_sum(&self) -> LogSum {
        let Seal {
            log_end, log_sum, ..
        } = self.seal;
        LogSum {
            at: log_end,
            sum: log_sum.unwrap_or(0),
        }
    }

    /// A sum of the log at the head, or at a place behind it.
    pub(crate) fn sums(&self) -> LogSum {
        self.sums
    }

    /// The head, and a sum of the log there or behind it.
    pub(crate) fn head_and_sums(&self) -> (RingPosition, LogSum) {
        (self.head, self.sums)
    }

    /// Log offset of a position between head and tail.
    pub(crate) fn log_offset_of(&self, position: RingPosition) -> u64 {
        self.seal
            .log_end
            .saturating_sub(self.distance(position, self.tail))
    }

    /// Writer of the lump of an index entry, as far as the journal tells.
    pub(crate) fn provenance(&self, entry: IndexEntry) -> Provenance {
        if entry.is_marked() || self.log_offset_of(entry.record()) < self.foreign_end() {
            Provenance::Foreign
        } else {
            Provenance::Own
        }
    }

    /// Bytes of marks of foreign lumps: needed, though no record of a lump.
    pub(crate) fn mark_bytes(&self) -> u64 {
        self.mark_bytes
    }

    /// The collection has passed a mark.
    pub(crate) fn passed_marks(&mut self, bytes: u64) {
        self.mark_bytes = self.mark_bytes.saturating_sub(bytes);
    }

    /// True: the end on the disk names a run.
    pub(crate) fn names_run(&self) -> bool {
        self.names_run
    }

    /// The end on the disk [names no run](Self::sealed_page) any more.
    pub(crate) fn settled(&mut self) {
        self.names_run = false;
    }

    /// The seal for an end of the journal at `tail`; `before`: the bytes of its unit before it.
    /// `disown`: all records before it count as foreign.
    fn seal_at(
        &self,
        tail: RingPosition,
        before: &[u8],
        (disown, log_sum): (bool, u32),
        run: Option<OpenRun>,
    ) -> (TailSeal, Vec<u8>) {
        let log_end = self.seal.log_end + self.distance(self.tail, tail);
        let seal = Seal {
            log_end,
            foreign_end: if disown {
                log_end
            } else {
                self.seal.foreign_end
            },
            log_sum: Some(log_sum),
            ..self.seal
        };
        let place = seal_place(self.uuid, tail, before);
        let bytes = match run {
            Some(run) => RunSeal { seal, run }.encode(place).to_vec(),
            None => seal.encode(place).to_vec(),
        };
        (TailSeal { seal, run }, bytes)
    }

    /// Where the page of a position begins: on the device, but not before the ring.
    fn page_start(&self, position: RingPosition) -> u64 {
        let page = PAGE.max(self.unit);
        let byte = self.ring_start + position.0;
        (byte - byte % page).saturating_sub(self.ring_start)
    }

    /// Where a write ends that must reach `end`, the end of a unit: with the page, if nothing in
    /// there is needed.
    fn padded(&self, end: u64) -> u64 {
        let page = PAGE.max(self.unit);
        let byte = self.ring_start + end;
        let wanted = (byte.next_multiple_of(page) - self.ring_start).min(self.ring_len);
        let limit = self.limit();
        let is_free = limit <= self.tail || wanted <= limit.0;
        if is_free { wanted.max(end) } else { end }
    }

    /// As [`end_page`](Self::end_page); `None`: it has no seal.
    pub(crate) fn sealed_page(&self) -> Option<(RingPosition, Vec<u8>)> {
        self.sealed.then(|| self.end_page())
    }

    /// The end of the journal with its seal, if it has one, in whole units from the start of its
    /// page.
    pub(crate) fn end_page(&self) -> (RingPosition, Vec<u8>) {
        let start = RingPosition(self.tail.0 - self.tail_bytes.len() as u64);
        let mut bytes = self.tail_bytes.clone();
        let seal = self.seal.encode(seal_place(self.uuid, self.tail, &bytes));
        bytes.extend_from_slice(&Record::EndOfRecords.to_bytes());
        if self.sealed {
            bytes.extend_from_slice(&seal);
        }
        let end = (start.0 + bytes.len() as u64).next_multiple_of(self.unit);
        let len = self.padded(end) - start.0;
        bytes.resize(to_usize(len), 0);
        (start, bytes)
    }

    pub(crate) fn head(&self) -> RingPosition {
        self.head
    }

    pub(crate) fn tail(&self) -> RingPosition {
        self.tail
    }

    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Bytes of the ring.
    pub(crate) fn capacity(&self) -> u64 {
        self.ring_len
    }

    /// Bytes between head and tail.
    pub(crate) fn used(&self) -> u64 {
        self.distance(self.head, self.tail)
    }

    /// Bytes from `from` forward to `to`, round the end of the ring if need be.
    pub(crate) fn distance(&self, from: RingPosition, to: RingPosition) -> u64 {
        from.distance_to(to, ByteLen(self.ring_len))
    }

    /// The whole units of the ring that hold the bytes from a position to `end`: the first one, and
    /// the bytes of all.
    pub(crate) fn units(&self, from: RingPosition, end: u64) -> (RingPosition, u64) {
        let start = from.0 - from.0 % self.unit;
        (RingPosition(start), end.next_multiple_of(self.unit) - start)
    }

    /// As [`units`](Self::units), of the bytes to read next on the way to `until`: at most `most` of
    /// them, and none behind the end of the ring.
    pub(crate) fn chunk(
        &self,
        from: RingPosition,
        until: RingPosition,
        most: u64,
    ) -> (RingPosition, u64) {
        let end = if until > from { until.0 } else { self.ring_len };
        self.units(from, end.min(from.0 + most))
    }

    /// A new head is on stable storage, and a sum of the log there or behind it.
    pub(crate) fn set_head(&mut self, head: RingPosition, sums: LogSum) {
        (self.head, self.sums) = (head, sums);
        let begin = self.log_offset_of(head);
        while self
            .waypoints
            .pop_front_if(|point| point.at < begin)
            .is_some()
        {}
    }

    /// The last place with a known sum that is behind the log offset `from`, and not more than `len`
    /// bytes.
    pub(super) fn waypoint(&self, from: u64, len: u64) -> Option<LogSum> {
        let end = self.end_sum();
        let mut points = self.waypoints.iter().copied().chain([end]);
        points.rfind(|point| point.at > from && point.at - from <= len)
    }

    /// Bytes that only relocated records may use, so that the collection can always go on: room
    /// for the largest record, as much again lost at the end of the ring, and rounding.
    pub(crate) fn gc_reserve(&self) -> u64 {
        Self::reserve_for(self.largest_record, self.unit)
    }

    /// Bytes that the collection needs to relocate one record, when another engine has left no
    /// more.
    pub(crate) fn last_room(&self) -> u64 {
        let filler = FILLER.encoded_len() as u64;
        self.largest_record + filler + SEALED_END_LEN as u64
    }

    /// True: records of puts of so many bytes certainly find room, and leave the collection its own.
    pub(crate) fn has_room_for_puts(&self, bytes: u64) -> bool {
        let free = match self.distance(self.tail, self.limit()) {
            0 => self.ring_len,
            free => free,
        };
        bytes <= Self::room_for_puts(free, self.largest_record, self.unit)
    }

    /// Bytes of records of puts that certainly find room in `free` bytes of the ring, beside what the
    /// collection needs and what is lost where the ring ends and units do.
    pub(crate) fn room_for_puts(free: u64, largest_record: u64, unit: u64) -> u64 {
        free.saturating_sub(3 * Self::reserve_for(largest_record, unit))
    }

    fn reserve_for(largest_record: u64, unit: u64) -> u64 {
        let filler = FILLER.encoded_len() as u64;
        2 * (largest_record + filler + SEALED_END_LEN as u64) + 2 * unit
    }

    /// Most bytes of live records that puts may bring about when one of them has `record_len`
    /// bytes. The rest is for deletes, which so always have room, and for the collection.
    pub(crate) fn live_limit(&self, record_len: u64) -> u64 {
        let reserve = Self::reserve_for(self.largest_record.max(record_len), self.unit);
        self.ring_len
            .saturating_sub(reserve)
            .saturating_sub(self.ring_len / 8)
    }

    /// Notes the size of a record that is going to be written.
    pub(crate) fn note_record(&mut self, record_len: u64) {
        debug_assert!(record_len <= MAX_RECORD_LEN as u64);
        self.largest_record = self.largest_record.max(record_len);
    }

    /// A read of the record at `position` begins.
    pub(crate) fn pin(&mut self, position: RingPosition) {
        *self.pinned.entry(position.0).or_default() += 1;
    }

    /// A read of the record at `position` has ended.
    pub(crate) fn unpin(&mut self, position: RingPosition) {
        if let Some(readers) = self.pinned.get_mut(&position.0) {
            *readers -= 1;
            if *readers == 0 {
                self.pinned.remove(&position.0);
            }
        }
    }

    /// True: records are being read, whose space cannot be used yet.
    pub(crate) fn has_readers(&self) -> bool {
        !self.pinned.is_empty()
    }

    /// The first position after the tail that must not be overwritten: the head, or a record
    /// before it that is still being read.
    fn limit(&self) -> RingPosition {
        let to_head = match self.distance(self.tail, self.head) {
            0 => self.ring_len,
            distance => distance,
        };
        let pins = self.pinned.keys().map(|&pin| RingPosition(pin));
        let candidates = pins.map(|pin| (self.distance(self.tail, pin), pin));
        candidates
            .chain([(to_head, self.head)])
            .min()
            .map_or(self.head, |(_, limit)| limit)
    }

    /// Where a record of `len` bytes goes when the records before it end at `at`, and `keep`
    /// bytes must stay free after it. `None`: nowhere now.
    fn place(&self, at: RingPosition, len: u64, keep: u64) -> Option<RingPlace> {
        // With room for a filler and a seal after every record, the last one can always get them.
        let with_filler = len + (FILLER.encoded_len() + SEAL_LEN) as u64;
        let (ring, unit) = (ByteLen(self.ring_len), ByteLen(self.unit));
        let limit = self.limit();
        let room = room_for(limit, at, with_filler, ring, unit);
        let end = match room {
            RingPlace::Full => return None,
            RingPlace::AtTail => at.0 + with_filler,
            RingPlace::AtFront => with_filler,
        };
        let free = self.distance(RingPosition(end % self.ring_len), limit);
        (free >= keep).then_some(room)
    }
}
