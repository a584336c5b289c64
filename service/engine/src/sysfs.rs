//! Numbers of block devices, and what the kernel tells by them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A block device, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    pub(crate) fn of(raw: u64) -> Self {
        Self {
            major: rustix::fs::major(raw),
            minor: rustix::fs::minor(raw),
        }
    }

    /// "8:1", as sysfs and mountinfo write it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// The device that a folder of sysfs describes; `None`: it describes none, or has gone.
    pub(crate) fn in_folder(sysfs: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(sysfs.join("dev")).ok()?)
    }

    /// Where the kernel tells of it.
    pub(crate) fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }

    /// The disk of a partition; of a whole disk, itself.
    pub(crate) fn whole(self) -> Self {
        let disk = || {
            let sysfs = fs::canonicalize(self.sysfs()).ok()?;
            let _ = fs::metadata(sysfs.join("partition")).ok()?;
            Self::in_folder(sysfs.parent()?)
        };
        disk().unwrap_or(self)
    }

    /// Devices that it is built on, as device mapper and md are.
    pub(crate) fn slaves(self) -> io::Result<Vec<Self>> {
        let folder = self.sysfs().join("slaves");
        let names = names_in(&folder)?.into_iter();
        Ok(names
            .filter_map(|name| Self::in_folder(&folder.join(name)))
            .collect())
    }
}

/// Names in a folder; none if there is no such folder.
pub(crate) fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Undoes the kernel's escapes: a backslash and three octal digits.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .first_chunk::<3>()
            .filter(|_| *first == b'\\')
            .and_then(|digits| {
                let text = std::str::from_utf8(digits).ok()?;
                u8::from_str_radix(text, 8).ok()
            });
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() {
            after.get(3..).unwrap_or_default()
        } else {
            after
        };
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(b"a\\040b\\134c\\"), PathBuf::from("a b\\c\\"));
        assert_eq!(unescape(b"\\999"), PathBuf::from("\\999"));
    }
}
