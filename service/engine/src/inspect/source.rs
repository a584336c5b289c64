//! The device or file under inspection: claimed, and only ever read.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, SeekFrom};

use crate::buffer::{AlignedBuf, BufferPool};
use crate::declaration::IoOp;
use crate::device::{Claimed, alignment, claim, claim_now};
use crate::error::Error;

/// Alignment of reads where the target has no direct I/O: a page.
const PAGE: u64 = 4096;

/// An open target.
pub(super) struct ImageSource {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) is_block_device: bool,
    /// Smallest unit of reads in bytes.
    pub(super) unit: u64,
    /// True: reads pass the page cache by.
    pub(super) direct: bool,
    file: Claimed,
    pool: Arc<BufferPool>,
}

/// Bytes that were read.
pub(super) struct Bytes {
    buf: AlignedBuf,
    at: usize,
    len: usize,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf
            .get(self.at..self.at + self.len)
            .unwrap_or_default()
    }
}

impl ImageSource {
    /// Opens `path` read-only, alone: a store that is in use is refused.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let claimed = claim(path, true).and_then(|file| {
            alignment(&file, path, file.is_block_device()).map(|found| (file, found))
        });
        let (file, direct, (unit, memory)) = match claimed {
            Ok((file, found)) => (file, true, found),
            // A copy of an image may lie where a store could not.
            Err(Error::Unsupported { .. }) => {
                let unit = u32::try_from(PAGE).unwrap_or(u32::MAX);
                (open_buffered(path)?, false, (unit, 1))
            }
            Err(error) => return Err(error),
        };
        let size = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|errno| system("cannot find the size of", path)(errno.into()))?;
        let unit = u64::from(unit);
        let page = usize::try_from(unit.max(PAGE)).unwrap_or(usize::MAX);
        Ok(Self {
            path: path.to_owned(),
            size,
            is_block_device: file.is_block_device(),
            unit,
            direct,
            file,
            pool: BufferPool::new(memory.max(page).next_power_of_two()),
        })
    }

    /// Reads bytes that need not be aligned. What lies after the end reads as zeros: it has never
    /// been written.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<Bytes, Error> {
        let start = offset - offset % self.unit;
        let end = offset.saturating_add(len).next_multiple_of(self.unit);
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut buf = self.pool.get(to_usize(end - start));
        let mut done = 0;
        while done < buf.len() {
            let at = start + done as u64;
            // A device's last block may be cut off; a read that crosses its end is shortened.
            match rustix::io::pread(&self.file, &mut buf[done..], at) {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    if !(done as u64).is_multiple_of(self.unit) {
                        break;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    let left = end - at;
                    return Err(Error::from_io(IoOp::Read, at, left, errno.into()));
                }
            }
        }
        buf[done..].fill(0);
        Ok(Bytes {
            buf,
            at: to_usize(offset - start),
            len: to_usize(len),
        })
    }

    /// The parts of a range that cannot be read, tried in pieces of `piece` bytes: from the first
    /// such piece to the end of the last. `None`: this time everything could be read.
    pub(super) fn unreadable(&self, offset: u64, len: u64, piece: u64) -> Option<(u64, u64)> {
        let mut found: Option<(u64, u64)> = None;
        let mut at = offset;
        while at < offset + len {
            let part = piece.min(offset + len - at);
            if self.read(at, part).is_err() {
                found = Some((found.map_or(at, |(first, _)| first), at + part));
            }
            at += part;
        }
        found.map(|(first, end)| (first, end - first))
    }
}

fn open_buffered(path: &Path) -> Result<Claimed, Error> {
    let file = claim_now(path, true, false)?;
    // What is checked is the medium, as far as that can be had. Advice: failing costs nothing.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    Ok(file)
}

fn system(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::System {
        what,
        path: path.clone(),
        source: Arc::new(source),
    }
}
