//! Replays a damaged journal as far as it goes, drops the lumps that cannot be where it says, and
//! repairs it (FORMAT.md section 13).
//!
//! Takes 48 bytes of memory for each lump beside what opening takes anyway.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Storage;
use super::gaps::{self, Gap};
use super::io::BlockingIo;
use super::journal::writer::{Batch, BatchWrites};
use super::journal::{FILLER, Journal};
use super::recover::{Applied, FoundStore, Replayed};
use super::replay::{Broken, Route};
use crate::error::Error;
use crate::finding::salvage::{LogCut, SalvageAction, SalvageFinding, SalvageReport, Winner};
use crate::finding::{Blocks, Finding, FindingKind};
use crate::format::record::{Decoded, PREFIX_LEN, Record};
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::request::LumpRange;
use crate::units::{RingPosition, to_usize};

/// Bytes behind a cut that are searched for records.
const SEARCHED: u64 = 1024 * 1024;

/// Findings of salvage mode, and the inputs of a repair.
pub(crate) struct Salvaged {
    pub(crate) report: SalvageReport,
    /// Lumps whose records must be made void, in the order of the log.
    dropped: Vec<LumpId>,
    /// The first record behind the last damaged stretch that was passed over.
    resume: Option<RingPosition>,
}

/// A lump of the data region.
#[derive(Clone, Copy)]
struct Claim {
    /// Bytes from the ring's head to its record: larger is newer.
    age: u64,
    id: LumpId,
    portion: Portion,
    record: RingPosition,
}

impl Claim {
    fn winner(self) -> Winner {
        Winner {
            lump: self.id,
            portion: self.portion.into(),
            ring_position: self.record.0,
        }
    }
}

/// Why a lump is dropped.
#[derive(Clone, Copy)]
enum Loss {
    Outside,
    Truncated,
    Overlap,
}

/// Replays the journal up to its end, or to where it breaks off.
pub(super) fn replay(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
) -> Result<(Replayed, Salvaged), Error> {
    let mut report = SalvageReport::default();
    let mut resume = None;
    let mut applied = match store.apply(io, store.head, store.nothing(), Route::default()) {
        Ok(applied) => applied,
        Err(broken) => match gaps::replay_over(io, store, &broken) {
            Some((applied, gaps)) => {
                report.gaps = gaps.len() as u64;
                resume = gaps.last().map(|gap: &Gap| gap.to);
                gaps.iter().for_each(|gap| report.add(gap.finding(store)));
                applied
            }
            None => apply_up_to(io, store, *broken, &mut report)?,
        },
    };
    let (size, geometry) = (io.device().size, &store.geometry);
    let lost = losses(store, &applied, size);
    let mut dropped = Vec::with_capacity(lost.len());
    for (claim, loss, winner) in lost {
        applied.lumps.index.remove(claim.id);
        dropped.push(claim.id);
        report.add(finding(geometry, size, claim, loss, winner));
    }
    report.lumps = applied.lumps.index.len();
    report.dropped_lumps = dropped.len() as u64;
    let newest = report.lumps + report.dropped_lumps;
    report.superseded_records = applied.lumps.puts.saturating_sub(newest);
    // The cut comes last in the log.
    if let Some(cut) = report
        .findings
        .iter()
        .position(|f| f.action == SalvageAction::LogCut)
    {
        report.findings[cut..].rotate_left(1);
    }
    let replayed = store.finish(io, applied)?;
    let salvaged = Salvaged {
        report,
        dropped,
        resume,
    };
    Ok((replayed, salvaged))
}

/// Replays up to what cannot be applied, and notes the cut.
fn apply_up_to(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    broken: Broken,
    report: &mut SalvageReport,
) -> Result<Applied, Error> {
    let Broken { error, at, cut, .. } = broken;
    let (kind, why) = match &error {
        Error::CorruptJournal { why, .. } => (FindingKind::Record, why.clone()),
        Error::Io { .. } => (FindingKind::Read, error.to_string()),
        _ => return Err(error),
    };
    if cut == store.head {
        // Nothing is intact, so an end here would take everything away.
        let why = format!("{why}; no record is intact before it, so there is nothing to salvage");
        let ring_position = at.0;
        return Err(Error::CorruptJournal { ring_position, why });
    }
    let route = Route {
        stop: Some(cut),
        ..Route::default()
    };
    let applied = store.apply(io, store.head, store.nothing(), route);
    let applied = applied.map_err(|broken| broken.error)?;
    let ring_len = store.geometry.ring_len();
    let bytes_kept = store.head.distance_to(cut, ring_len);
    let (bytes_searched, records_behind) = search(io, store, cut);
    report.cut = Some(LogCut {
        ring_position: cut.0,
        records_kept: applied.records,
        bytes_kept,
        bytes_behind: ring_len.0 - bytes_kept,
        bytes_searched,
        records_behind,
    });
    let why = if at == cut {
        format!("{why}; the log is taken to end there")
    } else {
        format!(
            "{why}; the log is taken to end at ring position {} already, before it goes to the \
             front of the ring",
            cut.0
        )
    };
    let geometry = &store.geometry;
    report.add(SalvageFinding {
        finding: Finding::of_record(kind, geometry, at, PREFIX_LEN as u64, why),
        action: SalvageAction::LogCut,
        winner: None,
    });
    Ok(applied)
}

/// Looks for intact records behind a cut. Returns the bytes searched and the records found.
fn search(io: &mut BlockingIo<'_>, store: &FoundStore, cut: RingPosition) -> (u64, u64) {
    let (unit, ring_len) = (io.unit(), store.geometry.ring_len().0);
    let limit = if cut < store.head {
        store.head.0
    } else {
        ring_len
    };
    let limit = limit.min(cut.0 + SEARCHED);
    let start = cut.0 - cut.0 % unit;
    let end = limit.next_multiple_of(unit).min(ring_len);
    if start >= end {
        return (0, 0);
    }
    let offset = store.geometry.ring_byte(RingPosition(start)).0;
    // What cannot be read is not searched.
    let Ok(bytes) = io.read(offset, end - start) else {
        return (0, 0);
    };
    let bytes = bytes.get(to_usize(cut.0 - start)..to_usize(limit - start));
    let bytes = bytes.unwrap_or_default();
    let (mut at, mut records) = (0, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match Record::decode(rest) {
            Ok(Decoded::Record { record, len }) => {
                records += u64::from(record != Record::EndOfRecords);
                at += len;
            }
            _ => at += 1,
        }
    }
    (bytes.len() as u64, records)
}

/// The lumps that cannot be where their records say, in the order of the log.
fn losses(store: &FoundStore, applied: &Applied, size: u64) -> Vec<(Claim, Loss, Option<Winner>)> {
    let (ring_len, geometry) = (store.geometry.ring_len().0, &store.geometry);
    let claim = |id, record: RingPosition, portion| Claim {
        age: (record.0 + ring_len - store.head.0) % ring_len,
        id,
        portion,
        record,
    };
    let within = applied.lumps.index.range(LumpRange::ALL);
    let within = within.filter_map(|(id, entry)| Some((id, entry.record(), entry.portion()?)));
    let mut claims: Vec<Claim> = within
        .chain(applied.lumps.outside.iter())
        .map(|(id, record, portion)| claim(id, record, portion))
        .collect();
    let mut lost: Vec<(Claim, Loss)> = Vec::new();
    for &claim in &claims {
        let end = end_of(geometry, claim.portion);
        if claim.portion.check_within(geometry.data_blocks()).is_err() {
            lost.push((claim, Loss::Outside));
        } else if end > size {
            lost.push((claim, Loss::Truncated));
        }
    }
    let suspects = overlapping(&mut claims);
    let mut overlaps = covered(&suspects);
    // Each lump once, with the reason that needs no other lump.
    lost.sort_unstable_by_key(|(claim, _)| claim.id);
    let is_lost = |claim: &Claim| lost.binary_search_by_key(&claim.id, |(c, _)| c.id).is_ok();
    overlaps.retain(|claim| !is_lost(claim));
    lost.extend(overlaps.into_iter().map(|claim| (claim, Loss::Overlap)));
    lost.sort_unstable_by_key(|(claim, _)| claim.age);
    let mut listed = crate::finding::salvage::SALVAGE_FINDINGS_LISTED;
    lost.into_iter()
        .map(|(claim, loss)| {
            // Nobody reads the winners of what is not listed.
            let asks = matches!(loss, Loss::Overlap) && listed > 0;
            listed = listed.saturating_sub(1);
            let newest = || {
                let mut newer = suspects.iter().take_while(|other| other.age > claim.age);
                newer.find(|other| other.portion.overlaps(claim.portion))
            };
            let winner = asks.then(newest).flatten().map(|claim| claim.winner());
            (claim, loss, winner)
        })
        .collect()
}

fn end_of(geometry: &Geometry, portion: Portion) -> u64 {
    geometry.portion_offset(portion).0 + portion.byte_len(geometry.block_size()).0
}

/// The lumps that share blocks with others, and those between them, the newest first.
fn overlapping(claims: &mut [Claim]) -> Vec<Claim> {
    claims.sort_unstable_by_key(|claim| claim.portion.start());
    let mut suspects: Vec<Claim> = Vec::new();
    let mut at = 0;
    while let Some(first) = claims.get(at) {
        let mut end = first.portion.end();
        let rest = claims.get(at + 1..).unwrap_or_default();
        let touching = rest.iter().take_while(|claim| {
            let touches = claim.portion.start() < end;
            end = end.max(claim.portion.end());
            touches
        });
        let next = at + 1 + touching.count();
        if next > at + 1 {
            suspects.extend(claims.get(at..next).unwrap_or_default());
        }
        at = next;
    }
    suspects.sort_unstable_by_key(|claim| Reverse(claim.age));
    suspects
}

/// Those that share a block with a newer one, whether that is kept or not: whoever was put later
/// was written over the older one's bytes.
fn covered(newest_first: &[Claim]) -> Vec<Claim> {
    let mut lost = Vec::new();
    // Start and end of runs of blocks that the lumps so far have; none touches another.
    let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
    for &claim in newest_first {
        let (mut start, mut end) = (claim.portion.start().0, claim.portion.end().0);
        let before_end = runs.range(..end).next_back();
        if before_end.is_some_and(|(_, &run_end)| run_end > start) {
            lost.push(claim);
        }
        while let Some((&run, &run_end)) = runs.range(..=end).next_back() {
            if run_end < start {
                break;
            }
            runs.remove(&run);
            (start, end) = (start.min(run), end.max(run_end));
        }
        runs.insert(start, end);
    }
    lost
}

fn finding(
    geometry: &Geometry,
    size: u64,
    claim: Claim,
    loss: Loss,
    winner: Option<Winner>,
) -> SalvageFinding {
    let Claim {
        id,
        portion,
        record,
        ..
    } = claim;
    let (kind, why) = match loss {
        Loss::Outside => (
            FindingKind::Record,
            format!("the data region has only {} blocks", geometry.data_blocks()),
        ),
        Loss::Truncated => {
            let end = end_of(geometry, portion);
            let why = format!("it ends at byte {end} but the file has only {size}");
            (FindingKind::Truncated, why)
        }
        Loss::Overlap => (FindingKind::Overlap, overlap(portion, winner)),
    };
    let why = format!("{why}; the lump is dropped");
    let finding = match loss {
        // No byte of the store is meant but the record's.
        Loss::Outside => Finding {
            portion: Some(portion.into()),
            ..Finding::of_record(kind, geometry, record, 0, why).about(id)
        },
        Loss::Truncated | Loss::Overlap => Finding {
            ring_position: Some(record.0),
            ..Finding::of_portion(kind, geometry, id, portion, why)
        },
    };
    SalvageFinding {
        finding,
        action: SalvageAction::LumpDropped,
        winner,
    }
}

fn overlap(portion: Portion, winner: Option<Winner>) -> String {
    let Some(winner) = winner else {
        return "a newer lump has some of its blocks".to_owned();
    };
    let Blocks { first, count } = winner.portion;
    format!(
        "blocks {}..{} belong to lump {}, whose record at ring position {} is newer",
        first.max(portion.start().0),
        (first + count).min(portion.end().0),
        winner.lump,
        winner.ring_position
    )
}

/// Makes the store on the disk what was found: the records before a damaged stretch that was passed
/// over are written again behind it, those of lumps that were dropped are followed by deletes, and
/// the log gets an end. Everything becomes visible by one write of one unit. The head moves behind
/// the damaged stretch when the headers are written next.
///
/// # Errors
/// [`Error::NoRoomForRepair`]: nothing was written. [`Error::Io`], [`Error::NoSpace`]: salvage mode
/// opens what is there now with the same result.
pub(crate) fn repair(
    io: &mut BlockingIo<'_>,
    storage: &mut Storage,
    salvaged: &mut Salvaged,
) -> Result<(), Error> {
    if salvaged.report.is_clean() {
        return Ok(());
    }
    let moved = match salvaged.resume {
        Some(resume) => gaps::before(io, storage, resume)?,
        None => Vec::new(),
    };
    let deletes = salvaged.dropped.iter();
    let deletes = deletes.map(|&id| Record::Delete { id }.to_bytes());
    let mut records: Vec<Vec<u8>> = deletes.collect();
    if records.is_empty() {
        // Finds a place for the new end.
        records.push(FILLER.to_bytes());
    }
    let all = moved.iter().map(|moved| &moved.record).chain(&records);
    let all: Vec<&[u8]> = all.map(Vec::as_slice).collect();
    let Storage { index, journal, .. } = storage;
    let mut batch = Batch::new(journal);
    let Some(places) = batch.append_all(journal, &all, 0) else {
        return Err(Error::NoRoomForRepair {
            needed: all.iter().map(|record| record.len() as u64).sum(),
            ring_position: journal.tail().0,
        });
    };
    if moved.iter().any(|moved| moved.foreign) {
        batch.disown();
    }
    write_batch(io, &storage.geometry, journal, batch)?;
    for (moved, to) in moved.iter().zip(places) {
        index.update(moved.id, |entry| entry.moved_to(to, false));
    }
    if let Some(resume) = salvaged.resume {
        journal.set_head(resume, journal.sums());
    }
    salvaged.report.repaired = true;
    Ok(())
}

pub(super) fn write_batch(
    io: &mut BlockingIo<'_>,
    geometry: &Geometry,
    journal: &mut Journal,
    batch: Batch,
) -> Result<(), Error> {
    let pool = io.pool().clone();
    let BatchWrites {
        rest,
        first,
        new_tail,
        ..
    } = batch.finish(journal, &pool, None);
    let steps = [rest, vec![first]];
    for writes in steps.into_iter().filter(|writes| !writes.is_empty()) {
        for write in writes {
            io.write(geometry.ring_byte(write.position).0, write.buf)?;
        }
        io.flush()?;
    }
    journal.advance(new_tail);
    Ok(())
}
