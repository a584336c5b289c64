//! The maps, and the counters in them.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use lumpscope_ebpf_common::{
    InFlight, Last, MAX_DEVICES, MAX_IN_FLIGHT, RING_BYTES, SUBMISSIONS as SUBMISSION_ENTRIES,
    control, histogram, row, stats,
};

/// `BPF_F_MMAPABLE`: user space reads the cells without a system call.
const MMAPABLE: u32 = 1 << 10;

/// Names one request in flight: its address (raw flavours), or what the records tell (classic).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Key {
    pub id: u64,
    pub sector: u64,
}

/// Watched disks: kernel device number -> slot, and the number by which events name the disk: another's
/// for the paths to it. A request of any other disk costs one lookup.
#[map]
pub static DEVICES: HashMap<u32, [u32; 2]> = HashMap::with_max_entries(4 * MAX_DEVICES, 0);
/// Watched disks that make no requests: what they are given as bios is watched instead.
#[map]
pub static BIO_DEVICES: HashMap<u32, [u32; 2]> = HashMap::with_max_entries(MAX_DEVICES, 0);
#[map]
pub static IN_FLIGHT: HashMap<Key, InFlight> = HashMap::with_max_entries(MAX_IN_FLIGHT, 0);
#[map]
pub static LAST: Array<Last> = Array::with_max_entries(MAX_DEVICES, 0);
#[map]
pub static HISTOGRAM: Array<u64> = Array::with_max_entries(histogram::CELLS_PER_DEVICE, MMAPABLE);
/// Sums and small histograms by operation and class: see `row`.
#[map]
pub static ROWS: Array<[u64; row::WORDS]> = Array::with_max_entries(row::ROWS_PER_DEVICE, MMAPABLE);
#[map]
pub static STATS: PerCpuArray<[u64; stats::COUNT]> = PerCpuArray::with_max_entries(MAX_DEVICES, 0);
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// What user space changes while the probes run: see `control`.
#[map]
pub static CONTROL: Array<[u64; control::WORDS]> = Array::with_max_entries(1, MMAPABLE);
/// Which thread is in the kernel for which I/O: see `submission`.
#[map]
pub static SUBMISSIONS: Array<[u64; 2]> = Array::with_max_entries(SUBMISSION_ENTRIES, MMAPABLE);

/// Adds to a counter. Atomic although it is per CPU: an interrupt may come in between.
#[inline(always)]
pub unsafe fn count(slot: u32, counter: usize, n: u64) {
    if let Some(counters) = counters(slot) {
        add(counters.add(counter), n);
    }
}

/// The counters of a disk on this CPU, for those who add to several; `None`: no such slot.
#[inline(always)]
pub unsafe fn counters(slot: u32) -> Option<*mut u64> {
    Some(STATS.get_ptr_mut(slot)?.cast::<u64>())
}

/// What is remembered under a key, if a request is in flight there.
#[inline(always)]
pub unsafe fn in_flight(key: &Key) -> Option<*mut InFlight> {
    IN_FLIGHT
        .get_ptr_mut(*key)
        .filter(|entry| !(**entry).is_free())
}

/// Adds without a result: the one atomic operation that every kernel with BPF has.
#[inline(always)]
pub unsafe fn add(at: *mut u64, n: u64) {
    atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(at, n);
}

/// The same for what requests of one key share.
#[inline(always)]
pub unsafe fn add_sharing(entry: &mut InFlight, n: u32) {
    let at: *mut u32 = &mut entry.sharing;
    atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(at, n);
}

/// From now on the requests of this path are watched in the name of the disk that it leads to.
#[inline(always)]
pub unsafe fn add_path(disk: u32, path: u32) {
    if DEVICES.get(path).is_none()
        && let Some(known) = DEVICES.get(disk).copied()
    {
        let _ = DEVICES.insert(path, known, 0);
    }
}

/// What a disk is watched by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Requests,
    Bios,
}

/// Slot and number of a disk that is watched by this.
#[inline(always)]
pub unsafe fn watched(dev: u32, layer: Layer) -> Option<[u32; 2]> {
    match layer {
        Layer::Requests => DEVICES.get(dev).copied(),
        Layer::Bios => BIO_DEVICES.get(dev).copied(),
    }
}
