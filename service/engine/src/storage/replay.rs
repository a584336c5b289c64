//! Walks through the records of the ring, in the order of the log: to open a store, and to inspect
//! one.

use super::gaps::Gap;
use super::io::{BlockingIo, RingReader};
use super::journal::FoundEnd;
use super::log_sum::Summing;
use super::recover::FoundStore;
use crate::error::Error;
use crate::finding::{Finding, FindingKind};
use crate::format::Geometry;
use crate::format::mark::Marks;
use crate::format::mend::{Mended, mend};
use crate::format::record::{Decoded, MAX_RECORD_LEN, PREFIX_LEN, Record, claimed_len};
use crate::format::seal::LogSum;
use crate::units::RingPosition;

/// A record with its place.
pub(crate) struct Placed<'a> {
    pub(crate) position: RingPosition,
    pub(crate) len: u64,
    pub(crate) record: Record<'a>,
    /// True: a mark calls its lump foreign.
    pub(crate) foreign: bool,
}

/// A record that cannot be applied.
pub(crate) struct Broken {
    pub(crate) error: Error,
    /// Its position, and the bytes that may be damaged.
    pub(crate) at: RingPosition,
    pub(crate) len: u64,
    /// Where the log ends when nothing that stands at the front of the ring is of this round of
    /// it; else `at`.
    pub(super) cut: RingPosition,
}

/// Places where a walk does not follow the records.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    /// Stretches that are passed over, in the order of the log.
    pub(super) gaps: &'a [Gap],
    /// Here the log is taken to end.
    pub(super) stop: Option<RingPosition>,
}

/// A walk through the log, and how far it has come.
pub(crate) struct Replay<'a> {
    store: &'a FoundStore,
    reader: RingReader,
    summing: Option<Summing>,
    pub(super) records: u64,
    pub(super) bytes: u64,
    marks: Marks,
    /// The next record's.
    pub(crate) position: RingPosition,
    /// True: that lies before the head.
    wrapped: bool,
    /// Where the record stands that led to the front of the ring.
    go_to_front: Option<RingPosition>,
    /// True: the records from the front on lead to the head, so they are those of an older round.
    went_round: bool,
    /// Damaged records that were understood.
    pub(crate) rotted: Vec<Rotted>,
}

impl<'a> Replay<'a> {
    /// A walk from the head or a position behind it. `sums`: of the log there, or behind it.
    pub(crate) fn new(store: &'a FoundStore, start: RingPosition, sums: Option<LogSum>) -> Self {
        Self {
            store,
            reader: RingReader::new(&store.geometry),
            summing: sums.map(|sums| Summing::new(sums, &store.geometry)),
            records: 0,
            bytes: 0,
            marks: Marks::default(),
            position: start,
            wrapped: start < store.head,
            go_to_front: None,
            went_round: false,
            rotted: Vec::new(),
        }
    }

    /// Visits the records, the `EndOfRecords` included, and stops there, where the log is taken to
    /// end, at a record that cannot be applied, or when the visitor returns false.
    pub(crate) fn run(
        &mut self,
        io: &mut BlockingIo<'_>,
        route: Route<'_>,
        mut visit: impl FnMut(&Placed<'_>) -> bool,
    ) -> Result<(), Box<Broken>> {
        let (stop, mut gaps) = (self.stop(route), route.gaps.iter().peekable());
        while stop != Some(self.position) {
            if let Some(gap) = gaps.next_if(|gap| gap.from == self.position) {
                self.pass_over(gap);
                continue;
            }
            match self.next(io, &mut visit) {
                Ok(true) => {}
                Ok(false) => break,
                Err((error, len)) => return Err(self.broken(error, len)),
            }
        }
        Ok(())
    }

    fn stop(&self, route: Route<'_>) -> Option<RingPosition> {
        route.stop.or(self.store.ends.map(|ends| ends.tail))
    }

    /// Nobody knows what the records of a gap have said.
    fn pass_over(&mut self, gap: &Gap) {
        self.position = gap.to;
        self.wrapped = gap.to < self.store.head;
        (self.go_to_front, self.went_round) = (None, false);
        (self.marks, self.summing) = (Marks::default(), None);
    }

    /// Visits the record at the position and goes on to the next one; false: there is none. An error
    /// comes with the bytes that may be damaged.
    fn next(
        &mut self,
        io: &mut BlockingIo<'_>,
        visit: &mut impl FnMut(&Placed<'_>) -> bool,
    ) -> Result<bool, (Error, u64)> {
        let (ring_len, head) = (self.store.geometry.ring_len().0, self.store.head);
        let position = self.position;
        let corrupt = |len: u64, why: &str| {
            let (ring_position, why) = (position.0, why.to_owned());
            (Error::CorruptJournal { ring_position, why }, len)
        };
        let (mut total, mut mended) = (1, None::<Vec<u8>>);
        let (raw, record, len) = loop {
            let raw: &[u8] = match &mended {
                Some(mended) => mended,
                None => self.reader.at(io, position, total).map_err(unreadable)?,
            };
            match Record::decode(raw) {
                Ok(Decoded::Record { record, len }) => break (raw, record, len),
                Ok(Decoded::NeedMore { total: more })
                    if mended.is_none() && position.0 + more as u64 <= ring_len =>
                {
                    total = more as u64;
                }
                Ok(Decoded::NeedMore { .. }) => {
                    let why = "the record reaches beyond the end of the ring";
                    return Err(corrupt(ring_len - position.0, why));
                }
                Err(error) => {
                    let len = claimed_len(raw).unwrap_or(PREFIX_LEN) as u64;
                    let corrupt = corrupt(len, &error.to_string());
                    let found = self.mend(io).map_err(unreadable)?;
                    mended = Some(found.filter(|_| mended.is_none()).ok_or(corrupt)?);
                }
            }
        };
        let (bytes, len) = (raw.get(..len), len as u64);
        if self.go_to_front.is_some() && position == head {
            self.went_round = true;
            let why = "the records reach the head of the ring without an end";
            return Err(corrupt(len, why));
        }
        if self.wrapped && position < head && position.0 + len > head.0 {
            return Err(corrupt(len, "the record runs into the head of the ring"));
        }
        let is_front = record == Record::GoToFront;
        if is_front && (self.wrapped || head.0 == 0) {
            return Err(corrupt(len, "a second round of the ring"));
        }
        self.records += 1;
        self.bytes += len;
        let placed = Placed {
            position,
            len,
            record,
            foreign: self.marks.pass(&record),
        };
        if !visit(&placed) || record == Record::EndOfRecords {
            return Ok(false);
        }
        if let Some(summing) = &mut self.summing {
            let is_known = Rotted::is_known(&self.rotted, position);
            summing.add(position, bytes.filter(|_| is_known));
        }
        if is_front {
            (self.wrapped, self.go_to_front) = (true, Some(position));
        }
        self.position = RingPosition(if is_front { 0 } else { position.0 + len });
        Ok(true)
    }

    /// The bytes of the damaged record at the position; `None`: it is not understood.
    fn mend(&mut self, io: &mut BlockingIo<'_>) -> Result<Option<Vec<u8>>, Error> {
        let position = self.position;
        let bytes = self.reader.at(io, position, MAX_RECORD_LEN as u64)?;
        let Some(mended) = mend(bytes) else {
            return Ok(None);
        };
        self.rotted.push(Rotted {
            position,
            flipped: mended.flipped,
            finding: mended_finding(&self.store.geometry, position, &mended),
        });
        Ok(Some(mended.record))
    }

    /// The error with which the walk ends at its position; `len`: bytes there that may be damaged.
    pub(super) fn broken(&self, error: Error, len: u64) -> Box<Broken> {
        let at = self.position;
        let cut = self
            .go_to_front
            .filter(|_| self.went_round || at.0 == 0)
            .unwrap_or(at);
        Box::new(Broken {
            error,
            at,
            len,
            cut,
        })
    }

    /// The sum of the log up to the position.
    pub(crate) fn sum(&self) -> Option<u32> {
        self.summing.as_ref()?.sum(self.position)
    }

    /// The end of the journal at the position.
    pub(crate) fn end(&self, io: &mut BlockingIo<'_>, route: Route<'_>) -> Result<FoundEnd, Error> {
        if self.stop(route).is_none() {
            return self.reader.end(io, self.store.uuid, self.position);
        }
        let ends = self.store.ends.filter(|ends| ends.tail == self.position);
        Ok(FoundEnd {
            seal: ends.map(|ends| ends.seal),
            ..self.reader.cut(io, self.position)?
        })
    }
}

fn unreadable(error: Error) -> (Error, u64) {
    (error, PREFIX_LEN as u64)
}

/// Tells of a damaged record that is understood.
fn mended_finding(geometry: &Geometry, position: RingPosition, mended: &Mended) -> Finding {
    let why = match mended.flipped {
        Some((at, mask)) => {
            format!("a bit of the record has flipped (byte {at}, mask {mask:#04x}); it is known")
        }
        None => "the data of an embedded lump is damaged: restore the lump from a copy".to_owned(),
    };
    let len = mended.record.len() as u64;
    let finding = Finding::of_record(FindingKind::Record, geometry, position, len, why);
    match Record::decode(&mended.record) {
        Ok(Decoded::Record {
            record: Record::Put { id, .. } | Record::Embed { id, .. } | Record::Delete { id },
            ..
        }) => finding.about(id),
        _ => finding,
    }
}

/// A record of which a bit has flipped.
pub(crate) struct Rotted {
    pub(crate) position: RingPosition,
    /// The byte of the record, and the bit; `None`: it is somewhere in the data.
    pub(crate) flipped: Option<(usize, u8)>,
    pub(crate) finding: Finding,
}

impl Rotted {
    /// Tells of the records, and returns the bits of the ring that are to be flipped back; before
    /// the end of the journal they are.
    pub(super) fn make_good(
        rotted: Vec<Self>,
        end: &mut FoundEnd,
        told: &mut Vec<Finding>,
    ) -> Vec<(RingPosition, u8)> {
        let flips: Vec<_> = rotted.iter().filter_map(Self::flip).collect();
        end.flip(&flips);
        told.extend(rotted.into_iter().map(|rotted| rotted.finding));
        flips
    }

    /// True: the bytes of the last record, at this position, are what was written.
    fn is_known(rotted: &[Self], position: RingPosition) -> bool {
        let last = rotted.last().filter(|last| last.position == position);
        last.is_none_or(|last| last.flipped.is_some())
    }

    fn flip(&self) -> Option<(RingPosition, u8)> {
        let (at, mask) = self.flipped?;
        Some((RingPosition(self.position.0 + at as u64), mask))
    }
}
