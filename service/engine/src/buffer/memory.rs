//! Memory of a buffer: from the heap, or mapped on huge pages where it is large.

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::AlignedBuf;

/// Buffers at least this large are mapped on their own, on huge pages where possible. On ordinary
/// pages a block request is seldom larger than 128 of them: a read of more is divided, and io_uring
/// leaves it to a kernel worker, which costs time and hides who submitted it.
const MAP_FROM: usize = 512 * 1024 + 1;
/// Size and alignment of a huge page.
pub(super) const HUGE_PAGE: usize = 2 * 1024 * 1024;
/// The rest of a large buffer behind its whole huge pages lies on ordinary pages if it is no more
/// than this: a lump of 4 MiB and its trailer would else take 6 MiB.
pub(super) const MAX_TAIL: usize = 512 * 1024;
/// Ordinary pages come in so many bytes.
pub(super) const TAIL_STEP: usize = 64 * 1024;
/// Smallest alignment and smallest allocation.
pub(super) const MIN_ALIGNMENT: usize = 4096;

/// Memory of whole pages, owned.
pub(super) struct PageMemory {
    pub(super) start: NonNull<u8>,
    /// How it was allocated; its size is the capacity.
    layout: Layout,
    source: MemorySource,
}

/// Where memory comes from.
enum MemorySource {
    Heap,
    Mapped,
    /// A part of another buffer, which goes back when all of its parts have.
    Part {
        _of: Arc<AlignedBuf>,
    },
}

// SAFETY: the memory is owned exclusively and plain bytes.
unsafe impl Send for PageMemory {}
// SAFETY: shared access to it only reads.
unsafe impl Sync for PageMemory {}

impl PageMemory {
    pub(super) fn capacity(&self) -> usize {
        self.layout.size()
    }

    /// True: it goes back with the buffer that it is a part of, not by itself.
    pub(super) fn is_part(&self) -> bool {
        matches!(self.source, MemorySource::Part { .. })
    }

    /// The two halves of a buffer, each at least `half` bytes of which nobody else has any.
    pub(super) fn halves(whole: AlignedBuf, half: usize) -> [Self; 2] {
        let len = whole.len() / 2;
        let layout = whole.memory.as_ref().map(|memory| memory.layout);
        let align = layout.map_or(1, |layout| layout.align());
        assert!(
            half <= len && len.is_multiple_of(align),
            "{half} of {len} bytes"
        );
        let layout = Layout::from_size_align(len, align).expect("smaller than the whole");
        let whole = Arc::new(whole);
        [0, len].map(|at| Self {
            start: NonNull::new(whole.start().wrapping_add(at))
                .expect("both begin within the whole"),
            layout,
            source: MemorySource::Part {
                _of: Arc::clone(&whole),
            },
        })
    }

    pub(super) fn allocate(capacity: usize, alignment: usize) -> Self {
        let layout = Layout::from_size_align(capacity, alignment)
            .expect("capacity and alignment are checked by capacity_for and BufferPool::new");
        if capacity >= MAP_FROM
            && alignment <= HUGE_PAGE
            && let Some(start) = map_huge(capacity)
        {
            return Self {
                start,
                layout,
                source: MemorySource::Mapped,
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
            source: MemorySource::Heap,
        }
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        match self.source {
            MemorySource::Part { .. } => {}
            MemorySource::Mapped => {
                // SAFETY: exactly this range was mapped by `map_huge` and nothing points to it.
                let unmapped =
                    unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.capacity()) };
                debug_assert!(
                    unmapped.is_ok(),
                    "munmap of an owned mapping fails only if misused"
                );
            }
            // SAFETY: allocated in `allocate` with this layout.
            MemorySource::Heap => unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) },
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
    let on_huge_pages = capacity - capacity % HUGE_PAGE;
    // SAFETY: the range was just mapped and is owned.
    let _ = unsafe { rustix::mm::madvise(start.cast(), on_huge_pages, Advice::LinuxHugepage) };
    NonNull::new(start)
}

/// Capacity that a buffer of `len` bytes gets; coarse, so that buffers are reused.
pub(super) fn capacity_for(len: usize, alignment: usize) -> usize {
    let tail = len % HUGE_PAGE;
    let step = if len >= MAP_FROM && (len < HUGE_PAGE || tail > MAX_TAIL) {
        HUGE_PAGE
    } else if len > TAIL_STEP {
        TAIL_STEP
    } else {
        MIN_ALIGNMENT
    };
    len.max(1).next_multiple_of(step.max(alignment))
}
