//! Options of a simulated disk.

use std::ops::Range;

use super::fault::Lie;
use crate::device::WriteCache;

/// Service times in virtual nanoseconds. Whether two I/Os in flight end in one order or the other
/// is decided by nothing else.
#[derive(Clone, Debug)]
pub struct Latency {
    /// Nanoseconds of a read, drawn from this range.
    pub read_ns: Range<u64>,
    /// Nanoseconds of a write, drawn from this range.
    pub write_ns: Range<u64>,
    /// Nanoseconds of a flush, drawn from this range.
    pub flush_ns: Range<u64>,
    /// True: I/Os are served one after the other, as they came. False: all at the same time.
    pub one_at_a_time: bool,
}

impl Latency {
    /// Any I/O in flight may end before any other: 1 ns to 1 ms, whatever it is.
    #[must_use]
    pub const fn any_order() -> Self {
        Self {
            read_ns: 1..1_000_000,
            write_ns: 1..1_000_000,
            flush_ns: 1..1_000_000,
            one_at_a_time: false,
        }
    }
}

/// Properties of a simulated disk.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Decides every random choice of the device.
    pub seed: u64,
    /// Bytes that are written whole or not at all, and the alignment of I/Os: 512 to 4096, a power
    /// of two.
    pub unit: u32,
    /// True: a block device, whose size is fixed. False: a file, which grows when it is written
    /// beyond its end.
    pub is_block_device: bool,
    /// With [`WriteCache::Through`] a write is durable when it has ended.
    pub cache: WriteCache,
    /// True: forced writes are offered, which are durable when they have ended.
    pub fua: bool,
    /// Service times of its I/Os.
    pub latency: Latency,
    /// The promise it breaks.
    pub lie: Lie,
}

impl Default for SimOptions {
    /// A block device with sectors of 512 bytes that keeps its promises and ends I/Os in any order.
    fn default() -> Self {
        Self {
            seed: 0,
            unit: 512,
            is_block_device: true,
            cache: WriteCache::Back,
            fua: false,
            latency: Latency::any_order(),
            lie: Lie::None,
        }
    }
}

/// Which sectors of the writes that no flush has covered are on the disk after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// None: only what was flushed.
    None,
    /// All, also those of writes that are in flight.
    All,
    /// Each sector by itself, this many of a thousand.
    Sectors(u64),
    /// Whole writes, this many of a thousand.
    Writes(u64),
    /// All but one sector.
    AllButOneSector,
    /// One sector only.
    OneSector,
}

impl Survivors {
    /// The choices that find most, as they are numbered in reports.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::All,
        Self::Sectors(500),
        Self::Writes(500),
        Self::AllButOneSector,
        Self::OneSector,
        Self::Sectors(250),
        Self::Sectors(750),
        Self::Writes(800),
    ];
}
