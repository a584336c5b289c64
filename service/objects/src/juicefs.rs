//! Keys of JuiceFS blocks as lump ids, and back. Pure; the layout is the table in
//! `docs/objects.md`.
//!
//! JuiceFS names its blocks `PREFIX/chunks/A/B/SLICE_INDEX_SIZE` (`rSlice.key` in its
//! `pkg/chunk/cached_store.go`): all of it but the prefix follows from three numbers, and these
//! fit an id beside the time of the put.

use std::fmt;

use lumpscope_engine::{LumpId, LumpRange};

use crate::id::LumpKind;

/// Slices have numbers below this.
pub const MAX_SLICE: u64 = 1 << SLICE_BITS;
/// Blocks of a slice have indexes below this.
pub const MAX_INDEX: u16 = 1 << INDEX_BITS;
/// Most bytes of a block; the least is 1.
pub const MAX_BLOCK_BYTES: u32 = 1 << SIZE_BITS;

const MINUTE_BITS: u32 = 24;
const SIZE_BITS: u32 = 22;
const INDEX_BITS: u32 = 10;
const SLICE_BITS: u32 = 40;
const SIZE_SHIFT: u32 = MINUTE_BITS;
const INDEX_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
const SLICE_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const VOLUME_SHIFT: u32 = SLICE_SHIFT + SLICE_BITS;
/// The first minute: the begin of 2020, in minutes since 1970.
const FIRST_MINUTE: u64 = 26_297_280;
const HASH_SHIFT: u32 = SLICE_BITS - 8;
/// The text between the prefix and the numbers of a key.
const FOLDER: &str = "chunks";

/// The order of the folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// `chunks/SLICE ÷ 1,000,000/SLICE ÷ 1,000/…`
    Plain,
    /// `chunks/SLICE mod 256 in hexadecimal/SLICE ÷ 1,000,000/…`: a volume that was formatted
    /// with `--hash-prefix`.
    Hashed,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Hashed];

    /// The byte of the layout in the record of a volume.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Hashed => 1,
        }
    }

    /// The layout with this code; `None`: unknown.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.code() == code)
    }

    /// The number as it stands in the id: those of one folder lie together, in their order.
    #[must_use]
    pub const fn field(self, slice: u64) -> u64 {
        match self {
            Self::Plain => slice,
            Self::Hashed => (slice & 0xff) << HASH_SHIFT | slice >> 8,
        }
    }

    /// The number that stands in the id as `field`.
    #[must_use]
    pub const fn slice(self, field: u64) -> u64 {
        match self {
            Self::Plain => field,
            Self::Hashed => (field & ((1 << HASH_SHIFT) - 1)) << 8 | field >> HASH_SHIFT,
        }
    }

    /// The uppermost folder of a slice, with its `/`.
    pub(crate) fn folder(self, slice: u64) -> String {
        match self {
            Self::Plain => format!("{FOLDER}/{}/", slice / 1_000_000),
            Self::Hashed => format!("{FOLDER}/{:02X}/", slice & 0xff),
        }
    }

    /// Common beginning of the keys of a slice's blocks, behind the prefix.
    #[must_use]
    pub fn begin(self, slice: u64) -> String {
        let folder = self.folder(slice);
        match self {
            Self::Plain => format!("{folder}{}/{slice}_", slice / 1000),
            Self::Hashed => format!("{folder}{}/{slice}_", slice / 1_000_000),
        }
    }
}

/// The key of a block behind its prefix. Displayed as in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// The order of the folders.
    pub layout: Layout,
    /// Number of the slice, below [`MAX_SLICE`].
    pub slice: u64,
    /// Of the block within the slice, below [`MAX_INDEX`].
    pub index: u16,
    /// Bytes of the block, 1 to [`MAX_BLOCK_BYTES`].
    pub size: u32,
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = self.layout.begin(self.slice);
        write!(f, "{begin}{}_{}", self.index, self.size)
    }
}

impl BlockKey {
    /// The prefix (empty, or with its `/`) and the rest of a key; `None`: it is none of a block,
    /// or is not written exactly as it would be written here.
    #[must_use]
    pub fn parse(key: &str) -> Option<(&str, Self)> {
        let (folders, name) = key.rsplit_once('/')?;
        let (folders, _) = folders.rsplit_once('/')?;
        let (folders, _) = folders.rsplit_once('/')?;
        let prefix = folders.strip_suffix(FOLDER)?;
        if !prefix.is_empty() && !prefix.ends_with('/') {
            return None;
        }
        let mut numbers = name.splitn(3, '_');
        let slice = numbers.next()?.parse().ok().filter(|it| *it < MAX_SLICE)?;
        let index = numbers.next()?.parse().ok().filter(|it| *it < MAX_INDEX)?;
        let size = numbers.next()?.parse().ok();
        let size = size.filter(|it| (1..=MAX_BLOCK_BYTES).contains(it))?;
        let rest = key.get(prefix.len()..)?;
        Layout::ALL.into_iter().find_map(|layout| {
            let block = Self {
                layout,
                slice,
                index,
                size,
            };
            (block.to_string() == rest).then_some((prefix, block))
        })
    }

    /// The ids that a block with this key may have in a volume: one for each minute.
    #[must_use]
    pub fn ids(&self, volume: u8) -> LumpRange {
        let start = self.id_at(volume, 0);
        LumpRange {
            start,
            end: Some(LumpId(start.0 + (1 << MINUTE_BITS))),
        }
    }

    fn id_at(&self, volume: u8, minute: u64) -> LumpId {
        let size = u128::from(self.size) - 1;
        LumpId(
            LumpKind::Block.range().start.0
                | u128::from(volume) << VOLUME_SHIFT
                | u128::from(self.layout.field(self.slice)) << SLICE_SHIFT
                | u128::from(self.index) << INDEX_SHIFT
                | size << SIZE_SHIFT
                | u128::from(minute),
        )
    }

    /// The id of the block when it is put at a time in milliseconds since 1970. Times before 2020
    /// and behind 2051 are kept as the first and the last minute there is.
    #[must_use]
    pub fn id(&self, volume: u8, modified_ms: u64) -> LumpId {
        let minute = (modified_ms / 60_000).saturating_sub(FIRST_MINUTE);
        self.id_at(volume, minute.min((1 << MINUTE_BITS) - 1))
    }

    /// The block with an id in a volume of this layout, and the minute it was put in, as
    /// milliseconds since 1970.
    #[must_use]
    pub fn of_id(id: LumpId, layout: Layout) -> (Self, u64) {
        let size = u32::try_from(bits(id, SIZE_SHIFT, SIZE_BITS) + 1).unwrap_or(MAX_BLOCK_BYTES);
        let index = u16::try_from(bits(id, INDEX_SHIFT, INDEX_BITS)).unwrap_or(MAX_INDEX);
        let block = Self {
            layout,
            slice: layout.slice(field_of(id)),
            index,
            size,
        };
        let minute = bits(id, 0, MINUTE_BITS) + FIRST_MINUTE;
        (block, minute * 60_000)
    }
}

fn bits(id: LumpId, shift: u32, count: u32) -> u64 {
    u64::try_from((id.0 >> shift) & ((1 << count) - 1)).unwrap_or(u64::MAX)
}

/// The slice as it stands in an id.
pub(crate) fn field_of(id: LumpId) -> u64 {
    bits(id, SLICE_SHIFT, SLICE_BITS)
}

/// The ids of the slices `from..to` of a volume, as they stand in ids.
pub(crate) fn fields(volume: u8, from: u64, to: u64) -> LumpRange {
    let start = LumpKind::Block.range().start.0 | u128::from(volume) << VOLUME_SHIFT;
    LumpRange {
        start: LumpId(start + (u128::from(from) << SLICE_SHIFT)),
        end: Some(LumpId(start + (u128::from(to) << SLICE_SHIFT))),
    }
}

/// All ids of a volume.
pub(crate) fn volume(volume: u8) -> LumpRange {
    fields(volume, 0, MAX_SLICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_juicefs() {
        let (prefix, block) = BlockKey::parse("vol/chunks/1/1234/1234567_3_4194304").unwrap();
        assert_eq!((prefix, block.slice, block.index), ("vol/", 1_234_567, 3));
        assert_eq!((block.size, block.layout), (4_194_304, Layout::Plain));
        let (prefix, block) = BlockKey::parse("chunks/87/1/1234567_0_1").unwrap();
        assert_eq!(prefix, "");
        assert_eq!(block.slice, 1_234_567);
        assert_eq!(block.layout, Layout::Hashed);
        assert!(BlockKey::parse("chunks/0/0/0_0_1").is_some());
        assert!(BlockKey::parse("chunks/00/0/0_0_1").is_some());
        for key in [
            "",
            "chunks/0/0/1_0_0",
            "chunks/0/0/1_0_4194305",
            "chunks/0/0/1_1024_1",
            "chunks/0/0/01_0_1",
            "chunks/0/0/+1_0_1",
            "chunks/0/0/1_0_1_",
            "chunks/0/0/1_0",
            "chunks/0/1/1_0_1",
            "chunks/0a/0/10_0_1",
            "xchunks/0/0/1_0_1",
            "chunks/1099511/1099511627/1099511627776_0_1",
        ] {
            assert_eq!(BlockKey::parse(key), None, "{key}");
        }
    }

    #[test]
    fn ids_come_back_and_no_two_are_alike() {
        for layout in Layout::ALL {
            for slice in [0, 1, 255, 256, 999_999, 1_000_000, MAX_SLICE - 1] {
                for (index, size) in [(0, 1), (MAX_INDEX - 1, MAX_BLOCK_BYTES)] {
                    let block = BlockKey {
                        layout,
                        slice,
                        index,
                        size,
                    };
                    assert_eq!(BlockKey::parse(&block.to_string()), Some(("", block)));
                    for volume in [0, 255] {
                        let id = block.id(volume, 1_800_000_012_345);
                        assert_eq!(BlockKey::of_id(id, layout), (block, 1_800_000_000_000));
                        assert_eq!(LumpKind::of(id), Some(LumpKind::Block));
                        let range = block.ids(volume);
                        assert!(range.start <= id && Some(id) < range.end);
                        let range = super::volume(volume);
                        assert!(range.start <= id && Some(id) < range.end);
                    }
                }
            }
        }
        assert_eq!(volume(255).end, LumpKind::Block.range().end);
    }

    #[test]
    fn times_outside_are_the_first_and_the_last() {
        let (_, block) = BlockKey::parse("chunks/0/0/1_0_1").unwrap();
        let first = BlockKey::of_id(block.id(0, 0), Layout::Plain).1;
        assert_eq!(first, 1_577_836_800_000);
        let last = BlockKey::of_id(block.id(0, u64::MAX), Layout::Plain).1;
        assert_eq!(last, first + ((1 << 24) - 1) * 60_000);
    }
}
