//! From a store's path to the whole disk below it, through sysfs.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumpscope_ebpf_common::kernel_dev;
use thiserror::Error;

use crate::extents::{Extent, Placement};
use crate::fiemap;

/// Why the disk below a store cannot be observed.
#[derive(Debug, Error)]
pub(crate) enum DeviceError {
    /// The store's path cannot be looked at.
    #[error("cannot look at {path}: {source}")]
    Path { path: PathBuf, source: io::Error },
    /// Neither a block device nor a file.
    #[error("{path} is neither a block device nor a file")]
    Kind { path: PathBuf },
    /// A file system that is not on one block device.
    #[error(
        "{path} is on {file_system}, which does not say on which disk its bytes are \
         (device 0:{minor}); put the store on ext4, xfs or a raw device"
    )]
    NoDisk {
        path: PathBuf,
        file_system: String,
        /// Minor number of the anonymous device.
        minor: u32,
    },
    /// sysfs does not know the device.
    #[error("sysfs does not tell about device {major}:{minor} below {path}: {source}")]
    Sysfs {
        path: PathBuf,
        major: u32,
        minor: u32,
        source: io::Error,
    },
    /// The file system does not tell where the file is.
    #[error("the file system does not tell where {path} lies (FIEMAP): {source}")]
    Fiemap { path: PathBuf, source: io::Error },
}

/// Layer at which a disk is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The block requests that are made for it.
    Requests,
    /// The bios that it is given: it makes no requests (device mapper, md, zram and the like).
    Bios,
    /// The block requests of its paths: an NVMe disk that several controllers may lead to (CMIC). It is
    /// given bios; what the kernel traces and counts of these differs from version to version.
    Paths,
}

/// A store's disk.
#[derive(Debug, Clone)]
pub(crate) struct StoreDisk {
    /// Name in /sys/block.
    pub(crate) disk: String,
    /// Major and minor number of the whole disk.
    pub(crate) devno: (u32, u32),
    /// Layer at which it can be watched.
    pub(crate) layer: Layer,
    /// First sector of the partition; 0 without one.
    pub(crate) start_sector: u64,
    /// The store when it is a file: where it lies may be asked again when this process may no longer
    /// open it.
    pub(crate) file: Option<Arc<File>>,
    pub(crate) placement: Placement,
}

/// Finds the disk below a store.
pub(crate) fn resolve(path: &Path) -> Result<StoreDisk, DeviceError> {
    let found = look(path)?;
    let is_file = found.is_file();
    if !is_file && !found.file_type().is_block_device() {
        return Err(DeviceError::Kind {
            path: path.to_owned(),
        });
    }
    let mut target = below(path, &found)?;
    let opened = is_file.then(|| File::open(path).map(Arc::new));
    target.file = opened.transpose().map_err(|source| DeviceError::Path {
        path: path.to_owned(),
        source,
    })?;
    target.placement.extents = place(path, &target)?;
    Ok(target)
}

/// As [`resolve`]; a directory stands for the disk of its file system, and has no place on it.
pub(crate) fn resolve_any(path: &Path) -> Result<StoreDisk, DeviceError> {
    let found = look(path)?;
    if found.is_dir() {
        return below(path, &found);
    }
    resolve(path)
}

fn look(path: &Path) -> Result<Metadata, DeviceError> {
    fs::metadata(path).map_err(|source| DeviceError::Path {
        path: path.to_owned(),
        source,
    })
}

/// The disk below a device, or below the file system of anything else. Where on it is left open.
pub(crate) fn below(path: &Path, found: &Metadata) -> Result<StoreDisk, DeviceError> {
    let owned = || path.to_owned();
    let is_device = found.file_type().is_block_device();
    let dev = if is_device { found.rdev() } else { found.dev() };
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    let file_system = match is_device {
        true => String::new(),
        false => file_system_of(major, minor),
    };
    if major == 0 {
        return Err(DeviceError::NoDisk {
            path: owned(),
            file_system,
            minor,
        });
    }
    let sysfs = |source| DeviceError::Sysfs {
        path: owned(),
        major,
        minor,
        source,
    };
    let (disk_dir, start_sector) = whole_disk(major, minor).map_err(sysfs)?;
    let disk = disk_dir
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let devno = parse_devno(&read(&disk_dir.join("dev")).map_err(sysfs)?).map_err(sysfs)?;
    let layer = match disk_dir.join("mq").is_dir() {
        true => Layer::Requests,
        false if !paths_of(&disk).is_empty() => Layer::Paths,
        false => Layer::Bios,
    };
    Ok(StoreDisk {
        disk,
        devno,
        layer,
        start_sector,
        file: None,
        placement: Placement {
            dev: kernel_dev(devno.0, devno.1),
            file_system,
            extents: Vec::new(),
            ranges: ranges_in(&disk_dir.join("queue/independent_access_ranges")),
        },
    })
}

/// Names of the hidden disks that are the paths to an NVMe disk, as `nvme0c1n1` to `nvme0n1`; empty: it is
/// none that has such.
pub(crate) fn paths_of(disk: &str) -> Vec<String> {
    if !disk.starts_with("nvme") {
        return Vec::new();
    }
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = disks.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_path(name, disk)).collect()
}

fn is_path(name: &str, disk: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = name.split_once('c').and_then(|(subsystem, rest)| {
        let (controller, namespace) = rest.split_once('n')?;
        digits(controller).then(|| format!("{subsystem}n{namespace}"))
    });
    parts.is_some_and(|head| head == disk)
}

/// First sectors of the access ranges that a folder of sysfs lists; empty: there is only one, or the
/// kernel (before 5.16) does not say.
fn ranges_in(dir: &Path) -> Vec<u64> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    let first = |range: fs::DirEntry| read(&range.path().join("sector")).ok()?.parse().ok();
    let mut starts: Vec<u64> = found.filter_map(first).collect();
    starts.sort_unstable();
    if starts.len() < 2 {
        starts.clear();
    }
    starts
}

/// Where the store's bytes are now.
pub(crate) fn place(path: &Path, target: &StoreDisk) -> Result<Vec<Extent>, DeviceError> {
    let Some(file) = &target.file else {
        return Ok(vec![Extent {
            offset: 0,
            sector: target.start_sector,
            len: u64::MAX >> 1,
        }]);
    };
    fiemap::extents_of(file, target.start_sector).map_err(|source| DeviceError::Fiemap {
        path: path.to_owned(),
        source,
    })
}

/// Directory of the whole disk in sysfs, and the partition's first sector on it.
fn whole_disk(major: u32, minor: u32) -> io::Result<(PathBuf, u64)> {
    let dir = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
    if !dir.join("partition").exists() {
        return Ok((dir, 0));
    }
    let start = read(&dir.join("start"))?
        .parse()
        .map_err(io::Error::other)?;
    let disk = dir
        .parent()
        .ok_or_else(|| io::Error::other("a partition without a disk"))?;
    Ok((disk.to_owned(), start))
}

fn read(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn parse_devno(text: &str) -> io::Result<(u32, u32)> {
    let numbers = text
        .split_once(':')
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers.ok_or_else(|| io::Error::other(format!("`{text}` is not MAJOR:MINOR")))
}

/// Kind of the file system mounted from a device, from mountinfo.
fn file_system_of(major: u32, minor: u32) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    kind_in(&mounts, major, minor).unwrap_or_else(|| "a file system of unknown kind".to_owned())
}

fn kind_in(mountinfo: &str, major: u32, minor: u32) -> Option<String> {
    let wanted = format!("{major}:{minor}");
    let line = mountinfo
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let (_, after) = line.split_once(" - ")?;
    Some(after.split(' ').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_kind_of_file_system() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    30 22 0:26 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw\n";
        assert_eq!(kind_in(text, 254, 0).as_deref(), Some("ext4"));
        assert_eq!(kind_in(text, 0, 26).as_deref(), Some("tmpfs"));
        assert_eq!(kind_in(text, 8, 0), None);
    }

    #[test]
    fn a_path_is_known_by_its_name() {
        assert!(is_path("nvme0c12n1", "nvme0n1"));
        for other in ["nvme0n1", "nvme1c0n1", "nvme0c0n2", "nvme0cn1", "sdc"] {
            assert!(!is_path(other, "nvme0n1"), "{other}");
        }
    }

    #[test]
    fn access_ranges_are_read_in_the_order_of_their_places() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(ranges_in(&dir.path().join("none")), [0; 0]);
        let add = |name: &str, sector: &str| {
            let range = dir.path().join(name);
            fs::create_dir(&range).expect("a folder");
            fs::write(range.join("sector"), sector).expect("a file");
            fs::write(range.join("nr_sectors"), "17578328064\n").expect("a file");
        };
        add("0", "0\n");
        // One is no reason to tell them apart.
        assert_eq!(ranges_in(dir.path()), [0; 0]);
        add("10", "35156656128\n");
        add("1", "17578328064\n");
        let starts = [0, 17_578_328_064, 35_156_656_128];
        assert_eq!(ranges_in(dir.path()), starts);
    }

    #[test]
    fn a_file_without_a_disk_is_refused_with_the_reason() {
        let error = resolve(Path::new("/proc/self/status")).expect_err("proc has no disk");
        assert!(error.to_string().contains("on proc"), "{error}");
        let error = resolve(Path::new("/nowhere/store")).expect_err("no such file");
        assert!(error.to_string().contains("/nowhere/store"), "{error}");
        let error = resolve(Path::new("/")).expect_err("a directory");
        assert!(matches!(error, DeviceError::Kind { .. }), "{error}");
        let error = resolve_any(Path::new("/proc/self")).expect_err("proc has no disk");
        assert!(matches!(error, DeviceError::NoDisk { .. }), "{error}");
    }
}
