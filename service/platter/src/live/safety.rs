//! Keeps an emulated disk from waiting for itself, and from making others wait.
//!
//! The disk's users wait for this process; so it must never wait for them. It would, if one of its
//! pages had to be found first: the kernel would look for memory, find pages that wait to be
//! written to this very disk, and wait. In a control group with a memory limit that happens soon,
//! and nothing but the end of the FUSE connection helps.
#![expect(unsafe_code, reason = "the scheduling class")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mm::MlockAllFlags;

use super::LiveError;
use super::connect::FUSE;

/// Real-time priority (1 to 99) of the threads that answer: above ordinary programs, below all
/// that the kernel does with interrupts.
const PRIORITY: i32 = 10;

/// Refuses a process whose memory is limited by a control group, its own or one above it.
pub(super) fn refuse_memory_limit() -> Result<(), LiveError> {
    match memory_limit() {
        Some((group, limit)) => Err(LiveError::MemoryLimited {
            group,
            limit_mib: limit >> 20,
        }),
        None => Ok(()),
    }
}

/// The control group that limits this process's memory, and the limit in bytes.
pub(super) fn memory_limit() -> Option<(PathBuf, u64)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let one = Hierarchy::of(controllers)?;
        let (mount, root) = mounts.lines().find_map(|mount| one.mounted_at(mount))?;
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        one.limit(&mount, below)
    })
}

/// Where memory is limited: the one hierarchy of version 2, or that of version 1 for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    V1,
    V2,
}

impl Hierarchy {
    fn of(controllers: &str) -> Option<Hierarchy> {
        match controllers {
            "" => Some(Hierarchy::V2),
            list if list.split(',').any(|one| one == "memory") => Some(Hierarchy::V1),
            _ => None,
        }
    }

    /// Mount point and root within the hierarchy, if this line of mountinfo is its mount.
    fn mounted_at(self, line: &str) -> Option<(PathBuf, String)> {
        let (own, rest) = line.split_once(" - ")?;
        let mut rest = rest.split(' ');
        let (kind, options) = (rest.next()?, rest.nth(1)?);
        let fits = match self {
            Hierarchy::V1 => kind == "cgroup" && options.split(',').any(|one| one == "memory"),
            Hierarchy::V2 => kind == "cgroup2",
        };
        let mut own = own.split(' ').skip(3);
        let (root, mount) = (own.next()?, own.next()?);
        fits.then(|| (mount.into(), root.to_owned()))
    }

    /// The first limit from the group upwards.
    fn limit(self, mount: &Path, below: &Path) -> Option<(PathBuf, u64)> {
        let files: &[&str] = match self {
            Hierarchy::V1 => &["memory.limit_in_bytes"],
            Hierarchy::V2 => &["memory.max", "memory.high"],
        };
        below.ancestors().find_map(|group| {
            let group = mount.join(group);
            files.iter().find_map(|file| {
                let limit = fs::read_to_string(group.join(file))
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()?;
                // Version 1 says "no limit" by the largest multiple of a page.
                (limit < u64::MAX / 4).then(|| (group.clone(), limit))
            })
        })
    }
}

/// Keeps every page of this process, present and future, in memory.
pub(super) fn lock_memory() -> Result<(), LiveError> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(|errno| {
        LiveError::NotLocked {
            source: errno.into(),
        }
    })
}

/// Whether this machine and this process lack nothing that an emulated disk needs beside root and
/// loop devices: FUSE, memory without a limit, memory that can be locked. Changes nothing.
///
/// # Errors
/// The lack.
pub fn possible() -> Result<(), LiveError> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(FUSE)
        .map_err(LiveError::io("open", FUSE))?;
    refuse_memory_limit()?;
    lock_memory()?;
    // Without an error before, there is none now.
    let _ = rustix::mm::munlockall();
    Ok(())
}

/// Tells the kernel that this thread and those it starts serve a disk, so that a search for memory
/// for them does not wait for disks. Needs `CAP_SYS_RESOURCE`; answers whether it worked.
pub(super) fn declare_disk() -> bool {
    rustix::process::configure_io_flusher_behavior(true).is_ok()
}

/// Lets this thread, and those it starts from now on, run before ordinary ones. Answers whether
/// that is allowed (`CAP_SYS_NICE`); without it replies come late on a busy machine.
pub(super) fn run_first() -> bool {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: it reads one complete `sched_param`, and concerns this thread (0) alone.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}

/// Whether [`run_first`] would work; tried in a thread of its own.
pub(super) fn may_run_first() -> bool {
    let tried = std::thread::spawn(run_first).join();
    tried.unwrap_or(false)
}

/// Bytes of memory that could be used now without swapping (`MemAvailable`).
pub(super) fn available_memory() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib.saturating_mul(1024))
        .ok_or_else(|| io::Error::other("/proc/meminfo says nothing of MemAvailable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_in_mountinfo() {
        let v1 = "36 32 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";
        let v2 = "30 23 0:26 /box /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let expected = ("/sys/fs/cgroup/memory".into(), "/".to_owned());
        assert_eq!(Hierarchy::V1.mounted_at(v1), Some(expected));
        assert_eq!(Hierarchy::V2.mounted_at(v1), None);
        let expected = ("/sys/fs/cgroup".into(), "/box".to_owned());
        assert_eq!(Hierarchy::V2.mounted_at(v2), Some(expected));
        assert_eq!(Hierarchy::V1.mounted_at(v2), None);
        assert_eq!(Hierarchy::of(""), Some(Hierarchy::V2));
        assert_eq!(Hierarchy::of("cpu,memory"), Some(Hierarchy::V1));
        assert_eq!(Hierarchy::of("name=systemd"), None);
    }

    #[test]
    fn the_limit_of_a_group_above_counts() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(Hierarchy::V2.limit(mount.path(), Path::new("a/b")), None);
        fs::write(mount.path().join("a/memory.high"), "1048576\n").unwrap();
        let found = Hierarchy::V2.limit(mount.path(), Path::new("a/b"));
        assert_eq!(found, Some((mount.path().join("a"), 1 << 20)));
        fs::write(group.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(Hierarchy::V1.limit(mount.path(), Path::new("a/b")), None);
    }
}
