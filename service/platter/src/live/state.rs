//! Records of disks that outlive the command that made them.
//!
//! The kernel decides what is ours: a loop device over a file whose name is in the record and which
//! the device itself has kept. The record only adds what the kernel does not know.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use super::queue_settings::Before;
use super::{LiveError, LiveOptions};
use crate::loops;

/// Records, sockets and logs, for root only. It is in memory, and empty after a restart, as the
/// disks are.
const DIR: &str = "/run/lumpscope/platter";

/// Record of one disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Name of its file, which the loop device has too.
    pub(super) name: String,
    /// The loop device.
    pub(super) device: PathBuf,
    pub(super) options: LiveOptions,
    /// Its process, and when that started, in the kernel's ticks: ids are used again.
    pub(super) pid: u32,
    pub(super) started: u64,
    /// Number of the FUSE connection.
    pub(super) fuse: u32,
    /// Settings to be put back.
    pub(super) before: Before,
}

/// The folder, held against others for as long as this lives.
#[derive(Debug)]
pub(super) struct Folder {
    _held: File,
}

impl Folder {
    /// Makes the folder if it is not there, and waits until no other command changes disks.
    pub(super) fn hold() -> Result<Folder, LiveError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(DIR)
            .map_err(LiveError::io("make", DIR))?;
        let meta = fs::metadata(DIR).map_err(LiveError::io("look at", DIR))?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
            let error = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
            return Err(LiveError::io("trust, because others can change it,", DIR)(
                error,
            ));
        }
        let held = File::open(DIR).map_err(LiveError::io("open", DIR))?;
        rustix::fs::flock(&held, FlockOperation::LockExclusive)
            .map_err(LiveError::io("lock", DIR))?;
        Ok(Folder { _held: held })
    }
}

/// Where the disk of this name is written down.
pub(super) fn record_path(name: &str) -> PathBuf {
    Path::new(DIR).join(format!("{name}.json"))
}

/// Where it listens.
pub(super) fn socket_path(name: &str) -> PathBuf {
    Path::new(DIR).join(format!("{name}.sock"))
}

/// All records, in the order of their devices. What cannot be read is left out: it says nothing.
pub(super) fn records() -> Result<Vec<Record>, LiveError> {
    let entries = match fs::read_dir(DIR) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LiveError::io("read", DIR)(error)),
    };
    let mut records: Vec<Record> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
        .filter_map(|entry| serde_json::from_slice(&fs::read(entry.path()).ok()?).ok())
        .collect();
    records.sort_by(|a, b| natural(&a.device).cmp(&natural(&b.device)));
    Ok(records)
}

/// `loop10` comes after `loop9`.
fn natural(device: &Path) -> (usize, &Path) {
    (device.as_os_str().len(), device)
}

impl Record {
    pub(super) fn write(&self) -> Result<(), LiveError> {
        let path = record_path(&self.name);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| LiveError::io("write", &path)(std::io::Error::from(error)))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).map_err(LiveError::io("make", &path))?;
        std::io::Write::write_all(&mut file, &text).map_err(LiveError::io("write", &path))
    }

    /// Forgets it, and puts the settings back.
    pub(super) fn remove(&self) {
        self.before.restore();
        for path in [record_path(&self.name), socket_path(&self.name)] {
            // It is gone when the disk's process has ended in order.
            let _ = fs::remove_file(path);
        }
    }

    /// The loop device, opened, if it is this disk.
    pub(super) fn open_device(&self) -> Option<File> {
        let device = OpenOptions::new().read(true).open(&self.device).ok()?;
        let backing = loops::attribute(&self.device, "backing_file")?;
        let ours = loops::name_of(&device)? == self.kernel_name() && backing.contains(&self.name);
        ours.then_some(device)
    }

    /// The device keeps 63 bytes of the name.
    fn kernel_name(&self) -> &str {
        self.name.get(..63).unwrap_or(&self.name)
    }

    /// The process of the disk, if it is still there.
    pub(super) fn process(&self) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let held = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // After it is held: the id cannot be another's any more.
        (start_of(self.pid) == Some(self.started)).then_some(Process(held))
    }
}

/// A process that is certainly the one that was meant.
#[derive(Debug)]
pub(super) struct Process(rustix::fd::OwnedFd);

impl Process {
    /// `SIGKILL`.
    pub(super) fn kill(&self) {
        // It can only fail when it has just ended.
        let _ = rustix::process::pidfd_send_signal(&self.0, Signal::KILL);
    }
}

/// When a process started, in ticks since the machine did; `None`: there is none, or it has ended
/// and only waits to be looked at.
pub(super) fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = start_of(std::process::id());
        assert!(own.is_some());
        assert_eq!(own, start_of(std::process::id()));
        assert_eq!(start_of(u32::MAX), None);
    }

    #[test]
    fn devices_are_in_the_order_of_their_numbers() {
        assert!(natural(Path::new("/dev/loop9")) < natural(Path::new("/dev/loop10")));
    }
}
