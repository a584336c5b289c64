//! Data layout between the probes and user space, compiled both for the kernel side (`ebpf/probes`)
//! and for the observer.
//!
//! Everything is `repr(C)`, fixed in size and without implicit padding; the assertions below
//! keep it so. Sectors are always 512 bytes. Times are `CLOCK_MONOTONIC` in nanoseconds.
#![no_std]

pub mod event;
pub mod guard;
pub mod histogram;
pub mod in_flight;
pub mod last;
pub mod row;
pub mod stats;

pub use event::{BlockEvent, NO_SEEK};
pub use in_flight::InFlight;
pub use last::{Last, MAX_RANGES, Ranges};

/// Most disks watched at once.
pub const MAX_DEVICES: u32 = 64;

/// Most requests in flight on all watched disks that the kernel side can remember.
pub const MAX_IN_FLIGHT: u32 = 16_384;

/// Of the table of requests in flight, one in this many entries may stay when its request has
/// completed. The kernel uses the memory of few requests again and again, and finding a kept entry
/// costs less than half of a new entry and its removal.
pub const KEPT_ONE_IN: u32 = 4;

/// Entries of the table of submissions: which thread is in the kernel for which I/O. A thread's
/// entry is its thread id modulo this number.
pub const SUBMISSIONS: u32 = 4096;

/// Size of the event ring in bytes, unless the loader overrides it.
pub const RING_BYTES: u32 = 16 << 20;

/// Bytes in a sector, as the block layer counts.
pub const SECTOR_BYTES: u64 = 512;

/// A device number as the kernel keeps it inside: 12 bits major, 20 bits minor.
#[must_use]
pub const fn kernel_dev(major: u32, minor: u32) -> u32 {
    (major << 20) | (minor & 0xf_ffff)
}

/// Major and minor of a [`kernel_dev`].
#[must_use]
pub const fn split_dev(dev: u32) -> (u32, u32) {
    (dev >> 20, dev & 0xf_ffff)
}

/// Operation of a block request.
pub mod op {
    /// From the disk.
    pub const READ: u8 = 0;
    /// To the disk.
    pub const WRITE: u8 = 1;
    /// Flush of the disk's write cache.
    pub const FLUSH: u8 = 2;
    /// Discard or secure erase.
    pub const DISCARD: u8 = 3;
    /// Anything else, e.g. write zeroes.
    pub const OTHER: u8 = 4;
    /// Number of operations.
    pub const COUNT: u32 = 5;
    /// Names, by number.
    pub const NAMES: [&str; 5] = ["read", "write", "flush", "discard", "other"];
}

/// Owner class of a block request, judged by its flags and the task that started it.
pub mod class {
    /// The service's own process, without the metadata flag.
    pub const OWN: u8 = 0;
    /// A file system's journal or log.
    pub const FS_JOURNAL: u8 = 1;
    /// Other file-system metadata.
    pub const FS_METADATA: u8 = 2;
    /// Written back by a kernel worker.
    pub const WRITEBACK: u8 = 3;
    /// Another process.
    pub const OTHER: u8 = 4;
    /// Number of classes.
    pub const COUNT: u32 = 5;
    /// Names, by number. The kernel side does not know request ids: its `request` includes the
    /// service's own work.
    pub const NAMES: [&str; 5] = ["request", "fs-journal", "fs-metadata", "writeback", "other"];
}

/// Bits of [`BlockEvent::flags`].
pub mod flag {
    /// Sent to the disk more than once (the driver was busy).
    pub const REISSUED: u8 = 1;
    /// Asked for a flush and carried no data: never sent itself, the block layer sends a flush.
    pub const FLUSH_PARENT: u8 = 1 << 1;
    /// Forced unit access asked for.
    pub const FUA: u8 = 1 << 2;
    /// A flush before it asked for.
    pub const PREFLUSH: u8 = 1 << 3;
    /// File-system metadata.
    pub const META: u8 = 1 << 4;
    /// Started by the service's own process.
    pub const OWN: u8 = 1 << 5;
    /// Its start was not seen: the queue time and the process are unknown.
    pub const NO_START: u8 = 1 << 6;
    /// [`BlockEvent::error`](crate::BlockEvent::error) is a `blk_status_t`, not an errno.
    pub const RAW_STATUS: u8 = 1 << 7;
}

/// Bits of [`BlockEvent::flags2`].
pub mod flag2 {
    /// It has completed, but no program was shown the completion: its time is unknown.
    pub const DONE_UNKNOWN: u8 = 1;
    /// The thread that made it had announced its I/O: see [`crate::submission`].
    pub const SUBMITTED: u8 = 1 << 1;
    /// Only of [`crate::InFlight`]: the entry stays when its request has completed, for the next in
    /// the same memory. Such entries are counted: see [`crate::control::KEPT`].
    pub const KEPT: u8 = 1 << 2;
    /// Only of [`crate::InFlight`]: no request is in flight, the entry waits for one.
    pub const FREE: u8 = 1 << 3;
    /// The thread that made it is the kernel's own: not a process's.
    pub const KERNEL_THREAD: u8 = 1 << 4;
    /// It had grown when the driver was given it: others, perhaps of another process, were merged
    /// into it after it was made.
    pub const MERGED: u8 = 1 << 5;
    /// Only of [`crate::InFlight`]: its data has completed, the flushes that wrap it have not as far as
    /// was seen.
    pub const SEQUENCE: u8 = 1 << 6;
    /// The block layer wraps it in flushes, which the driver is not asked for; it completes twice.
    pub const WRAPPED: u8 = 1 << 7;
    /// What an event has none of.
    pub const OF_ENTRY: u8 = KEPT | FREE | SEQUENCE;
}

/// An entry of the table of submissions: two words, the token and before it this.
///
/// ```text
/// bits  0..32  thread id; 0: free
/// bits 32..62  index of the store plus 1; 0: the thread has not said it yet
/// bit  62      the token is valid
/// bit  63      the thread drives an io_uring: the token comes from the entry's user data
/// ```
pub mod submission {
    /// The token is valid.
    pub const VALID: u64 = 1 << 62;
    /// The thread drives an io_uring.
    pub const RING: u64 = 1 << 63;
    /// The thread id.
    pub const TID: u64 = 0xffff_ffff;
    /// Largest store index plus 1.
    pub const MAX_STORE: u64 = (1 << 30) - 1;

    /// The first word of a thread's entry; `None`: the store's index does not fit.
    #[must_use]
    pub const fn pack(tid: u32, store: usize, bits: u64) -> Option<u64> {
        let store = store as u64;
        if store >= MAX_STORE {
            return None;
        }
        Some(tid as u64 | (store + 1) << 32 | bits)
    }

    /// Index of the store in a first word whose token is valid; `None`: it is not, or the entry is
    /// another thread's.
    #[inline(always)]
    #[must_use]
    pub const fn store_of(word: u64, tid: u32) -> Option<u32> {
        let store = (word >> 32 & MAX_STORE) as u32;
        if word & TID != tid as u64 || word & VALID == 0 || store == 0 {
            return None;
        }
        Some(store - 1)
    }
}

/// Words of the one entry of the map `CONTROL`, which both sides change while the probes run.
pub mod control {
    /// Events: one in this many; 0: none by chance.
    pub const ONE_IN: usize = 0;
    /// Events: also those that took at least this many nanoseconds; 0: no such rule.
    pub const SLOWER_THAN_NS: usize = 1;
    /// Entries of the table of requests in flight that stay when their request has completed.
    pub const KEPT: usize = 2;
    /// Flushes that an io_uring of the service handed to a worker of the kernel.
    pub const PUNTED_FLUSHES: usize = 3;
    /// Other I/Os that it did.
    pub const PUNTED_DATA: usize = 4;
    /// Those of which this kernel does not say what they are.
    pub const PUNTED_UNKNOWN: usize = 5;
    /// Number of words.
    pub const WORDS: usize = 6;
}

#[cfg(test)]
mod tests {
    use super::submission::{MAX_STORE, RING, VALID, pack, store_of};

    #[test]
    fn a_submission_is_its_own_thread_s() {
        let word = pack(77, 0, VALID).expect("fits");
        assert_eq!(store_of(word, 77), Some(0));
        assert_eq!(store_of(word, 78), None);
        let word = pack(77, 5, VALID | RING).expect("fits");
        assert_eq!(store_of(word, 77), Some(5));
        assert_eq!(store_of(pack(77, 5, RING).expect("fits"), 77), None);
        assert_eq!(store_of(0, 0), None);
        assert_eq!(
            pack(1, usize::try_from(MAX_STORE).expect("64 bits"), 0),
            None
        );
    }
}
