//! Follows the log as replay does, and goes as far as it can.

use super::report::{RecordCounts, RecordInfo};
use crate::error::Error;
use crate::finding::{Blocks, Finding, FindingKind};
use crate::format::Geometry;
use crate::format::record::Record;
use crate::lump::LumpId;
use crate::options::UnsettledTail;
use crate::storage::index::Index;
use crate::storage::io::BlockingIo;
use crate::storage::journal::FoundEnd;
use crate::storage::lumps::Lumps;
use crate::storage::recover::FoundStore;
use crate::storage::replay::{Broken, Placed, Replay, Route};
use crate::storage::run;
use crate::storage::unsettled;
use crate::units::RingPosition;

/// Findings of a walk through the log.
pub(super) struct Walked {
    /// State by all its records.
    pub(super) lumps: Lumps,
    /// The end mark; `None`: something before it cannot be read.
    pub(super) tail: Option<RingPosition>,
    /// Contents of the place; `None`: it cannot be read any more.
    pub(super) end: Option<FoundEnd>,
    /// Bytes of all records before the tail or the damage.
    pub(super) bytes: u64,
    pub(super) counts: RecordCounts,
    /// Damage: that which was got over, and that which ended the walk too early.
    pub(super) findings: Vec<Finding>,
    /// Lumps embedded in a record with damaged data, and its place.
    pub(super) damaged: Vec<(LumpId, RingPosition)>,
    /// The sum of the log at the tail; `None`: unknown.
    pub(super) sum: Option<u32>,
    /// Fate of the last batch, or of the run.
    pub(super) unsettled: Option<UnsettledTail>,
}

impl Walked {
    /// Walks to the end that the journal has when its last batch is judged.
    pub(super) fn of_log(io: &mut BlockingIo<'_>, store: &mut FoundStore) -> Self {
        let mut walked = Self::up_to_end(io, store);
        let Some(end) = &walked.end else {
            return walked;
        };
        let geometry = &store.geometry;
        let used = store.head.distance_to(end.tail, geometry.ring_len());
        if let Some((run, _)) = run::apply(io, (geometry, used), end, &mut walked.lumps) {
            walked.unsettled = Some(run.report);
            return walked;
        }
        match unsettled::judge_end(io, geometry, end) {
            Ok((unsettled, _)) => walked.unsettled = unsettled,
            Err((unsettled, ends)) => {
                store.ends = Some(ends);
                walked = Self::up_to_end(io, store);
                walked.unsettled = Some(unsettled);
            }
        }
        walked
    }

    fn up_to_end(io: &mut BlockingIo<'_>, store: &FoundStore) -> Self {
        let geometry = &store.geometry;
        let mut lumps = Lumps::new(Index::new(geometry), 0);
        let (mut counts, mut bytes) = (RecordCounts::default(), 0);
        let sums = store.copy.and_then(|copy| copy.sums);
        let sums = sums.filter(|_| store.ends.is_none());
        let mut replay = Replay::new(store, store.head, sums);
        let ended = replay.run(io, Route::default(), |placed| {
            lumps.apply(geometry, placed);
            counts.add(&placed.record);
            bytes += match placed.record {
                Record::EndOfRecords => 0,
                // What is left of the ring's end is used up too.
                Record::GoToFront => geometry.ring_len().0 - placed.position.0,
                _ => placed.len,
            };
            true
        });
        let reached = ended.is_ok().then_some(replay.position);
        let end = reached.and_then(|_| replay.end(io, Route::default()).ok());
        let sum = reached.and_then(|_| replay.sum());
        let rotted = replay.rotted;
        let lost = rotted.iter().filter(|rotted| rotted.flipped.is_none());
        let lost = lost.filter_map(|it| Some((it.finding.lump?, it.position)));
        let mut walked = Self {
            lumps: lumps.settled(),
            tail: reached,
            end,
            bytes,
            counts,
            damaged: lost.collect(),
            findings: rotted.into_iter().map(|rotted| rotted.finding).collect(),
            sum,
            unsettled: None,
        };
        if let Err(broken) = ended {
            walked.findings.push(finding(geometry, *broken));
        }
        walked
    }
}

fn finding(geometry: &Geometry, broken: Broken) -> Finding {
    let (kind, why) = match broken.error {
        Error::CorruptJournal { why, .. } => (FindingKind::Record, why),
        error => (FindingKind::Read, error.to_string()),
    };
    Finding::of_record(kind, geometry, broken.at, broken.len, why)
}

/// A record as a line of a dump.
pub(super) fn describe(placed: &Placed<'_>, live: bool) -> RecordInfo {
    let Placed { record, .. } = *placed;
    let (name, lump) = match record {
        Record::EndOfRecords => ("end_of_records", None),
        Record::GoToFront => ("go_to_front", None),
        Record::Put { id, .. } => ("put", Some(id)),
        Record::Embed { id, .. } => ("embed", Some(id)),
        Record::Delete { id } => ("delete", Some(id)),
        Record::DeleteRange { start, .. } => ("delete_range", Some(start)),
    };
    let (mut end, mut portion, mut data_bytes) = (None, None, None);
    match record {
        Record::DeleteRange { end: behind, .. } => end = Some(behind),
        Record::Put {
            portion: blocks, ..
        } => portion = Some(Blocks::from(blocks)),
        Record::Embed { data, .. } => data_bytes = Some(data.as_slice().len() as u64),
        _ => {}
    }
    RecordInfo {
        ring_position: placed.position.0,
        len: placed.len,
        record: name,
        lump,
        end,
        portion,
        data_bytes,
        live,
    }
}
