//! Opens a device or file for direct I/O, alone, and finds out what it needs.

use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, StatxFlags};
use rustix::io::Errno;

use super::pool::ThreadPool;
use super::uring::Uring;
use super::{Declarer, Device, DeviceFacts, IoBackend};
use crate::buffer::BufferPool;
use crate::error::Error;
use crate::guard::aliases::{self, Taken};
use crate::guard::{self, User};
use crate::options::{IoBackendChoice, StoreOptions};
use crate::units::to_usize;

/// Most data I/Os a pool of threads carries at a time.
const THREADS_LIMIT: usize = 32;
/// I/Os in flight beside those for data: journal pieces, header, garbage collection, flush.
const OTHER_IOS: usize = 6;

/// How long a target that is in use is asked for again. The kernel lets go of a killed process's
/// io_uring, and with it of the device, only some time after the process is gone (`io_ring_exit_work`
/// in `io_uring/io_uring.c`); a service that is restarted at once must not fail for that.
const CLAIM_PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two attempts.
const CLAIM_PAUSE: Duration = Duration::from_millis(20);

/// Opens `path` with `O_DIRECT`, exclusively: `O_EXCL` on a block device, `flock` on a file, and
/// every other way to its bytes with it. Of the options, those about access and I/O count.
pub(crate) fn open(path: &Path, options: &StoreOptions) -> Result<Device, Error> {
    let system = |what| Error::system(what, path);
    let file = claim(path, options.read_only)?;
    let is_block_device = file.is_block_device();
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
        .map_err(|errno| system("cannot find the size of")(errno.into()))?;
    let (alignment, memory_alignment) = alignment(&file, path, is_block_device)?;
    let declarer = Declarer(options.io_sink.clone());
    let file = Arc::new(file);
    let unit = to_usize(alignment);
    let uring = match options.io_backend {
        IoBackendChoice::Threads => None,
        IoBackendChoice::Uring | IoBackendChoice::Auto => {
            let facts = DeviceFacts::of(path).unwrap_or_default();
            let started = Uring::start(&file, unit, facts, &declarer);
            match (started, options.io_backend) {
                (Ok(uring), _) => Some(uring),
                (Err(_), IoBackendChoice::Auto) => None,
                (Err(error), _) => return Err(system("cannot use io_uring on")(error)),
            }
        }
    };
    let backend: Box<dyn IoBackend> = match uring {
        Some(uring) => Box::new(uring),
        None => {
            let threads = options.queue_depth.min(THREADS_LIMIT) + OTHER_IOS;
            let pool = ThreadPool::start(file, unit, threads, declarer)
                .map_err(system("cannot start I/O threads for"))?;
            Box::new(pool)
        }
    };
    Ok(Device {
        path: path.to_owned(),
        size,
        is_block_device,
        alignment,
        memory_alignment,
        backend,
    })
}

/// A target that this process has alone, whatever way leads to its bytes.
#[derive(Debug)]
pub(crate) struct Claimed {
    file: File,
    is_block_device: bool,
    /// The other ways, held with it.
    _aliases: Vec<File>,
}

impl Claimed {
    pub(crate) fn is_block_device(&self) -> bool {
        self.is_block_device
    }
}

impl Deref for Claimed {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for Claimed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
impl From<File> for Claimed {
    fn from(file: File) -> Self {
        Self {
            file,
            is_block_device: false,
            _aliases: Vec::new(),
        }
    }
}

/// Opens the target for this process alone, and waits a moment for one that is just being let go.
pub(crate) fn claim(path: &Path, read_only: bool) -> Result<Claimed, Error> {
    let patience = Instant::now() + CLAIM_PATIENCE;
    loop {
        match claim_now(path, read_only, true) {
            Err(Error::InUse { .. }) if Instant::now() < patience => {
                std::thread::sleep(CLAIM_PAUSE);
            }
            other => return other,
        }
    }
}

/// Opens the target for this process alone; `direct`: past the page cache.
pub(crate) fn claim_now(path: &Path, read_only: bool, direct: bool) -> Result<Claimed, Error> {
    let in_use = |by| Error::InUse {
        path: path.to_owned(),
        by,
    };
    let system = |what| Error::system(what, path);
    let place = aliases::open_place(path).map_err(system("cannot look at"))?;
    let file_type = place
        .metadata()
        .map_err(system("cannot look at"))?
        .file_type();
    let is_block_device = file_type.is_block_device();
    if !is_block_device && !file_type.is_file() {
        return Err(Error::NotAStore {
            path: path.to_owned(),
            why: "it is neither a regular file nor a block device".to_owned(),
        });
    }
    let exclusive = if is_block_device { libc::O_EXCL } else { 0 };
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let opened = OpenOptions::new()
        .read(true)
        .write(!read_only)
        .custom_flags(direct | libc::O_CLOEXEC | exclusive)
        .open(aliases::place_path(&place));
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => in_use(User::Exclusive),
        Some(libc::EINVAL) => Error::Unsupported {
            path: path.to_owned(),
            why: "its file system has no direct I/O; use ext4, xfs or a block device".to_owned(),
        },
        _ => system("cannot open")(source),
    })?;
    if !is_block_device {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(User::Locked)),
            Err(other) => return Err(system("cannot lock")(other.into())),
        }
    }
    let aliases = guard::hold(&file).map_err(|taken| match taken {
        Taken::By(user) => in_use(user),
        Taken::Unknown(source) => system("cannot find the users of")(source),
    })?;
    Ok(Claimed {
        file,
        is_block_device,
        _aliases: aliases,
    })
}

/// The alignment of offsets and of memory, from the kernel; where it does not say, found by
/// trying.
pub(crate) fn alignment(
    file: &File,
    path: &Path,
    is_block_device: bool,
) -> Result<(u32, usize), Error> {
    if let Ok(found) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        if found.stx_dio_offset_align == 0 {
            let why = "direct I/O does not work on this file; use ext4, xfs or a block device";
            return Err(Error::Unsupported {
                path: path.to_owned(),
                why: why.to_owned(),
            });
        }
        let memory = usize::try_from(found.stx_dio_mem_align)
            .unwrap_or(4096)
            .max(1);
        return Ok((found.stx_dio_offset_align.max(512), memory));
    }
    if is_block_device && let Ok(size) = rustix::fs::ioctl_blksszget(file) {
        return Ok((size.max(512), 4096));
    }
    let mut buf = BufferPool::new(4096).get(512);
    match rustix::io::pread(file, &mut buf[..], 0) {
        Ok(_) => Ok((512, 4096)),
        Err(_) => Ok((4096, 4096)),
    }
}
