//! Disks that outlive the command that made them: made, listed, given up.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::bad_spots::{self, BadSpot};
use super::connect;
use super::control::{Connection, Status};
use super::holders::holders;
use super::log::Log;
use super::server::Daemon;
use super::start::{new_name, start};
use super::state::{Folder, Record, record_path, records, socket_path, start_of};
use super::{LiveError, LiveOptions};
use crate::loops;

/// Kernel and process get this long to let a disk go.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// A process whose device is gone gets this long to end by itself.
const PROCESS_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// A disk that [`attach()`] has made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// `/dev/loopN`.
    pub device: PathBuf,
    /// The options that it was attached with.
    pub options: LiveOptions,
    /// Id of the process that emulates it.
    pub pid: u32,
    /// Status from the disk's process; `None`: its process is gone or silent, see `problem`.
    pub status: Option<Status>,
    /// Problem and remedy, if any.
    pub problem: Option<String>,
    /// Holders of the device: mounts, swap, processes.
    pub holders: Vec<String>,
}

/// Makes a disk that stays until [`detach`], served by a process of its own (`exe`, the
/// `lumpscope` program), and answers its device, `/dev/loopN`.
///
/// # Errors
/// As of [`super::Attached::start`]. Nothing is left.
pub fn attach(exe: &Path, options: &LiveOptions) -> Result<PathBuf, LiveError> {
    let _folder = Folder::hold()?;
    let name = new_name();
    let daemon = Daemon {
        socket: socket_path(&name),
        state: record_path(&name),
    };
    let options = options.checked()?;
    let mut started = start(exe, &options, &name, Some(daemon))?;
    let pid = started.child.id();
    let record = Record {
        name,
        device: started.path.clone(),
        options,
        pid,
        started: start_of(pid).unwrap_or(0),
        fuse: started.fuse,
        before: started.before,
    };
    if let Err(error) = record.write() {
        // Nobody would ever find it again.
        let _ = loops::clear(&started.device, &started.path);
        drop(started.device);
        let _ = started.child.wait();
        record.remove();
        return Err(error);
    }
    Ok(record.device)
}

/// All disks that [`attach()`] has made and that are still there. Records of those that are not are
/// removed.
///
/// # Errors
/// The records cannot be read.
pub fn list() -> Result<Vec<Listed>, LiveError> {
    let mut listed = Vec::new();
    for record in records()? {
        if record.open_device().is_some() {
            listed.push(look_at(record));
        } else if record.process().is_none() {
            record.remove();
        }
    }
    Ok(listed)
}

fn look_at(record: Record) -> Listed {
    let alive = record.process().is_some();
    let asked = Connection::open(&socket_path(&record.name)).and_then(|mut disk| disk.status());
    let problem = match (&asked, alive) {
        (Ok(_), _) => None,
        (Err(_), false) => Some(format!(
            "its process {} is gone: all I/O fails. Unmount what is on it, then: lumpscope platter \
             detach {}",
            record.pid,
            record.device.display()
        )),
        (Err(error), true) => Some(format!(
            "its process {} does not answer ({error}). If its users hang: lumpscope platter detach \
             --force {}",
            record.pid,
            record.device.display()
        )),
    };
    Listed {
        holders: holders(&record.device),
        device: record.device,
        options: record.options,
        pid: record.pid,
        status: asked.ok(),
        problem,
    }
}

/// Status of the disk behind `device`.
///
/// # Errors
/// Not one of ours, or its process is gone.
pub fn status_of(device: &Path) -> Result<Status, LiveError> {
    let record = record_of(device)?;
    Connection::open(&socket_path(&record.name))?.status()
}

/// Requests of the disk behind `device`.
///
/// # Errors
/// Not one of ours, or its process is gone.
pub fn log_of(device: &Path) -> Result<Log, LiveError> {
    let record = record_of(device)?;
    Connection::open(&socket_path(&record.name))?.log()
}

/// Makes these places of the disk behind `device` fail, and no others: bad spots come while a disk is
/// in use.
///
/// # Errors
/// Not one of ours, its process is gone, or it has no such places.
pub fn set_bad_spots(device: &Path, spots: Vec<BadSpot>) -> Result<(), LiveError> {
    let record = record_of(device)?;
    bad_spots::check(&spots, record.options.bytes.unwrap_or(0))?;
    Connection::open(&socket_path(&record.name))?.bad_spots(spots)
}

fn record_of(device: &Path) -> Result<Record, LiveError> {
    let real = device.canonicalize().unwrap_or_else(|_| device.to_owned());
    // A disk whose process was killed leaves its record, and the device's number is given to the next.
    let is_it = |record: &Record| record.device == real && record.open_device().is_some();
    let ours = records()?.into_iter().find(is_it);
    ours.ok_or_else(|| LiveError::NotOurs {
        device: device.to_owned(),
    })
}

/// Gives a disk up. What it held is gone.
///
/// A disk that somebody uses is refused; with `force` its connection is ended instead, as by a
/// pulled plug: all that use it get errors, also those that hang, and the device goes when the last
/// of them closes it.
///
/// # Errors
/// Not one of ours, in use, or it does not go.
pub fn detach(device: &Path, force: bool) -> Result<(), LiveError> {
    let _folder = Folder::hold()?;
    let record = record_of(device)?;
    let not_ours = || LiveError::NotOurs {
        device: device.to_owned(),
    };
    let held_by = holders(&record.device);
    if !held_by.is_empty() && !force {
        return Err(LiveError::InUse {
            device: record.device,
            holders: held_by.join(", "),
        });
    }
    // After the last look: from here on it is this very device or none.
    let opened = record.open_device().ok_or_else(not_ours)?;
    if force {
        connect::abort(record.fuse)?;
    }
    loops::clear(&opened, &record.device)?;
    drop(opened);
    let_go(&record, !held_by.is_empty())
}

/// Waits for device and process. A device that others still have open goes when they close it.
fn let_go(record: &Record, has_users: bool) -> Result<(), LiveError> {
    let is_there = || record.open_device().is_some();
    if !has_users && !within(GONE_WITHIN, || !is_there()) {
        return Err(LiveError::StillThere {
            device: record.device.clone(),
            seconds: GONE_WITHIN.as_secs(),
        });
    }
    if !within(PROCESS_WITHIN, || record.process().is_none())
        && let Some(process) = record.process()
    {
        process.kill();
    }
    if !is_there() {
        record.remove();
    }
    Ok(())
}

fn within(patience: Duration, done: impl Fn() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(LOOK);
    }
}
