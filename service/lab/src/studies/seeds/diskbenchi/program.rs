//! The program that the riddle was found with: one buffer, written again and again to a new file,
//! past the page cache, from some byte on. No flush, no read, no statistics.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use lumpscope_engine::buffer::BufferPool;

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
}

impl Program {
    /// Bytes that it writes.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.block.saturating_mul(self.count)
    }

    /// Writes to the file, which is made if it is not there.
    ///
    /// # Errors
    /// What the kernel refuses: `EINVAL` when the file system cannot write so directly or offset
    /// and disk do not fit.
    pub fn run(&self, file: &Path) -> io::Result<()> {
        let block = usize::try_from(self.block).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut data = BufferPool::new(4096).zeroed(block);
        data.fill(0x5a);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(crate::disks::direct())
            .open(file)?;
        let mut at = self.offset;
        for _ in 0..self.count {
            file.write_all_at(&data, at)?;
            at = at.saturating_add(self.block);
        }
        Ok(())
    }
}

/// For `map_err`: the file cannot be written as asked, and what helps most often.
pub(super) fn cannot_write(file: &Path) -> impl FnOnce(io::Error) -> anyhow::Error + use<> {
    let file = file.display().to_string();
    move |error| {
        let hint = match rustix::io::Errno::from_io_error(&error) {
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
        };
        program.run(&file).expect("it writes");
        let written = std::fs::read(&file).expect("the file");
        assert_eq!(written.len(), 4096 + 3 * 8192);
        assert!(written[..4096].iter().all(|byte| *byte == 0));
        assert!(written[4096..].iter().all(|byte| *byte == 0x5a));
        assert_eq!(program.payload(), 3 * 8192);
    }
}
