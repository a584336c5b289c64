//! Layout shared by the guard and its loader.

use core::mem::{offset_of, size_of};

/// Action on a foreign open for writing: a value of the map `GUARDED`.
pub mod policy {
    /// It is counted and allowed.
    pub const AUDIT: u32 = 1;
    /// It is counted and denied.
    pub const DENY: u32 = 2;
}

/// Most devices guarded at once, whole disks and partitions. Further ones are not guarded.
pub const MAX_GUARDED: u32 = 1024;
/// Bytes of the ring of foreign opens: a power of two and whole pages, about 1,300 of them.
pub const OPENS_RING_BYTES: u32 = 64 << 10;

/// Opens of a guarded device for writing by other processes: a value of the map `COUNTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct OpenCounts {
    /// Opens that were denied.
    pub denied: u64,
    /// Opens that were seen and allowed.
    pub allowed: u64,
}

/// One open of a guarded device for writing by another process. 40 bytes, aligned to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ForeignOpen {
    /// When: `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// Device that was opened, see [`crate::kernel_dev`].
    pub dev: u32,
    /// Process, in the service's pid namespace if it is in it, else in the outermost one.
    pub tgid: u32,
    /// User id, in the outermost user namespace.
    pub uid: u32,
    /// 1: it was denied; 0: it was allowed.
    pub denied: u32,
    /// Name of the thread, padded with zeroes.
    pub comm: [u8; 16],
}

const _: () = {
    assert!(size_of::<ForeignOpen>() == ForeignOpen::BYTES);
    assert!(offset_of!(ForeignOpen, dev) == 8);
    // 40 = the sum of the fields: nothing is implicit.
    assert!(offset_of!(ForeignOpen, comm) + 16 == ForeignOpen::BYTES);
};

impl ForeignOpen {
    /// Size in the ring.
    pub const BYTES: usize = 40;

    /// Reads one from the ring; `None`: wrong size.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<ForeignOpen> {
        let bytes: &[u8; ForeignOpen::BYTES] = bytes.try_into().ok()?;
        let (time, rest) = bytes.split_first_chunk()?;
        let (dev, rest) = rest.split_first_chunk()?;
        let (tgid, rest) = rest.split_first_chunk()?;
        let (uid, rest) = rest.split_first_chunk()?;
        let (denied, comm) = rest.split_first_chunk()?;
        Some(ForeignOpen {
            time_ns: u64::from_ne_bytes(*time),
            dev: u32::from_ne_bytes(*dev),
            tgid: u32::from_ne_bytes(*tgid),
            uid: u32::from_ne_bytes(*uid),
            denied: u32::from_ne_bytes(*denied),
            comm: comm.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_fields_in_the_order_of_the_layout() {
        let mut raw = [0_u8; ForeignOpen::BYTES];
        for (at, byte) in [(0, 1), (8, 2), (12, 3), (16, 4), (20, 5), (24, b'd')] {
            raw[at] = byte;
        }
        let open = ForeignOpen::decode(&raw).expect("the right size");
        let numbers = (open.time_ns, open.dev, open.tgid, open.uid, open.denied);
        assert_eq!(numbers, (1, 2, 3, 4, 5));
        assert_eq!(open.comm[..2], *b"d\0");
        assert_eq!(ForeignOpen::decode(&raw[1..]), None);
    }
}
