//! The journal: a ring of records that says which lumps there are.
//!
//! [`Journal`] knows where the ring begins and ends, [`writer`] turns records into writes that
//! survive tearing, [`gc`] finds out what at the head is still needed. None of them does I/O.

pub(crate) mod gc;
pub(crate) mod writer;

use std::collections::BTreeMap;

use crate::format::Geometry;
use crate::format::record::{END_OF_RECORDS_LEN, MAX_RECORD_LEN, PUT_LEN, Record};
use crate::format::ring::{Room, room_for};
use crate::lump::LumpId;
use crate::units::{ByteLen, RingPosition};

/// A record without effect, to move the tail away from the end of a write unit.
const FILLER: Record<'static> = Record::DeleteRange {
    start: LumpId(0),
    end: LumpId(0),
};

/// State of the ring, as it is on the disk.
#[derive(Debug)]
pub(crate) struct Journal {
    ring_len: u64,
    /// What the device writes without tearing, in bytes.
    unit: u64,
    /// First record that replay would read. What lies before it may be overwritten.
    head: RingPosition,
    /// The `EndOfRecords`.
    tail: RingPosition,
    /// The bytes from the start of the tail's unit to the tail.
    tail_bytes: Vec<u8>,
    /// Records that are being read, whose space must not be overwritten yet.
    pinned: BTreeMap<u64, u32>,
    /// Bytes of the largest record seen since open.
    largest_record: u64,
}

impl Journal {
    /// A journal as replay found it. `tail_bytes`: the bytes from the start of the tail's unit to
    /// the tail.
    pub(crate) fn new(
        geometry: &Geometry,
        unit: u64,
        head: RingPosition,
        tail: RingPosition,
        tail_bytes: Vec<u8>,
        largest_record: u64,
    ) -> Self {
        let ring_len = geometry.ring_len().0;
        let largest_record = largest_record.max(PUT_LEN as u64);
        let pinned = BTreeMap::new();
        Self {
            ring_len,
            unit,
            head,
            tail,
            tail_bytes,
            pinned,
            largest_record,
        }
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
        if to >= from {
            to.0 - from.0
        } else {
            self.ring_len - from.0 + to.0
        }
    }

    /// A new head is on stable storage.
    pub(crate) fn set_head(&mut self, head: RingPosition) {
        self.head = head;
    }

    /// Bytes that only relocated records may use, so that the collection can always go on: room
    /// for the largest record, as much again lost at the end of the ring, and rounding.
    pub(crate) fn gc_reserve(&self) -> u64 {
        Self::reserve_for(self.largest_record, self.unit)
    }

    fn reserve_for(largest_record: u64, unit: u64) -> u64 {
        let filler = FILLER.encoded_len() as u64;
        2 * (largest_record + filler + END_OF_RECORDS_LEN as u64) + 2 * unit
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
    fn place(&self, at: RingPosition, len: u64, keep: u64) -> Option<Room> {
        // With room for a filler after every record, the last one can always get one.
        let with_filler = len + FILLER.encoded_len() as u64;
        let (ring, unit) = (ByteLen(self.ring_len), ByteLen(self.unit));
        let limit = self.limit();
        let room = room_for(limit, at, with_filler, ring, unit);
        let end = match room {
            Room::Full => return None,
            Room::AtTail => at.0 + with_filler,
            Room::AtFront => with_filler,
        };
        let free = self.distance(RingPosition(end % self.ring_len), limit);
        (free >= keep).then_some(room)
    }
}
