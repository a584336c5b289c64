//! A file that is written and never flushed.

use std::io::{self, Read, Seek, SeekFrom, Write};

use cannyls::block::BlockSize;
use cannyls::nvm::{FileNvm, NonVolatileMemory};

/// Hides `sync`: what it would make durable is written, which survives the death of the process.
#[derive(Debug)]
pub(crate) struct UnsyncedNvm(pub(crate) FileNvm);

impl Read for UnsyncedNvm {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for UnsyncedNvm {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for UnsyncedNvm {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl NonVolatileMemory for UnsyncedNvm {
    fn sync(&mut self) -> cannyls::Result<()> {
        Ok(())
    }

    fn position(&self) -> u64 {
        self.0.position()
    }

    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn block_size(&self) -> BlockSize {
        self.0.block_size()
    }

    fn split(self, position: u64) -> cannyls::Result<(Self, Self)> {
        let (left, right) = self.0.split(position)?;
        Ok((UnsyncedNvm(left), UnsyncedNvm(right)))
    }
}
