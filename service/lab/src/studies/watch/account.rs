//! Whose each block request was: every one has exactly one row, where it begins; its bytes go to the
//! files that they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use lumpscope_observer::{Class, TappedDisk, TappedRequest};
use lumpscope_platter::drive::{Drive, SECTOR};
use lumpscope_platter::trace::{Op, Traced};
use serde::Serialize;

use super::FILES;
use super::files::{BlockPart, FileMap, When};
use super::processes;
use crate::blocks::{self, Trust};
use crate::human;
use crate::studies::predict::{self, Rule};

/// What a disk was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskView {
    /// Name in /sys/block.
    pub disk: String,
    /// Block requests by what they were for; only those that there are. Their sum is all of the disk.
    pub rows: Vec<Row>,
    /// Those of files by file, the most first.
    pub files: Vec<Row>,
    /// Time on the modelled drive in nanoseconds, if every request is made when the last one ends
    /// that had ended before it was made here. Of all rows.
    pub modelled_ns: u64,
    /// What the drive needs to read or write as many bytes in one piece, at its outermost track.
    pub transfer_ns: u64,
    /// Whether all requests are here.
    pub trust: Trust,
}

/// The block requests of a kind, or of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Name of the kind, or path of the file.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Movements of the modelled drive's arm to what it reads or writes, also from its cache.
    pub seeks: u64,
    /// Their time in nanoseconds.
    pub seek_ns: u64,
}

/// What a block request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// Data of a file, by its place in the names.
    File(usize),
    /// Made by a watched process, and on no file that was seen.
    Gone,
    Journal,
    Metadata,
    Flush,
    /// Written back by the kernel or made by a process that has ended, on no file that was seen; or on a
    /// place that a file took or left in this moment, as another process wrote there, too.
    Unknown,
    /// Made by another process.
    Others,
    /// Made by this process, which looks for files.
    Watch,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Purpose::File(_) => FILES,
            Purpose::Gone => "files that are gone",
            Purpose::Journal => "fs-journal",
            Purpose::Metadata => "fs-metadata",
            Purpose::Flush => "flushes",
            Purpose::Unknown => "unknown",
            Purpose::Others => "other processes",
            Purpose::Watch => "watch itself",
        }
    }
}

/// All that tells whose a request was.
pub(super) struct Watched<'a> {
    pub(super) map: &'a FileMap,
    pub(super) names: &'a [PathBuf],
    /// Processes that were watched, by their numbers.
    pub(super) family: &'a BTreeSet<u32>,
    /// This process.
    pub(super) own: u32,
}

/// The parts of a block request by what they were for, with their bytes; the first is where it begins.
type Parts = Vec<(Purpose, u64)>;

impl Watched<'_> {
    /// What the parts of each request were for.
    fn purposes(&self, seen: &[TappedRequest], all: &[Traced]) -> Vec<Parts> {
        // Of the processes that made requests, those that there still are.
        let mut alive: BTreeSet<u32> = seen.iter().map(|request| request.tgid).collect();
        alive.retain(|tgid| processes::is_alive(*tgid));
        let both = || seen.iter().zip(all);
        let places: Vec<Vec<BlockPart>> = both()
            .map(|(request, traced)| match self.beside(request, traced) {
                Some(_) => Vec::new(),
                None => {
                    let end = traced.sector.saturating_add(traced.sectors.into());
                    self.map.parts((traced.sector, end), traced.queue_ns)
                }
            })
            .collect();
        let doubtful = doubtful(self.map, seen, all, &places);
        let parts = |(at, (request, traced)): (usize, (&TappedRequest, &Traced))| {
            if let Some(purpose) = self.beside(request, traced) {
                return vec![(purpose, u64::from(traced.sectors) * SECTOR)];
            }
            let of = |(number, part): (usize, &BlockPart)| {
                let purpose = match part.stretch {
                    Some(_) if doubtful.contains(&(at, number)) => Purpose::Unknown,
                    Some(stretch) => Purpose::File(self.map.stretch(stretch).name()),
                    None => self.in_no_file(&alive, request),
                };
                (purpose, (part.end - part.sector) * SECTOR)
            };
            match places[at].is_empty() {
                true => vec![(self.in_no_file(&alive, request), 0)],
                false => places[at].iter().enumerate().map(of).collect(),
            }
        };
        both().enumerate().map(parts).collect()
    }

    /// Of a request whose place does not matter.
    fn beside(&self, request: &TappedRequest, traced: &Traced) -> Option<Purpose> {
        match request.class {
            _ if traced.op == Op::Flush => Some(Purpose::Flush),
            _ if request.tgid == self.own && traced.op == Op::Read => Some(Purpose::Watch),
            Class::FsJournal => Some(Purpose::Journal),
            Class::FsMetadata => Some(Purpose::Metadata),
            _ => None,
        }
    }

    fn in_no_file(&self, alive: &BTreeSet<u32>, request: &TappedRequest) -> Purpose {
        match request.tgid {
            tgid if tgid == self.own => Purpose::Watch,
            tgid if self.family.contains(&tgid) => Purpose::Gone,
            _ if request.class == Class::Writeback => Purpose::Unknown,
            // Had it belonged to the family and ended at once, nobody would know.
            tgid if tgid != 0 && alive.contains(&tgid) => Purpose::Others,
            _ => Purpose::Unknown,
        }
    }
}

/// Writes of which it is not certain that they are the file's that lay there in the next look, or in the
/// last: another process wrote what it holds. By request and part.
fn doubtful(
    map: &FileMap,
    seen: &[TappedRequest],
    all: &[Traced],
    places: &[Vec<BlockPart>],
) -> BTreeSet<(usize, usize)> {
    let mut writes = Vec::new();
    for (at, (request, traced)) in seen.iter().zip(all).enumerate() {
        let is_process = matches!(request.class, Class::Own | Class::Other) && request.tgid != 0;
        if traced.op != Op::Write || !is_process {
            continue;
        }
        for (number, part) in places[at].iter().enumerate() {
            if let Some(stretch) = part.stretch {
                let of = map.stretch(stretch);
                let when = (of.when(traced.queue_ns), of.may_be_unborn(traced.queue_ns));
                writes.push(((at, number), when, (stretch, part), request.tgid));
            }
        }
    }
    let mut doubtful = BTreeSet::new();
    // What a file holds when it is first seen in a place was written last.
    let (mut last, mut later) = (Writers::default(), Writers::default());
    for (at, (when, may_be_unborn), part, process) in writes.iter().rev() {
        if *when != When::Before {
            later.agree(*part, *process);
        } else if (*may_be_unborn && later.disagree(*part, *process))
            || !last.agree(*part, *process)
        {
            doubtful.insert(*at);
        }
    }
    let mut before = Writers::default();
    for (at, (when, _), part, process) in &writes {
        if !before.agree(*part, *process) && *when == When::After {
            doubtful.insert(*at);
        }
    }
    doubtful
}

/// Which process wrote the sectors of stretches.
#[derive(Default)]
struct Writers {
    /// By stretch and first sector: the end, and the process. They do not overlap.
    ranges: BTreeMap<(usize, u64), (u64, u32)>,
}

impl Writers {
    /// The ranges that overlap with these sectors.
    fn overlapping(&self, (stretch, part): (usize, &BlockPart)) -> Vec<((usize, u64), (u64, u32))> {
        let before = self.ranges.range((stretch, 0)..(stretch, part.end)).rev();
        let before = before.take_while(|(_, (end, _))| *end > part.sector);
        before.map(|(key, written)| (*key, *written)).collect()
    }

    /// True: another process is known for some of these sectors.
    fn disagree(&self, part: (usize, &BlockPart), process: u32) -> bool {
        let overlapping = self.overlapping(part);
        overlapping.iter().any(|(_, (_, other))| *other != process)
    }

    /// False: another process is known for some of these sectors. Else they are this one's from now on.
    fn agree(&mut self, part: (usize, &BlockPart), process: u32) -> bool {
        let (mut from, mut to) = (part.1.sector, part.1.end);
        let overlapping = self.overlapping(part);
        if overlapping.iter().any(|(_, (_, other))| *other != process) {
            return false;
        }
        for (key, (end, _)) in overlapping {
            self.ranges.remove(&key);
            (from, to) = (from.min(key.1), to.max(end));
        }
        self.ranges.insert((part.0, from), (to, process));
        true
    }
}

/// Sums up a disk.
///
/// # Errors
/// The drive cannot serve what was seen.
pub(super) fn account(
    disk: TappedDisk,
    watched: &Watched<'_>,
    (drive, rule): (&Drive, Rule),
) -> anyhow::Result<DiskView> {
    let (recorded, seen) = blocks::with_requests(disk);
    let trace = &recorded.trace;
    let purposes = watched.purposes(&seen, &trace.requests);
    let mut rows: BTreeMap<Purpose, Row> = BTreeMap::new();
    for (parts, traced) in purposes.iter().zip(&trace.requests) {
        for (number, (purpose, bytes)) in parts.iter().enumerate() {
            let row = rows.entry(*purpose).or_default();
            row.add(traced.op, u64::from(number == 0), *bytes);
        }
    }
    let drive = predict::scaled(drive, 1.0, trace);
    let prediction = predict::replayed(trace, &drive, rule)?;
    for (mover, moved) in predict::movers(trace, &prediction) {
        let mover = mover.and_then(|place| purposes.get(place)?.first());
        let purpose = mover.map_or(Purpose::Unknown, |(purpose, _)| *purpose);
        let row = rows.entry(purpose).or_default();
        row.seeks += 1;
        row.seek_ns += moved.seek_ns;
    }
    let (rows, files) = by_kind(rows, watched.names);
    let bytes = rows.iter().map(|row| row.read_bytes + row.written_bytes);
    Ok(DiskView {
        modelled_ns: prediction.elapsed_ns,
        transfer_ns: human::whole(
            human::as_float(bytes.sum()) / human::as_float(drive.outer_rate) * 1e9,
        ),
        rows,
        files,
        trust: recorded.trust(),
        disk: recorded.disk,
    })
}

/// The rows of the kinds in their order, and those of the files, the most seek time first.
fn by_kind(all: BTreeMap<Purpose, Row>, names: &[PathBuf]) -> (Vec<Row>, Vec<Row>) {
    let mut kinds: Vec<Row> = Vec::new();
    let mut files = Vec::new();
    for (purpose, row) in all {
        match kinds.last_mut().filter(|kind| kind.name == purpose.name()) {
            Some(kind) => kind.merge(&row),
            None => kinds.push(Row {
                name: purpose.name().to_owned(),
                ..row.clone()
            }),
        }
        if let Purpose::File(place) = purpose {
            let name = names.get(place).map(|path| path.display().to_string());
            files.push(Row {
                name: name.unwrap_or_default(),
                ..row
            });
        }
    }
    files.sort_by_key(|row| std::cmp::Reverse((row.seek_ns, row.requests())));
    (kinds, files)
}

impl Row {
    /// All of them.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    fn add(&mut self, op: Op, requests: u64, bytes: u64) {
        match op {
            Op::Read => {
                self.reads += requests;
                self.read_bytes += bytes;
            }
            Op::Write => {
                self.writes += requests;
                self.written_bytes += bytes;
            }
            Op::Flush => self.flushes += requests,
            Op::Discard => self.discards += requests,
        }
    }

    pub(in crate::studies) fn merge(&mut self, other: &Row) {
        for (sum, part) in [
            (&mut self.reads, other.reads),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.writes, other.writes),
            (&mut self.written_bytes, other.written_bytes),
            (&mut self.flushes, other.flushes),
            (&mut self.discards, other.discards),
            (&mut self.seeks, other.seeks),
            (&mut self.seek_ns, other.seek_ns),
        ] {
            *sum += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_observer::{AuditReport, BlockOp};

    use super::*;
    use crate::studies::seeds::DRIVE;

    fn request(op: BlockOp, class: Class, tgid: u32, sector: u64) -> TappedRequest {
        TappedRequest {
            op,
            class,
            fua: false,
            metadata: false,
            flush_parent: false,
            failed: false,
            done_unknown: false,
            tgid,
            sector,
            sectors: 8,
            queue_ns: Some(sector),
            issue_ns: Some(sector),
            done_ns: sector + 1,
        }
    }

    #[test]
    fn every_request_has_one_row() {
        let own = std::process::id();
        let (child, nobody, init) = (7, u32::MAX, 1);
        let requests = [
            (BlockOp::Write, Class::Other, child, 500_000_000),
            (BlockOp::Read, Class::Other, init, 500_000_004),
            (BlockOp::Write, Class::Writeback, 0, 500_000_008),
            (BlockOp::Write, Class::Other, child, 900_000_000),
            (BlockOp::Write, Class::Other, init, 1_000_000_000),
            (BlockOp::Write, Class::Other, nobody, 1_100_000_000),
            (BlockOp::Write, Class::Writeback, init, 1_200_000_000),
            (BlockOp::Write, Class::FsJournal, child, 1_300_000_000),
            (BlockOp::Read, Class::FsMetadata, child, 1_400_000_000),
            (BlockOp::Read, Class::FsMetadata, own, 1_500_000_000),
            (BlockOp::Write, Class::Own, own, 1_600_000_000),
            (BlockOp::Flush, Class::Other, 0, 0),
        ];
        let mut audit = AuditReport::default();
        audit.told.complete = true;
        let disk = TappedDisk {
            disk: "none".to_owned(),
            requests: requests
                .map(|(op, class, tgid, sector)| request(op, class, tgid, sector))
                .to_vec(),
            dropped: 0,
            audit,
        };
        let map = FileMap::of_one((500_000_000, 500_000_016), 1);
        let names = ["/other", "/file"].map(PathBuf::from);
        let watched = Watched {
            map: &map,
            names: &names,
            family: &BTreeSet::from([child]),
            own,
        };
        let drive = predict::drive_named(DRIVE).unwrap();
        let view = account(disk, &watched, (&drive, Rule::Overlap)).unwrap();
        let rows = view.rows.iter();
        let rows: Vec<_> = rows.map(|row| (&*row.name, row.requests())).collect();
        let expected = [
            ("files", 3),
            ("files that are gone", 1),
            ("fs-journal", 1),
            ("fs-metadata", 1),
            ("flushes", 1),
            ("unknown", 2),
            ("other processes", 1),
            ("watch itself", 2),
        ];
        assert_eq!(rows, expected);
        let file = &view.files[0];
        assert_eq!(
            (&*file.name, file.reads, file.written_bytes),
            ("/file", 1, 8192)
        );
        assert_eq!(view.files.len(), 1);
        assert!(view.modelled_ns > view.transfer_ns && view.transfer_ns > 0);
        assert!(view.rows[0].seek_ns > 0 && view.trust.complete);
    }

    #[test]
    fn one_request_counts_where_it_begins_and_its_bytes_where_they_are() {
        let at = |sector, end, stretch| BlockPart {
            sector,
            end,
            stretch,
        };
        let (first, second) = (at(0, 8, Some(0)), at(4, 12, Some(0)));
        let mut writers = Writers::default();
        assert!(writers.agree((0, &first), 7) && writers.agree((0, &second), 7));
        assert!(!writers.agree((0, &at(11, 20, Some(0))), 8));
        assert!(writers.agree((0, &at(12, 20, Some(0))), 8) && writers.agree((1, &first), 8));
        let mut row = Row::default();
        row.add(Op::Write, 1, 4096);
        row.add(Op::Write, 0, 512);
        assert_eq!((row.writes, row.written_bytes), (1, 4608));
    }
}
