//! Sparse bytes.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

/// Bytes of a page.
const PAGE: usize = 16 << 10;

/// Bytes by offset; what was never written is zeros and takes no memory.
#[derive(Debug)]
pub(super) struct Pages {
    map: HashMap<u64, Box<[u8]>>,
    most: usize,
}

impl Pages {
    /// Takes at most so many bytes of memory.
    pub(super) fn new(memory: u64) -> Pages {
        Pages {
            map: HashMap::new(),
            most: usize::try_from(memory / PAGE as u64).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        for (page, at, range) in pieces(offset, to.len()) {
            let to = &mut to[range];
            match self.map.get(&page) {
                Some(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
                None => to.fill(0),
            }
        }
    }

    /// # Errors
    /// ENOSPC: it would take more memory than there may be; what comes before has been written.
    pub(super) fn write(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        for (page, at, range) in pieces(offset, from.len()) {
            let from = &from[range];
            if !self.map.contains_key(&page) {
                if self.map.len() >= self.most {
                    return Err(Errno::NOSPC.into());
                }
                self.map.insert(page, vec![0; PAGE].into_boxed_slice());
            }
            if let Some(bytes) = self.map.get_mut(&page) {
                bytes[at..at + from.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }
}

/// Page number, first byte in it, and range of the buffer, for each page that is touched.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let byte = offset + done as u64;
        let at = usize::try_from(byte % PAGE as u64).unwrap_or(0);
        let end = len.min(done + PAGE - at);
        let range = done..end;
        done = end;
        Some((byte / PAGE as u64, at, range))
    })
}
