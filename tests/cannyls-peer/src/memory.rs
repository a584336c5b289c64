//! A disk in memory each of whose I/Os takes some time.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cannyls::block::BlockSize;
use cannyls::nvm::NonVolatileMemory;

/// The disk, or a part of it; clones share its bytes.
#[derive(Clone, Debug)]
pub(crate) struct MemoryDisk {
    bytes: Arc<Mutex<Vec<u8>>>,
    start: usize,
    end: usize,
    position: usize,
    latency: Duration,
}

impl MemoryDisk {
    /// A disk of zeros that answers at once.
    pub(crate) fn new(len: u64) -> MemoryDisk {
        let end = usize::try_from(len).unwrap_or(usize::MAX);
        MemoryDisk {
            bytes: Arc::new(Mutex::new(vec![0; end])),
            start: 0,
            end,
            position: 0,
            latency: Duration::ZERO,
        }
    }

    /// Every read, write and sync through this handle takes so long from now on.
    pub(crate) fn set_latency(&mut self, latency: Duration) {
        self.latency = latency;
    }

    fn transfer(&mut self, len: usize, copy: impl FnOnce(&mut [u8])) -> usize {
        std::thread::sleep(self.latency);
        let len = len.min(self.end - self.position);
        let range = self.position..self.position + len;
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        copy(&mut bytes[range]);
        drop(bytes);
        self.position += len;
        len
    }
}

impl Read for MemoryDisk {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.transfer(buf.len(), |bytes| buf[..bytes.len()].copy_from_slice(bytes)))
    }
}

impl Write for MemoryDisk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(self.transfer(buf.len(), |bytes| {
            bytes.copy_from_slice(&buf[..bytes.len()])
        }))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for MemoryDisk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = self.convert_to_offset(to)?;
        self.position = self.start + usize::try_from(position).unwrap_or(usize::MAX);
        Ok(position)
    }
}

impl NonVolatileMemory for MemoryDisk {
    fn sync(&mut self) -> cannyls::Result<()> {
        std::thread::sleep(self.latency);
        Ok(())
    }

    fn position(&self) -> u64 {
        (self.position - self.start) as u64
    }

    fn capacity(&self) -> u64 {
        (self.end - self.start) as u64
    }

    fn block_size(&self) -> BlockSize {
        BlockSize::min()
    }

    fn split(self, position: u64) -> cannyls::Result<(Self, Self)> {
        let middle = self.start + usize::try_from(position).unwrap_or(usize::MAX);
        let (mut left, mut right) = (self.clone(), self);
        left.end = middle;
        left.position = left.start;
        right.start = middle;
        right.position = middle;
        Ok((left, right))
    }
}
