//! Reclaims the head of the ring.
//!
//! A chunk of the ring is read from the head; each record in it is either garbage or is appended
//! again at the tail. A record is live if and only if the index names its very position. When
//! the relocated ones are durable, the head may move past the chunk. The decision is made when a
//! batch is put together and relocated records come first in it, so at that moment the index says
//! exactly what the journal says: no change of the same id can be between.

use std::collections::VecDeque;
use std::ops::Range;

use super::Journal;
use super::rotted::{RingStretch, Rotted};
use super::writer::Batch;
use crate::crc32c;
use crate::error::Error;
use crate::format::mark::{MARK_LEN, Mark, Marks, REACH};
use crate::format::mend::mend;
use crate::format::record::{Decoded, MAX_RECORD_LEN, Record};
use crate::format::seal::LogSum;
use crate::format::verify::Provenance;
use crate::lump::LumpId;
use crate::request::Placement;
use crate::storage::index::Index;
use crate::units::{RingPosition, to_usize};

/// Bytes read at a time; more than the longest record.
const CHUNK: u64 = 256 * 1024;
/// Bytes relocated in one batch, so that clients' records do not wait long behind them.
const BATCH_LIMIT: usize = 128 * 1024;

const _: () = assert!(CHUNK > 2 * MAX_RECORD_LEN as u64);

/// A record that was found near the head.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) position: RingPosition,
    /// The lump it is about, if it can be live at all.
    pub(super) id: Option<LumpId>,
    /// Its bytes in the chunk.
    pub(super) bytes: Range<usize>,
    /// Position of the record after it.
    pub(super) next: RingPosition,
    pub(super) is_mark: bool,
    /// True: the bytes are those that were written.
    pub(super) is_intact: bool,
    /// True: puts behind it need a mark before it.
    pub(super) marks_open: bool,
}

impl Scanned {
    /// A record that is whole.
    fn new(
        record: &Record<'_>,
        position: RingPosition,
        bytes: Range<usize>,
        marks: &mut Marks,
    ) -> Self {
        let behind = RingPosition(position.0 + bytes.len() as u64);
        let (id, next) = match *record {
            Record::Put { id, .. } | Record::Embed { id, .. } => (Some(id), behind),
            Record::GoToFront => (None, RingPosition(0)),
            Record::Delete { .. } | Record::DeleteRange { .. } | Record::EndOfRecords => {
                (None, behind)
            }
        };
        marks.pass(record);
        Self {
            position,
            id,
            bytes,
            next,
            is_mark: Mark::of(record).is_some(),
            is_intact: true,
            marks_open: marks.are_open(),
        }
    }
}

/// A scanned record that is live.
struct LiveRecord {
    /// Which of the scanned ones.
    at: usize,
    id: LumpId,
    from: RingPosition,
    /// True: another engine may have written the lump.
    foreign: bool,
}

/// A live record that a batch appends again.
#[derive(Debug)]
pub(crate) struct Relocation {
    pub(crate) id: LumpId,
    pub(crate) from: RingPosition,
    pub(crate) to: RingPosition,
    /// True: a mark before it calls the lump foreign.
    pub(crate) marked: bool,
}

/// Records that a batch took over from the collector.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) relocations: Vec<Relocation>,
    pub(crate) dropped: u64,
    /// Bytes of marks that were passed.
    pub(crate) mark_bytes: u64,
}

/// Where the collection is.
#[derive(Debug)]
pub(crate) struct Collector {
    chunk: Vec<u8>,
    scanned: VecDeque<Scanned>,
    /// Everything before this is dealt with.
    position: RingPosition,
    /// The head may move here once all that is durable: not always the position, because the
    /// journal must not begin between a mark and its puts.
    head_goal: RingPosition,
    /// The sum of the log at `position`, and at `head_goal`; `None`: it is known from `known_sum` on.
    sum: Option<u32>,
    goal_sum: Option<u32>,
    known_sum: LogSum,
    /// The marks of the records before the end of the scan.
    marks: Marks,
    /// Where the chunk is read to, at most to the tail of that time: it knows nothing of what came
    /// later.
    scan_until: RingPosition,
    /// The sum of the log there; `None`: unknown.
    until_sum: Option<LogSum>,
    /// Everything before this is proved to be what was written.
    proved: RingPosition,
    /// Bytes dealt with since open, to see that a whole round has gained nothing.
    passed: u64,
}

impl Collector {
    pub(crate) fn new(journal: &Journal) -> Self {
        let (head, known_sum) = (journal.head, journal.sums);
        let is_here = known_sum.at == journal.log_offset_of(head);
        let sum = is_here.then_some(known_sum.sum);
        Self {
            chunk: Vec::new(),
            scanned: VecDeque::new(),
            position: head,
            head_goal: head,
            sum,
            goal_sum: sum,
            known_sum,
            marks: Marks::default(),
            scan_until: head,
            until_sum: None,
            proved: head,
            passed: 0,
        }
    }

    /// Everything before this is dealt with.
    pub(crate) fn position(&self) -> RingPosition {
        self.position
    }

    /// Where the head may be once everything dealt with is durable.
    pub(crate) fn head_goal(&self) -> RingPosition {
        self.head_goal
    }

    /// The sum of the log there, or at a place behind it.
    pub(crate) fn sums(&self, journal: &Journal) -> LogSum {
        self.goal_sum.map_or(self.known_sum, |sum| LogSum {
            at: journal.log_offset_of(self.head_goal),
            sum,
        })
    }

    /// Bytes dealt with since open.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// True: the last chunk has been dealt with.
    pub(crate) fn needs_chunk(&self) -> bool {
        self.scanned.is_empty()
    }

    /// Next ring bytes to read, `start..end`, whole units. `None`: nothing before the tail.
    pub(crate) fn next_read(&mut self, journal: &Journal) -> Option<(RingPosition, u64)> {
        if self.position == journal.tail {
            return None;
        }
        let offset = journal.log_offset_of(self.position);
        let point = journal.waypoint(offset, CHUNK);
        self.until_sum = point;
        self.scan_until = point.map_or(journal.tail, |point| {
            RingPosition(point.at % journal.ring_len)
        });
        Some(journal.chunk(self.position, self.scan_until, CHUNK))
    }

    /// True: the `len` bytes from `start` hold embedded lumps that are still to be dealt with.
    pub(crate) fn has_embedded(
        &self,
        index: &Index,
        journal: &Journal,
        (start, len): (RingPosition, u64),
    ) -> bool {
        let (from, left) = (
            self.position,
            journal.distance(self.position, self.scan_until),
        );
        let chunk = (start.0 + len).saturating_sub(from.0);
        let known = RingStretch::new(index, journal, (from, self.scan_until));
        known.has_embedded(left.min(chunk))
    }

    /// Takes a chunk that was read from `start`. Damaged records are taken from the index, which
    /// knows what they say; they are returned.
    ///
    /// # Errors
    /// [`Error::CorruptJournal`]: older records stood where the disk has lost a write, and were taken
    /// for the newer ones before this could be known.
    pub(crate) fn scan(
        &mut self,
        start: RingPosition,
        bytes: &[u8],
        known: (&Index, &Journal),
    ) -> Result<Vec<Rotted>, Error> {
        let rotted = self.scan_chunk(start, bytes, known, true);
        let sum = self.scanned.iter().try_fold(self.sum, |sum, scanned| {
            let bytes = self.chunk.get(scanned.bytes.clone()).unwrap_or_default();
            let sum = sum.filter(|_| scanned.is_intact)?;
            Some(Some(crc32c::append(sum, bytes)))
        });
        let reached = self
            .scanned
            .back()
            .is_some_and(|last| last.next == self.scan_until);
        let (Some(Some(found)), Some(written), true) = (sum, self.until_sum, reached) else {
            return Ok(rotted);
        };
        let is_within = self.proved == self.position;
        self.proved = self.scan_until;
        if found == written.sum {
            return Ok(rotted);
        }
        if !is_within {
            return Err(Error::CorruptJournal {
                ring_position: self.position.0,
                why: "the records before it are not those that were written: the disk has lost a \
                      write"
                    .to_owned(),
            });
        }
        self.scanned.clear();
        self.known_sum = written;
        Ok(self.scan_chunk(start, bytes, known, false))
    }

    /// Finds the records of a chunk. `trust`: those that are whole count. Where the disk has lost a
    /// write, older ones may stand there: then the chunk is what the index knows of it.
    fn scan_chunk(
        &mut self,
        start: RingPosition,
        bytes: &[u8],
        (index, journal): (&Index, &Journal),
        mut trust: bool,
    ) -> Vec<Rotted> {
        self.chunk = bytes.to_vec();
        let mut rotted = Vec::new();
        let mut known: Option<RingStretch> = None;
        let mut position = self.position;
        let left = journal.distance(self.position, self.scan_until);
        while position != self.scan_until {
            let at = to_usize(position.0.wrapping_sub(start.0));
            let Some(rest) = self.chunk.get(at..) else {
                break;
            };
            let (record, len) = match Record::decode(rest) {
                Ok(Decoded::Record { record, len })
                    if trust
                        && record != Record::EndOfRecords
                        && journal.distance(self.position, position) + len as u64 <= left =>
                {
                    (record, len)
                }
                Ok(Decoded::NeedMore { .. }) if !self.scanned.is_empty() => break,
                _ => {
                    let span = (self.position, self.scan_until);
                    let known = known.get_or_insert_with(|| RingStretch::new(index, journal, span));
                    if let Some(record) = mended(rest).filter(|_| trust) {
                        // Whether it is the one that was written, the sum tells.
                        rotted.push(known.damaged(&mut self.chunk, at, position, true).rotted);
                        if let Some(place) = self.chunk.get_mut(at..at + record.len()) {
                            place.copy_from_slice(&record);
                        }
                        continue;
                    }
                    if trust && mend(rest).is_none() {
                        rotted = vec![known.damaged(&mut self.chunk, at, position, true).rotted];
                        self.scanned.clear();
                        (position, trust) = (self.position, false);
                        continue;
                    }
                    let is_as_known = !trust && known.is_as_known(rest, position);
                    let found = known.damaged(&mut self.chunk, at, position, trust);
                    let wraps = found.scanned.next < position;
                    position = found.scanned.next;
                    self.marks = Marks::default();
                    self.scanned.push_back(found.scanned);
                    if !is_as_known {
                        rotted.push(found.rotted);
                    }
                    if wraps {
                        break;
                    }
                    continue;
                }
            };
            let scanned = Scanned::new(&record, position, at..at + len, &mut self.marks);
            let wraps = scanned.next < position;
            position = scanned.next;
            self.scanned.push_back(scanned);
            if wraps {
                break;
            }
        }
        rotted
    }

    /// Appends the live records that fit, with `keep` bytes left over, to a batch and passes
    /// over garbage. To be called only when everything in the index is durable.
    pub(crate) fn fill(
        &mut self,
        index: &Index,
        journal: &Journal,
        batch: &mut Batch,
        keep: u64,
    ) -> Taken {
        let mut taken = Taken::default();
        self.take_groups(index, journal, batch, keep, &mut taken);
        if keep == 0 && !taken.relocations.is_empty() && self.head_goal != self.position {
            // In the last room the head must follow at once, also to between a mark and its puts.
            batch.disown();
            (self.head_goal, self.goal_sum) = (self.position, self.sum);
        }
        taken
    }

    fn take_groups(
        &mut self,
        index: &Index,
        journal: &Journal,
        batch: &mut Batch,
        keep: u64,
        taken: &mut Taken,
    ) {
        loop {
            let group = self.next_group(index, journal);
            let garbage = group.first().map_or(self.scanned.len(), |live| live.at);
            taken.dropped += garbage as u64;
            for _ in 0..garbage {
                self.pass_front(journal, taken);
            }
            if group.is_empty() || batch.len() > BATCH_LIMIT {
                return;
            }
            let Some(to) = self.append_group(&group, garbage, journal, batch, keep) else {
                return;
            };
            // What lies between two live records of the group is garbage.
            let last = group.get(to.len() - 1).map_or(0, |live| live.at - garbage);
            taken.dropped += (last + 1 - to.len()) as u64;
            for (live, (to, marked)) in group.iter().zip(to) {
                taken.relocations.push(Relocation {
                    id: live.id,
                    from: live.from,
                    to,
                    marked,
                });
            }
            for _ in 0..=last {
                self.pass_front(journal, taken);
            }
        }
    }

    /// The live records that come next and can share a mark: puts without anything else that lives
    /// between them, or one record of another kind.
    fn next_group(&self, index: &Index, journal: &Journal) -> Vec<LiveRecord> {
        let mut group: Vec<LiveRecord> = Vec::new();
        for (at, scanned) in self.scanned.iter().enumerate() {
            let entry = scanned
                .id
                .and_then(|id| index.get(id).map(|entry| (id, entry)))
                .filter(|(_, entry)| entry.record() == scanned.position);
            let Some((id, entry)) = entry else { continue };
            let is_put = entry.placement() == Placement::Data;
            let foreign = is_put && journal.provenance(entry) == Provenance::Foreign;
            if !group.is_empty() && !is_put {
                break;
            }
            group.push(LiveRecord {
                at,
                id,
                from: scanned.position,
                foreign,
            });
            let alone = !is_put || !group.iter().any(|live| live.foreign);
            if alone || group.len() == REACH {
                break;
            }
        }
        group
    }

    /// Appends the records of a group, or its first ones, behind a mark if one is needed; says
    /// where they are and which of them are marked. `None`: no room.
    ///
    /// The last room is too precious for marks: then all that was ever written counts as foreign.
    fn append_group(
        &self,
        group: &[LiveRecord],
        skipped: usize,
        journal: &Journal,
        batch: &mut Batch,
        keep: u64,
    ) -> Option<Vec<(RingPosition, bool)>> {
        if !group.iter().any(|live| live.foreign) {
            let first = group.first()?;
            let to = batch.append(journal, self.bytes_of(first, skipped), keep)?;
            return Some(vec![(to, false)]);
        }
        let spare = keep.max(journal.gc_reserve());
        let mut count = group.len();
        while count > 0 {
            let part = group.get(..count).unwrap_or_default();
            let bits = part
                .iter()
                .rev()
                .fold(0, |bits, live| bits << 1 | u64::from(live.foreign));
            let mark = Mark(bits).record().to_bytes();
            let mut records = vec![mark.as_slice()];
            records.extend(part.iter().map(|live| self.bytes_of(live, skipped)));
            if let Some(to) = batch.append_all(journal, &records, spare) {
                batch.note_mark();
                let marked = part.iter().map(|live| live.foreign);
                return Some(to.into_iter().skip(1).zip(marked).collect());
            }
            count /= 2;
        }
        if keep > 0 {
            return None;
        }
        let to = batch.append(journal, self.bytes_of(group.first()?, skipped), keep)?;
        batch.disown();
        Some(vec![(to, false)])
    }

    /// The bytes of a live record, when `skipped` records before its group are dealt with.
    fn bytes_of(&self, live: &LiveRecord, skipped: usize) -> &[u8] {
        let scanned = live
            .at
            .checked_sub(skipped)
            .and_then(|at| self.scanned.get(at));
        scanned
            .and_then(|scanned| self.chunk.get(scanned.bytes.clone()))
            .unwrap_or_default()
    }

    /// The first scanned record is dealt with.
    fn pass_front(&mut self, journal: &Journal, taken: &mut Taken) {
        let Some(front) = self.scanned.pop_front() else {
            return;
        };
        self.passed += journal.distance(front.position, front.next);
        self.position = front.next;
        self.add_to_sum(journal, &front);
        taken.mark_bytes += if front.is_mark { MARK_LEN as u64 } else { 0 };
        if !front.marks_open {
            (self.head_goal, self.goal_sum) = (front.next, self.sum);
        }
    }

    /// A record is passed. Behind one that is damaged nobody knows the sum, up to the present end.
    fn add_to_sum(&mut self, journal: &Journal, passed: &Scanned) {
        let bytes = self.chunk.get(passed.bytes.clone()).unwrap_or_default();
        self.sum = match self.sum.filter(|_| passed.is_intact) {
            Some(sum) => Some(crc32c::append(sum, bytes)),
            None => {
                let at = journal.log_offset_of(self.position);
                if self.sum.is_some() || at > self.known_sum.at {
                    let next = self.until_sum.filter(|next| next.at >= at);
                    self.known_sum = next.unwrap_or_else(|| journal.end_sum());
                }
                (at == self.known_sum.at).then(|| {
                    self.proved = self.position;
                    self.known_sum.sum
                })
            }
        };
    }
}

/// The record of which a bit has flipped; `None`: it is none, or its data is damaged.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    Record::decode(bytes).err()?;
    let mended = mend(bytes)?;
    mended.flipped.map(|_| mended.record)
}
