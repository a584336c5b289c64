//! Ids of the lumps that make up the objects of a store.
//!
//! An id of 128 bits begins with a mark of 16 bits and a kind of 8, so that the lumps of objects
//! lie together, and apart from the lumps of other clients of the store. The layout is the
//! table in `docs/objects.md`.

use lumpscope_engine::{LumpId, LumpRange};

/// The top 16 bits of every id: "S3".
pub const MARK: u16 = 0x5333;

const KIND_SHIFT: u32 = 104;
const MARK_SHIFT: u32 = 112;
/// A number of 64 bits stands here, the rest is below it.
const NUMBER_SHIFT: u32 = 40;
const REST: u128 = (1 << NUMBER_SHIFT) - 1;

/// Kind of a lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LumpKind {
    /// The record of a bucket.
    Bucket,
    /// The record of an object.
    Object,
    /// The record of a multipart upload.
    Upload,
    /// The record of a part of an upload.
    Part,
    /// Bytes of an object or part.
    Piece,
    /// The record of a JuiceFS volume.
    Volume,
    /// A block of a JuiceFS volume.
    Block,
    /// The record of a setting of a bucket.
    Setting,
}

impl LumpKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Bucket,
        Self::Object,
        Self::Upload,
        Self::Part,
        Self::Piece,
        Self::Volume,
        Self::Block,
        Self::Setting,
    ];

    /// The 8 bits of the kind in an id.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Bucket => 1,
            Self::Object => 2,
            Self::Upload => 3,
            Self::Part => 4,
            Self::Volume => 5,
            Self::Setting => 6,
            Self::Piece => 16,
            Self::Block => 17,
        }
    }

    /// The kind with this code; `None`: unknown.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    fn base(self) -> u128 {
        u128::from(MARK) << MARK_SHIFT | u128::from(self.code()) << KIND_SHIFT
    }

    /// The ids of this kind.
    #[must_use]
    pub fn range(self) -> LumpRange {
        LumpRange {
            start: LumpId(self.base()),
            end: Some(LumpId(self.base() + (1 << KIND_SHIFT))),
        }
    }

    /// The ids of all records: those of kinds that are embedded in the journal.
    #[must_use]
    pub fn records() -> LumpRange {
        LumpRange {
            start: Self::Bucket.range().start,
            end: Self::Setting.range().end,
        }
    }

    /// The kind of an id; `None`: not an id of objects.
    #[must_use]
    pub fn of(id: LumpId) -> Option<Self> {
        let head = (id.0 >> KIND_SHIFT).to_be_bytes();
        let [.., high, low, code] = head;
        (u16::from_be_bytes([high, low]) == MARK)
            .then(|| Self::of_code(code))
            .flatten()
    }

    /// The id of this kind with a number and the 40 bits below it.
    pub(crate) fn id(self, number: u64, below: u64) -> LumpId {
        LumpId(self.base() | u128::from(number) << NUMBER_SHIFT | (u128::from(below) & REST))
    }
}

/// The number of an id.
pub(crate) fn number_of(id: LumpId) -> u64 {
    u64::try_from((id.0 >> NUMBER_SHIFT) & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}

/// The 40 bits below the number of an id.
pub(crate) fn below_of(id: LumpId) -> u64 {
    u64::try_from(id.0 & REST).unwrap_or(u64::MAX)
}

/// A piece of the data with this number.
pub(crate) fn piece(number: u64, index: u64) -> LumpId {
    LumpKind::Piece.id(number, index)
}

/// All pieces of the data with this number.
pub(crate) fn pieces(number: u64) -> (LumpId, LumpId) {
    let start = piece(number, 0);
    (start, LumpId(start.0 + (1 << NUMBER_SHIFT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        for kind in LumpKind::ALL {
            for (number, below) in [(0, 0), (1, 7), (u64::MAX, (1 << 40) - 1)] {
                let id = kind.id(number, below);
                assert_eq!(LumpKind::of(id), Some(kind));
                assert_eq!((number_of(id), below_of(id)), (number, below));
                let range = kind.range();
                assert!(range.start <= id && Some(id) < range.end);
            }
        }
        assert_eq!(LumpKind::of(LumpId(0)), None);
        assert_eq!(LumpKind::of(LumpId(u128::MAX)), None);
    }

    #[test]
    fn records_are_one_range_without_data() {
        let records = LumpKind::records();
        for kind in LumpKind::ALL {
            let id = kind.id(u64::MAX, 0);
            let within = records.start <= id && Some(id) < records.end;
            let is_record = !matches!(kind, LumpKind::Piece | LumpKind::Block);
            assert_eq!(within, is_record, "{kind:?}");
        }
    }
}
