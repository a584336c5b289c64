//! Devices that lead to a store's bytes: the whole disk and its partitions, from sysfs.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use lumpscope_ebpf_common::{kernel_dev, split_dev};

const SYSFS: &str = "/sys/dev/block";

/// Number of the block device at a path; an error says in words why there is nothing to guard.
pub(super) fn device_at(path: &Path) -> Result<u32, String> {
    let found =
        fs::metadata(path).map_err(|e| format!("cannot look at {}: {e}", path.display()))?;
    if found.file_type().is_block_device() {
        let dev = found.rdev();
        return Ok(kernel_dev(libc::major(dev), libc::minor(dev)));
    }
    Err("not a block device: the file is locked, its disk belongs to the file system".to_owned())
}

/// The devices through which sectors of `dev` can be reached: itself; of a disk, its partitions; of
/// a partition, the whole disk, and other partitions where they overlap.
pub(super) fn overlapping(dev: u32) -> io::Result<Vec<u32>> {
    overlapping_in(Path::new(SYSFS), dev)
}

fn overlapping_in(sysfs: &Path, dev: u32) -> io::Result<Vec<u32>> {
    let (major, minor) = split_dev(dev);
    let own = fs::canonicalize(sysfs.join(format!("{major}:{minor}")))?;
    let is_partition = own.join("partition").exists();
    let disk = match is_partition {
        true => parent(&own)?,
        false => own.clone(),
    };
    let sectors = match is_partition {
        true => Sectors::of(&own)?,
        false => Sectors::ALL,
    };
    let mut found = vec![dev, number(&disk)?];
    for entry in fs::read_dir(&disk)? {
        let partition = entry?.path();
        if partition.join("partition").exists() && sectors.touch(Sectors::of(&partition)?) {
            found.push(number(&partition)?);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// A run of sectors of a disk.
#[derive(Clone, Copy)]
struct Sectors {
    first: u64,
    count: u64,
}

impl Sectors {
    const ALL: Sectors = Sectors {
        first: 0,
        count: u64::MAX,
    };

    fn of(partition: &Path) -> io::Result<Sectors> {
        Ok(Sectors {
            first: parse(&read(&partition.join("start"))?)?,
            count: parse(&read(&partition.join("size"))?)?,
        })
    }

    fn touch(self, other: Sectors) -> bool {
        let end = |s: Sectors| s.first.saturating_add(s.count);
        self.first < end(other) && other.first < end(self)
    }
}

fn parent(dir: &Path) -> io::Result<PathBuf> {
    let parent = dir.parent();
    let parent = parent.ok_or_else(|| io::Error::other("a partition without a disk"))?;
    Ok(parent.to_owned())
}

fn number(dir: &Path) -> io::Result<u32> {
    let text = read(&dir.join("dev"))?;
    let (major, minor) = text
        .split_once(':')
        .ok_or_else(|| io::Error::other(format!("`{text}` is not MAJOR:MINOR")))?;
    Ok(kernel_dev(parse(major)?, parse(minor)?))
}

fn read(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn parse<N: std::str::FromStr>(text: &str) -> io::Result<N> {
    text.parse()
        .map_err(|_| io::Error::other(format!("`{text}` is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk 8:16 with partitions at 2048 (1000 sectors), 4096 (an extended one of 2 sectors) and
    /// one over the end of the first.
    fn sysfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        let disk = dir.path().join("sdb");
        let of = |name: &str, dev: &str, place: Option<(u64, u64)>| {
            let at = disk.join(name);
            fs::create_dir_all(&at).expect("a folder");
            fs::write(at.join("dev"), format!("{dev}\n")).expect("written");
            if let Some((start, size)) = place {
                fs::write(at.join("partition"), "1\n").expect("written");
                fs::write(at.join("start"), format!("{start}\n")).expect("written");
                fs::write(at.join("size"), format!("{size}\n")).expect("written");
            }
            std::os::unix::fs::symlink(&at, dir.path().join(dev)).expect("a link");
        };
        of("", "8:16", None);
        of("sdb1", "8:17", Some((2048, 1000)));
        of("sdb2", "8:18", Some((4096, 2)));
        of("sdb3", "8:19", Some((3047, 1)));
        fs::create_dir(disk.join("queue")).expect("a folder");
        dir
    }

    #[test]
    fn a_disk_is_reached_through_every_partition_of_it() {
        let sysfs = sysfs();
        let found = overlapping_in(sysfs.path(), kernel_dev(8, 16)).expect("a disk");
        assert_eq!(found, [16, 17, 18, 19].map(|minor| kernel_dev(8, minor)));
    }

    #[test]
    fn a_partition_is_reached_through_the_disk_and_what_overlaps() {
        let sysfs = sysfs();
        let of = |minor| overlapping_in(sysfs.path(), kernel_dev(8, minor)).expect("a partition");
        assert_eq!(of(17), [16, 17, 19].map(|minor| kernel_dev(8, minor)));
        assert_eq!(of(18), [16, 18].map(|minor| kernel_dev(8, minor)));
        assert!(overlapping_in(sysfs.path(), kernel_dev(9, 0)).is_err());
    }

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let why = device_at(file.path()).expect_err("a file");
        assert!(why.starts_with("not a block device"), "{why}");
        let why = device_at(Path::new("/nowhere/x")).expect_err("nothing");
        assert!(why.contains("/nowhere/x"), "{why}");
    }
}
