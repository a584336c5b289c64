//! The program that the riddle was found with: one buffer, written again and again to a new file,
//! past the page cache, from some byte on. No flush, no read, no statistics.
#![expect(unsafe_code, reason = "mmap of the buffer")]

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of the buffer of huge pages, of which the block size must fit in.
pub const POOL_BYTES: u64 = 10 << 20;
/// The block size is a multiple of this.
pub(super) const STEP: u64 = 4096;
/// Largest block: what one system call writes at most is a little more.
pub(super) const MAX_BLOCK: u64 = 1 << 30;

/// The writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Bytes of one write: a multiple of 4096, up to 1 GiB.
    pub block: u64,
    /// Writes.
    pub count: u64,
    /// First byte. O_DIRECT wants it aligned to the disk's logical block.
    pub offset: u64,
    /// The buffer is made of huge pages, which must have been set aside (`nr_hugepages`).
    pub hugepool: bool,
}

/// A buffer of whole pages.
struct Buffer {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

impl Buffer {
    fn new(len: NonZeroUsize, huge: bool) -> io::Result<Buffer> {
        let flags = if huge {
            MapFlags::PRIVATE | MapFlags::HUGETLB
        } else {
            MapFlags::PRIVATE
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses disturbs nothing.
        let start =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len.get(), access, flags) };
        let start = NonNull::new(start?.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Buffer { start, len })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes of memory that only this value knows of.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len.get()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody has a reference into it any more.
        // What cannot be unmapped goes when the process ends.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len.get()) };
    }
}

impl Program {
    /// Bytes that it writes.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.block.saturating_mul(self.count)
    }

    /// Writes to the file, which is made if it is not there; the time from opening it to the end of
    /// the last write.
    ///
    /// # Errors
    /// What the kernel refuses: `EINVAL` when the file system cannot write so directly or offset
    /// and disk do not fit, `ENOMEM` when too few huge pages are set aside.
    pub fn run(&self, file: &Path) -> io::Result<Duration> {
        let bytes = if self.hugepool {
            POOL_BYTES
        } else {
            self.block
        };
        let len = usize::try_from(bytes).ok().and_then(NonZeroUsize::new);
        let mut buffer = Buffer::new(len.ok_or(io::ErrorKind::InvalidInput)?, self.hugepool)?;
        buffer.bytes().fill(0x5a);
        let block = usize::try_from(self.block).map_err(|_| io::ErrorKind::InvalidInput)?;
        let data = buffer.bytes().get(..block);
        let data = data.ok_or(io::ErrorKind::InvalidInput)?;
        let begin = Instant::now();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(crate::disks::direct())
            .open(file)?;
        let mut at = self.offset;
        for _ in 0..self.count {
            file.write_all_at(data, at)?;
            at = at.saturating_add(self.block);
        }
        Ok(begin.elapsed())
    }
}

/// For `map_err`: the file cannot be written as asked, and what helps most often.
pub(super) fn cannot_write(file: &Path) -> impl FnOnce(io::Error) -> anyhow::Error + use<> {
    let file = file.display().to_string();
    move |error| {
        let hint = match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::NOMEM) => {
                "; huge pages must be set aside first: sysctl vm.nr_hugepages=5"
            }
            Some(rustix::io::Errno::INVAL) => {
                "; O_DIRECT wants offset and length aligned to the disk's logical block, and a file \
                 system that has it"
            }
            _ => "",
        };
        anyhow::anyhow!("cannot write to {file}: {error}{hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_so_many_blocks_from_the_offset_on() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let file = dir.path().join("file");
        let program = Program {
            block: 8192,
            count: 3,
            offset: 4096,
            hugepool: false,
        };
        program.run(&file).expect("it writes");
        let written = std::fs::read(&file).expect("the file");
        assert_eq!(written.len(), 4096 + 3 * 8192);
        assert!(written[..4096].iter().all(|byte| *byte == 0));
        assert!(written[4096..].iter().all(|byte| *byte == 0x5a));
        assert_eq!(program.payload(), 3 * 8192);
    }

    #[test]
    fn a_block_that_does_not_fit_into_the_pool_is_refused() {
        let program = Program {
            block: POOL_BYTES + STEP,
            count: 1,
            offset: 0,
            hugepool: true,
        };
        // Without huge pages the pool itself is refused.
        assert!(program.run(Path::new("/proc/nowhere")).is_err());
    }
}
