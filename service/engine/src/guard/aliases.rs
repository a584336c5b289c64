//! Other ways to the bytes of a target: the file under a loop device, other loop devices on it,
//! loop devices on the target itself, and the files under device mapper.
//!
//! A lock on a file keeps nobody from a loop device over it, nor an exclusive open of that device
//! from the file, so each alone would let two stores be served from the same bytes. [`hold`] takes
//! the other ways, too, and keeps them while its answer lives:
//! - loop devices that show some of the same bytes are opened exclusively;
//! - the file below is locked. The lock is shared, because several devices may show different parts
//!   of one file; whoever uses the file itself locks it alone.
//!
//! The kernel's own record of a loop device (device and inode number of the file) decides; names
//! may be gone, or mean something else in this mount namespace. A file that cannot be opened by
//! name is not locked: then a loop device that is made later is not kept away from it. The kernel's
//! list of locks says whether somebody has locked it already.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::error::User;
use crate::loops::{Loop, as_flags, backing_file, open_node};
pub(crate) use crate::medium::open_place;
use crate::sysfs::{DeviceNumber, names_in};

/// Devices that lie on each other, at most.
const MAX_DEPTH: usize = 8;

/// Why a target cannot be had alone.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Somebody uses its bytes another way.
    By(User),
    /// It could not be found out.
    Unknown(io::Error),
}

impl From<io::Error> for Taken {
    fn from(error: io::Error) -> Self {
        Self::Unknown(error)
    }
}

impl From<Errno> for Taken {
    fn from(errno: Errno) -> Self {
        Self::Unknown(errno.into())
    }
}

/// Name of a loop device that shows bytes of the file or block device.
pub(crate) fn loop_on(target: &fs::Metadata) -> io::Result<Option<String>> {
    let mut all = Loop::all()?.into_iter();
    let found = all.find(|device| device.lies_on(target));
    Ok(found.map(|device| device.name))
}

/// Takes the loop devices on `target`, and what lies under it.
pub(super) fn hold(target: &File) -> Result<Vec<File>, Taken> {
    let metadata = target.metadata()?;
    let loops = Loop::all()?;
    let mut held = Vec::new();
    for device in loops.iter().filter(|device| device.lies_on(&metadata)) {
        held.extend(device.claim()?);
    }
    if metadata.file_type().is_block_device() {
        let this = DeviceNumber::of(metadata.rdev());
        take_below(this.whole(), &loops, true, MAX_DEPTH, &mut held)?;
    }
    Ok(held)
}

/// Takes what lies under a whole device. `alone`: all its bytes are shown by the device that is
/// taken, not some of them by one of several volumes.
fn take_below(
    device: DeviceNumber,
    loops: &[Loop],
    alone: bool,
    depth: usize,
    held: &mut Vec<File>,
) -> Result<(), Taken> {
    let Some(depth) = depth.checked_sub(1) else {
        return Ok(());
    };
    let Some(this) = loops.iter().find(|other| other.number == device) else {
        for slave in device.slaves()? {
            take_below(slave.whole(), loops, false, depth, held)?;
        }
        return Ok(());
    };
    for other in loops.iter().filter(|other| alone && other.overlaps(this)) {
        held.extend(other.claim()?);
    }
    let taken = |name| Taken::By(User::Alias { name });
    let Some((path, found)) = this.find_below() else {
        if this.below_is_locked() {
            let name = format!("the file of /dev/{}, which has another name now", this.name);
            return Err(taken(name));
        }
        return Ok(());
    };
    let metadata = found.metadata()?;
    let by = || taken(path.display().to_string());
    if metadata.file_type().is_block_device() {
        // Whoever is on it claims it; other loop devices on it may show other bytes of it.
        match reopen(&found, OFlags::EXCL | OFlags::NONBLOCK) {
            Err(error) if alone && is(&error, Errno::BUSY) => return Err(by()),
            _ => {}
        }
        let below = DeviceNumber::of(metadata.rdev());
        return take_below(below.whole(), loops, alone, depth, held);
    }
    let Ok(file) = reopen(&found, OFlags::empty()) else {
        return match this.below_is_locked() {
            true => Err(by()),
            false => Ok(()),
        };
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => held.push(file),
        Err(Errno::WOULDBLOCK) => return Err(by()),
        Err(errno) => return Err(errno.into()),
    }
    Ok(())
}

impl Loop {
    /// All that are configured.
    fn all() -> io::Result<Vec<Self>> {
        let devices = Path::new("/sys/block");
        let names = names_in(devices)?.into_iter();
        // Only a device that is configured has this folder. It may go away at any time.
        let names = names.filter(|name| devices.join(name).join("loop").is_dir());
        Ok(names.filter_map(|name| Self::of(&name)).collect())
    }

    /// True: it shows bytes of this file or block device, of the disk of this partition, or of one
    /// of the partitions of this disk.
    fn lies_on(&self, target: &fs::Metadata) -> bool {
        if !target.file_type().is_block_device() {
            return self.below == (target.dev(), target.ino());
        }
        let device = DeviceNumber::of(target.rdev());
        let below = DeviceNumber::of(self.below_rdev);
        self.below_rdev != 0
            && (below == device || below == device.whole() || below.whole() == device)
    }

    /// True: it is another device that shows some of the same bytes.
    fn overlaps(&self, other: &Self) -> bool {
        self.number != other.number
            && self.below == other.below
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }

    /// Opens it for this process alone.
    fn claim(&self) -> Result<Option<File>, Taken> {
        claim_node(&self.name, self.number)
    }

    /// True: somebody of this pid namespace has locked the file below for himself, whatever its
    /// names are.
    fn below_is_locked(&self) -> bool {
        let (device, inode) = self.below;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let (number, inode) = (format!("{major:02x}:{minor:02x}"), inode.to_string());
        // The loop device has the number of a subvolume of btrfs, the list that of the whole file
        // system; neither is a device's. A file elsewhere may fit as well: it is refused then.
        let same = |other: &str| other == number || (major == 0 && other.starts_with("00:"));
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        // 1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF
        locks.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", _, locked, ..] = fields[..] else {
                return false;
            };
            let locked = locked.rsplit_once(':');
            locked.is_some_and(|(device, file)| file == inode && same(device))
        })
    }

    /// The file or device below, opened without access, and its name; `None`: no name leads there.
    fn find_below(&self) -> Option<(PathBuf, File)> {
        let path = backing_file(&Path::new("/sys/block").join(&self.name));
        // A device has the kernel's name, too, when the node that was used has gone.
        let device = fs::canonicalize(DeviceNumber::of(self.below_rdev).sysfs());
        let node = device.ok().and_then(|device| {
            let name = device.file_name()?;
            Some(Path::new("/dev").join(name))
        });
        [path, node].into_iter().flatten().find_map(|path| {
            let found = open_place(&path).ok()?;
            let metadata = found.metadata().ok()?;
            let same = match metadata.file_type().is_block_device() {
                true => metadata.rdev() == self.below_rdev,
                false => (metadata.dev(), metadata.ino()) == self.below,
            };
            same.then_some((path, found))
        })
    }
}

/// Opens what [`open_place`] found, to read it.
fn reopen(place: &File, flags: OFlags) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(as_flags(flags));
    options.open(place_path(place))
}

/// A name for what is open, whatever its own name means by now.
pub(crate) fn place_path(place: &File) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Opens a device for this process alone. `None`: this process may not open it, or it is gone.
pub(super) fn claim_node(name: &str, number: DeviceNumber) -> Result<Option<File>, Taken> {
    match open_node(name, number, OFlags::EXCL) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is(&error, Errno::BUSY) => Err(Taken::By(User::Alias {
            name: format!("/dev/{name}"),
        })),
        Err(_) => Ok(None),
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}
