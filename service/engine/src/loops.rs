//! The kernel's record of a loop device: what is below it, and which bytes of that it shows.

#![expect(unsafe_code, reason = "an ioctl without a wrapper")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};

use crate::sysfs::DeviceNumber;

/// `LOOP_GET_STATUS64` of `linux/loop.h`.
const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;
/// `struct loop_info64` in numbers of 64 bits: device, inode, rdevice, offset and size limit come
/// first.
type LoopInfo = [u64; 29];

/// A loop device that is configured.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) name: String,
    pub(crate) number: DeviceNumber,
    /// Device and inode of what is below.
    pub(crate) below: (u64, u64),
    /// Number of the block device below; 0 or of no meaning for a file.
    pub(crate) below_rdev: u64,
    /// Bytes of what is below that it shows.
    pub(crate) range: std::ops::Range<u64>,
}

impl Loop {
    /// The kernel's record of a loop device; where the device cannot be opened, its names in sysfs.
    pub(crate) fn of(name: &str) -> Option<Self> {
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
}

/// Opens a device for reading, if its name still leads to this number.
pub(crate) fn open_node(name: &str, number: DeviceNumber, more: OFlags) -> io::Result<File> {
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
pub(crate) fn backing_file(sysfs: &Path) -> Option<PathBuf> {
    let name = fs::read(sysfs.join("loop/backing_file")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

/// The flags as the standard library wants them; they are all far below bit 31.
pub(crate) fn as_flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
}
