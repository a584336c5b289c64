//! The kernel's description of the disk below a block device, and its use in the engine.
//!
//! A file has no facts here: its file system decides what a flush of it does, so it always gets
//! one.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::sysfs::DeviceNumber;

/// Whether a write that has ended can still be lost with the power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCache {
    /// It can, until a flush has ended.
    #[default]
    Back,
    /// It cannot: the kernel ends flushes without asking the disk.
    Through,
}

impl WriteCache {
    /// As the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Back => "write back",
            Self::Through => "write through",
        }
    }
}

/// Facts about a block device, from its `queue` in `/sys`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The cache at open. It may change while the store is open.
    pub write_cache: WriteCache,
    /// True: the device itself can write a block past its cache (FUA).
    pub fua: bool,
    /// Most bytes that the device writes whole or not at all when asked to; 0: it offers nothing
    /// beyond its logical block. Not used.
    pub atomic_write_bytes: u64,
    /// Most bytes of one block request; 0: the kernel does not say.
    pub request_bytes: u64,
    /// True: a disk with an arm, or one that does not say.
    pub rotational: bool,
    /// True: a disk with zones. Not used.
    pub zoned: bool,
    /// True: the kernel lets nobody write to it (`blockdev --setro`); the store is read-only then.
    pub read_only: bool,
}

impl DeviceFacts {
    /// Whether going to another place costs this device time; a file's device that is not known has
    /// no arm.
    pub(crate) fn has_arm(device: Option<Self>) -> bool {
        device.is_some_and(|device| device.rotational)
    }

    /// Facts about the block device `path`; `None`: it is none, or the kernel does not say.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let device = device_of(&std::fs::metadata(path).ok()?)?;
        let read_only = std::fs::read(device.join("ro")).is_ok_and(|text| text.starts_with(b"1"));
        Some(Self {
            read_only,
            ..Self::in_queue(&queue_of(&device)?)?
        })
    }

    fn in_queue(queue: &Path) -> Option<Self> {
        let text = |name: &str| {
            let text = std::fs::read_to_string(queue.join(name)).ok();
            text.map(|text| text.trim().to_owned())
        };
        let number = |name| text(name).and_then(|text| text.parse::<u64>().ok());
        Some(Self {
            write_cache: cache_in(text("write_cache")?.as_bytes()),
            fua: number("fua") == Some(1),
            atomic_write_bytes: number("atomic_write_unit_max_bytes").unwrap_or(0),
            request_bytes: number("max_sectors_kb").unwrap_or(0) << 10,
            rotational: number("rotational") == Some(1),
            zoned: text("zoned").is_some_and(|zoned| zoned != "none"),
            read_only: false,
        })
    }

    /// How a put becomes durable because of them; `forces`: its backend can write past the cache.
    #[must_use]
    pub const fn used(&self, forces: bool) -> &'static str {
        match self.write_cache {
            WriteCache::Through => "the end of each write",
            WriteCache::Back if self.fua && forces => {
                "flushes, and FUA for lone records and for puts in runs"
            }
            WriteCache::Back => "flushes",
        }
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            if self.fua { "FUA" } else { "no FUA" },
            if self.rotational {
                "rotational"
            } else {
                "not rotational"
            },
            if self.zoned { "zoned" } else { "not zoned" },
        ];
        write!(f, "{}, {}", self.write_cache.name(), words.join(", "))?;
        match self.atomic_write_bytes {
            0 => f.write_str(", no atomic writes")?,
            bytes => write!(f, ", atomic writes of {bytes} B")?,
        }
        f.write_str(if self.read_only { ", read-only" } else { "" })
    }
}

/// The folder of a block device in `/sys`.
fn device_of(metadata: &std::fs::Metadata) -> Option<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    std::fs::canonicalize(DeviceNumber::of(metadata.rdev()).sysfs()).ok()
}

/// The `queue` of the disk that the block device is (a partition of).
pub(crate) fn queue_of(device: &Path) -> Option<PathBuf> {
    let queues = [Some(device), device.parent()];
    let mut queues = queues.into_iter().flatten().map(|path| path.join("queue"));
    queues.find(|queue| queue.is_dir())
}

/// Anything but what is known to be safe counts as a cache that needs flushes.
fn cache_in(text: &[u8]) -> WriteCache {
    match text.trim_ascii() {
        b"write through" => WriteCache::Through,
        _ => WriteCache::Back,
    }
}

/// The write cache of an open device, now.
#[derive(Debug)]
pub(crate) enum LiveCache {
    /// `queue/write_cache`: it is read again before each flush that would not be sent, because an
    /// administrator or the driver may turn the cache on at any time.
    Sysfs(File),
    /// It does not change.
    Fixed(WriteCache),
}

impl LiveCache {
    /// Of an open block device.
    pub(crate) fn of(file: &File) -> Self {
        let device = file.metadata().ok().and_then(|found| device_of(&found));
        let queue = device.and_then(|device| queue_of(&device));
        let cache = queue.and_then(|queue| File::open(queue.join("write_cache")).ok());
        cache.map_or(Self::Fixed(WriteCache::Back), Self::Sysfs)
    }

    /// Its state, as the kernel would find it for a flush that is sent now.
    pub(crate) fn now(&self) -> WriteCache {
        match self {
            Self::Fixed(cache) => *cache,
            Self::Sysfs(file) => {
                let mut text = [0; 32];
                match file.read_at(&mut text, 0) {
                    Ok(len) => cache_in(text.get(..len).unwrap_or_default()),
                    Err(_) => WriteCache::Back,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn facts_are_those_of_the_kernel() {
        let folder = queue(&[
            ("write_cache", "write through\n"),
            ("fua", "1\n"),
            ("rotational", "1\n"),
            ("zoned", "host-managed\n"),
            ("atomic_write_unit_max_bytes", "16384\n"),
            ("max_sectors_kb", "1280\n"),
        ]);
        let facts = DeviceFacts::in_queue(folder.path()).unwrap();
        let expected = DeviceFacts {
            write_cache: WriteCache::Through,
            fua: true,
            atomic_write_bytes: 16384,
            request_bytes: 1280 << 10,
            rotational: true,
            zoned: true,
            read_only: false,
        };
        assert_eq!(facts, expected);
        assert_eq!(
            facts.to_string(),
            "write through, FUA, rotational, zoned, atomic writes of 16384 B"
        );
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_relied_upon() {
        let folder = queue(&[("write_cache", "something new\n"), ("fua", "0\n")]);
        let facts = DeviceFacts::in_queue(folder.path()).unwrap();
        assert_eq!(facts, DeviceFacts::default());
        assert_eq!(facts.used(true), "flushes");
        assert_eq!(DeviceFacts::in_queue(queue(&[]).path()), None);
        assert_eq!(DeviceFacts::of(folder.path()), None, "not a block device");
    }

    #[test]
    fn a_cache_that_is_turned_on_later_is_noticed() {
        let folder = queue(&[("write_cache", "write through\n")]);
        let path = folder.path().join("write_cache");
        let cache = LiveCache::Sysfs(File::open(&path).unwrap());
        assert_eq!(cache.now(), WriteCache::Through);
        std::fs::write(&path, "write back\n").unwrap();
        assert_eq!(cache.now(), WriteCache::Back);
        std::fs::write(&path, "").unwrap();
        assert_eq!(cache.now(), WriteCache::Back);
    }
}
