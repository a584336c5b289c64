//! The kernel's loop devices: found, configured, named and cleared.
//!
//! `LOOP_CONFIGURE` (Linux 5.8) sets everything at once: there is no moment in which the device
//! exists without the flag that makes the kernel take it down.
#![expect(unsafe_code, reason = "ioctls of the loop driver")]

mod device;

pub use device::LoopDevice;

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

const CONTROL: &str = "/dev/loop-control";
/// Major number of loop devices.
const LOOP_MAJOR: u32 = 7;
const LOGICAL_SECTOR: u32 = 512;
/// Other programs may take the free device that was just found this often.
const TRIES: u32 = 64;

const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_GET_STATUS64: Opcode = 0x4C05;
const BLKDISCARD: Opcode = 0x1277;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Why a loop device could not be made or cleared.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum LoopError {
    /// The loop driver is not there.
    #[error("{} is not there: load the loop driver (modprobe loop)", path.display())]
    NoDriver { path: PathBuf },
    /// The image would go through the page cache.
    #[error(
        "files in {} cannot be used with direct I/O, so memory would be measured instead of a \
         disk. Choose a directory on another file system with --dir",
        dir.display()
    )]
    NoDirectIo { dir: PathBuf },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl LoopError {
    fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> LoopError {
        LoopError::Io {
            what,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// Makes a loop device over `image` with direct I/O and logical sectors of 512 bytes, and answers
/// its path and the descriptor that keeps it. Another program that takes the device that was
/// found free is no error.
///
/// `name` (at most 63 bytes) is what [`name_of`] answers. `autoclear`: the kernel takes the device
/// down when its last user closes it.
///
/// # Errors
/// No privilege (`CAP_SYS_ADMIN`), no loop driver, or the kernel does not want the image.
pub fn configure(
    image: impl AsFd,
    name: &str,
    autoclear: bool,
) -> Result<(PathBuf, File), LoopError> {
    let control = Path::new(CONTROL);
    let opened = OpenOptions::new().read(true).write(true).open(control);
    let control_file = opened.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => LoopError::NoDriver {
            path: control.to_owned(),
        },
        _ => LoopError::io("open", control, source),
    })?;
    let mut tries = 0;
    loop {
        // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a number.
        let number = unsafe { rustix::ioctl::ioctl(&control_file, GetFree) }
            .map_err(|errno| LoopError::io("get a free loop device from", control, errno))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        make_node(&path, number)?;
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| LoopError::io("open", &path, source))?;
        let config = Configure(LoopConfig::new(image.as_fd().as_raw_fd(), name, autoclear));
        // SAFETY: `Configure` passes a complete `struct loop_config`.
        match unsafe { rustix::ioctl::ioctl(&device, config) } {
            Ok(()) => return Ok((path, device)),
            Err(Errno::BUSY) if tries < TRIES => tries += 1,
            Err(errno) => return Err(LoopError::io("configure loop device", &path, errno)),
        }
    }
}

/// The name that a loop device was configured with; `None` when it is not configured, or cannot
/// be asked.
#[must_use]
pub fn name_of(device: &File) -> Option<String> {
    // SAFETY: `GetStatus` lets the kernel fill a complete `struct loop_info64`.
    let info = unsafe { rustix::ioctl::ioctl(device, GetStatus(LoopInfo64::empty())) }.ok()?;
    let end = info.file_name.iter().position(|byte| *byte == 0);
    let name = info.file_name.get(..end.unwrap_or(info.file_name.len()))?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Takes the image from a loop device; if others have it open, the kernel does so when the last
/// of them has closed it.
///
/// # Errors
/// The device is not configured, or no privilege.
pub fn clear(device: &File, path: &Path) -> Result<(), LoopError> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { rustix::ioctl::ioctl(device, Clear) }
        .map_err(|errno| LoopError::io("clear loop device", path, errno))
}

/// Asks a device to discard its first bytes. An image that refuses has the kernel note that the
/// device cannot discard at all; that the image can is no error.
///
/// The switch in sysfs does the same, but kernels do not let it be put back.
pub fn forget_discard(device: &File) {
    // SAFETY: `Discard` passes two complete numbers, a range in bytes.
    let _refused = unsafe { rustix::ioctl::ioctl(device, Discard([0, 4096])) };
}

/// Attribute of a loop device in sysfs; `None`: not configured.
#[must_use]
pub fn attribute(device: &Path, attribute: &str) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    let text = std::fs::read_to_string(format!("/sys/block/{name}/loop/{attribute}")).ok()?;
    Some(text.trim().to_owned())
}

/// In a container `/dev` is not the kernel's own: a device it has just made has no node there.
fn make_node(path: &Path, number: u32) -> Result<(), LoopError> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.rdev() != 0) {
        return Ok(());
    }
    let device = rustix::fs::makedev(LOOP_MAJOR, number);
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(rustix::fs::CWD, path, FileType::BlockDevice, mode, device) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(LoopError::io("make device node", path, errno)),
    }
}

/// `struct loop_config` of linux/loop.h, with `struct loop_info64` inside.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);
const _: () = assert!(size_of::<LoopConfig>() == 304);

impl LoopInfo64 {
    fn empty() -> LoopInfo64 {
        LoopInfo64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

impl LoopConfig {
    fn new(image: i32, name: &str, autoclear: bool) -> LoopConfig {
        let mut info = LoopInfo64::empty();
        info.flags = LO_FLAGS_DIRECT_IO;
        if autoclear {
            info.flags |= LO_FLAGS_AUTOCLEAR;
        }
        // The last byte stays zero.
        for (place, byte) in info.file_name.iter_mut().take(63).zip(name.bytes()) {
            *place = byte;
        }
        LoopConfig {
            // Descriptors are never negative.
            fd: u32::try_from(image).unwrap_or(u32::MAX),
            block_size: LOGICAL_SECTOR,
            info,
            reserved: [0; 8],
        }
    }
}

struct GetFree;

// SAFETY: the opcode takes no argument; its result is the number of a device.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(output).map_err(|_| Errno::INVAL)
    }
}

struct Clear;

// SAFETY: the opcode takes no argument and answers nothing.
unsafe impl Ioctl for Clear {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CLR_FD
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

struct Discard([u64; 2]);

// SAFETY: the opcode reads two numbers of 64 bits, which the value owns.
unsafe impl Ioctl for Discard {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BLKDISCARD
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

struct GetStatus(LoopInfo64);

// SAFETY: the opcode fills one `struct loop_info64`, which `LoopInfo64` mirrors and owns.
unsafe impl Ioctl for GetStatus {
    type Output = LoopInfo64;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        LOOP_GET_STATUS64
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(&mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        _: IoctlOutput,
        filled: *mut c_void,
    ) -> rustix::io::Result<LoopInfo64> {
        // SAFETY: it is the pointer that `as_ptr` gave, to a value of this type.
        Ok(unsafe { filled.cast::<LoopInfo64>().read() })
    }
}

struct Configure(LoopConfig);

// SAFETY: the opcode reads one `struct loop_config`, which `LoopConfig` mirrors.
unsafe impl Ioctl for Configure {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CONFIGURE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(&mut self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}
