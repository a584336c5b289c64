//! Up to [`MAX_ROWS`] neighbouring lumps in one buffer.
//!
//! The leading bits that all its ids have in common are kept once. A row is the rest of the id,
//! from the row's first bit on, and the packed entry, up to its last bit. All rows of a leaf have
//! the same number of bytes, at least 16, so that a single load reaches either part.

use std::cmp::Ordering;

use super::packing::Packing;

/// Rows of a full leaf: few enough that an insert moves little memory, many enough that what a
/// leaf costs beside its rows does not matter.
pub(super) const MAX_ROWS: usize = 384;
/// Rows by which a buffer grows. Smaller steps leave holes in the heap instead of in the buffers.
const STEP: usize = MAX_ROWS / 48;
/// Rows by which the guess of a row's place is off, mostly, when ids are random.
const NEAR: usize = 8;
/// Bytes of one load.
const LOAD: usize = 16;
/// No row is longer: 128 bits of id, at most 120 of entry.
const MAX_WIDTH: usize = 31;

/// An id and a packed entry.
pub(super) type Row = (u128, u128);

/// Rows in ascending order of id, all different.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The common bits; zeros below.
    prefix: u128,
    bytes: Vec<u8>,
    rows: u16,
    width: u8,
    /// Bits of an id that a row holds.
    suffix_bits: u8,
}

fn low_bits(bits: u32) -> u128 {
    1_u128
        .checked_shl(bits)
        .map_or(u128::MAX, |above| above - 1)
}

/// `value` moved so that its lowest `bits` bits come first.
fn to_front(value: u128, bits: u32) -> u128 {
    value.checked_shl(128 - bits).unwrap_or(0)
}

impl Leaf {
    /// A leaf of at least one and at most [`MAX_ROWS`] rows.
    pub(super) fn build(rows: &[Row], packing: Packing) -> Self {
        let first = rows.first().map_or(0, |row| row.0);
        let last = rows.last().map_or(0, |row| row.0);
        let suffix_bits = 128 - (first ^ last).leading_zeros();
        let width = suffix_bits
            .saturating_add(packing.entry_bits())
            .div_ceil(8)
            .max(u32::try_from(LOAD).unwrap_or(0));
        let mut leaf = Self {
            prefix: first & !low_bits(suffix_bits),
            bytes: Vec::new(),
            rows: 0,
            width: u8::try_from(width).unwrap_or(u8::MAX),
            suffix_bits: u8::try_from(suffix_bits).unwrap_or(u8::MAX),
        };
        leaf.bytes
            .reserve_exact(rows.len().next_multiple_of(STEP).min(MAX_ROWS) * leaf.width());
        for &(id, entry) in rows {
            let (row, width) = leaf.row(id, entry);
            leaf.bytes.extend_from_slice(&row[..width]);
        }
        leaf.rows = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        leaf
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.rows)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_ROWS
    }

    /// Bytes of its buffer, unused ones included.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn width(&self) -> usize {
        usize::from(self.width)
    }

    fn suffix_bits(&self) -> u32 {
        u32::from(self.suffix_bits)
    }

    /// An encoded row and its length.
    fn row(&self, id: u128, entry: u128) -> ([u8; MAX_WIDTH], usize) {
        let width = self.width();
        let mut row = [0; MAX_WIDTH];
        row[width - LOAD..width].copy_from_slice(&entry.to_be_bytes());
        let suffix = to_front(id, self.suffix_bits()).to_be_bytes();
        for (to, from) in row.iter_mut().zip(suffix) {
            *to |= from;
        }
        (row, width)
    }

    fn load(&self, at: usize) -> u128 {
        self.bytes
            .get(at..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(0, |bytes| u128::from_be_bytes(*bytes))
    }

    fn suffix(&self, at: usize) -> u128 {
        self.load(at * self.width())
            .checked_shr(128 - self.suffix_bits())
            .unwrap_or(0)
    }

    pub(super) fn id(&self, at: usize) -> u128 {
        self.prefix | self.suffix(at)
    }

    /// The packed entry of a row.
    pub(super) fn entry(&self, at: usize, packing: Packing) -> u128 {
        self.load((at + 1) * self.width() - LOAD) & low_bits(packing.entry_bits())
    }

    /// Where the first id is that is not less than `id`, and whether it is `id`.
    pub(super) fn find(&self, id: u128) -> Result<usize, usize> {
        let suffix_mask = low_bits(self.suffix_bits());
        let prefix = id & !suffix_mask;
        if prefix != self.prefix {
            return Err(if prefix < self.prefix { 0 } else { self.len() });
        }
        let wanted = id & suffix_mask;
        let (mut low, mut high) = self.window(wanted);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.suffix(middle).cmp(&wanted) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Rows between which a suffix belongs: few when the ids are evenly spread, which saves the
    /// cache misses of searching in the middle; otherwise up to all.
    fn window(&self, wanted: u128) -> (usize, usize) {
        let len = self.len();
        let (first, last) = (self.suffix(0), self.suffix(len - 1));
        if wanted <= first {
            return (0, 1);
        }
        if wanted >= last {
            return (len - 1, len);
        }
        let shift = (last - first).leading_zeros();
        let scaled = |value: u128| u64::try_from(value << shift >> 96).unwrap_or(0);
        // The divisor has its highest bit of 32 set.
        let guess = scaled(wanted - first) * (len as u64 - 1) / scaled(last - first);
        let guess = usize::try_from(guess).unwrap_or(0);
        let (low, high) = (guess.saturating_sub(NEAR), (guess + NEAR).min(len - 1));
        if self.suffix(low) > wanted {
            (0, low)
        } else if self.suffix(high) < wanted {
            (high + 1, len)
        } else {
            (low, high + 1)
        }
    }

    pub(super) fn set_entry(&mut self, at: usize, entry: u128) {
        let (row, width) = self.row(self.id(at), entry);
        self.bytes[at * width..(at + 1) * width].copy_from_slice(&row[..width]);
    }

    /// True: `id` has the common bits.
    pub(super) fn takes(&self, id: u128) -> bool {
        id & !low_bits(self.suffix_bits()) == self.prefix
    }

    /// Adds a row at `at`, its place in the order. The leaf must take its id and not be full.
    pub(super) fn insert(&mut self, at: usize, id: u128, entry: u128) {
        let (row, width) = self.row(id, entry);
        if self.bytes.len() + width > self.bytes.capacity() {
            let steps = (self.len() + 1).next_multiple_of(STEP).min(MAX_ROWS);
            self.bytes.reserve_exact(steps * width - self.bytes.len());
        }
        let (from, old_len) = (at * width, self.bytes.len());
        self.bytes.extend_from_slice(&row[..width]);
        if from < old_len {
            self.bytes.copy_within(from..old_len, from + width);
            self.bytes[from..from + width].copy_from_slice(&row[..width]);
        }
        self.rows += 1;
    }

    /// Removes the rows `from..to`.
    pub(super) fn remove(&mut self, from: usize, to: usize) {
        let width = self.width();
        self.bytes.drain(from * width..to * width);
        self.rows -= u16::try_from(to - from).unwrap_or(0);
        let wanted = self.len().next_multiple_of(STEP) * width;
        // One step of slack, so that changes to and fro do not move the buffer each time.
        if self.bytes.capacity() > wanted + STEP * width {
            self.bytes.shrink_to(wanted);
        }
    }

    /// Appends all rows to `rows`.
    pub(super) fn copy_to(&self, rows: &mut Vec<Row>, packing: Packing) {
        rows.extend((0..self.len()).map(|at| (self.id(at), self.entry(at, packing))));
    }
}
