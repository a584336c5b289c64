//! Array maps shared with the kernel side: no system call, and no privilege, a word.

#![expect(unsafe_code, reason = "maps kernel memory")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A view of an array map, as words of 8 bytes.
#[derive(Debug)]
pub(crate) struct SharedMap {
    words: NonNull<AtomicU64>,
    len: usize,
}

/// Access of user space to an array map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

// SAFETY: every access is atomic, and the mapping is not tied to a thread.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps `len` words of the map behind `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, access: Access) -> io::Result<SharedMap> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at a place the kernel chooses; it overlaps nothing of ours.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes(len),
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(SharedMap { words, len })
    }

    /// A word; `None` beyond the end. Write only to what was mapped for writing.
    pub(crate) fn word(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.len {
            return None;
        }
        // SAFETY: index < len words were mapped.
        let word = unsafe { self.words.add(index) };
        // SAFETY: mapped for as long as self lives, page-aligned, accessed only atomically.
        Some(unsafe { word.as_ref() })
    }

    /// Value of a word; 0 beyond the end.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Changes a word of a map that was mapped for writing.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference outlives self.
        unsafe { libc::munmap(self.words.as_ptr().cast(), bytes(self.len)) };
    }
}

fn bytes(len: usize) -> usize {
    len * size_of::<u64>()
}
