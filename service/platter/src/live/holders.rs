//! Holders of a block device: mounts, swap, other devices, processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// At most so many holders are named.
const NAMED: usize = 8;

/// Holders of `device`, or of a partition of it, in words; empty: none.
pub(super) fn holders(device: &Path) -> Vec<String> {
    let devices = with_partitions(device);
    let numbers: Vec<u64> = devices
        .iter()
        .filter_map(|path| fs::metadata(path).ok().map(|meta| meta.rdev()))
        .collect();
    let mut found = mounts(&numbers);
    found.extend(swaps(&devices));
    found.extend(above(device));
    found.extend(processes(&numbers));
    found.truncate(NAMED);
    if found.is_empty() && is_claimed(device) {
        found.push("something that cannot be seen from here: a mount of another namespace".into());
    }
    found
}

/// Somebody has it for himself alone: a mount anywhere, swap, a device above.
fn is_claimed(device: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    matches!(
        rustix::fs::open(device, flags, Mode::empty()),
        Err(Errno::BUSY)
    )
}

fn with_partitions(device: &Path) -> Vec<PathBuf> {
    let mut devices = vec![device.to_owned()];
    let name = device.file_name().unwrap_or_default();
    let entries = fs::read_dir(Path::new("/sys/block").join(name));
    for entry in entries.into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            devices.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    devices
}

fn mounts(numbers: &[u64]) -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of = |line: &str| -> Option<String> {
        let mut fields = line.split(' ').skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let target = fields.nth(1)?;
        numbers
            .contains(&number)
            .then(|| format!("mounted on {target}"))
    };
    text.lines().filter_map(of).collect()
}

fn swaps(devices: &[PathBuf]) -> Vec<String> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let first = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    first
        .filter(|name| devices.iter().any(|device| device == Path::new(name)))
        .map(|name| format!("{name} is swap"))
        .collect()
}

fn above(device: &Path) -> Vec<String> {
    let name = device.file_name().unwrap_or_default();
    let holders = fs::read_dir(Path::new("/sys/block").join(name).join("holders"));
    let names = holders.into_iter().flatten().flatten();
    names
        .map(|entry| format!("below the device {}", entry.file_name().display()))
        .collect()
}

/// Processes that have it open, this one aside.
fn processes(numbers: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid != std::process::id() && has_open(&entry.path(), numbers) {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("open in process {pid} ({})", comm.trim()));
        }
    }
    found
}

fn has_open(process: &Path, numbers: &[u64]) -> bool {
    let descriptors = fs::read_dir(process.join("fd"));
    descriptors.into_iter().flatten().flatten().any(|entry| {
        // Only names of devices are followed: looking at a file on a dead disk may fail slowly.
        let is_device = |target: io::Result<PathBuf>| target.is_ok_and(|to| to.starts_with("/dev"));
        is_device(fs::read_link(entry.path()))
            && fs::metadata(entry.path()).is_ok_and(|meta| numbers.contains(&meta.rdev()))
    })
}
