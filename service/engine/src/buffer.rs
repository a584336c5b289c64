//! Aligned memory: the only thing that crosses to the device.
//!
//! Memory is zeroed when it comes from the system and recycled through a bounded pool, so it is
//! always initialised, but a recycled buffer holds old bytes: who writes a buffer to the disk
//! writes or zeroes all of it first. Large buffers lie on huge pages where the kernel has them,
//! which halves the block requests of a large write.

#![expect(unsafe_code, reason = "aligned allocation, huge pages")]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Buffers at least this large are mapped on their own, on huge pages where possible.
const MAP_FROM: usize = 1024 * 1024;
/// Size and alignment of a huge page.
const HUGE_PAGE: usize = 2 * 1024 * 1024;
/// Smallest alignment and smallest allocation.
const MIN_ALIGNMENT: usize = 4096;
/// Bytes a pool keeps at most.
const POOL_LIMIT: usize = 128 * 1024 * 1024;

/// Memory of whole pages, owned.
struct Memory {
    start: NonNull<u8>,
    /// How it was allocated; its size is the capacity.
    layout: Layout,
    mapped: bool,
}

// SAFETY: the memory is owned exclusively and plain bytes.
unsafe impl Send for Memory {}
// SAFETY: shared access to it only reads.
unsafe impl Sync for Memory {}

impl Memory {
    fn capacity(&self) -> usize {
        self.layout.size()
    }

    fn allocate(capacity: usize, alignment: usize) -> Self {
        let layout = Layout::from_size_align(capacity, alignment)
            .expect("capacity and alignment are checked by capacity_for and BufferPool::new");
        if capacity >= MAP_FROM
            && alignment <= HUGE_PAGE
            && let Some(start) = map_huge(capacity)
        {
            return Self {
                start,
                layout,
                mapped: true,
            };
        }
        // SAFETY: the layout is not of size zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            std::alloc::handle_alloc_error(layout)
        };
        Self {
            start,
            layout,
            mapped: false,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: exactly this range was mapped by `map_huge` and nothing points to it.
            let unmapped =
                unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.capacity()) };
            debug_assert!(
                unmapped.is_ok(),
                "munmap of an owned mapping fails only if misused"
            );
        } else {
            // SAFETY: allocated in `allocate` with this layout.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// Maps `capacity` zeroed bytes aligned to a huge page; `None`: the system has no room.
fn map_huge(capacity: usize) -> Option<NonNull<u8>> {
    let mapped = capacity.checked_add(HUGE_PAGE)?;
    // SAFETY: a new private anonymous mapping at an address the kernel chooses.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            mapped,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .ok()?
    .cast::<u8>();
    let lead = base.align_offset(HUGE_PAGE);
    let start = base.wrapping_add(lead);
    let end = start.wrapping_add(capacity);
    // Failures to trim or advise cost memory or speed, nothing else.
    if lead > 0 {
        // SAFETY: the part before the aligned start belongs to the mapping just made.
        let _ = unsafe { rustix::mm::munmap(base.cast(), lead) };
    }
    if HUGE_PAGE > lead {
        // SAFETY: the part after the wanted end belongs to the mapping just made.
        let _ = unsafe { rustix::mm::munmap(end.cast(), HUGE_PAGE - lead) };
    }
    // SAFETY: the range was just mapped and is owned.
    let _ = unsafe { rustix::mm::madvise(start.cast(), capacity, Advice::LinuxHugepage) };
    NonNull::new(start)
}

/// Capacity that a buffer of `len` bytes gets; coarse, so that buffers are reused.
fn capacity_for(len: usize, alignment: usize) -> usize {
    let step = if len >= MAP_FROM {
        HUGE_PAGE
    } else if len > 64 * 1024 {
        64 * 1024
    } else {
        MIN_ALIGNMENT
    };
    len.max(1).next_multiple_of(step.max(alignment))
}

/// Recycles buffers; holds at most 128 MiB of free ones.
#[derive(Debug)]
pub struct BufferPool {
    alignment: usize,
    free: Mutex<FreeList>,
}

#[derive(Default)]
struct FreeList {
    by_capacity: BTreeMap<usize, Vec<Memory>>,
    bytes: usize,
}

impl fmt::Debug for FreeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free bytes", self.bytes)
    }
}

impl BufferPool {
    /// A pool of buffers aligned to `alignment` bytes, or to 4096 if that is more.
    ///
    /// # Panics
    /// When `alignment` is not a power of two.
    #[must_use]
    pub fn new(alignment: usize) -> Arc<Self> {
        assert!(
            alignment.is_power_of_two(),
            "an alignment is a power of two"
        );
        let alignment = alignment.max(MIN_ALIGNMENT);
        Arc::new(Self {
            alignment,
            free: Mutex::default(),
        })
    }

    /// Alignment in memory of its buffers, in bytes.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// A buffer of `len` bytes with arbitrary (initialised) content.
    #[must_use]
    pub fn get(self: &Arc<Self>, len: usize) -> AlignedBuf {
        let capacity = capacity_for(len, self.alignment);
        let recycled = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let found = free.by_capacity.get_mut(&capacity).and_then(Vec::pop);
            if found.is_some() {
                free.bytes -= capacity;
            }
            found
        };
        let memory = recycled.unwrap_or_else(|| Memory::allocate(capacity, self.alignment));
        AlignedBuf {
            memory: Some(memory),
            len,
            pool: Arc::clone(self),
        }
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(self: &Arc<Self>, len: usize) -> AlignedBuf {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    fn give_back(&self, memory: Memory) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + memory.capacity() <= POOL_LIMIT {
            free.bytes += memory.capacity();
            free.by_capacity
                .entry(memory.capacity())
                .or_default()
                .push(memory);
        }
    }
}

/// Bytes aligned for direct I/O. Goes back to its pool when dropped.
pub struct AlignedBuf {
    /// Present until drop.
    memory: Option<Memory>,
    len: usize,
    pool: Arc<BufferPool>,
}

impl AlignedBuf {
    fn start(&self) -> *mut u8 {
        self.memory
            .as_ref()
            .map_or(NonNull::dangling().as_ptr(), |memory| memory.start.as_ptr())
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from the start are allocated and initialised (see the module head).
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the memory is owned exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_recycled() {
        let pool = BufferPool::new(512);
        for len in [1, 512, 4097, 70_000, 1 << 20, 3 << 20] {
            let mut buf = pool.zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().align_offset(4096), 0);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(7);
            let at = buf.as_ptr();
            drop(buf);
            let again = pool.zeroed(len);
            assert_eq!(again.as_ptr(), at);
            assert!(again.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn the_pool_is_bounded() {
        let pool = BufferPool::new(4096);
        let many: Vec<_> = (0..100).map(|_| pool.get(2 << 20)).collect();
        drop(many);
        assert_eq!(pool.free.lock().unwrap().bytes, POOL_LIMIT);
    }
}
