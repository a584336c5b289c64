//! Geometry of the histogram signed seek distance x device time.
//!
//! One block of cells a disk; in it operation, class, seek bucket and time bucket, the last
//! running fastest. The kernel side computes the index, user space the edges: both from here.

use crate::{class, op};

/// Seek buckets: 0 = no seek; 1 = distance 0 is at [`SEEK_ZERO`]; backwards below, forwards above.
pub const SEEK_BUCKETS: u32 = 2 + 2 * SEEK_MAGNITUDES;
/// Bucket of distance 0: the request began where the one before ended.
pub const SEEK_ZERO: u32 = 1 + SEEK_MAGNITUDES;
/// Bucket of requests that have no seek distance.
pub const SEEK_NONE: u32 = 0;
/// Magnitude m (1..=40) holds |distance| from 2^(m-1) to below 2^m sectors; 40 has no end.
const SEEK_MAGNITUDES: u32 = 40;

/// Time buckets: 0 = below 1024 ns; k = from 2^(9+k) to below 2^(10+k) ns; the last has no end.
pub const TIME_BUCKETS: u32 = 28;
const TIME_SHIFT: u32 = 9;

/// Cells of one disk.
pub const CELLS_PER_DEVICE: u32 = op::COUNT * class::COUNT * SEEK_BUCKETS * TIME_BUCKETS;

/// Bucket of a signed seek distance in sectors; [`crate::NO_SEEK`] has a bucket of its own.
#[inline(always)]
#[must_use]
pub const fn seek_bucket(seek: i64) -> u32 {
    if seek == crate::NO_SEEK {
        return SEEK_NONE;
    }
    let magnitude = bits(seek.unsigned_abs());
    let magnitude = if magnitude > SEEK_MAGNITUDES {
        SEEK_MAGNITUDES
    } else {
        magnitude
    };
    if seek < 0 {
        SEEK_ZERO - magnitude
    } else {
        SEEK_ZERO + magnitude
    }
}

/// Bucket of a device time in nanoseconds.
#[inline(always)]
#[must_use]
pub const fn time_bucket(ns: u64) -> u32 {
    let bits = bits(ns);
    if bits <= TIME_SHIFT + 1 {
        0
    } else if bits - TIME_SHIFT > TIME_BUCKETS {
        TIME_BUCKETS - 1
    } else {
        bits - TIME_SHIFT - 1
    }
}

/// Index of a cell, among all devices' cells. Out-of-range operations and classes count as other.
#[inline(always)]
#[must_use]
pub const fn cell(device: u32, op: u8, class: u8, seek: i64, device_ns: u64) -> u32 {
    let op = if op < op::OTHER { op } else { op::OTHER } as u32;
    let class = if class < class::OTHER {
        class
    } else {
        class::OTHER
    } as u32;
    let row = (op * class::COUNT + class) * SEEK_BUCKETS + seek_bucket(seek);
    device * CELLS_PER_DEVICE + row * TIME_BUCKETS + time_bucket(device_ns)
}

/// Edges of a seek bucket in sectors, from (inclusive) and to (exclusive); `None`: no seek, or
/// no such bucket. The outermost buckets reach to the ends of `i64`.
#[must_use]
pub const fn seek_edges(bucket: u32) -> Option<(i64, i64)> {
    if bucket == SEEK_NONE || bucket >= SEEK_BUCKETS {
        return None;
    }
    if bucket == SEEK_ZERO {
        return Some((0, 1));
    }
    let magnitude = bucket.abs_diff(SEEK_ZERO);
    let low = 1_i64 << (magnitude - 1);
    let high = if magnitude == SEEK_MAGNITUDES {
        i64::MAX
    } else {
        1_i64 << magnitude
    };
    Some(if bucket > SEEK_ZERO {
        (low, high)
    } else {
        (1 - high, 1 - low)
    })
}

/// Edges of a time bucket in nanoseconds, from (inclusive) and to (exclusive); `None`: no such
/// bucket. The last reaches to the end of `u64`.
#[must_use]
pub const fn time_edges(bucket: u32) -> Option<(u64, u64)> {
    if bucket >= TIME_BUCKETS {
        return None;
    }
    let low = if bucket == 0 {
        0
    } else {
        1_u64 << (TIME_SHIFT + bucket)
    };
    let high = if bucket == TIME_BUCKETS - 1 {
        u64::MAX
    } else {
        1_u64 << (TIME_SHIFT + 1 + bucket)
    };
    Some((low, high))
}

/// Bits needed to write a number: 0 for 0, 1 for 1, 2 for 2 and 3, ...
#[inline(always)]
const fn bits(n: u64) -> u32 {
    u64::BITS - n.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seek_edge_is_in_its_own_bucket_and_its_end_in_the_next() {
        for bucket in 1..SEEK_BUCKETS {
            let (from, to) = seek_edges(bucket).expect("a bucket with edges");
            assert_eq!(seek_bucket(from), bucket, "from {from}");
            assert_eq!(seek_bucket(to - 1), bucket, "last before {to}");
            if bucket + 1 < SEEK_BUCKETS {
                assert_eq!(seek_bucket(to), bucket + 1, "to {to}");
            }
        }
        assert_eq!(seek_edges(SEEK_BUCKETS), None);
        assert_eq!(seek_edges(SEEK_NONE), None);
        assert_eq!(seek_bucket(crate::NO_SEEK), SEEK_NONE);
        assert_eq!(seek_bucket(i64::MIN + 1), 1);
        assert_eq!(seek_bucket(i64::MAX), SEEK_BUCKETS - 1);
    }

    #[test]
    fn every_time_edge_is_in_its_own_bucket_and_its_end_in_the_next() {
        for bucket in 0..TIME_BUCKETS {
            let (from, to) = time_edges(bucket).expect("a bucket");
            assert_eq!(time_bucket(from), bucket, "from {from}");
            assert_eq!(time_bucket(to - 1), bucket, "last before {to}");
            if bucket + 1 < TIME_BUCKETS {
                assert_eq!(time_bucket(to), bucket + 1, "to {to}");
            }
        }
        assert_eq!(time_edges(TIME_BUCKETS), None);
        assert_eq!(time_bucket(u64::MAX), TIME_BUCKETS - 1);
    }

    #[test]
    fn cells_of_a_device_fill_its_block_and_no_other() {
        assert_eq!(cell(0, 0, 0, crate::NO_SEEK, 0), 0);
        assert_eq!(
            cell(0, u8::MAX, u8::MAX, i64::MAX, u64::MAX),
            CELLS_PER_DEVICE - 1
        );
        assert_eq!(cell(1, 0, 0, crate::NO_SEEK, 0), CELLS_PER_DEVICE);
    }
}
