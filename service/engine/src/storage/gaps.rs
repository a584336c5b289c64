//! Salvage mode goes on behind damaged records (FORMAT.md section 13.1).

use super::Storage;
use super::headers::leads_to;
use super::io::BlockingIo;
use super::journal::Journal;
use super::journal::rotted::rewrite;
use super::recover::{Applied, FoundStore};
use super::replay::{Broken, Route};
use crate::error::Error;
use crate::finding::salvage::{SalvageAction, SalvageFinding};
use crate::finding::{Finding, FindingKind};
use crate::format::record::{Decoded, Record};
use crate::format::verify::Provenance;
use crate::lump::LumpId;
use crate::request::LumpRange;
use crate::storage::index::{Index, IndexEntry};
use crate::units::{RingPosition, to_usize};

/// Bytes behind a damaged record that are searched for the next one.
const SEARCHED: u64 = 1024 * 1024;
/// Places that are tried before salvage mode gives up and ends the log at the damage.
const TRIES: usize = 64;

/// A stretch of the log that cannot be read.
pub(super) struct Gap {
    pub(super) from: RingPosition,
    /// Where the log goes on.
    pub(super) to: RingPosition,
    kind: FindingKind,
    why: String,
}

/// Replays the log with its damaged stretches left out, if what follows them is proved to be the same
/// log.
pub(super) fn replay_over(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    broken: &Broken,
) -> Option<(Applied, Vec<Gap>)> {
    let mut gaps: Vec<Gap> = Vec::new();
    let gap = |broken: &Broken, to| {
        let (kind, why) = match &broken.error {
            Error::CorruptJournal { why, .. } => (FindingKind::Record, why.clone()),
            Error::Io { .. } => (FindingKind::Read, broken.error.to_string()),
            _ => return None,
        };
        let from = broken.at;
        Some(Gap {
            from,
            to,
            kind,
            why,
        })
    };
    let first = next_record(io, store, broken.at)?;
    gaps.push(gap(broken, first)?);
    for _ in 0..TRIES {
        let route = Route {
            gaps: &gaps,
            stop: None,
        };
        match store.apply(io, store.head, store.nothing(), route) {
            Ok(applied) if is_proved(store, &applied) => return Some((applied, gaps)),
            // An end, but not the one of this log.
            Ok(_) => {
                let last = gaps.last_mut()?;
                last.to = next_record(io, store, last.to)?;
            }
            Err(broken) => {
                let to = next_record(io, store, broken.at)?;
                match gaps.last_mut() {
                    Some(last) if last.to == broken.at => last.to = to,
                    _ => gaps.push(gap(&broken, to)?),
                }
            }
        }
    }
    None
}

/// True: the end that was reached is that of this log, by its seal and by the checked copy.
fn is_proved(store: &FoundStore, applied: &Applied) -> bool {
    let end = &applied.end;
    let used = store.head.distance_to(end.tail, store.geometry.ring_len());
    match store.copy.filter(|copy| copy.seal.epoch != 0) {
        // Damage in the last sector lets the seal fit no more.
        Some(copy) => leads_to(&copy, used, end.seal) || copy.seal_at(used).is_some(),
        None => end.seal.is_some_and(|seal| seal.log_end >= used),
    }
}

/// The next place behind `at` where a record, or the end of the journal, is intact.
fn next_record(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    at: RingPosition,
) -> Option<RingPosition> {
    let (ring_len, head) = (store.geometry.ring_len().0, store.head.0);
    let wrapped = at.0 < head;
    let limit = if wrapped { head } else { ring_len };
    let from = at.0 + 1;
    let bytes = read(io, store, from, limit.min(from.saturating_add(SEARCHED)));
    let found = (0..bytes.len()).find(|&at| {
        let rest = bytes.get(at..).unwrap_or_default();
        matches!(Record::decode(rest), Ok(Decoded::Record { .. }))
    });
    match found {
        Some(found) => Some(RingPosition(from + found as u64)),
        None => (!wrapped && head > 0).then_some(RingPosition(0)),
    }
}

/// Bytes of the ring; zeros where they cannot be read.
fn read(io: &mut BlockingIo<'_>, store: &FoundStore, from: u64, to: u64) -> Vec<u8> {
    let unit = io.unit();
    let mut bytes = Vec::new();
    let mut start = from - from % unit;
    let skip = to_usize(from - start);
    while start < to {
        let offset = store.geometry.ring_byte(RingPosition(start)).0;
        match io.read(offset, unit) {
            Ok(read) => bytes.extend_from_slice(&read),
            Err(_) => bytes.resize(bytes.len() + to_usize(unit), 0),
        }
        start += unit;
    }
    bytes.truncate(skip + to_usize(to.saturating_sub(from)));
    bytes.drain(..skip.min(bytes.len()));
    bytes
}

impl Gap {
    pub(super) fn finding(&self, store: &FoundStore) -> SalvageFinding {
        let (ring_len, from, to) = (store.geometry.ring_len().0, self.from.0, self.to.0);
        let len = to.checked_sub(from).unwrap_or(ring_len - from);
        let why = format!(
            "{}; the log goes on at ring position {to}: what these {len} bytes said is not known, so \
             lumps put there are lost, and lumps deleted or put again there may be those of before",
            self.why
        );
        SalvageFinding {
            finding: Finding::of_record(self.kind, &store.geometry, self.from, len, why),
            action: SalvageAction::LogResumed,
            winner: None,
        }
    }
}

/// A record that is to be written again, behind the gaps.
pub(super) struct Moved {
    pub(super) id: LumpId,
    pub(super) record: Vec<u8>,
    /// True: another engine may have written the lump.
    pub(super) foreign: bool,
}

/// The records before `resume` that matter, in the order of the log.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn before(
    io: &mut BlockingIo<'_>,
    storage: &Storage,
    resume: RingPosition,
) -> Result<Vec<Moved>, Error> {
    let Storage { index, journal, .. } = storage;
    let mut entries = live_before(index, journal, resume);
    entries.sort_unstable_by_key(|(distance, ..)| *distance);
    let mut moved = Vec::with_capacity(entries.len());
    for (_, id, entry) in entries {
        let record = match entry.portion() {
            Some(portion) => Record::Put { id, portion }.to_bytes(),
            None => embedded(io, storage, id, entry)?,
        };
        moved.push(Moved {
            id,
            record,
            foreign: journal.provenance(entry) == Provenance::Foreign,
        });
    }
    Ok(moved)
}

fn live_before(
    index: &Index,
    journal: &Journal,
    resume: RingPosition,
) -> Vec<(u64, LumpId, IndexEntry)> {
    let (head, len) = (journal.head(), journal.distance(journal.head(), resume));
    let all = index.range(LumpRange::ALL);
    all.map(|(id, entry)| (journal.distance(head, entry.record()), id, entry))
        .filter(|(distance, ..)| *distance < len)
        .collect()
}

fn embedded(
    io: &mut BlockingIo<'_>,
    storage: &Storage,
    id: LumpId,
    entry: IndexEntry,
) -> Result<Vec<u8>, Error> {
    let (position, len) = (entry.record(), entry.record_len());
    let (start, units) = storage.journal.units(position, position.0 + len);
    let bytes = io.read(storage.geometry.ring_byte(start).0, units)?;
    let at = to_usize(position.0 - start.0);
    let record = bytes.get(at..at + to_usize(len));
    let mut record = record.unwrap_or_default().to_vec();
    if Record::decode(&record).is_err() {
        rewrite(&mut record, id, entry);
    }
    Ok(record)
}
