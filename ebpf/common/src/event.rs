//! One block request, from start to completion.

use core::mem::{offset_of, size_of};

/// [`BlockEvent::seek`] when there is none: a flush, a discard, an empty request, or the first
/// request of a disk.
pub const NO_SEEK: i64 = i64::MIN;

/// One completed block request. 112 bytes, aligned to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct BlockEvent {
    /// When the request was made; 0: its start was not seen.
    pub queue_ns: u64,
    /// When the driver was first given it; 0: never (see [`crate::flag::FLUSH_PARENT`]).
    pub issue_ns: u64,
    /// When it completed; with [`crate::flag2::DONE_UNKNOWN`] when that was found out.
    pub done_ns: u64,
    /// First sector on the whole disk; 0 for a flush.
    pub sector: u64,
    /// Its first sector minus the sector after the data request issued before on this disk, in its
    /// access range if the disk has several; [`NO_SEEK`]: none.
    pub seek: i64,
    /// With [`crate::flag2::SUBMITTED`]: token of the I/O in whose name the thread was in the
    /// kernel; else of no meaning.
    pub token: u64,
    /// Cgroup of the thread that started it, in the hierarchy of version 2: the inode of its
    /// directory; 0: unknown.
    pub cgroup: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Bytes completed.
    pub bytes_done: u32,
    /// Whole disk, see [`crate::kernel_dev`].
    pub dev: u32,
    /// Process that started it, in the service's pid namespace if it is in it; 0: unknown.
    pub tgid: u32,
    /// Thread that started it; 0: unknown.
    pub tid: u32,
    /// 0: success. Otherwise see [`crate::flag::RAW_STATUS`].
    pub error: i32,
    /// The kernel's `cmd_flags` when the driver was given it; with the classic flavour FUA and
    /// metadata only.
    pub request_flags: u32,
    /// With [`crate::flag2::SUBMITTED`]: index of the store of that I/O; else of no meaning.
    pub store: u32,
    /// Hardware queue of the disk that it was sent to, counted from 1; 0: unknown, as with the classic
    /// flavour.
    pub hardware_queue: u32,
    /// See [`crate::op`].
    pub op: u8,
    /// See [`crate::class`].
    pub class: u8,
    /// See [`crate::flag`].
    pub flags: u8,
    /// See [`crate::flag2`].
    pub flags2: u8,
    /// Name of the thread that started it, padded with zeroes.
    pub comm: [u8; 16],
}

const _: () = {
    assert!(size_of::<BlockEvent>() == BlockEvent::BYTES);
    assert!(offset_of!(BlockEvent, sectors) == 56);
    assert!(offset_of!(BlockEvent, request_flags) == 80);
    assert!(offset_of!(BlockEvent, op) == 92);
    assert!(offset_of!(BlockEvent, comm) == 96);
    assert!(BlockEvent::BYTES.is_multiple_of(8));
    // 112 = the sum of the fields: nothing is implicit.
    assert!(offset_of!(BlockEvent, comm) + 16 == BlockEvent::BYTES);
};

impl BlockEvent {
    /// Size in the ring.
    pub const BYTES: usize = 112;

    /// Reads an event from the ring; `None`: wrong size.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<BlockEvent> {
        let bytes: &[u8; BlockEvent::BYTES] = bytes.try_into().ok()?;
        let mut at = Fields { bytes, next: 0 };
        Some(BlockEvent {
            queue_ns: u64::from_ne_bytes(at.take()),
            issue_ns: u64::from_ne_bytes(at.take()),
            done_ns: u64::from_ne_bytes(at.take()),
            sector: u64::from_ne_bytes(at.take()),
            seek: i64::from_ne_bytes(at.take()),
            token: u64::from_ne_bytes(at.take()),
            cgroup: u64::from_ne_bytes(at.take()),
            sectors: u32::from_ne_bytes(at.take()),
            bytes_done: u32::from_ne_bytes(at.take()),
            dev: u32::from_ne_bytes(at.take()),
            tgid: u32::from_ne_bytes(at.take()),
            tid: u32::from_ne_bytes(at.take()),
            error: i32::from_ne_bytes(at.take()),
            request_flags: u32::from_ne_bytes(at.take()),
            store: u32::from_ne_bytes(at.take()),
            hardware_queue: u32::from_ne_bytes(at.take()),
            op: at.take::<1>()[0],
            class: at.take::<1>()[0],
            flags: at.take::<1>()[0],
            flags2: at.take::<1>()[0],
            comm: at.take(),
        })
    }
}

/// Takes the fields of a record in order; their sizes add up to the record's.
pub(crate) struct Fields<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) next: usize,
}

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.next..self.next + N]);
        self.next += N;
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_fields_in_the_order_of_the_layout() {
        let mut raw = [0_u8; BlockEvent::BYTES];
        raw[0..8].copy_from_slice(&1_u64.to_ne_bytes());
        raw[16..24].copy_from_slice(&3_u64.to_ne_bytes());
        raw[32..40].copy_from_slice(&NO_SEEK.to_ne_bytes());
        raw[offset_of!(BlockEvent, dev)..][..4].copy_from_slice(&7_u32.to_ne_bytes());
        raw[offset_of!(BlockEvent, error)..][..4].copy_from_slice(&(-5_i32).to_ne_bytes());
        raw[offset_of!(BlockEvent, flags)] = 9;
        raw[offset_of!(BlockEvent, comm)] = b'x';
        let event = BlockEvent::decode(&raw).expect("the right size");
        assert_eq!((event.queue_ns, event.done_ns, event.seek), (1, 3, NO_SEEK));
        assert_eq!(
            (event.dev, event.error, event.flags, event.comm[0]),
            (7, -5, 9, b'x')
        );
    }

    #[test]
    fn refuses_another_size() {
        assert_eq!(BlockEvent::decode(&[0; BlockEvent::BYTES - 1]), None);
        assert_eq!(BlockEvent::decode(&[0; BlockEvent::BYTES + 1]), None);
    }
}
