//! Sums and small histograms by operation and class: a row of words each. The cells of
//! [`crate::histogram`] end at powers of two; the sums here are exact.

use crate::{class, histogram, op};

/// Rows of one disk: one for each operation and class, then one for each of [`FLAGS`].
pub const ROWS_PER_DEVICE: u32 = FIRST_FLAGGED + FLAG_COUNT;
const FIRST_FLAGGED: u32 = op::COUNT * class::COUNT;
const FLAG_COUNT: u32 = 3;

/// Flags with rows of their own: the kernel's bit in `cmd_flags`, and a name. Of a request with such
/// a flag the row counts only the time at the device, in [`QUEUE_NS`] and [`QUEUE`].
pub const FLAGS: [(u32, &str); FLAG_COUNT as usize] =
    [(1 << 17, "fua"), (1 << 12, "meta"), (1 << 19, "ahead")];

/// Nanoseconds between the making and the issue of the requests that are in [`QUEUE`].
pub const QUEUE_NS: usize = 0;
/// Sum of |seek distance| in sectors.
pub const TRAVEL: usize = 1;
/// Sum of the lengths in sectors.
pub const SECTORS: usize = 2;
/// Requests by their time in the queue, of which both ends were seen: [`histogram::time_bucket`].
pub const QUEUE: usize = 3;
/// Requests by their length: bucket 0 has none, k has from 2^(k-1) to below 2^k sectors.
pub const SIZE: usize = QUEUE + 32;
/// Nanoseconds at the device by [`histogram::seek_bucket`].
pub const DEVICE_NS: usize = SIZE + 32;
/// Words of a row. Indexes are masked for the verifier, so its last part has room for 128.
pub const WORDS: usize = DEVICE_NS + 128;

/// Size buckets: the last has no end.
pub const SIZE_BUCKETS: u32 = 32;

const _: () = assert!(histogram::TIME_BUCKETS <= 32 && histogram::SEEK_BUCKETS <= 128);

/// Index of a row, among all devices' rows. Out-of-range operations and classes count as other.
#[inline(always)]
#[must_use]
pub const fn row(device: u32, op: u8, class: u8) -> u32 {
    let op = if op < op::OTHER { op } else { op::OTHER } as u32;
    let class = if class < class::OTHER {
        class
    } else {
        class::OTHER
    } as u32;
    device * ROWS_PER_DEVICE + op * class::COUNT + class
}

/// Index of the row of a flag, by its place in [`FLAGS`], among all devices' rows.
#[inline(always)]
#[must_use]
pub const fn flagged(device: u32, flag: u32) -> u32 {
    device * ROWS_PER_DEVICE + FIRST_FLAGGED + flag
}

/// Bucket of a length in sectors.
#[inline(always)]
#[must_use]
pub const fn size_bucket(sectors: u32) -> u32 {
    let bits = u32::BITS - sectors.leading_zeros();
    if bits < SIZE_BUCKETS {
        bits
    } else {
        SIZE_BUCKETS - 1
    }
}

/// Edges of a size bucket in sectors, from (inclusive) and to (exclusive).
#[must_use]
pub const fn size_edges(bucket: u32) -> (u64, u64) {
    match bucket {
        0 => (0, 1),
        _ if bucket >= SIZE_BUCKETS - 1 => (1 << (SIZE_BUCKETS - 2), u64::MAX),
        _ => (1 << (bucket - 1), 1 << bucket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_edge_is_in_its_own_bucket_and_its_end_in_the_next() {
        for bucket in 0..SIZE_BUCKETS - 1 {
            let (from, to) = size_edges(bucket);
            let of = |sectors: u64| size_bucket(u32::try_from(sectors).expect("small"));
            assert_eq!((of(from), of(to - 1)), (bucket, bucket));
            assert_eq!(of(to), bucket + 1);
        }
        assert_eq!(size_bucket(u32::MAX), SIZE_BUCKETS - 1);
    }

    #[test]
    fn rows_of_a_device_fill_its_block_and_no_other() {
        assert_eq!(row(0, 0, 0), 0);
        assert_eq!(row(0, u8::MAX, u8::MAX), flagged(0, 0) - 1);
        assert_eq!(flagged(1, 2), 2 * ROWS_PER_DEVICE - 1);
        assert_eq!(row(1, 0, 0), ROWS_PER_DEVICE);
    }
}
