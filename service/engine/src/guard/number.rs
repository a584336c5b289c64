//! Numbers of block devices, and what the kernel tells by them.

use std::fs;
use std::io;
use std::path::PathBuf;

/// A block device, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    pub(super) fn of(raw: u64) -> Self {
        Self {
            major: rustix::fs::major(raw),
            minor: rustix::fs::minor(raw),
        }
    }

    /// "8:1", as sysfs and mountinfo write it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    pub(super) fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }

    /// The disk of a partition; of a whole disk, itself.
    pub(super) fn whole(self) -> Self {
        let disk = || {
            let sysfs = fs::canonicalize(self.sysfs()).ok()?;
            let _ = fs::metadata(sysfs.join("partition")).ok()?;
            Self::parse(&fs::read_to_string(sysfs.parent()?.join("dev")).ok()?)
        };
        disk().unwrap_or(self)
    }

    /// Devices that it is built on, as device mapper and md are.
    pub(super) fn slaves(self) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(self.sysfs().join("slaves")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let number = |entry: io::Result<fs::DirEntry>| {
            Self::parse(&fs::read_to_string(entry.ok()?.path().join("dev")).ok()?)
        };
        Ok(entries.filter_map(number).collect())
    }
}
