//! Loop devices that clear themselves.
//!
//! `LOOP_CONFIGURE` (Linux 5.8) sets everything at once: there is no moment in which the device
//! exists without the flag that makes the kernel take it down.
#![expect(unsafe_code, reason = "two ioctls of the loop driver")]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

use super::LabError;

const CONTROL: &str = "/dev/loop-control";
/// Major number of loop devices.
const LOOP_MAJOR: u32 = 7;
const LOGICAL_SECTOR: u32 = 512;

const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// A loop device over an unlinked sparse image.
///
/// On drop it waits until the kernel has cleared the device, which happens when its last user has
/// closed it.
#[derive(Debug)]
pub struct LoopDevice {
    // Keeps the device configured until the drop.
    open: Option<OwnedFd>,
    path: PathBuf,
    image_name: String,
    devno: u64,
}

impl LoopDevice {
    /// A device of `bytes` (rounded up to 4 KiB) with 512-byte logical sectors and direct I/O.
    /// Its image `lumpscope-PID-NUMBER-NAME.img` was in `dir` and is unlinked already.
    ///
    /// # Errors
    /// No privilege, no loop driver, or a directory whose files cannot be used with direct I/O.
    pub fn create(dir: &Path, name: &str, bytes: u64) -> Result<LoopDevice, LabError> {
        // Several labs may live in one process.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let image_name = format!("lumpscope-{}-{number}-{name}.img", std::process::id());
        let image = create_image(&dir.join(&image_name), bytes)?;
        let (path, open) = configure_free(&image)?;
        let stat = rustix::fs::fstat(&open).map_err(LabError::io("look at", &path))?;
        let device = LoopDevice {
            open: Some(open.into()),
            path,
            image_name,
            devno: stat.st_rdev,
        };
        if device.sysfs("dio").as_deref() != Some("1") {
            return Err(LabError::NoDirectIo {
                dir: dir.to_owned(),
            });
        }
        Ok(device)
    }

    /// `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device number as `stat` shows it (`st_rdev`).
    #[must_use]
    pub fn devno(&self) -> u64 {
        self.devno
    }

    fn sysfs(&self, attribute: &str) -> Option<String> {
        let name = self.path.file_name()?.to_str()?;
        let text = std::fs::read_to_string(format!("/sys/block/{name}/loop/{attribute}")).ok()?;
        Some(text.trim().to_owned())
    }

    fn is_configured(&self) -> bool {
        self.sysfs("backing_file")
            .is_some_and(|file| file.contains(&self.image_name))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        drop(self.open.take());
        let patience = Instant::now() + Duration::from_secs(10);
        while self.is_configured() {
            if Instant::now() > patience {
                eprintln!(
                    "{} is still in use by another process; it clears itself when that ends",
                    self.path.display()
                );
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An image that has no name any more.
fn create_image(path: &Path, bytes: u64) -> Result<File, LabError> {
    let io = |what, path: &Path| {
        let path = path.to_owned();
        move |source| LabError::Io { what, path, source }
    };
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(io("create image", path))?;
    std::fs::remove_file(path).map_err(io("unlink image", path))?;
    image
        .set_len(bytes.next_multiple_of(4096))
        .map_err(io("set the size of image", path))?;
    Ok(image)
}

/// Finds a free device and configures it; tries again when another process took it in between.
fn configure_free(image: &File) -> Result<(PathBuf, File), LabError> {
    let control = OpenOptions::new()
        .read(true)
        .write(true)
        .open(CONTROL)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => LabError::NoLoopDriver {
                path: CONTROL.into(),
            },
            Some(errno) => LabError::io("open", CONTROL)(errno),
            None => LabError::Io {
                what: "open",
                path: CONTROL.into(),
                source: error,
            },
        })?;
    let mut tries = 0;
    loop {
        // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a number.
        let number = unsafe { rustix::ioctl::ioctl(&control, GetFree) }
            .map_err(LabError::io("get a free loop device from", CONTROL))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        make_node(&path, number)?;
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| LabError::Io {
                what: "open",
                path: path.clone(),
                source,
            })?;
        let config = Configure(LoopConfig::new(image));
        // SAFETY: `Configure` passes a complete `struct loop_config`.
        match unsafe { rustix::ioctl::ioctl(&device, config) } {
            Ok(()) => return Ok((path, device)),
            Err(Errno::BUSY) if tries < 64 => tries += 1,
            Err(errno) => return Err(LabError::io("configure loop device", path)(errno)),
        }
    }
}

/// In a container `/dev` is not the kernel's own: a device it has just made has no node there.
fn make_node(path: &Path, number: u32) -> Result<(), LabError> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.rdev() != 0) {
        return Ok(());
    }
    let device = rustix::fs::makedev(LOOP_MAJOR, number);
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(rustix::fs::CWD, path, FileType::BlockDevice, mode, device) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(LabError::io("make device node", path)(errno)),
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

impl LoopConfig {
    fn new(image: &File) -> LoopConfig {
        LoopConfig {
            // Descriptors are never negative.
            fd: u32::try_from(image.as_raw_fd()).unwrap_or(u32::MAX),
            block_size: LOGICAL_SECTOR,
            info: LoopInfo64 {
                device: 0,
                inode: 0,
                rdevice: 0,
                offset: 0,
                size_limit: 0,
                number: 0,
                encrypt_type: 0,
                encrypt_key_size: 0,
                flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                file_name: [0; 64],
                crypt_name: [0; 64],
                encrypt_key: [0; 32],
                init: [0; 2],
            },
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
