//! The data of an emulated disk: a sparse file in memory, with a bound.
//!
//! It is never mapped: the process locks all that it maps, and what the disk holds need not be.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};
use rustix::io::Errno;

/// Bytes of a page of the file: the granularity of the account.
const PAGE: u64 = 4096;

/// The bytes of the disk.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    /// At most so many bytes are kept.
    bound: u64,
}

impl Memory {
    /// An empty disk of `bytes` that keeps at most `bound` bytes of what is written.
    pub(super) fn new(bytes: u64, bound: u64) -> io::Result<Memory> {
        let file = rustix::fs::memfd_create("lumpscope-platter", MemfdFlags::CLOEXEC)?;
        let file = File::from(file);
        file.set_len(bytes)?;
        Ok(Memory { file, bound })
    }

    /// Bytes of memory in use.
    pub(super) fn used(&self) -> u64 {
        // It cannot fail on a file of our own; the bound then refuses everything.
        self.file
            .metadata()
            .map_or(u64::MAX, |meta| meta.blocks().saturating_mul(512))
    }

    /// Largest number of bytes of memory.
    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// Keeps `data`. Zeroes take no room, and give back what was there.
    ///
    /// `ENOSPC`: the bound is reached; nothing was changed.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let length = bytes_of(data);
        if is_zero(data) {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return Ok(rustix::fs::fallocate(&self.file, mode, offset, length)?);
        }
        // At its ends it may touch one page more.
        let most = length.saturating_add(2 * PAGE);
        if self.used().saturating_add(most) > self.bound {
            let new = self.unallocated(offset, length)?;
            if self.used().saturating_add(new) > self.bound {
                return Err(Errno::NOSPC.into());
            }
        }
        self.file.write_all_at(data, offset)
    }

    /// Fills `buffer`; what was never written reads as zeroes.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Bytes of pages in a range that hold nothing yet.
    fn unallocated(&self, offset: u64, length: u64) -> io::Result<u64> {
        let end = offset.saturating_add(length).next_multiple_of(PAGE);
        let mut at = offset / PAGE * PAGE;
        let mut holes = 0;
        while at < end {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data.min(end),
                // No data behind it.
                Err(Errno::NXIO) => end,
                Err(errno) => return Err(errno.into()),
            };
            holes += data - at;
            if data >= end {
                break;
            }
            at = match rustix::fs::seek(&self.file, SeekFrom::Hole(data)) {
                Ok(hole) => hole.max(data + PAGE),
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(holes)
    }
}

fn bytes_of(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}

/// Compares with itself, shifted: as fast as memory.
fn is_zero(data: &[u8]) -> bool {
    match data.split_first() {
        Some((0, rest)) => {
            rest.first().is_none_or(|byte| *byte == 0) && data[..data.len() - 1] == *rest
        }
        _ => data.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_was_written_is_read_and_the_rest_is_zero() {
        let memory = Memory::new(1 << 40, MIB).unwrap();
        memory.write(&[7; 512], (1 << 40) - 512).unwrap();
        let mut buffer = [1; 1024];
        memory.read(&mut buffer, (1 << 40) - 1024).unwrap();
        assert!(buffer[..512] == [0; 512]);
        assert!(buffer[512..] == [7; 512]);
        assert!(memory.used() >= 512 && memory.used() <= 2 * PAGE);
    }

    #[test]
    fn a_full_memory_refuses_what_is_new_and_takes_what_is_not() {
        let memory = Memory::new(64 * MIB, MIB).unwrap();
        let page = [7; 4096];
        let mut taken = 0;
        while memory.write(&page, taken * PAGE).is_ok() {
            taken += 1;
        }
        assert_eq!(taken * PAGE, MIB);
        let refused = memory.write(&page, 40 * MIB).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        memory.write(&[9; 4096], 5 * PAGE).unwrap();
        // Across the border of what is there: refused whole.
        assert!(memory.write(&[8; 8192], MIB - PAGE).is_err());
        let mut buffer = [0; 4096];
        memory.read(&mut buffer, MIB - PAGE).unwrap();
        assert_eq!(buffer, page);
        // Zeroes give room back, in the middle of a page, too.
        memory.write(&[0; 8192], 3 * PAGE + 512).unwrap();
        memory.read(&mut buffer, 3 * PAGE).unwrap();
        assert_eq!((buffer[511], buffer[512]), (7, 0));
        memory.write(&page, 40 * MIB).unwrap();
        assert!(memory.used() <= MIB);
    }

    #[test]
    fn zeroes_are_seen() {
        assert!(is_zero(&[]) && is_zero(&[0]) && is_zero(&[0; 4096]));
        let mut data = [0; 4096];
        for place in [0, 1, 2, 4095] {
            data[place] = 1;
            assert!(!is_zero(&data), "{place}");
            data[place] = 0;
        }
    }
}
