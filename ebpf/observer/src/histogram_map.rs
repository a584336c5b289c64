//! The kernel's histogram, read through a shared mapping: no system call a cell.

#![expect(unsafe_code, reason = "maps kernel memory")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A read-only view of an array map of counters.
#[derive(Debug)]
pub(crate) struct HistogramMap {
    cells: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the view only loads atomically, and the mapping is not tied to a thread.
unsafe impl Send for HistogramMap {}
// SAFETY: as above; concurrent loads of atomics are allowed.
unsafe impl Sync for HistogramMap {}

impl HistogramMap {
    /// Maps `len` counters of the map behind `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<HistogramMap> {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place the kernel chooses; it overlaps nothing of ours.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes(len),
                protection,
                flags,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let cells = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(HistogramMap { cells, len })
    }

    /// Value of a counter; 0 beyond the end.
    pub(crate) fn get(&self, index: usize) -> u64 {
        if index >= self.len {
            return 0;
        }
        // SAFETY: index < len counters were mapped.
        let cell = unsafe { self.cells.add(index) };
        // SAFETY: mapped for as long as self lives, page-aligned, written only atomically.
        let cell = unsafe { cell.as_ref() };
        cell.load(Ordering::Relaxed)
    }
}

impl Drop for HistogramMap {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference outlives self.
        unsafe { libc::munmap(self.cells.as_ptr().cast(), bytes(self.len)) };
    }
}

fn bytes(len: usize) -> usize {
    len * size_of::<u64>()
}
