//! Checksums of a payload, whole and in chunks (FORMAT.md section 7.1).
//!
//! A large payload has a CRC32C for each of its chunks, so that a part of it can be verified
//! without reading the rest. The CRC32C of the whole is combined from these.

use crate::crc32c;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes of the smallest chunk. A payload that is not longer has no table of chunks.
pub const MIN_CHUNK_LEN: u64 = 64 * 1024;
/// Chunks of a payload, at most: with 4 bytes each the table and all after it fit the smallest
/// block.
pub const MAX_CHUNKS: u64 = 112;
/// Bytes of a checksum.
pub(super) const CRC_LEN: usize = 4;

/// How a payload is divided into chunks: all of the same length, except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    payload_len: u64,
    chunk_len: u64,
}

impl Chunks {
    /// The chunks of a payload of `payload_len` bytes: the smallest power of two from
    /// [`MIN_CHUNK_LEN`] on that makes at most [`MAX_CHUNKS`] of it.
    #[must_use]
    pub fn of(payload_len: u64) -> Self {
        let least = payload_len.div_ceil(MAX_CHUNKS).max(MIN_CHUNK_LEN);
        // Only lengths beyond any portion have no next power of two.
        let chunk_len = least.checked_next_power_of_two().unwrap_or(least);
        Self {
            payload_len,
            chunk_len,
        }
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_len(self) -> u64 {
        self.payload_len
    }

    /// Bytes of every chunk but the last.
    #[must_use]
    pub fn chunk_len(self) -> u64 {
        self.chunk_len
    }

    /// Number of chunks that have a checksum of their own; 0: the payload has only one checksum.
    #[must_use]
    pub fn count(self) -> u64 {
        if self.payload_len <= MIN_CHUNK_LEN {
            0
        } else {
            self.payload_len.div_ceil(self.chunk_len)
        }
    }

    /// Bytes of the table of their checksums.
    #[must_use]
    pub fn table_len(self) -> usize {
        usize::try_from(self.count().min(MAX_CHUNKS)).map_or(0, |count| count * CRC_LEN)
    }

    /// The bytes of the payload that must be read to verify `range`: whole chunks, or the whole
    /// payload when it has no table. A range beyond the end is clipped.
    #[must_use]
    pub fn cover(self, range: Range<u64>) -> Range<u64> {
        if self.count() == 0 {
            return 0..self.payload_len;
        }
        let end = range.end.min(self.payload_len);
        let start = range.start.min(end);
        let whole_end = end.next_multiple_of(self.chunk_len).min(self.payload_len);
        start - start % self.chunk_len..whole_end
    }
}

/// Effect of the bytes of one chunk on the checksum of the bytes before, apart from adding their
/// own: a linear function of its 32 bits, so the images of the single bits define it.
#[derive(Clone, Copy, Debug)]
struct Shift([u32; 32]);

impl Shift {
    /// For chunks of `chunk_len` bytes. Kept: finding it out costs more than summing up a chunk.
    fn over(chunk_len: u64) -> &'static Self {
        static KNOWN: [OnceLock<Shift>; 64] = [const { OnceLock::new() }; 64];
        // Chunk lengths are powers of two, except those of payloads that are longer than memory.
        let known = &KNOWN[chunk_len.ilog2() as usize];
        known.get_or_init(|| {
            let image = |bit: usize| crc32c::combine(1 << bit, 0, chunk_len);
            Self(std::array::from_fn(image))
        })
    }

    fn apply(&self, crc: u32) -> u32 {
        let of_bit = |(bit, image): (usize, &u32)| (crc >> bit & 1).wrapping_neg() & image;
        let images = self.0.iter().enumerate().map(of_bit);
        images.fold(0, |sum, image| sum ^ image)
    }
}

/// The checksums of a payload of known length while it comes in.
#[derive(Clone, Debug)]
pub struct PayloadSums {
    chunks: Chunks,
    /// Of the chunks that are complete.
    table: Vec<u32>,
    /// Of all complete chunks together; of all bytes once the last chunk comes in, if it is short.
    whole: u32,
    /// Of the chunk that is coming in, and its bytes so far.
    current: u32,
    in_chunk: u64,
}

impl PayloadSums {
    /// The sums of no bytes yet of a payload of `payload_len`.
    #[must_use]
    pub fn new(payload_len: u64) -> Self {
        Self {
            chunks: Chunks::of(payload_len),
            table: Vec::new(),
            whole: 0,
            current: 0,
            in_chunk: 0,
        }
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = self.chunks.chunk_len - self.in_chunk;
            let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (now, later) = bytes.split_at(take);
            self.current = crc32c::append(self.current, now);
            if self.is_short() {
                self.whole = crc32c::append(self.whole, now);
            }
            self.in_chunk += now.len() as u64;
            bytes = later;
            if self.in_chunk == self.chunks.chunk_len {
                self.end_chunk();
            }
        }
    }

    /// True: the chunk that is coming in is the last one, and shorter than the others.
    fn is_short(&self) -> bool {
        let before = self.table.len() as u64 * self.chunks.chunk_len;
        self.chunks.payload_len < before + self.chunks.chunk_len
    }

    fn end_chunk(&mut self) {
        if self.is_short() {
            // Its bytes went into the whole as they came.
        } else if self.in_chunk == self.chunks.chunk_len {
            let shift = Shift::over(self.chunks.chunk_len);
            self.whole = shift.apply(self.whole) ^ self.current;
        } else {
            // Only a part of the payload came in, and its end is not where a chunk ends.
            self.whole = crc32c::combine(self.whole, self.current, self.in_chunk);
        }
        self.table.push(self.current);
        (self.current, self.in_chunk) = (0, 0);
    }

    /// The CRC32C of all bytes, and those of the chunks; none when the payload has no table.
    #[must_use]
    pub fn finish(mut self) -> (u32, Vec<u32>) {
        if self.in_chunk > 0 {
            self.end_chunk();
        }
        if self.chunks.count() == 0 {
            self.table.clear();
        }
        (self.whole, self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_small_as_the_table_allows() {
        let kib = 1024;
        for (len, chunk_kib, count) in [
            (0, 64, 0),
            (64 * kib, 64, 0),
            (64 * kib + 1, 64, 2),
            (7 * 1024 * kib, 64, 112),
            (7 * 1024 * kib + 1, 128, 57),
            (256 * 1024 * kib, 4096, 64),
        ] {
            let chunks = Chunks::of(len);
            assert_eq!(chunks.chunk_len() / kib, chunk_kib, "{len}");
            assert_eq!(chunks.count(), count, "{len}");
        }
        let _ = Chunks::of(u64::MAX).table_len();
    }

    #[test]
    fn a_range_is_covered_by_whole_chunks() {
        let chunks = Chunks::of(200_000);
        assert_eq!(chunks.cover(0..1), 0..65_536);
        assert_eq!(chunks.cover(65_535..65_537), 0..131_072);
        assert_eq!(chunks.cover(196_607..999_999), 131_072..200_000);
        assert_eq!(chunks.cover(199_999..200_000), 196_608..200_000);
        assert_eq!(Chunks::of(1000).cover(5..6), 0..1000);
    }

    #[test]
    fn the_whole_is_combined_from_the_chunks() {
        let bytes: Vec<u8> = (0..300_001_u32)
            .map(|at| at.to_be_bytes()[3] ^ at.to_be_bytes()[2])
            .collect();
        for len in [0, 1, 65_536, 65_537, 131_072, 300_001] {
            let payload = &bytes[..len];
            let mut sums = PayloadSums::new(len as u64);
            for part in payload.chunks(1 + len / 7) {
                sums.update(part);
            }
            let (whole, table) = sums.finish();
            assert_eq!(whole, crc32c::of(payload));
            let expected: Vec<u32> = payload.chunks(65_536).map(crc32c::of).collect();
            let expected = if len > 65_536 { expected } else { Vec::new() };
            assert_eq!(table, expected, "{len}");
        }
        // The last chunks of a payload that is longer.
        let mut sums = PayloadSums::new(600_000);
        sums.update(&bytes[131_072..]);
        assert_eq!(sums.finish().0, crc32c::of(&bytes[131_072..]));
    }
}
