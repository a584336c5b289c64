//! One block request between start and completion, as the kernel side remembers it.

use core::mem::size_of;

use crate::event::Fields;

/// A request in flight, or an entry for the next: see [`InFlight::is_free`]. 112 bytes, aligned to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct InFlight {
    /// When it was made; 0: its start was not seen.
    pub queue_ns: u64,
    /// When the driver was first given it; 0: not yet.
    pub issue_ns: u64,
    /// See [`crate::BlockEvent::sector`].
    pub sector: u64,
    /// See [`crate::BlockEvent::seek`].
    pub seek: i64,
    /// See [`crate::BlockEvent::token`].
    pub token: u64,
    /// See [`crate::BlockEvent::cgroup`].
    pub cgroup: u64,
    /// Of a request whose start was not seen: the kernel's own time of its making, which tells it
    /// from the next in the same memory; 0: not known. Classic flavour: records without a byte that
    /// named its first sector.
    pub born: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Bytes completed so far.
    pub bytes_done: u32,
    /// Slot of its disk.
    pub slot: u8,
    /// Classic flavour: 1 when several requests have shared it, whose lengths may differ.
    pub shared: u8,
    /// See [`crate::BlockEvent::hardware_queue`].
    pub hardware_queue: u16,
    /// See [`crate::BlockEvent::dev`].
    pub dev: u32,
    /// See [`crate::BlockEvent::tgid`].
    pub tgid: u32,
    /// See [`crate::BlockEvent::tid`].
    pub tid: u32,
    /// See [`crate::BlockEvent::request_flags`].
    pub request_flags: u32,
    /// See [`crate::BlockEvent::store`].
    pub store: u32,
    /// Classic flavour: requests under this key in units of [`InFlight::SENT`] and
    /// [`InFlight::WAITING`]. Changed by additions alone, so that none is lost between processors.
    pub sharing: u32,
    /// See [`crate::op`].
    pub op: u8,
    /// See [`crate::class`].
    pub class: u8,
    /// See [`crate::flag`].
    pub flags: u8,
    /// See [`crate::flag2`].
    pub flags2: u8,
    /// See [`crate::BlockEvent::comm`].
    pub comm: [u8; 16],
}

const _: () = {
    // The sum of the fields: nothing is implicit.
    assert!(size_of::<InFlight>() == 7 * 8 + 9 * 4 + 4 + 16);
    assert!(crate::MAX_DEVICES <= 1 << 8);
    assert!(size_of::<InFlight>() == InFlight::WORDS * 8);
};

impl InFlight {
    /// Its size in the map, in words of 8 bytes.
    pub const WORDS: usize = 14;
    /// A request that was sent to the disk and has not completed as far as was seen.
    pub const SENT: u32 = 1 << 16;
    /// A request that was made, and not sent yet or merged into another.
    pub const WAITING: u32 = 1;
    /// The last has completed: who comes now must not share it.
    pub const LEAVING: u32 = 1 << 30;

    /// Reads an entry of the map.
    #[must_use]
    pub fn decode(words: &[u64; InFlight::WORDS]) -> InFlight {
        let mut bytes = [0; InFlight::WORDS * 8];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let mut at = Fields {
            bytes: &bytes,
            next: 0,
        };
        InFlight {
            queue_ns: u64::from_ne_bytes(at.take()),
            issue_ns: u64::from_ne_bytes(at.take()),
            sector: u64::from_ne_bytes(at.take()),
            seek: i64::from_ne_bytes(at.take()),
            token: u64::from_ne_bytes(at.take()),
            cgroup: u64::from_ne_bytes(at.take()),
            born: u64::from_ne_bytes(at.take()),
            sectors: u32::from_ne_bytes(at.take()),
            bytes_done: u32::from_ne_bytes(at.take()),
            slot: at.take::<1>()[0],
            shared: at.take::<1>()[0],
            hardware_queue: u16::from_ne_bytes(at.take()),
            dev: u32::from_ne_bytes(at.take()),
            tgid: u32::from_ne_bytes(at.take()),
            tid: u32::from_ne_bytes(at.take()),
            request_flags: u32::from_ne_bytes(at.take()),
            store: u32::from_ne_bytes(at.take()),
            sharing: u32::from_ne_bytes(at.take()),
            op: at.take::<1>()[0],
            class: at.take::<1>()[0],
            flags: at.take::<1>()[0],
            flags2: at.take::<1>()[0],
            comm: at.take(),
        }
    }

    /// True when a request of which no completion was seen has completed all the same, once it is
    /// certain that it is no longer in flight: it was sent to the disk, or it asked for a flush.
    /// All others were merged into another request, and have no completion of their own.
    #[inline(always)]
    #[must_use]
    pub const fn completes(&self) -> bool {
        use crate::flag::{FLUSH_PARENT, FUA, PREFLUSH};
        self.issue_ns != 0 || self.flags & (FLUSH_PARENT | FUA | PREFLUSH) != 0
    }

    /// Requests under its key that were sent.
    #[inline(always)]
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sharing % Self::LEAVING / Self::SENT
    }

    /// Requests under its key that were not sent, or merged into another.
    #[inline(always)]
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.sharing % Self::SENT
    }

    /// True: no request is in flight, the entry waits for the next in the same memory.
    #[inline(always)]
    #[must_use]
    pub const fn is_free(&self) -> bool {
        self.flags2 & crate::flag2::FREE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag;

    #[test]
    fn decodes_fields_in_the_order_of_the_layout() {
        let mut words = [0; InFlight::WORDS];
        words[1] = 7;
        words[5] = 11;
        words[6] = 9;
        words[7] = u64::from_ne_bytes([1, 0, 0, 0, 2, 0, 0, 0]);
        words[13] = u64::from_ne_bytes(*b"rest\0\0\0\0");
        let entry = InFlight::decode(&words);
        assert_eq!((entry.issue_ns, entry.cgroup, entry.born), (7, 11, 9));
        assert_eq!((entry.sectors, entry.bytes_done), (1, 2));
        assert_eq!(&entry.comm[8..12], b"rest");
    }

    #[test]
    fn requests_that_share_an_entry_are_counted_apart() {
        let entry = InFlight {
            sharing: 3 * InFlight::SENT + 2 * InFlight::WAITING,
            ..InFlight::default()
        };
        assert_eq!((entry.sent(), entry.waiting()), (3, 2));
        let sent = entry.sharing + InFlight::SENT - InFlight::WAITING;
        let entry = InFlight {
            sharing: sent,
            ..entry
        };
        assert_eq!((entry.sent(), entry.waiting()), (4, 1));
    }

    #[test]
    fn what_was_never_sent_was_merged_unless_it_asked_for_a_flush() {
        let never = InFlight::default();
        assert!(!never.completes());
        let sent = InFlight {
            issue_ns: 1,
            ..never
        };
        let parent = InFlight {
            flags: flag::FLUSH_PARENT,
            ..never
        };
        assert!(sent.completes() && parent.completes());
    }
}
