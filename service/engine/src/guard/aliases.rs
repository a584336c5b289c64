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
//! may be gone, or mean something else in this mount namespace. A file that cannot be reached by
//! name is not locked: then a loop device that is made later is not kept away from it. The kernel's
//! list of locks says whether somebody has locked it already.

#![expect(unsafe_code, reason = "an ioctl without a wrapper")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};

use crate::error::User;
pub(crate) use crate::medium::open_place;
use crate::sysfs::{DeviceNumber, names_in};

/// `LOOP_GET_STATUS64` of `linux/loop.h`.
const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;
/// `struct loop_info64` in numbers of 64 bits: device, inode, rdevice, offset and size limit come
/// first.
type LoopInfo = [u64; 29];

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

/// A loop device that is configured.
#[derive(Debug)]
struct Loop {
    name: String,
    number: DeviceNumber,
    /// Device and inode of what is below.
    below: (u64, u64),
    /// Number of the block device below; 0 or of no meaning for a file.
    below_rdev: u64,
    /// Bytes of what is below that it shows.
    range: std::ops::Range<u64>,
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
    let Some((path, found)) = this.find_below() else {
        if this.below_is_locked() {
            return Err(Taken::By(User::Alias {
                name: format!("the file of /dev/{}, which has another name now", this.name),
            }));
        }
        return Ok(());
    };
    let metadata = found.metadata()?;
    let by = || {
        Taken::By(User::Alias {
            name: path.display().to_string(),
        })
    };
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
        return Ok(());
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

    /// The kernel's record of a loop device; where the device cannot be opened, its names in sysfs.
    fn of(name: &str) -> Option<Self> {
        let sysfs = Path::new("/sys/block").join(name);
        let text = |file: &str| fs::read_to_string(sysfs.join(file)).ok();
        let number = DeviceNumber::in_folder(&sysfs)?;
        let told = |file: &str| text(file)?.trim().parse::<u64>().ok();
        let (below, below_rdev, offset, limit) = match Self::status(name, number) {
            Some([device, inode, rdevice, offset, limit, ..]) => {
                ((device, inode), rdevice, offset, limit)
            }
            None => {
                let below = fs::metadata(backing_file(&sysfs)?).ok()?;
                let range = (told("loop/offset")?, told("loop/sizelimit")?);
                ((below.dev(), below.ino()), below.rdev(), range.0, range.1)
            }
        };
        let end = match limit {
            0 => u64::MAX,
            limit => offset.saturating_add(limit),
        };
        Some(Self {
            name: name.to_owned(),
            number,
            below,
            below_rdev,
            range: offset..end,
        })
    }

    fn status(name: &str, number: DeviceNumber) -> Option<LoopInfo> {
        let device = open_node(name, number, OFlags::empty()).ok()?;
        // SAFETY: the opcode fills one `struct loop_info64`, 232 bytes, for which the type has
        // room; any bytes are valid numbers.
        let status = unsafe { Getter::<LOOP_GET_STATUS64, LoopInfo>::new() };
        // SAFETY: the request writes to its own memory only; on what is no loop device it fails.
        unsafe { ioctl(&device, status) }.ok()
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
        let file = format!("{major:02x}:{minor:02x}:{inode}");
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        // 1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF
        locks.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields[..], [_, "FLOCK", _, "WRITE", _, locked, ..] if locked == file)
        })
    }

    /// The file or device below, opened without access, and its name; `None`: no name leads there.
    fn find_below(&self) -> Option<(PathBuf, File)> {
        let path = backing_file(&Path::new("/sys/block").join(&self.name))?;
        let found = open_place(&path).ok()?;
        let metadata = found.metadata().ok()?;
        let same = (metadata.dev(), metadata.ino()) == self.below;
        same.then_some((path, found))
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

/// The flags as the standard library wants them; they are all far below bit 31.
pub(crate) fn as_flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
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

pub(super) fn open_node(name: &str, number: DeviceNumber, more: OFlags) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(as_flags(more | OFlags::NONBLOCK));
    let file = options.open(Path::new("/dev").join(name))?;
    let metadata = file.metadata()?;
    if !metadata.file_type().is_block_device() || DeviceNumber::of(metadata.rdev()) != number {
        return Err(Errno::NODEV.into());
    }
    Ok(file)
}

/// Name of what a loop device shows.
fn backing_file(sysfs: &Path) -> Option<PathBuf> {
    let name = fs::read(sysfs.join("loop/backing_file")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}
