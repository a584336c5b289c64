//! Which file lies on a sector, and when it did.
//!
//! Files come and go while they are watched, so they are looked at again and again, each look keeps
//! what it saw, and a block request is looked up with its time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumpscope_observer::{Extent, Places};
use rustix::fs::OFlags;

/// Files that are told apart; more are counted and left out.
const MOST_FILES: usize = 1 << 20;
/// Stretches of files that are kept, some 250 MB of them.
const MOST_STRETCHES: usize = 4 << 20;

/// Where the files of some folders, and any others, lay at each look.
#[derive(Debug, Default)]
pub(super) struct Files {
    places: Places,
    /// By device number and inode.
    known: BTreeMap<(u64, u64), Known>,
    names: Vec<PathBuf>,
    /// By name of the disk.
    past: BTreeMap<Arc<str>, Vec<Stretch>>,
    stretches: usize,
    /// True: there were more files than are told apart.
    pub(super) overflowed: bool,
}

#[derive(Debug)]
struct Known {
    /// Index in `names`.
    name: usize,
    disk: Arc<str>,
    extents: Vec<Extent>,
    /// First and last look that found it there.
    seen: (u64, u64),
}

/// Sectors that were a file's from one time to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    sector: u64,
    end: u64,
    name: usize,
    seen: (u64, u64),
}

/// The stretches of a disk, to look up.
#[derive(Debug, Default)]
pub(super) struct FileMap {
    /// By their first sector.
    stretches: Vec<Stretch>,
    /// Largest end of a stretch and all before it.
    reach: Vec<u64>,
}

impl Files {
    /// Looks at all files below these paths, and at those that are open in processes; `now_ns`:
    /// `CLOCK_MONOTONIC` before it.
    pub(super) fn look(&mut self, now_ns: u64, below: &[PathBuf], open: &[PathBuf]) {
        // What is open first: a path says its name better, and comes later.
        for link in open {
            if let Ok(name) = fs::read_link(link) {
                self.note(now_ns, link, name);
            }
        }
        for path in below {
            self.walk(now_ns, path);
        }
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
                        seen: (0, u64::MAX),
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

    fn walk(&mut self, now_ns: u64, top: &Path) {
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
                self.note(now_ns, &path.clone(), path);
            }
        }
    }

    fn note(&mut self, now_ns: u64, path: &Path, name: PathBuf) {
        let Some((key, file)) = regular(path) else {
            return;
        };
        if self.is_full() && !self.known.contains_key(&key) {
            self.overflowed = true;
            return;
        }
        let Some((disk, extents)) = self.places.of(&file) else {
            return;
        };
        let Some(known) = self.known.get_mut(&key) else {
            self.stretches += extents.len();
            self.names.push(name);
            let known = Known {
                name: self.names.len() - 1,
                disk,
                extents,
                seen: (now_ns, now_ns),
            };
            self.known.insert(key, known);
            return;
        };
        if self.names[known.name] != name {
            self.names[known.name] = name;
        }
        if known.extents != extents {
            self.stretches += extents.len();
            let before = std::mem::replace(&mut known.extents, extents);
            let past = self.past.entry(Arc::clone(&known.disk)).or_default();
            past.extend(stretches(&before, known.name, known.seen));
            known.seen.0 = now_ns;
        }
        known.seen.1 = now_ns;
    }

    fn is_full(&self) -> bool {
        self.known.len() >= MOST_FILES || self.stretches >= MOST_STRETCHES
    }

    /// Ends: a map of each disk by its name, and the names of the files.
    pub(super) fn maps(mut self) -> (BTreeMap<Arc<str>, FileMap>, Vec<PathBuf>) {
        for known in self.known.into_values() {
            let past = self.past.entry(known.disk).or_default();
            past.extend(stretches(&known.extents, known.name, known.seen));
        }
        let maps = self.past.into_iter();
        let maps = maps.map(|(disk, stretches)| (disk, FileMap::new(stretches)));
        (maps.collect(), self.names)
    }
}

/// Opens what is a file; a pipe or a terminal is never opened.
fn regular(path: &Path) -> Option<((u64, u64), File)> {
    let found = fs::metadata(path).ok()?;
    if !found.is_file() {
        return None;
    }
    // Should it have become a pipe since.
    let flags = OFlags::NONBLOCK | OFlags::NOATIME;
    let flags = i32::try_from(flags.bits()).ok()?;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    Some(((found.dev(), found.ino()), file))
}

fn stretches(
    extents: &[Extent],
    name: usize,
    seen: (u64, u64),
) -> impl Iterator<Item = Stretch> + '_ {
    extents.iter().map(move |extent| Stretch {
        sector: extent.sector,
        end: extent.sector.saturating_add(extent.len.div_ceil(512)),
        name,
        seen,
    })
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
        FileMap::new(vec![Stretch {
            sector,
            end,
            name,
            seen: (0, u64::MAX),
        }])
    }

    /// The file on a sector at a time, as an index of names: the one that was seen there before and
    /// after; else the first that was seen there later, since a file is written before its place can
    /// be asked for; else the last that was seen there earlier.
    pub(super) fn at(&self, sector: u64, time_ns: u64) -> Option<usize> {
        let after = self.stretches.partition_point(|one| one.sector <= sector);
        let reaching = (0..after).rev().take_while(|at| self.reach[*at] > sector);
        let here = reaching
            .map(|at| self.stretches[at])
            .filter(|one| one.end > sector);
        let distance = |one: &Stretch| match one.seen {
            (from, to) if (from..=to).contains(&time_ns) => (0, 0),
            (from, _) if from > time_ns => (1, from - time_ns),
            (_, to) => (2, time_ns - to),
        };
        here.min_by_key(distance).map(|one| one.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let stretch = |sector, end, name, seen| Stretch {
            sector,
            end,
            name,
            seen,
        };
        let map = FileMap::new(vec![
            // A long one, in which a part is another file's later.
            stretch(0, 1000, 0, (10, 20)),
            stretch(100, 108, 1, (40, 50)),
            stretch(100, 108, 2, (60, 70)),
            stretch(2000, 2008, 3, (10, 70)),
        ]);
        assert_eq!(map.at(100, 15), Some(0));
        assert_eq!(map.at(100, 45), Some(1));
        // Between two looks: what is seen next was written.
        assert_eq!(map.at(100, 30), Some(1));
        assert_eq!(map.at(100, 55), Some(2));
        // After the last.
        assert_eq!(map.at(100, 90), Some(2));
        assert_eq!(map.at(108, 90), Some(0));
        assert_eq!(map.at(1000, 15), None);
        assert_eq!((map.at(2007, 5), map.at(2008, 5)), (Some(3), None));
        assert_eq!(FileMap::default().at(1, 1), None);
    }
}
