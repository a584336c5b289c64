//! Looks at a store that nobody uses, without ever writing: what it holds, and what is wrong.
//!
//! Works on block devices and files, in a minfs or not, written by this engine or another, and on
//! broken ones as far as can be: a damaged magic or superblock is reported and passed over, a
//! damaged journal is followed up to the damage. [`Inspector::open`] reads the header and the
//! journal; [`Inspector::check`] reads every lump too. Memory: the index of the store, and 48
//! bytes for each lump during a check.
//!
//! Any thread; no threads of its own.

mod check;
mod checkpoint;
mod image;
mod journal;
mod report;
pub mod salvage;
mod source;
mod space;

use std::collections::BinaryHeap;
use std::path::Path;

use crate::error::Error;
use crate::finding::{Blocks, Finding, FindingKind, Findings};
use crate::format::journal_header::JOURNAL_HEADER_LEN;
use crate::format::record::{END_OF_RECORDS_LEN, PUT_LEN};
use crate::format::{Geometry, Portion, Record};
use crate::lump::LumpId;
use crate::request::{LumpRange, Placement};
use crate::storage::headers::{FoundHeaders, seal_by_copy};
use crate::storage::index::{Index, IndexEntry};
use crate::storage::journal::{FoundEnd, Journal as Ring, JournalFindings};
use crate::storage::log_sum::differs;
use crate::storage::outside::Outside;
use crate::storage::recover::FoundStore;
use crate::storage::replay::{Replay, Route};
use crate::units::{RingPosition, SECTOR_LEN};

use image::ImageStart;
use journal::{Walked, describe};
use source::ImageSource;
use space::{SizeClasses, free_space};

pub use report::{
    CheckReport, CheckpointInfo, FreeInfo, ImageInfo, InspectReport, JournalInfo, LumpInfo,
    LumpsInfo, MinfsInfo, RecordCounts, RecordInfo, SealInfo, SizeClass, TargetInfo,
};

/// Findings that a report lists; more are counted only.
pub const FINDINGS_LISTED: usize = 1000;
/// Largest lumps that a report lists.
const LARGEST_LISTED: usize = 10;

/// A store under inspection. It is held, so that nobody opens it meanwhile, until this is dropped.
pub struct Inspector {
    source: ImageSource,
    journal: Option<Journal>,
    report: InspectReport,
}

/// A journal that replay can begin with.
struct Journal {
    store: FoundStore,
    /// The journal as replay finds it; `None`: its end is unknown.
    ring: Option<Ring>,
    index: Index,
    /// Embedded lumps whose data is damaged.
    damaged_embeds: u64,
    /// The newest checkpoint.
    newest: Option<checkpoint::Slot>,
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspector")
            .field("path", &self.source.path)
            .finish_non_exhaustive()
    }
}

impl Inspector {
    /// Claims the device or file `path`, and reads header and journal.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::InUse`], [`Error::System`], and [`Error::Io`] when not even
    /// its first bytes can be read. Damage is no error: see [`InspectReport::findings`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let source = ImageSource::open(path)?;
        let found = image::find(&source)?;
        let target = TargetInfo {
            path: path.to_owned(),
            kind: if source.is_block_device {
                "block device"
            } else {
                "file"
            },
            size_bytes: source.size,
            unit_bytes: source.unit,
            direct_io: source.direct,
        };
        let image = image::describe(&found);
        let ImageStart {
            layout,
            base,
            proven,
            minfs,
            findings,
            ..
        } = found;
        let report = InspectReport {
            target,
            minfs,
            image,
            journal: None,
            lumps: None,
            checkpoints: Vec::new(),
            free: None,
            findings: Findings::default(),
        };
        let mut inspector = Self {
            source,
            journal: None,
            report,
        };
        inspector.tell(findings);
        if let Some(proven) = proven {
            let (found, store) = inspector.source.with_io(|io| {
                let mut found = FoundHeaders::read(io, (layout, base), proven, &[]);
                let store = found.store(io, None);
                (found, store)
            });
            inspector.tell(found.findings);
            match store {
                Ok(store) => inspector.replay(store),
                Err(error) => inspector.tell([unusable_head(&found.geometry, error)]),
            }
        }
        Ok(inspector)
    }

    /// Results that need no reading of lumps.
    #[must_use]
    pub fn report(&self) -> &InspectReport {
        &self.report
    }

    /// The lumps with `start <= id`, in ascending order; none when the journal cannot be read.
    pub fn lumps(&self, start: LumpId) -> impl Iterator<Item = LumpInfo> + '_ {
        let range = LumpRange { start, end: None };
        self.journal.iter().flat_map(move |journal| {
            journal
                .index
                .range(range)
                .map(|(id, entry)| lump_info(&journal.store.geometry, id, entry))
        })
    }

    /// The records that replay reads, in the order of the log and with the end mark, until
    /// `visit` returns false.
    pub fn records(&self, mut visit: impl FnMut(RecordInfo) -> bool) {
        let Some(Journal { store, index, .. }) = &self.journal else {
            return;
        };
        self.source.with_io(|io| {
            let mut replay = Replay::new(store, store.head, None);
            // Damage has been told.
            let _ = replay.run(io, Route::default(), |placed| {
                let live = match placed.record {
                    Record::Put { id, .. } | Record::Embed { id, .. } => {
                        index.get(id).map(IndexEntry::record) == Some(placed.position)
                    }
                    _ => false,
                };
                visit(describe(placed, live))
            });
        });
    }

    fn tell(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.report.findings.add(finding, FINDINGS_LISTED);
        }
    }

    /// Reads the journal, builds the index and describes both.
    fn replay(&mut self, mut store: FoundStore) {
        let walked = self.source.with_io(|io| Walked::of_log(io, &mut store));
        let geometry = store.geometry;
        self.tell(outside(&walked.lumps.outside, &geometry));
        self.tell(walked.findings);
        let index = walked.lumps.index;
        let is_newest =
            |(id, record): &(LumpId, _)| index.get(*id).map(IndexEntry::record) == Some(*record);
        let damaged_embeds = walked.damaged.iter().filter(|it| is_newest(it)).count();
        let ring = walked.end.map(|end| self.ring(&store, end, walked.sum));
        let (checkpoints, bad_slots) = checkpoint::find(&self.source, &geometry, store.uuid);
        for slot in &checkpoints {
            store.progress.add_checkpoint(&slot.header);
        }
        if let Some(ring) = &ring {
            self.tell(refuted(&store, ring));
        }
        self.tell(bad_slots);
        let epoch = ring.as_ref().map(Ring::epoch);
        let live_bytes = index.record_bytes();
        self.report.checkpoints = checkpoints
            .iter()
            .map(|slot| slot.describe(epoch))
            .collect();
        self.report.journal = Some(JournalInfo {
            ring_bytes: geometry.ring_len().0,
            head: store.head.0,
            tail: walked.tail.map(|tail| tail.0),
            used_bytes: walked.bytes,
            live_bytes,
            garbage_bytes: walked.bytes.saturating_sub(live_bytes),
            records: walked.counts,
            unsettled: walked.unsettled.map(|tail| tail.outcome.name()),
            seal: ring.as_ref().and_then(seal_info),
        });
        self.report.free = Some(self.examine_space(&geometry, &index));
        self.report.lumps = Some(lumps_info(&geometry, &index));
        self.journal = Some(Journal {
            store,
            ring,
            index,
            damaged_embeds: damaged_embeds as u64,
            newest: checkpoints.into_iter().next(),
        });
    }

    /// The journal with what its seal says. `sum`: of the log up to its end.
    fn ring(&mut self, store: &FoundStore, mut end: FoundEnd, sum: Option<u32>) -> Ring {
        self.tell(seal_by_copy(store, &mut end, false));
        let epoch = end.seal.map(|seal| seal.epoch);
        let sum = sum.filter(|_| store.copy.map(|copy| copy.seal.epoch) == epoch);
        let why = differs(end.seal, sum);
        self.tell(why.map(|why| wrong_end(&store.geometry, end.tail, why)));
        let found = JournalFindings {
            uuid: store.uuid,
            head: store.head,
            end,
            largest_record: 0,
            mark_bytes: 0,
            sums: None,
        };
        Ring::new(&store.geometry, SECTOR_LEN, found)
    }

    /// Free space, and the lumps that share blocks or lie after the end of the target.
    fn examine_space(&mut self, geometry: &Geometry, index: &Index) -> FreeInfo {
        let mut used: Vec<(Portion, LumpId)> = data_lumps(index).collect();
        used.sort_unstable();
        let findings = &mut self.report.findings;
        let mut furthest: Option<(Portion, LumpId)> = None;
        for &(portion, id) in &used {
            if let Some((before, other)) = furthest.filter(|(before, _)| before.overlaps(portion)) {
                let why = format!(
                    "blocks {}..{} belong to lump {other} too",
                    portion.start().0,
                    before.end().0.min(portion.end().0)
                );
                let kind = FindingKind::Overlap;
                let finding = Finding::of_portion(kind, geometry, id, portion, why);
                findings.add(finding, FINDINGS_LISTED);
            }
            let (size, start) = (self.source.size, geometry.portion_offset(portion).0);
            let end = start + portion.byte_len(geometry.block_size()).0;
            if end > size {
                let why = format!("it ends at byte {end}, but there are only {size}");
                let kind = FindingKind::Truncated;
                let from = size.max(start);
                let finding = Finding::of_portion(kind, geometry, id, portion, why)
                    .narrowed(from, end - from);
                findings.add(finding, FINDINGS_LISTED);
            }
            if furthest.is_none_or(|(before, _)| before.end() < portion.end()) {
                furthest = Some((portion, id));
            }
        }
        let extents = used
            .iter()
            .map(|(portion, _)| (portion.start().0, u64::from(portion.len().0)));
        free_space(
            geometry.data_blocks(),
            geometry.block_size().bytes(),
            extents,
        )
    }
}

fn seal_info(ring: &Ring) -> Option<SealInfo> {
    ring.is_sealed().then(|| SealInfo {
        epoch: format!("{:016x}", ring.epoch()),
        log_end: ring.log_end(),
        foreign_end: ring.foreign_end(),
    })
}

/// Why the journal cannot begin where its header says.
fn unusable_head(geometry: &Geometry, error: Error) -> Finding {
    let (kind, why) = match error {
        Error::Corrupt { why, .. } => (FindingKind::JournalHeader, why),
        error => (FindingKind::Read, error.to_string()),
    };
    let offset = geometry.journal_header_offset().0;
    Finding::new(kind, offset, JOURNAL_HEADER_LEN as u64, why)
}

fn wrong_end(geometry: &Geometry, tail: RingPosition, why: String) -> Finding {
    let (kind, len) = (FindingKind::Record, END_OF_RECORDS_LEN as u64);
    Finding::of_record(kind, geometry, tail, len, why)
}

/// An end that the journal has left behind.
fn refuted(store: &FoundStore, ring: &Ring) -> Option<Finding> {
    let geometry = &store.geometry;
    let used = store.head.distance_to(ring.tail(), geometry.ring_len());
    let seal = ring.is_sealed().then(|| ring.end_seal());
    let why = store.progress.refutes(store.copy.as_ref(), used, seal)?;
    Some(wrong_end(geometry, ring.tail(), why))
}

fn outside(outside: &Outside, geometry: &Geometry) -> Vec<Finding> {
    let wrong = outside.iter().filter_map(|(id, record, portion)| {
        let error = portion.check_within(geometry.data_blocks()).err()?;
        let (kind, len, why) = (FindingKind::Record, PUT_LEN as u64, error.to_string());
        Some(Finding::of_record(kind, geometry, record, len, why).about(id))
    });
    wrong.collect()
}

/// The lumps of the data region.
fn data_lumps(index: &Index) -> impl Iterator<Item = (Portion, LumpId)> + '_ {
    index
        .range(LumpRange::ALL)
        .filter_map(|(id, entry)| entry.portion().map(|portion| (portion, id)))
}

fn stored_bytes(geometry: &Geometry, entry: IndexEntry) -> u64 {
    let block_size = geometry.block_size();
    match entry.portion() {
        Some(portion) => portion.byte_len(block_size).0,
        None => entry.payload_len(block_size).unwrap_or(0),
    }
}

fn lump_info(geometry: &Geometry, id: LumpId, entry: IndexEntry) -> LumpInfo {
    let portion = entry.portion();
    LumpInfo {
        id,
        placement: match entry.placement() {
            Placement::Data => "data",
            Placement::Embedded => "embedded",
        },
        stored_bytes: stored_bytes(geometry, entry),
        offset: match portion {
            Some(portion) => geometry.portion_offset(portion).0,
            None => geometry.ring_byte(entry.record()).0,
        },
        portion: portion.map(Blocks::from),
        ring_position: entry.record().0,
    }
}

fn lumps_info(geometry: &Geometry, index: &Index) -> LumpsInfo {
    let mut info = LumpsInfo::default();
    let mut classes = SizeClasses::default();
    // The smallest of the largest on top.
    let mut largest: BinaryHeap<(std::cmp::Reverse<u64>, LumpId)> = BinaryHeap::new();
    for (id, entry) in index.range(LumpRange::ALL) {
        let bytes = stored_bytes(geometry, entry);
        info.count += 1;
        match entry.placement() {
            Placement::Data => info.in_data += 1,
            Placement::Embedded => info.embedded += 1,
        }
        info.stored_bytes += bytes;
        classes.add(bytes);
        largest.push((std::cmp::Reverse(bytes), id));
        if largest.len() > LARGEST_LISTED {
            largest.pop();
        }
    }
    info.sizes = classes.into_classes();
    info.largest = largest
        .into_sorted_vec()
        .into_iter()
        .filter_map(|(_, id)| index.get(id).map(|entry| lump_info(geometry, id, entry)))
        .collect();
    info
}
