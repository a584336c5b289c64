//! Media that lose what is on them: memory, and the writable layer of a container.
//!
//! A file system or device that lies on another one is as durable as the lowest: ext4 on a loop
//! device over a file in tmpfs is memory.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::loops::{Loop, backing_file};
use crate::sysfs::{DeviceNumber, names_in, unescape};

/// Devices that lie on each other, at most.
const MAX_DEPTH: usize = 8;

/// `TMPFS_MAGIC` of `linux/magic.h`, which devtmpfs has too, and those of ramfs and overlay.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;

/// A medium that loses its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolatileMedium {
    /// A file system in memory.
    Tmpfs,
    /// The same, without a limit.
    Ramfs,
    /// Layers of directories, e.g. those of a container, whose last one goes with it.
    Overlay,
    /// A compressed disk in memory.
    Zram,
    /// A disk in memory.
    RamDisk,
}

impl VolatileMedium {
    /// The medium of a device or file; `None`: none of these, or there is nothing.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        Self::of(&open_place(path).ok()?).ok()?
    }

    /// The medium of an open device, file or folder.
    pub(crate) fn of(target: &File) -> io::Result<Option<Self>> {
        let metadata = target.metadata()?;
        if metadata.file_type().is_block_device() {
            return Ok(Self::of_device(
                &DeviceNumber::of(metadata.rdev()).sysfs(),
                MAX_DEPTH,
            ));
        }
        Ok(Self::of_file(target, &metadata, MAX_DEPTH))
    }

    fn of_file(file: &File, metadata: &fs::Metadata, depth: usize) -> Option<Self> {
        let kind = rustix::fs::fstatfs(file).ok()?.f_type;
        match u64::try_from(kind).ok()? {
            TMPFS => Some(Self::Tmpfs),
            RAMFS => Some(Self::Ramfs),
            OVERLAY => Some(Self::Overlay),
            _ => {
                let device = DeviceNumber::of(metadata.dev()).sysfs();
                if device.exists() {
                    return Self::of_device(&device, depth);
                }
                // One with a number of its own (btrfs) has been mounted from devices.
                let devices = btrfs_devices(&mounted_from(file)?);
                devices
                    .iter()
                    .find_map(|device| Self::of_device(device, depth))
            }
        }
    }

    /// `sysfs`: the folder of a device in `/sys`, or a link to it.
    fn of_device(sysfs: &Path, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut disk = fs::canonicalize(sysfs).ok()?;
        if disk.join("partition").exists() {
            disk.pop();
        }
        let name = disk.file_name()?.to_str()?;
        let numbered = |prefix| {
            let number = name.strip_prefix(prefix);
            number.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if numbered("zram") {
            return Some(Self::Zram);
        }
        if numbered("ram") {
            return Some(Self::RamDisk);
        }
        if let Some(path) = backing_file(&disk) {
            return Self::below_loop(name, &path, depth);
        }
        let below = fs::read_dir(disk.join("slaves")).ok()?;
        below
            .flatten()
            .find_map(|slave| Self::of_device(&slave.path(), depth))
    }

    /// The medium of what a loop device shows. Its name may mean something else by now, e.g. when
    /// something is mounted over it, so a place counts only if it is on the device in the kernel's
    /// record. A file that has no name any more lies on the file system of its folder.
    fn below_loop(name: &str, path: &Path, depth: usize) -> Option<Self> {
        let record = Loop::of(name)?;
        if record.below_rdev != 0 {
            return Self::of_device(&DeviceNumber::of(record.below_rdev).sysfs(), depth);
        }
        let place = [Some(path), path.parent()].into_iter().flatten();
        let place = place.filter_map(|path| open_place(path).ok());
        let mut place = place.filter_map(|place| Some((place.metadata().ok()?, place)));
        match place.find(|(metadata, _)| metadata.dev() == record.below.0) {
            Some((metadata, place)) => Self::of_file(&place, &metadata, depth),
            None => Self::of_number(DeviceNumber::of(record.below.0), depth),
        }
    }

    /// The medium of a file system of which only the number is known. One that is mounted only
    /// elsewhere is taken for a disk.
    fn of_number(number: DeviceNumber, depth: usize) -> Option<Self> {
        if number.sysfs().exists() {
            return Self::of_device(&number.sysfs(), depth);
        }
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let kind = mounts.split(|byte| *byte == b'\n').find_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let other = std::str::from_utf8(fields.nth(2)?).ok()?;
            let same = DeviceNumber::parse(other)? == number;
            let mut kind = fields.skip_while(|field| *field != b"-");
            same.then(|| kind.nth(1)).flatten()
        });
        match kind {
            Some(b"tmpfs" | b"devtmpfs") => Some(Self::Tmpfs),
            Some(b"ramfs") => Some(Self::Ramfs),
            Some(b"overlay") => Some(Self::Overlay),
            _ => None,
        }
    }
}

impl fmt::Display for VolatileMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tmpfs => "in memory (tmpfs): a reboot loses it",
            Self::Ramfs => "in memory (ramfs): a reboot loses it",
            Self::Overlay => "in a container's own layer (overlay): it is lost with the container",
            Self::Zram => "in memory (zram): a reboot loses it",
            Self::RamDisk => "in memory (ramdisk): a reboot loses it",
        })
    }
}

/// The folder in `/sys` of the device that the file system of a file was mounted from.
fn mounted_from(file: &File) -> Option<PathBuf> {
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let id = statx.stx_mnt_id.to_string();
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let mut lines = mounts.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.split(|byte| *byte == b' ').next() == Some(id.as_bytes()))?;
    let mut fields = line.split(|byte| *byte == b' ');
    fields.find(|field| *field == b"-")?;
    let source = fs::metadata(unescape(fields.nth(1)?)).ok()?;
    let is_device = source.file_type().is_block_device();
    is_device.then(|| DeviceNumber::of(source.rdev()).sysfs())
}

/// All devices of the btrfs that has this one; this one alone where there is no btrfs on it.
fn btrfs_devices(device: &Path) -> Vec<PathBuf> {
    let names = |folder: PathBuf| names_in(&folder).unwrap_or_default();
    let all = Path::new("/sys/fs/btrfs");
    let name = fs::canonicalize(device).ok();
    let name = name
        .as_deref()
        .and_then(Path::file_name)
        .and_then(OsStr::to_str);
    let mut systems = names(all.to_owned())
        .into_iter()
        .map(|it| all.join(it).join("devices"));
    let own = systems.find(|folder| name.is_some_and(|name| folder.join(name).exists()));
    match own {
        Some(folder) => names(folder.clone())
            .iter()
            .map(|it| folder.join(it))
            .collect(),
        None => vec![device.to_owned()],
    }
}

/// A descriptor of what the name means now, without access to it.
pub(crate) fn open_place(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}
