//! Aligned memory: the only thing that crosses to the device.
//!
//! Memory is zeroed when it comes from the system and recycled through a bounded pool, so it is
//! always initialised, but a recycled buffer holds old bytes: who writes a buffer to the disk
//! writes or zeroes all of it first. Large buffers lie on huge pages where the kernel has them,
//! which halves the block requests of a large write.
//!
//! Buffers that hold lumps count against a budget until they are dropped, wherever they are then.
//! Puts may use three quarters of it, so that bodies which arrive slowly never keep all gets
//! waiting, and gets as much as the pool was made with. A lump larger than that gets its buffer when no other is in use. The engine's own
//! buffers (journal, single blocks) are few and do not count.
//!
//! Of the memory for gets a [`Payer`] has a share, so one that does not take what it asked for leaves
//! some to others. Small gets have a reserve beside it.

#![expect(unsafe_code, reason = "aligned allocation, huge pages")]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::waker::Waker;

mod memory;

use memory::{MIN_ALIGNMENT, PageMemory, capacity_for};

/// Bytes a pool keeps at most.
const POOL_LIMIT: usize = 128 * 1024 * 1024;

/// When to ask for memory again, where nothing more is known.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Gets of at most so many bytes may have the reserve: a lump of 64 KiB and its trailer.
const SMALL: u64 = 128 << 10;
/// Part of the memory for gets that the reserve has beside it.
const RESERVE: u64 = 16;

/// Pays for memory that many share: a login, by one of its connections. No login gets more than
/// three quarters of the memory, and no connection more than half, unless with one request. The
/// default stands for nobody, and has no bounds of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payer {
    /// Any number, the same for all of the login's requests.
    pub login: u32,
    /// Any number of the connection; 0: it has no bound of its own.
    pub connection: u32,
}

impl Payer {
    /// The login as a whole.
    #[must_use]
    pub const fn whole(self) -> Self {
        Self {
            connection: 0,
            ..self
        }
    }

    /// The login, then the connection if it has a bound of its own; each with what it may hold of so
    /// many bytes.
    pub fn shares(self, of: u64) -> impl Iterator<Item = (Self, u64)> {
        let whole = (self.whole(), of - of / 4);
        let own = (self.connection != 0).then_some((self, of / 2));
        std::iter::once(whole).chain(own)
    }
}

/// Recycles buffers; holds at most 128 MiB of free and lent ones, and with more than that in use, no
/// more than were in use at a time.
#[derive(Debug)]
pub struct BufferPool {
    alignment: usize,
    /// Bytes that buffers of lumps may have.
    budget: u64,
    /// How many of them gets may have.
    gets_limit: u64,
    state: Mutex<PoolState>,
    /// Notified when a counted buffer comes back.
    released: Condvar,
    /// Called when a counted buffer comes back after a read found no room.
    reader: OnceLock<Waker>,
}

#[derive(Default)]
struct PoolState {
    free: BTreeMap<usize, Vec<PageMemory>>,
    free_bytes: usize,
    /// Bytes of all buffers in use, counted or not.
    out: usize,
    /// Bytes of the buffers that are lent.
    lent: usize,
    /// Bytes of buffers in use for puts.
    puts: u64,
    /// Bytes of gets, reservations included.
    gets: u64,
    /// Bytes of them by who pays: each login as a whole, and its connections.
    held_by: HashMap<Payer, u64>,
    /// Bytes of small gets out of the reserve.
    small: u64,
    /// Counted buffers that came back since the beginning.
    releases: u64,
    /// Callers in `wait_for_release`.
    sleepers: u32,
    /// True: a reservation was refused and no counted buffer has come back since.
    reader_waits: bool,
}

impl PoolState {
    fn used(&self) -> u64 {
        self.puts + self.gets
    }

    /// Free buffers that make room for a new one of `capacity` bytes, the largest first: above
    /// [`POOL_LIMIT`], sizes that nobody asks for do not add to those that are in use.
    fn make_room(&mut self, capacity: usize) -> Vec<PageMemory> {
        let enough = self.free_bytes.saturating_sub(capacity);
        let mut gone = Vec::new();
        while self.free_bytes > enough
            && self.out + self.free_bytes > POOL_LIMIT
            && let Some(mut size) = self.free.last_entry()
        {
            if let Some(memory) = size.get_mut().pop() {
                self.free_bytes -= memory.capacity();
                gone.push(memory);
            } else {
                size.remove();
            }
        }
        gone
    }

    fn held_by(&self, payer: Payer) -> u64 {
        self.held_by.get(&payer).copied().unwrap_or(0)
    }

    /// Counts bytes for a buffer.
    fn hold(&mut self, charge: Charge, bytes: u64) {
        match charge {
            Charge::Put => self.puts += bytes,
            Charge::Get(payer) => {
                self.gets += bytes;
                for (payer, _) in payer.shares(0) {
                    *self.held_by.entry(payer).or_default() += bytes;
                }
            }
            Charge::SmallGet => self.small += bytes,
            Charge::Lent => {}
        }
    }

    /// Counts them no more.
    fn give(&mut self, charge: Charge, bytes: u64) {
        match charge {
            Charge::Put => self.puts -= bytes,
            Charge::Get(payer) => {
                self.gets -= bytes;
                for (payer, _) in payer.shares(0) {
                    let held = self.held_by(payer) - bytes;
                    if held > 0 {
                        self.held_by.insert(payer, held);
                    } else {
                        self.held_by.remove(&payer);
                    }
                }
            }
            Charge::SmallGet => self.small -= bytes,
            Charge::Lent => {}
        }
    }
}

impl fmt::Debug for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, used) = (self.free_bytes, self.used());
        write!(f, "{free} free bytes, {used} bytes of lumps")
    }
}

/// Account that a buffer is charged to: a part of the budget, or the pool's own store of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charge {
    Put,
    Get(Payer),
    SmallGet,
    Lent,
}

/// Why there is no memory for a get now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// Others have it.
    Memory,
    /// The payer has its share.
    Share,
}

impl BufferPool {
    /// A pool of buffers aligned to `alignment` bytes, or to 4096 if that is more, without a
    /// budget.
    ///
    /// # Panics
    /// When `alignment` is not a power of two.
    #[must_use]
    pub fn new(alignment: usize) -> Arc<Self> {
        Self::with_budget(alignment, u64::MAX, u64::MAX)
    }

    /// A pool with `budget` bytes for lumps, of which gets may use `gets_limit`.
    ///
    /// # Panics
    /// When `alignment` is not a power of two.
    #[must_use]
    pub fn with_budget(alignment: usize, budget: u64, gets_limit: u64) -> Arc<Self> {
        assert!(
            alignment.is_power_of_two(),
            "an alignment is a power of two"
        );
        let alignment = alignment.max(MIN_ALIGNMENT);
        Arc::new(Self {
            alignment,
            budget,
            gets_limit,
            state: Mutex::default(),
            released: Condvar::new(),
            reader: OnceLock::new(),
        })
    }

    /// Alignment in memory of its buffers, in bytes.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Most bytes that buffers of lumps take together.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes that buffers of lumps take now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Bytes that buffers for gets take now, reservations included.
    #[must_use]
    pub fn used_by_gets(&self) -> u64 {
        let state = self.lock();
        state.gets + state.small
    }

    /// Bytes that a buffer of `len` bytes takes.
    #[must_use]
    pub fn capacity_of(&self, len: usize) -> u64 {
        capacity_for(len, self.alignment) as u64
    }

    /// A buffer of `len` bytes with arbitrary (initialised) content that does not count.
    #[must_use]
    pub fn get(self: &Arc<Self>, len: usize) -> AlignedBuf {
        let capacity = capacity_for(len, self.alignment);
        self.buffer(self.lock(), len, capacity, None)
    }

    /// A buffer of `len` bytes with arbitrary content for a put whose memory is counted elsewhere as
    /// its bytes come. It takes no more until then than the pool has anyway: either it is lent by the
    /// pool, which keeps less meanwhile, or it is new, and a large one is not in memory before it is
    /// written. The kernel clears each new page, which takes longer than to fill it from a cache.
    #[must_use]
    pub(crate) fn untouched(self: &Arc<Self>, len: usize) -> AlignedBuf {
        let capacity = capacity_for(len, self.alignment);
        let mut state = self.lock();
        let kept = state
            .free
            .get(&capacity)
            .is_some_and(|free| !free.is_empty());
        let charge = kept.then(|| {
            state.lent += capacity;
            Charge::Lent
        });
        self.buffer(state, len, capacity, charge)
    }

    /// A buffer with these bytes that does not count.
    #[must_use]
    pub(crate) fn copy_of(self: &Arc<Self>, bytes: &[u8]) -> AlignedBuf {
        let mut buf = self.get(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// A buffer of `len` zero bytes that does not count.
    #[must_use]
    pub fn zeroed(self: &Arc<Self>, len: usize) -> AlignedBuf {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    /// A buffer of `len` bytes for a put.
    ///
    /// # Errors
    /// [`Error::BuffersExhausted`].
    pub fn get_for_put(self: &Arc<Self>, len: usize) -> Result<AlignedBuf, Error> {
        let capacity = capacity_for(len, self.alignment);
        let (needed, budget) = (capacity as u64, self.budget);
        let mut state = self.lock();
        let used = state.used();
        let puts_limit = budget - budget / 4;
        let room = used.saturating_add(needed) <= budget && state.puts + needed <= puts_limit;
        if used > 0 && !room {
            return Err(Error::BuffersExhausted {
                needed,
                used,
                budget,
                retry_after: RETRY_AFTER,
            });
        }
        state.hold(Charge::Put, needed);
        Ok(self.buffer(state, len, capacity, Some(Charge::Put)))
    }

    /// True: a get of so many bytes may have the reserve.
    pub(crate) fn is_small(&self, len: u64) -> bool {
        self.capacity_of_get(len) <= SMALL
    }

    /// Sets memory aside for a read of at most `len` bytes, which `payer` pays for. When there is
    /// none, the [reader](Self::set_reader) is woken when some has come back.
    pub(crate) fn reserve(self: &Arc<Self>, payer: Payer, len: u64) -> Result<Reservation, Short> {
        let bytes = self.capacity_of_get(len);
        let mut state = self.lock();
        match self.short_of(&state, payer, bytes) {
            None => Ok(self.reserved(&mut state, Charge::Get(payer), bytes)),
            Some(short) => self.out_of_reserve(&mut state, bytes).ok_or(short),
        }
    }

    /// As [`Self::reserve`], out of the reserve alone: others have waited longer for the rest.
    pub(crate) fn reserve_small(self: &Arc<Self>, len: u64) -> Option<Reservation> {
        self.out_of_reserve(&mut self.lock(), self.capacity_of_get(len))
    }

    /// True: `payer` may hold so many bytes more, if there are any. Else the
    /// [reader](Self::set_reader) is woken when some have come back.
    pub(crate) fn has_share(&self, payer: Payer, len: u64) -> bool {
        let bytes = self.capacity_of_get(len);
        let mut state = self.lock();
        let has = self.short_of(&state, payer, bytes) != Some(Short::Share);
        state.reader_waits |= !has;
        has
    }

    fn capacity_of_get(&self, len: u64) -> u64 {
        // No lump is larger than memory can be.
        self.capacity_of(usize::try_from(len).unwrap_or(usize::MAX / 2))
    }

    fn short_of(&self, state: &PoolState, payer: Payer, bytes: u64) -> Option<Short> {
        let has_enough = payer.shares(self.gets_limit).any(|(payer, share)| {
            let held = state.held_by(payer);
            held > 0 && held.saturating_add(bytes) > share
        });
        if payer != Payer::default() && has_enough {
            return Some(Short::Share);
        }
        let used = state.used();
        let no_room = used > 0 && used.saturating_add(bytes) > self.budget;
        let too_much = state.gets > 0 && state.gets.saturating_add(bytes) > self.gets_limit;
        (no_room || too_much).then_some(Short::Memory)
    }

    fn out_of_reserve(self: &Arc<Self>, state: &mut PoolState, bytes: u64) -> Option<Reservation> {
        let reserve = self.gets_limit.min(self.budget) / RESERVE;
        if bytes <= SMALL && state.small + bytes <= reserve {
            return Some(self.reserved(state, Charge::SmallGet, bytes));
        }
        state.reader_waits = true;
        None
    }

    fn reserved(
        self: &Arc<Self>,
        state: &mut PoolState,
        charge: Charge,
        bytes: u64,
    ) -> Reservation {
        state.hold(charge, bytes);
        Reservation {
            pool: Arc::clone(self),
            charge,
            bytes,
        }
    }

    /// Waker for a read that may find memory again; only the first call counts.
    pub(crate) fn set_reader(&self, reader: Waker) {
        let _ = self.reader.set(reader);
    }

    /// Counted buffers that came back since the beginning: for [`Self::wait_for_release`].
    pub(crate) fn releases(&self) -> u64 {
        self.lock().releases
    }

    /// Waits until more counted buffers came back than `seen`.
    pub(crate) fn wait_for_release(&self, seen: u64) {
        let mut state = self.lock();
        state.sleepers += 1;
        while state.releases == seen {
            state = self
                .released
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.sleepers -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, PoolState>,
        len: usize,
        capacity: usize,
        charge: Option<Charge>,
    ) -> AlignedBuf {
        let recycled = state.free.get_mut(&capacity).and_then(Vec::pop);
        state.out += capacity;
        let gone = if recycled.is_some() {
            state.free_bytes -= capacity;
            Vec::new()
        } else {
            state.make_room(capacity)
        };
        // Memory that comes new, or goes, may take long.
        drop(state);
        drop(gone);
        let memory = recycled.unwrap_or_else(|| PageMemory::allocate(capacity, self.alignment));
        AlignedBuf {
            memory: Some(memory),
            len,
            charge,
            pool: Arc::clone(self),
        }
    }

    fn give_back(&self, memory: PageMemory, charge: Option<Charge>) {
        let capacity = memory.capacity();
        let mut state = self.lock();
        state.out -= capacity;
        if charge == Some(Charge::Lent) {
            state.lent -= capacity;
        }
        if state.free_bytes + state.lent + capacity <= POOL_LIMIT {
            state.free_bytes += capacity;
            state.free.entry(capacity).or_default().push(memory);
        }
        if let Some(charge) = charge {
            self.release(state, charge, capacity as u64);
        }
    }

    fn release(&self, mut state: MutexGuard<'_, PoolState>, charge: Charge, bytes: u64) {
        state.give(charge, bytes);
        if charge == Charge::Lent {
            return;
        }
        state.releases += 1;
        if state.sleepers > 0 {
            self.released.notify_all();
        }
        let reader_waits = std::mem::take(&mut state.reader_waits);
        drop(state);
        if reader_waits && let Some(reader) = self.reader.get() {
            reader.wake();
        }
    }
}

/// Memory set aside for a read.
#[derive(Debug)]
pub(crate) struct Reservation {
    pool: Arc<BufferPool>,
    charge: Charge,
    bytes: u64,
}

impl Reservation {
    /// A buffer of `len` bytes, at most what was reserved; what is left over is given back.
    pub(crate) fn into_buf(mut self, len: usize) -> AlignedBuf {
        let pool = Arc::clone(&self.pool);
        let capacity = capacity_for(len, pool.alignment);
        let mut state = pool.lock();
        debug_assert!(capacity as u64 <= self.bytes, "more than was reserved");
        state.give(self.charge, self.bytes);
        state.hold(self.charge, capacity as u64);
        self.bytes = 0;
        pool.buffer(state, len, capacity, Some(self.charge))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.release(self.pool.lock(), self.charge, self.bytes);
        }
    }
}

/// Bytes aligned for direct I/O. Goes back to its pool when dropped.
pub struct AlignedBuf {
    /// Present until drop.
    memory: Option<PageMemory>,
    len: usize,
    /// Part of the budget it takes.
    charge: Option<Charge>,
    pool: Arc<BufferPool>,
}

impl AlignedBuf {
    /// No bytes, and no memory.
    pub(crate) fn nothing(pool: &Arc<BufferPool>) -> Self {
        Self {
            memory: None,
            len: 0,
            charge: None,
            pool: Arc::clone(pool),
        }
    }

    /// Divides it into two of `len` bytes each; its memory goes back when both are dropped.
    ///
    /// # Panics
    /// When half of its own length is no multiple of the alignment, or less than `len`.
    pub(crate) fn halves(self, len: usize) -> [Self; 2] {
        let pool = Arc::clone(&self.pool);
        PageMemory::halves(self, len).map(|memory| Self {
            memory: Some(memory),
            len,
            charge: None,
            pool: Arc::clone(&pool),
        })
    }

    /// Uses the first `len` bytes of its memory, which must have so many.
    pub(crate) fn set_len(&mut self, len: usize) {
        let capacity = self.memory.as_ref().map_or(0, PageMemory::capacity);
        assert!(len <= capacity, "{len} of {capacity} bytes");
        self.len = len;
    }

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
        if let Some(memory) = self.memory.take().filter(|memory| !memory.is_part()) {
            self.pool.give_back(memory, self.charge);
        }
    }
}

#[cfg(test)]
mod tests;
