//! Faults of a simulated disk.

use std::ops::Range;

use crate::declaration::IoOp;

/// One way in which I/Os fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of I/O that is hit.
    pub op: IoOp,
    /// Only I/Os that begin within these bytes; a flush begins at byte 0.
    pub within: Range<u64>,
    /// I/Os of this kind and place that go well before the first one is hit.
    pub skip: u64,
    /// I/Os that are hit, one after the other.
    pub times: u64,
    /// Kind of fault.
    pub kind: FaultKind,
}

impl Fault {
    /// Every I/O of this kind, from the next on, anywhere.
    #[must_use]
    pub const fn always(op: IoOp, kind: FaultKind) -> Self {
        Self {
            op,
            within: 0..u64::MAX,
            skip: 0,
            times: u64::MAX,
            kind,
        }
    }

    /// Counts one I/O; true: it is hit.
    pub(super) fn hits(&mut self, op: IoOp, offset: u64) -> bool {
        if op != self.op || !self.within.contains(&offset) || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}

/// Effect of a [`Fault`] on an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It fails with this errno. Of a write any sectors may be on the disk all the same. Of the
    /// writes that a failed flush should have covered, any may be dropped at once.
    Errno(i32),
    /// The first system call moves only this many bytes; what follows is what the real backends
    /// do then. Reads and writes only.
    Short(u64),
    /// A write is reported as done and durable, and nothing is written, ever.
    Lost,
    /// A write is reported as done and durable, and the unit at this offset is never written.
    LostUnit(u64),
    /// A write is reported as done, and its bytes lie at this offset instead, or at the unit before
    /// it that lets them end with the device.
    Misdirected(u64),
}

/// A promise that the simulated device breaks. A check that does not notice one of these proves
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// None: the device keeps the contract of [`IoBackend`](crate::device::IoBackend).
    #[default]
    None,
    /// Flushes do nothing.
    IgnoresFlushes,
    /// It says that it writes through, and has a cache.
    HidesCache,
    /// Forced writes stay in the cache.
    ForcesNothing,
    /// A flush forgets the oldest write that it should cover.
    FlushForgetsOne,
    /// A single unit can be torn: half of it old, half of it new.
    TearsUnits,
    /// A read returns the bytes of the unit after the one that was asked for, now and then.
    ReadsElsewhere,
    /// A write is never reported as ended, now and then.
    Forgets,
}
