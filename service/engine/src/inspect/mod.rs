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
use crate::format::copies::{CheckedCopy, FoundCopy};
use crate::format::journal_header::{JOURNAL_HEADER_LEN, JournalHeader};
use crate::format::mark::Marks;
use crate::format::record::{END_OF_RECORDS_LEN, PUT_LEN};
use crate::format::seal::LogSum;
use crate::format::{Geometry, Header, Portion, Record};
use crate::lump::LumpId;
use crate::options::UnsettledTail;
use crate::request::{LumpRange, Placement};
use crate::storage::headers::{choose_head, damaged_copies, head_finding, leads_to, seal_finding};
use crate::storage::index::{Index, IndexEntry};
use crate::storage::journal::{self as journal_state, FoundEnd, Journal as Ring};
use crate::storage::log_sum::differs;
use crate::storage::outside::Outside;
use crate::storage::progress::DurableEnds;
use crate::storage::run::{self, FoundRun};
use crate::storage::unsettled::{self, Judged, LogEnd};
use crate::units::{RingPosition, SECTOR_LEN};

use image::ImageStart;
use journal::{Placed, Walked, walk};
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
    geometry: Geometry,
    head: RingPosition,
    /// Where it ends; `None`: at its end mark.
    ends: Option<RingPosition>,
    /// The journal as replay finds it; `None`: its end is unknown.
    ring: Option<Ring>,
    index: Index,
    /// Embedded lumps whose data is damaged.
    damaged_embeds: u64,
    /// The newest checkpoint.
    newest: Option<checkpoint::Slot>,
}

/// A walk through the whole log, and what became of its last batch.
struct Log {
    walked: (Index, Outside, Walked),
    unsettled: Option<UnsettledTail>,
    ends: Option<LogEnd>,
}

impl Log {
    /// A log that ends at `tail`, and the puts of its run, which have no records yet.
    fn with_run(walked: (Index, Outside, Walked), tail: RingPosition, run: FoundRun) -> Self {
        let (mut index, mut outside, walked) = walked;
        run.apply(tail, (&mut index, &mut outside));
        Self {
            walked: (index, outside, walked),
            unsettled: Some(run.report),
            ends: None,
        }
    }
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
        let image = found
            .header
            .zip(found.geometry)
            .map(|(header, geometry)| image::describe(&found, &header, &geometry));
        let ImageStart {
            header,
            copy,
            geometry,
            minfs,
            findings,
            ..
        } = found;
        let mut report = InspectReport {
            target,
            minfs,
            image,
            journal: None,
            lumps: None,
            checkpoints: Vec::new(),
            free: None,
            findings: Findings::default(),
        };
        for finding in findings {
            report.findings.add(finding, FINDINGS_LISTED);
        }
        let mut inspector = Self {
            source,
            journal: None,
            report,
        };
        if let Some((geometry, header)) = geometry.zip(header) {
            inspector.replay(geometry, header, copy);
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
                .map(|(id, entry)| lump_info(&journal.geometry, id, entry))
        })
    }

    /// The records that replay reads, in the order of the log and with the end mark, until
    /// `visit` returns false.
    pub fn records(&self, mut visit: impl FnMut(RecordInfo) -> bool) {
        let Some(Journal {
            geometry,
            head,
            ends,
            index,
            ..
        }) = &self.journal
        else {
            return;
        };
        walk(&self.source, geometry, (*head, *ends), None, |placed| {
            let live = match placed.record {
                Record::Put { id, .. } | Record::Embed { id, .. } => {
                    index.get(id).map(IndexEntry::record) == Some(placed.position)
                }
                _ => false,
            };
            visit(placed.describe(live))
        });
    }

    /// Reads the journal, builds the index and describes both.
    fn replay(&mut self, geometry: Geometry, header: Header, first: FoundCopy) {
        let Some((head, copy, mut progress)) = self.read_head(&geometry, &header, first) else {
            return;
        };
        let log = self.walk_log(&geometry, header.uuid, (head, copy));
        let (index, outside, walked) = log.walked;
        let (unsettled, ends) = (log.unsettled, log.ends);
        let findings = &mut self.report.findings;
        add_outside(findings, &outside, &geometry);
        let Walked {
            tail,
            bytes,
            counts,
            findings: found,
            mut damaged,
            sum,
        } = walked;
        for finding in found {
            findings.add(finding, FINDINGS_LISTED);
        }
        damaged.retain(|(id, record)| index.get(*id).map(IndexEntry::record) == Some(*record));
        let live_bytes = index.record_bytes();
        let journal = JournalInfo {
            ring_bytes: geometry.ring_len().0,
            head: head.0,
            tail: tail.map(|tail| tail.0),
            used_bytes: bytes,
            live_bytes,
            garbage_bytes: bytes.saturating_sub(live_bytes),
            records: counts,
            unsettled: unsettled.map(|tail| tail.outcome.name()),
            seal: None,
        };
        let ring = tail.and_then(|tail| {
            self.read_end(&geometry, header.uuid, (head, copy), (tail, ends, sum))
        });
        let journal = JournalInfo {
            seal: ring.as_ref().and_then(seal_info),
            ..journal
        };
        let epoch = ring.as_ref().map(Ring::epoch);
        let (checkpoints, bad_slots) = checkpoint::find(&self.source, &geometry, header.uuid);
        for slot in &checkpoints {
            progress.add_checkpoint(&slot.header);
        }
        if let Some(ring) = &ring {
            self.refute(&geometry, ring, (head, copy), &progress);
        }
        for finding in bad_slots {
            self.report.findings.add(finding, FINDINGS_LISTED);
        }
        self.report.checkpoints = checkpoints
            .iter()
            .map(|slot| slot.describe(epoch))
            .collect();
        let free = self.examine_space(&geometry, &index);
        let report = &mut self.report;
        report.journal = Some(journal);
        report.lumps = Some(lumps_info(&geometry, &index));
        report.free = Some(free);
        self.journal = Some(Journal {
            geometry,
            head,
            ends: ends.map(|ends| ends.tail),
            ring,
            index,
            damaged_embeds: damaged.len() as u64,
            newest: checkpoints.into_iter().next(),
        });
    }

    /// Reports an end that the journal has left behind.
    fn refute(
        &mut self,
        geometry: &Geometry,
        ring: &Ring,
        (head, copy): (RingPosition, Option<CheckedCopy>),
        progress: &DurableEnds,
    ) {
        let used = head.distance_to(ring.tail(), geometry.ring_len());
        let seal = ring.is_sealed().then(|| ring.end_seal());
        if let Some(why) = progress.refutes(copy.as_ref(), used, seal) {
            let (kind, len) = (FindingKind::Record, END_OF_RECORDS_LEN as u64);
            let finding = Finding::of_record(kind, geometry, ring.tail(), len, why);
            self.report.findings.add(finding, FINDINGS_LISTED);
        }
    }

    /// State by all records, or by those up to where the journal ends.
    fn walk_all(
        &self,
        geometry: &Geometry,
        from_to: (RingPosition, Option<RingPosition>),
        sums: Option<LogSum>,
    ) -> (Index, Outside, Walked) {
        let (mut index, mut outside) = (Index::new(geometry), Outside::default());
        let mut marks = Marks::default();
        let walked = walk(&self.source, geometry, from_to, sums, |placed| {
            let foreign = marks.pass(&placed.record);
            apply(&mut index, &mut outside, geometry, placed, foreign);
            true
        });
        (index, outside, walked)
    }

    /// Walks to the end that the journal has when its last batch is judged.
    fn walk_log(
        &self,
        geometry: &Geometry,
        uuid: [u8; 16],
        (head, copy): (RingPosition, Option<CheckedCopy>),
    ) -> Log {
        let sums = copy.and_then(|copy| copy.sums);
        let walked = self.walk_all(geometry, (head, None), sums);
        let end = walked.2.tail;
        let end = end.and_then(|tail| self.found_end(geometry, uuid, tail));
        let read = |offset, len| self.source.read(offset, len);
        if let Some(end) = &end
            && let Some(run) = run::find_puts(geometry, end, read)
        {
            return Log::with_run(walked, end.tail, run);
        }
        let judged = end.map_or(Judged::Counts(None, Vec::new()), |end| {
            unsettled::judge_end(geometry, &end, SECTOR_LEN, read)
        });
        match judged {
            Judged::Counts(unsettled, _) => Log {
                walked,
                unsettled,
                ends: None,
            },
            Judged::Dropped(unsettled, ends) => Log {
                walked: self.walk_all(geometry, (head, Some(ends.tail)), None),
                unsettled: Some(unsettled),
                ends: Some(ends),
            },
        }
    }

    /// The journal with what its seal says; `None`: the end cannot be read any more.
    fn read_end(
        &mut self,
        geometry: &Geometry,
        uuid: [u8; 16],
        (head, copy): (RingPosition, Option<CheckedCopy>),
        (tail, ends, sum): (RingPosition, Option<LogEnd>, Option<u32>),
    ) -> Option<Ring> {
        let mut end = self.found_end(geometry, uuid, tail)?;
        if let Some(ends) = ends {
            (end.seal, end.mended) = (Some(ends.seal), false);
        }
        if end.seal.is_none() {
            let used = head.distance_to(tail, geometry.ring_len());
            end.seal = copy.and_then(|copy| copy.seal_at(used));
            end.mended = end.seal.is_some();
        }
        if end.mended {
            let finding = seal_finding(geometry, tail);
            self.report.findings.add(finding, FINDINGS_LISTED);
        }
        let sum = sum.filter(|_| {
            let epoch = end.seal.map(|seal| seal.epoch);
            copy.is_some_and(|copy| Some(copy.seal.epoch) == epoch)
        });
        if let Some(why) = differs(end.seal, sum) {
            let (kind, len) = (FindingKind::Record, END_OF_RECORDS_LEN as u64);
            let finding = Finding::of_record(kind, geometry, tail, len, why);
            self.report.findings.add(finding, FINDINGS_LISTED);
        }
        let found = journal_state::JournalFindings {
            uuid,
            head,
            end,
            largest_record: 0,
            mark_bytes: 0,
            sums: None,
        };
        Some(Ring::new(geometry, SECTOR_LEN, found))
    }

    fn found_end(
        &self,
        geometry: &Geometry,
        uuid: [u8; 16],
        tail: RingPosition,
    ) -> Option<FoundEnd> {
        let sector = RingPosition(tail.0 - tail.0 % SECTOR_LEN);
        let offset = geometry.ring_byte(sector).0;
        let bytes = self.source.read(offset, SECTOR_LEN).ok()?;
        let at = usize::try_from(tail.0 - sector.0).ok()?;
        let behind = bytes.get(at + END_OF_RECORDS_LEN..).unwrap_or_default();
        let store = (uuid, geometry.ring_len().0);
        Some(FoundEnd::new(
            store,
            tail,
            bytes.get(..at)?.to_vec(),
            behind,
        ))
    }

    /// The ring head, the copy that says the same, and how far the copies say the log has come.
    fn read_head(
        &mut self,
        geometry: &Geometry,
        header: &Header,
        first: FoundCopy,
    ) -> Option<(RingPosition, Option<CheckedCopy>, DurableEnds)> {
        let offset = geometry.journal_header_offset().0;
        let len = JOURNAL_HEADER_LEN as u64;
        let block = self.source.read(offset, SECTOR_LEN);
        let bytes = block.as_deref().unwrap_or_default();
        let copies = [first, FoundCopy::of_block(bytes)];
        for finding in damaged_copies(geometry, copies) {
            self.report.findings.add(finding, FINDINGS_LISTED);
        }
        let stands = match &block {
            Err(error) => Err((FindingKind::Read, error.to_string())),
            Ok(bytes) => JournalHeader::decode(bytes, geometry.ring_len())
                .map(|header| header.ring_head)
                .map_err(|error| (FindingKind::JournalHeader, error.to_string())),
        };
        let progress = DurableEnds::of_copies(copies);
        let here = stands.as_ref().ok().copied();
        let leads = |copy: &CheckedCopy| self.leads(geometry, header.uuid, copy);
        if let Some((head, copy)) = choose_head(geometry, header, copies, here, leads) {
            if here != Some(head) {
                let finding = head_finding(geometry, here, head);
                self.report.findings.add(finding, FINDINGS_LISTED);
            }
            return Some((head, copy, progress));
        }
        match stands {
            Ok(head) => Some((head, None, progress)),
            Err((kind, why)) => {
                let finding = Finding::new(kind, offset, len, why);
                self.report.findings.add(finding, FINDINGS_LISTED);
                None
            }
        }
    }

    /// True: the records from the head of the copy lead to the end that it tells of.
    fn leads(&self, geometry: &Geometry, uuid: [u8; 16], copy: &CheckedCopy) -> bool {
        let head = copy.ring_head;
        let tail = walk(&self.source, geometry, (head, None), None, |_| true).tail;
        let end = tail.and_then(|tail| self.found_end(geometry, uuid, tail));
        end.is_some_and(|end| {
            leads_to(
                copy,
                head.distance_to(end.tail, geometry.ring_len()),
                end.seal,
            )
        })
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

fn add_outside(findings: &mut Findings, outside: &Outside, geometry: &Geometry) {
    for (id, record, portion) in outside.iter() {
        if let Err(error) = portion.check_within(geometry.data_blocks()) {
            let (kind, len, why) = (FindingKind::Record, PUT_LEN as u64, error.to_string());
            let finding = Finding::of_record(kind, geometry, record, len, why).about(id);
            findings.add(finding, FINDINGS_LISTED);
        }
    }
}

/// Does what replay does.
fn apply(
    index: &mut Index,
    outside: &mut Outside,
    geometry: &Geometry,
    placed: &Placed<'_>,
    foreign: bool,
) {
    let &Placed {
        position, record, ..
    } = placed;
    match record {
        Record::Put { id, portion } => {
            if outside.put(geometry, id, portion, position) {
                index.remove(id);
            } else {
                index.insert(
                    id,
                    IndexEntry::data(position, portion, None).marked(foreign),
                );
            }
        }
        Record::Embed { id, data } => {
            let len = u16::try_from(data.as_slice().len()).unwrap_or(u16::MAX);
            outside.forget(id);
            index.insert(id, IndexEntry::embedded(position, len));
        }
        Record::Delete { id } => {
            outside.forget(id);
            index.remove(id);
        }
        Record::DeleteRange { start, end } => {
            outside.forget_range(start, end);
            index.remove_range(start, end, |_| {});
        }
        Record::GoToFront | Record::EndOfRecords => {}
    }
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
