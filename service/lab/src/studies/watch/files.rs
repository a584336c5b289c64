//! Which file lies on a sector, and when it did.
//!
//! Files come and go while they are watched, so they are looked at again and again, each look keeps
//! what it saw, and a block request is looked up with its time. A place is a file's from the file's
//! birth, or since the last look that did not find the file there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lumpscope_observer::{Extent, Places};
use lumpscope_units::nanoseconds;
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

/// Files that are told apart; more are counted and left out.
const MOST_FILES: usize = 1 << 20;
/// The kernel dates a birth back to the last tick of its clock, of which it has 100 a second or more.
const TICK_NS: u64 = 10_000_000;
/// Stretches of files that are kept, some 250 MB of them.
const MOST_STRETCHES: usize = 4 << 20;

/// Where the files of some folders, and any others, lay at each look.
#[derive(Debug, Default)]
pub(super) struct Files {
    places: Places,
    known: BTreeMap<Identity, TrackedFile>,
    names: Vec<PathBuf>,
    /// By name of the disk.
    past: BTreeMap<Arc<str>, Vec<Stretch>>,
    /// When each look was over.
    looks: Vec<u64>,
    stretches: usize,
    /// True: there were more files than are told apart.
    pub(super) overflowed: bool,
}

/// Device number, inode, and birth in nanoseconds since 1970: an inode's number is used again at once.
type Identity = (u64, u64, u64);

#[derive(Debug)]
struct TrackedFile {
    /// Index in `names`.
    name: usize,
    disk: Arc<str>,
    /// By their sectors.
    stretches: Vec<Stretch>,
    /// Before the last look that found it.
    seen_ns: u64,
    /// Before the last look that found all its bytes in places: those that are being written may have none yet.
    placed_ns: u64,
    /// Number of that look.
    look: usize,
}

/// Sectors that were a file's from one time to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    sector: u64,
    end: u64,
    name: usize,
    /// It was not the file's before and after.
    possible: (u64, u64),
    /// First and last look that found it there.
    seen: (u64, u64),
    /// Number of the first.
    look: usize,
}

/// The stretches of a disk, to look up.
#[derive(Debug, Default)]
pub(super) struct FileMap {
    /// By their first sector.
    stretches: Vec<Stretch>,
    /// Largest end of a stretch and all before it.
    reach: Vec<u64>,
}

/// A part of a block request, and the stretch that it lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockPart {
    pub(super) sector: u64,
    pub(super) end: u64,
    /// By number; `None`: in no file that was seen.
    pub(super) stretch: Option<usize>,
}

impl Files {
    /// Looks at all files below these paths, and at those that are open in processes.
    pub(super) fn look(&mut self, below: &[PathBuf], open: &[PathBuf]) {
        // What is open first: a path says its name better, and comes later.
        for link in open {
            if let Ok(name) = fs::read_link(link) {
                self.note(link, name);
            }
        }
        for path in below {
            self.walk(path);
        }
        // What nobody has open any more may still be there.
        let closed = self
            .known
            .values()
            .filter(|known| known.look + 1 == self.looks.len());
        let closed: Vec<PathBuf> = closed.map(|known| self.names[known.name].clone()).collect();
        for path in closed {
            self.note(&path.clone(), path);
        }
        self.looks.push(now_ns());
    }

    /// Names the bytes of a file or a whole disk that are not of this range, whenever they are used.
    pub(super) fn name_beside(
        &mut self,
        disk: &Arc<str>,
        (file, range): (&File, &Range<u64>),
        name: PathBuf,
    ) {
        let whole = Extent {
            offset: 0,
            sector: 0,
            len: u64::MAX,
        };
        let placed = self.places.of(file);
        let (disk, extents) = placed.unwrap_or_else(|| (Arc::clone(disk), vec![whole]));
        self.names.push(name);
        let past = self.past.entry(disk).or_default();
        for extent in extents {
            let end = extent.offset.saturating_add(extent.len);
            for (from, to) in [(0, range.start), (range.end, u64::MAX)] {
                let (from, to) = (from.max(extent.offset), to.min(end));
                if from < to {
                    past.push(Stretch {
                        sector: extent.sector + (from - extent.offset) / 512,
                        end: extent.sector + (to - extent.offset) / 512,
                        name: self.names.len() - 1,
                        possible: (0, u64::MAX),
                        seen: (0, u64::MAX),
                        look: 0,
                    });
                }
            }
        }
    }

    /// Names of the disks below what was looked at.
    pub(super) fn disks(&self) -> impl Iterator<Item = &str> {
        let known = self.known.values().map(|known| &*known.disk);
        known.chain(self.past.keys().map(|disk| &**disk))
    }

    fn walk(&mut self, top: &Path) {
        let mut left = vec![top.to_owned()];
        let dev = fs::metadata(top).map(|found| found.dev()).ok();
        while let Some(path) = left.pop() {
            // Something may go while it is looked at.
            let Ok(found) = fs::symlink_metadata(&path) else {
                continue;
            };
            if found.is_dir() && Some(found.dev()) == dev {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| entry.path()));
            } else if found.is_file() {
                self.note(&path.clone(), path);
            }
        }
    }

    fn note(&mut self, path: &Path, name: PathBuf) {
        let before_ns = now_ns();
        let Some((identity, file, end)) = regular(path) else {
            return;
        };
        if self.is_full() && !self.known.contains_key(&identity) {
            self.overflowed = true;
            return;
        }
        let Some((disk, mut extents)) = self.places.of(&file) else {
            return;
        };
        // Behind the end a file system may set space aside, which goes to another file as soon as nobody writes.
        extents.retain(|extent| extent.offset < end);
        for extent in &mut extents {
            extent.len = extent.len.min(end - extent.offset);
        }
        let known = self.known.entry(identity).or_insert_with(|| {
            self.names.push(PathBuf::new());
            TrackedFile {
                name: self.names.len() - 1,
                disk,
                stretches: Vec::new(),
                seen_ns: born_ns(identity.2),
                placed_ns: born_ns(identity.2),
                look: 0,
            }
        });
        if self.names[known.name] != name {
            self.names[known.name] = name;
        }
        let after_ns = now_ns();
        let found = stretches(&extents, known, (after_ns, self.looks.len()));
        let (now, gone) = known.moved(&found, after_ns);
        self.stretches = self.stretches + now.len() + gone.len() - known.stretches.len();
        if !gone.is_empty() {
            let past = self.past.entry(Arc::clone(&known.disk)).or_default();
            past.extend(gone);
        }
        known.stretches = now;
        if extents.iter().map(|extent| extent.len).sum::<u64>() >= end {
            known.placed_ns = before_ns;
        }
        (known.seen_ns, known.look) = (before_ns, self.looks.len());
    }

    fn is_full(&self) -> bool {
        self.known.len() >= MOST_FILES || self.stretches >= MOST_STRETCHES
    }

    /// Ends: a map of each disk by its name, and the names of the files.
    pub(super) fn maps(mut self) -> (BTreeMap<Arc<str>, FileMap>, Vec<PathBuf>) {
        for known in self.known.into_values() {
            // The first look that did not find it any more.
            let until = self.looks.get(known.look + 1).copied();
            let ended = known.stretches.into_iter().map(|one| Stretch {
                possible: (one.possible.0, until.unwrap_or(u64::MAX)),
                seen: (one.seen.0, known.seen_ns.max(one.seen.0)),
                ..one
            });
            self.past.entry(known.disk).or_default().extend(ended);
        }
        let maps = self.past.into_iter();
        let maps = maps.map(|(disk, stretches)| (disk, FileMap::new(stretches)));
        (maps.collect(), self.names)
    }
}

impl TrackedFile {
    /// `found`: where it lies now. Its stretches now, of which those that it had before keep their
    /// times, and those that it has no more.
    fn moved(&self, found: &[Stretch], now_ns: u64) -> (Vec<Stretch>, Vec<Stretch>) {
        let (mut now, mut gone) = (Vec::new(), Vec::new());
        for one in found {
            split(one, &self.stretches, |(sector, end), before| {
                let of = before.unwrap_or(one);
                now.push(Stretch { sector, end, ..*of });
            });
        }
        for one in &self.stretches {
            split(one, found, |(sector, end), still| {
                if still.is_none() {
                    gone.push(Stretch {
                        sector,
                        end,
                        possible: (one.possible.0, now_ns),
                        seen: (one.seen.0, self.seen_ns.max(one.seen.0)),
                        ..*one
                    });
                }
            });
        }
        (now, gone)
    }
}

/// Hands out a stretch piece by piece: each with the one of `others`, sorted, that has it too.
fn split(one: &Stretch, others: &[Stretch], mut piece: impl FnMut((u64, u64), Option<&Stretch>)) {
    let first = others.partition_point(|other| other.end <= one.sector);
    let mut from = one.sector;
    for other in others[first..].iter().take_while(|o| o.sector < one.end) {
        if from < other.sector {
            piece((from, other.sector), None);
        }
        let (start, end) = (from.max(other.sector), one.end.min(other.end));
        if start < end {
            piece((start, end), Some(other));
            from = end;
        }
    }
    if from < one.end {
        piece((from, one.end), None);
    }
}

/// Opens what is a file; a pipe or a terminal is never opened. With the end of its last block.
fn regular(path: &Path) -> Option<(Identity, File, u64)> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    // Should it have become a pipe since.
    let flags = OFlags::NONBLOCK | OFlags::NOATIME;
    let flags = i32::try_from(flags.bits()).ok()?;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let born = found.created().ok();
    let born = born.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let identity = (found.dev(), found.ino(), born.map_or(0, nanoseconds));
    let end = found.len().next_multiple_of(found.blksize().max(1));
    found.is_file().then_some((identity, file, end))
}

/// Where a file lies at this time, in the look of this number, as though it had not lain there before.
fn stretches(
    extents: &[Extent],
    known: &TrackedFile,
    (now_ns, look): (u64, usize),
) -> Vec<Stretch> {
    let found = extents.iter().map(|extent| Stretch {
        sector: extent.sector,
        end: extent.sector.saturating_add(extent.len.div_ceil(512)),
        name: known.name,
        possible: (known.placed_ns, u64::MAX),
        seen: (now_ns, now_ns),
        look,
    });
    let mut found: Vec<Stretch> = found.collect();
    found.sort_unstable_by_key(|one| one.sector);
    found
}

/// A clock in nanoseconds.
fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let [seconds, ns] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

/// `CLOCK_MONOTONIC`, which the probes use.
fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// A time since 1970 on the clock of the probes; 0: before it began.
fn born_ns(unix_ns: u64) -> u64 {
    now_ns().saturating_sub(clock_ns(ClockId::Realtime).saturating_sub(unix_ns))
}

impl FileMap {
    fn new(mut stretches: Vec<Stretch>) -> FileMap {
        stretches.sort_unstable_by_key(|one| (one.sector, one.seen));
        let mut reach = Vec::with_capacity(stretches.len());
        let mut furthest = 0;
        for one in &stretches {
            furthest = one.end.max(furthest);
            reach.push(furthest);
        }
        FileMap { stretches, reach }
    }

    /// That of one file, which always lay there.
    #[cfg(test)]
    pub(super) fn of_one((sector, end): (u64, u64), name: usize) -> FileMap {
        let always = (0, u64::MAX);
        FileMap::new(vec![Stretch {
            sector,
            end,
            name,
            possible: always,
            seen: always,
            look: 0,
        }])
    }

    /// A stretch by its number.
    pub(super) fn stretch(&self, number: usize) -> &Stretch {
        &self.stretches[number]
    }

    /// Divides sectors that were used at a time by the files that they were of.
    pub(super) fn parts(&self, (sector, end): (u64, u64), time_ns: u64) -> Vec<BlockPart> {
        let after = self.stretches.partition_point(|one| one.sector < end);
        let reaching = (0..after).rev().take_while(|at| self.reach[*at] > sector);
        let is_possible = |at: &usize| {
            let one = &self.stretches[*at];
            one.end > sector && (one.possible.0..=one.possible.1).contains(&time_ns)
        };
        let here: Vec<usize> = reaching.filter(is_possible).collect();
        let mut parts: Vec<BlockPart> = Vec::new();
        let mut from = sector;
        while from < end {
            let of = here.iter().map(|at| (*at, &self.stretches[*at]));
            let edges = of.clone().flat_map(|(_, one)| [one.sector, one.end]);
            let to = edges.filter(|edge| *edge > from).fold(end, u64::min);
            let has = of.filter(|(_, one)| one.sector <= from && from < one.end);
            let best = has.min_by_key(|(_, one)| one.preference(time_ns));
            let stretch = best.map(|(at, _)| at);
            match parts.last_mut().filter(|last| last.stretch == stretch) {
                Some(last) => last.end = to,
                None => parts.push(BlockPart {
                    sector: from,
                    end: to,
                    stretch,
                }),
            }
            from = to;
        }
        parts
    }
}

impl Stretch {
    /// The file's index in the names.
    pub(super) fn name(&self) -> usize {
        self.name
    }

    /// How this time lies to the looks that found it there.
    pub(super) fn when(&self, time_ns: u64) -> When {
        match self.seen {
            (from, _) if time_ns < from => When::Before,
            (_, to) if time_ns > to => When::After,
            _ => When::Seen,
        }
    }

    /// True: a write at this time may have come before the file was made.
    pub(super) fn may_be_unborn(&self, time_ns: u64) -> bool {
        time_ns < self.possible.0.saturating_add(TICK_NS)
    }

    /// Of several the least has a sector at a time: one that was seen there before and after; else the
    /// first that was seen there later, since a file is written before its place can be asked for; else the
    /// last that was seen there earlier. Of files that share it, the oldest.
    fn preference(&self, time_ns: u64) -> (When, u64, u64) {
        let when = self.when(time_ns);
        let distance = match when {
            When::Seen => 0,
            When::Before => self.look.try_into().unwrap_or(u64::MAX),
            When::After => time_ns - self.seen.1,
        };
        (when, distance, self.possible.0)
    }
}

/// Of a time and the looks that found a file in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// Between them.
    Seen,
    /// The file may not have been there yet.
    Before,
    /// It may be gone.
    After,
}

#[cfg(test)]
mod tests {
    use super::*;

    impl FileMap {
        /// The file on a sector at a time.
        fn at(&self, sector: u64, time_ns: u64) -> Option<usize> {
            let [part] = self.parts((sector, sector + 1), time_ns)[..] else {
                panic!("one sector is one part");
            };
            Some(self.stretch(part.stretch?).name)
        }
    }

    fn stretch((sector, end): (u64, u64), name: usize, times: [u64; 4]) -> Stretch {
        Stretch {
            sector,
            end,
            name,
            possible: (times[0], times[3]),
            seen: (times[1], times[2]),
            look: usize::try_from(times[1]).unwrap(),
        }
    }

    #[test]
    fn what_lies_beside_a_range_has_a_name_of_its_own() {
        // No file system tells where this is: it stands for a disk.
        let device = File::open("/dev/null").unwrap();
        let (mut files, disk) = (Files::default(), Arc::from("a-disk"));
        files.name_beside(&disk, (&device, &(4096..8192)), PathBuf::from("journal"));
        let (maps, names) = files.maps();
        let at = |sector| Some(&names[maps[&disk].at(sector, 7)?]);
        for beside in [0, 7, 16, 1 << 40] {
            assert_eq!(at(beside), Some(&PathBuf::from("journal")), "{beside}");
        }
        assert_eq!((at(8), at(15)), (None, None));
    }

    #[test]
    fn a_sector_has_the_file_that_lay_there_at_that_time() {
        let map = FileMap::new(vec![
            // A long one, in which a part is another file's later.
            stretch((0, 1000), 0, [5, 10, 20, 30]),
            stretch((100, 108), 1, [35, 40, 50, 60]),
            stretch((100, 108), 2, [52, 60, 70, u64::MAX]),
            stretch((2000, 2008), 3, [10, 20, 70, u64::MAX]),
        ]);
        assert_eq!(map.at(100, 4), None);
        assert_eq!(map.at(100, 15), Some(0));
        // Between two looks: what was born meanwhile was written.
        assert_eq!((map.at(100, 29), map.at(100, 31)), (Some(0), None));
        assert_eq!((map.at(100, 36), map.at(100, 45)), (Some(1), Some(1)));
        assert_eq!((map.at(100, 51), map.at(100, 55)), (Some(1), Some(2)));
        // After the last.
        assert_eq!(map.at(100, 90), Some(2));
        assert_eq!((map.at(108, 25), map.at(108, 90)), (Some(0), None));
        assert_eq!(map.at(1000, 15), None);
        assert_eq!((map.at(2007, 5), map.at(2007, 11)), (None, Some(3)));
        assert_eq!(FileMap::default().at(1, 1), None);
    }

    #[test]
    fn sectors_of_several_files_are_divided() {
        let map = FileMap::new(vec![
            stretch((0, 8), 0, [0, 10, 20, 30]),
            stretch((8, 16), 1, [0, 10, 20, 30]),
            stretch((24, 32), 2, [0, 10, 20, 30]),
            // Shares the place of the first: it is a copy, and younger.
            stretch((0, 8), 3, [5, 10, 20, 30]),
        ]);
        let parts = map.parts((4, 40), 15);
        let names = parts.iter().map(|part| {
            let name = part.stretch.map(|at| map.stretch(at).name);
            (part.sector, part.end, name)
        });
        let expected = [
            (4, 8, Some(0)),
            (8, 16, Some(1)),
            (16, 24, None),
            (24, 32, Some(2)),
            (32, 40, None),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_a_file_keeps_keeps_its_times() {
        let known = TrackedFile {
            name: 7,
            disk: Arc::from("a-disk"),
            stretches: vec![stretch((0, 100), 7, [1, 5, 5, u64::MAX])],
            seen_ns: 9,
            placed_ns: 9,
            look: 1,
        };
        let found = [(0, 40), (60, 120)].map(|at| stretch(at, 7, [9, 20, 20, u64::MAX]));
        let (now, gone) = known.moved(&found, 20);
        let kept = |at| stretch(at, 7, [1, 5, 5, u64::MAX]);
        let new = stretch((100, 120), 7, [9, 20, 20, u64::MAX]);
        assert_eq!(now, [kept((0, 40)), kept((60, 100)), new]);
        assert_eq!(gone, [stretch((40, 60), 7, [1, 5, 9, 20])]);
    }
}
