//! The device or file under inspection: claimed, and only ever read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Advice, SeekFrom};

use crate::buffer::{AlignedBuf, BufferPool};
use crate::declaration::IoOp;
use crate::device::{
    Claimed, Completion, Device, Io, IoBackend, Wait, Waker, alignment, claim, claim_now,
};
use crate::error::Error;
use crate::options::IoBackendKind;
use crate::storage::io::BlockingIo;
use crate::units::to_usize;

/// Alignment of reads where the target has no direct I/O: a page.
const PAGE: u32 = 4096;

/// An open target.
pub(super) struct ImageSource {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) is_block_device: bool,
    /// Smallest unit of reads in bytes.
    pub(super) unit: u64,
    /// True: reads pass the page cache by.
    pub(super) direct: bool,
    /// With the token of its next I/O.
    device: Mutex<(Device, u64)>,
    pool: Arc<BufferPool>,
}

impl ImageSource {
    /// Opens `path` read-only, alone: a store that is in use is refused.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let claimed = claim(path, true).and_then(|file| {
            alignment(&file, path, file.is_block_device()).map(|found| (file, found))
        });
        let (file, direct, (unit, memory_alignment)) = match claimed {
            Ok((file, found)) => (file, true, found),
            // A copy of an image may lie where a store could not.
            Err(Error::Unsupported { .. }) => (open_buffered(path)?, false, (PAGE, 1)),
            Err(error) => return Err(error),
        };
        let size = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|errno| Error::system("cannot find the size of", path)(errno.into()))?;
        let is_block_device = file.is_block_device();
        let page = to_usize(unit.max(PAGE));
        let pool = BufferPool::new(memory_alignment.max(page).next_power_of_two());
        let backend = Box::new(UnalignedReads {
            file,
            unit: unit.into(),
            pool: Arc::clone(&pool),
            ended: Vec::new(),
        });
        let device = Device {
            path: path.to_owned(),
            size,
            is_block_device,
            alignment: unit,
            memory_alignment,
            backend,
        };
        Ok(Self {
            path: path.to_owned(),
            size,
            is_block_device,
            unit: unit.into(),
            direct,
            device: Mutex::new((device, 1)),
            pool,
        })
    }

    /// Does what needs several reads.
    pub(super) fn with_io<T>(&self, work: impl FnOnce(&mut BlockingIo<'_>) -> T) -> T {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, next_token) = &mut *device;
        work(&mut BlockingIo::new(device, &self.pool, next_token))
    }

    /// Reads bytes that need not be aligned. What lies after the end reads as zeros: it has never
    /// been written.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<AlignedBuf, Error> {
        self.with_io(|io| io.read(offset, len))
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

/// Reads at once, whatever the alignment of what is asked for.
struct UnalignedReads {
    file: Claimed,
    unit: u64,
    pool: Arc<BufferPool>,
    ended: Vec<Completion>,
}

impl UnalignedReads {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        let start = offset - offset % self.unit;
        let end = offset.saturating_add(len).next_multiple_of(self.unit);
        if end - start == len {
            return self.read_units(offset, bytes);
        }
        let mut units = self.pool.get(to_usize(end - start));
        self.read_units(start, &mut units)?;
        let from = to_usize(offset - start);
        bytes.copy_from_slice(&units[from..from + bytes.len()]);
        Ok(())
    }

    fn read_units(&self, start: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            // A device's last block may be cut off; a read that crosses its end is shortened.
            match rustix::io::pread(&self.file, &mut bytes[done..], start + done as u64) {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    if !(done as u64).is_multiple_of(self.unit) {
                        break;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        bytes[done..].fill(0);
        Ok(())
    }
}

impl IoBackend for UnalignedReads {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn submit(&mut self, io: Io) {
        let Io {
            token,
            op,
            offset,
            mut buf,
            ..
        } = io;
        let result = match &mut buf {
            Some(buf) if op == IoOp::Read => self.read(offset, buf),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        self.ended.push(Completion { token, buf, result });
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, _: Wait) {
        ended.append(&mut self.ended);
    }

    fn waker(&self) -> Waker {
        Waker::new(|| ())
    }
}

fn open_buffered(path: &Path) -> Result<Claimed, Error> {
    let file = claim_now(path, true, false)?;
    // What is checked is the medium, as far as that can be had. Advice: failing costs nothing.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    Ok(file)
}
