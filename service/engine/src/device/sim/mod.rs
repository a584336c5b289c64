//! A disk in memory that obeys the contract of [`IoBackend`](super::IoBackend) and nothing more,
//! in virtual time. For tests, simulators and measurements without a disk.
//!
//! A seed decides everything that the contract leaves open: I/Os in flight end in any order, a
//! power cut keeps, loses or tears writes that no flush has covered (sector by sector, in any
//! order), and a failed write may be there all the same. Faults of real disks beyond the contract
//! (bit rot, latent sector errors, lost and misdirected writes, errors and short transfers) are
//! injected. Memory is taken only for written bytes, and copies of a disk share their pages, so
//! that a simulator can cut the power after every single I/O and look at each of the resulting
//! disks.
//!
//! Two ways to drive it. A store with threads of its own ([`Store::open_on`]) lets virtual time
//! pass whenever it waits. A stepped store ([`Store::open_stepped`]) gets time from whoever steps
//! it, so that a whole history is a function of its seed:
//!
//! ```
//! use lumpscope_engine::device::sim::{Random, SimDisk, SimOptions, Survivors, blank_image};
//! use lumpscope_engine::units::BlockSize;
//! use lumpscope_engine::{Durability, LumpId, Placement, RequestCtx, Store, StoreOptions};
//!
//! # fn main() -> Result<(), lumpscope_engine::Error> {
//! let disk = SimDisk::new(&blank_image(BlockSize::MIN, 16, 64, [7; 16]), SimOptions::default());
//! let (store, mut driver) = Store::open_stepped(disk.device(), StoreOptions::new("sim"))?;
//! let (ctx, id) = (RequestCtx::default(), LumpId(1));
//! let mut lump = store.lump_buf(5)?;
//! lump.extend(b"hello")?;
//! let (told, done) = std::sync::mpsc::channel();
//! let on_done = Box::new(move |result, _| drop(told.send(result)));
//! store.submit_put(ctx, id, lump, Placement::Data, Durability::Synced, on_done)?;
//! while driver.step(disk.now_ns()) && done.try_recv().is_err() {
//!     disk.advance();
//! }
//! // The power fails, and nothing survives that was not flushed.
//! let disk = disk.power_cut(Survivors::None, &mut Random::new(1));
//! let store = Store::open_on(disk.device(), StoreOptions::new("sim"))?;
//! assert_eq!(&store.get(ctx, id)?[..], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! [`Store::open_on`]: crate::Store::open_on
//! [`Store::open_stepped`]: crate::Store::open_stepped

mod backend;
mod core;
mod fault;
mod image;
mod options;
mod pages;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub use crate::random::Random;
use crate::units::to_usize;
pub use fault::{Fault, FaultKind, Lie};
pub use image::blank_image;
pub use options::{Latency, SimOptions, Survivors};

use self::backend::SimBackend;
use self::core::SimCore;
use super::Device;

/// A simulated disk. Clones are handles to the same disk; [`power_cut`](SimDisk::power_cut) and
/// [`process_death`](SimDisk::process_death) make another one.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<SharedCore>,
}

/// The device, and the bell that wakes who waits for it.
struct SharedCore {
    core: Mutex<SimCore>,
    /// How often it has rung.
    rung: Mutex<u64>,
    bell: Condvar,
}

impl SharedCore {
    fn lock(&self) -> MutexGuard<'_, SimCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits for the device.
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.bell.notify_all();
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let core = self.core();
        f.debug_struct("SimDisk")
            .field("size", &core.size)
            .field("now_ns", &core.now_ns)
            .field("in_flight", &core.in_flight())
            .finish_non_exhaustive()
    }
}

impl SimDisk {
    /// A disk of the size and with the bytes of `image`, all of them durable.
    #[must_use]
    pub fn new(image: &[u8], options: SimOptions) -> Self {
        Self::with_size(image.len() as u64, image, options)
    }

    /// A disk of `size` bytes that begins with `image`; the rest is zeros and takes no memory.
    #[must_use]
    pub fn with_size(size: u64, image: &[u8], options: SimOptions) -> Self {
        Self::of(SimCore::new(size, image, options))
    }

    fn of(core: SimCore) -> Self {
        let shared = SharedCore {
            core: Mutex::new(core),
            rung: Mutex::new(0),
            bell: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn core(&self) -> MutexGuard<'_, SimCore> {
        self.shared.lock()
    }

    /// The disk as a store opens it, which is told of its own I/Os alone. One store at a time may use it.
    #[must_use]
    pub fn device(&self) -> Device {
        let backend = Box::new(SimBackend::new(Arc::clone(&self.shared)));
        let core = self.core();
        Device {
            path: PathBuf::from("sim"),
            size: core.size,
            is_block_device: core.options.is_block_device,
            alignment: core.options.unit,
            memory_alignment: 512,
            backend,
        }
    }

    /// Virtual time in nanoseconds since the disk was made.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core().now_ns
    }

    /// When the next I/O in flight ends, in virtual nanoseconds; `None`: none is in flight.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        self.core().next_due_ns(None)
    }

    /// Lets time pass until the next I/O in flight ends. False: none is in flight.
    pub fn advance(&self) -> bool {
        let due = self.next_due_ns();
        if let Some(due) = due {
            self.advance_to(due);
        }
        due.is_some()
    }

    /// Lets time pass until `now_ns`; it never goes back.
    pub fn advance_to(&self, now_ns: u64) {
        let mut core = self.core();
        core.now_ns = core.now_ns.max(now_ns);
    }

    /// I/Os that were submitted and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core().in_flight()
    }

    /// I/Os submitted since the disk was made.
    #[must_use]
    pub fn submitted(&self) -> u64 {
        self.core().submitted
    }

    /// Writes, or parts of them, that a power cut may undo now.
    #[must_use]
    pub fn uncertain_writes(&self) -> usize {
        self.core().uncertain()
    }

    /// Makes I/Os fail from now on, beside those of earlier faults.
    pub fn inject(&self, fault: Fault) {
        self.core().faults.push(fault);
    }

    /// Ends all injected faults; what they did remains.
    pub fn heal(&self) {
        self.core().faults.clear();
    }

    /// I/Os that an injected fault has hit.
    #[must_use]
    pub fn faults_hit(&self) -> u64 {
        self.core().faults_hit
    }

    /// The device is gone after `ios` more I/Os: all later ones fail and do nothing.
    pub fn die_after(&self, ios: u64) {
        let mut core = self.core();
        core.dies_after = core.submitted.saturating_add(ios);
    }

    /// From now on no I/O ends, or those in flight end as they are due.
    pub fn hang(&self, hangs: bool) {
        self.core().hangs = hangs;
        self.shared.ring();
    }

    /// Flips the bits of `mask` in one byte, wherever the disk has it.
    pub fn rot(&self, offset: u64, mask: u8) {
        self.core().alter(offset, |byte| *byte ^= mask);
    }

    /// Reads that touch these bytes fail with EIO until they are written again.
    pub fn make_unreadable(&self, bytes: Range<u64>) {
        self.core().unreadable.push(bytes);
    }

    /// Violations of the contract by the user of the device, in words: I/Os that are not whole
    /// units or end after the device, writes that overlap a write in flight.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.core().violations.clone()
    }

    /// The bytes that a read would see now.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        let len = range.end.saturating_sub(range.start);
        let mut bytes = vec![0; to_usize(len)];
        self.core().peek(range.start, &mut bytes);
        bytes
    }

    /// Bytes of the disk.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.core().size
    }

    /// Another disk: this one after the power was cut now and came back. Of the writes that no
    /// flush has covered, in flight or not, `survivors` are there. Injected faults end; sectors
    /// that cannot be read stay so.
    #[must_use]
    pub fn power_cut(&self, survivors: Survivors, random: &mut Random) -> Self {
        Self::of(self.core().power_cut(survivors, random))
    }

    /// Another disk: this one as the next process finds it when the present one dies now. Writes
    /// in flight are there in whole, in part or not; what no flush has covered is still at the
    /// mercy of a power cut.
    #[must_use]
    pub fn process_death(&self, random: &mut Random) -> Self {
        Self::of(self.core().process_death(random))
    }
}
