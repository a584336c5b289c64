//! Media that lose what is on them: memory, and the writable layer of a container.
//!
//! A file system or device that lies on another one is as durable as the lowest: ext4 on a loop
//! device over a file in tmpfs is memory.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::aliases::{backing_file, open_place};
use super::error::FormatError;
use super::number::DeviceNumber;

/// Devices that lie on each other, at most.
const MAX_DEPTH: usize = 8;
/// Where devices have their names.
const DEVICES: &str = "/dev";

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
    /// As the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ramfs => "ramfs",
            Self::Overlay => "overlay",
            Self::Zram => "zram",
            Self::RamDisk => "ramdisk",
        }
    }

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
                DeviceNumber::of(metadata.rdev()),
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
            // The device of the file system, where it has a single one.
            _ => Self::of_device(DeviceNumber::of(metadata.dev()), depth),
        }
    }

    fn of_device(device: DeviceNumber, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let whole = device.whole();
        let sysfs = fs::canonicalize(whole.sysfs()).ok()?;
        let name = sysfs.file_name()?.to_str()?;
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
        if let Some(below) = backing_file(&sysfs) {
            return Self::below_loop(&below, depth);
        }
        let mut below = whole.slaves().ok()?.into_iter();
        below.find_map(|slave| Self::of_device(slave, depth))
    }

    /// The medium of what a loop device shows. A file that has no name any more lies on the file
    /// system of its folder.
    fn below_loop(path: &Path, depth: usize) -> Option<Self> {
        let place = open_place(path).or_else(|_| open_place(path.parent().unwrap_or(path)));
        let place = place.ok()?;
        let metadata = place.metadata().ok()?;
        if metadata.file_type().is_block_device() {
            return Self::of_device(DeviceNumber::of(metadata.rdev()), depth);
        }
        Self::of_file(&place, &metadata, depth)
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

/// Refuses a name for a new file where the system has its devices: it is a misspelt one of these,
/// and the file would lie in memory.
///
/// # Errors
/// [`FormatError::NoDevice`], [`FormatError::Io`].
pub fn check_new_file(path: &Path) -> Result<(), FormatError> {
    match folder_of(path)
        .canonicalize()
        .and_then(|it| is_for_devices(&it))
    {
        Ok(false) => Ok(()),
        Ok(true) => Err(FormatError::NoDevice {
            path: path.to_owned(),
        }),
        // Creating it says so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FormatError::io(path, "looking at its folder", None, error)),
    }
}

/// The folder in which a name stands.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// True: a folder of the devtmpfs, or of what is in its place in a container. A file system that
/// is mounted below it, as `/dev/shm`, is another one.
fn is_for_devices(folder: &Path) -> io::Result<bool> {
    let device = fs::metadata(folder)?.dev();
    if folder.starts_with(DEVICES) && fs::metadata(DEVICES)?.dev() == device {
        return Ok(true);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let number = DeviceNumber::of(device);
    Ok(mounts.lines().any(|line| is_devtmpfs(line, number)))
}

/// True: a line of `mountinfo` about a devtmpfs with this number.
fn is_devtmpfs(line: &str, number: DeviceNumber) -> bool {
    let mut fields = line.split(' ');
    let device = fields.nth(2).and_then(DeviceNumber::parse);
    let mut kind = fields.skip_while(|field| *field != "-").skip(1);
    device == Some(number) && kind.next() == Some("devtmpfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devtmpfs_is_known_wherever_it_is_mounted() {
        let number = DeviceNumber::parse("0:6").unwrap();
        let line = "25 1 0:6 / /mnt/dev rw,nosuid shared:2 - devtmpfs dev rw,size=4k";
        assert!(is_devtmpfs(line, number));
        assert!(!is_devtmpfs(line, DeviceNumber::parse("0:7").unwrap()));
        assert!(!is_devtmpfs(&line.replace("devtmpfs", "tmpfs"), number));
        for odd in ["", "1 2 0:6", "1 2 0:6 / / rw -", "- - - - -"] {
            assert!(!is_devtmpfs(odd, number), "{odd:?}");
        }
    }

    #[test]
    fn new_files_belong_beside_no_device() {
        for name in ["/dev/sdx9", "/dev/../dev/lumpscope-none"] {
            let refused = check_new_file(Path::new(name)).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("there is no device {name}")),
                "{refused}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        check_new_file(&folder.path().join("new")).unwrap();
        check_new_file(&folder.path().join("none/new")).unwrap();
    }
}
