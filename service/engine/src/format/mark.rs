//! Marks of foreign lumps (FORMAT.md section 7.3): records without effect that say which of the
//! puts behind them are about lumps that another engine may have written.
//!
//! When the collection relocates such a put, its new place says nothing of its origin any more.

use super::record::{DELETE_RANGE_LEN, Record};
use crate::lump::LumpId;

/// The first bytes of the id in a mark.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsForeig";
/// Puts that one mark can tell of.
pub const REACH: usize = 64;
/// Bytes of the record of a mark.
pub const MARK_LEN: usize = DELETE_RANGE_LEN;

const MAGIC_LEN: usize = 8;
const BITS_LEN: usize = 8;

const _: () = assert!(MAGIC_LEN + BITS_LEN == LumpId::LEN, "FORMAT.md section 7.3");

/// Name and length of each field of the id in a mark, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[("magic", MAGIC_LEN), ("puts", BITS_LEN)];

/// Bit n, from the least significant: the put that is the n-th record behind the mark is of a
/// foreign lump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    /// The record: a `DeleteRange` of nothing.
    #[must_use]
    pub fn record(self) -> Record<'static> {
        let mut id = [0; LumpId::LEN];
        let (magic, bits) = id.split_at_mut(MAGIC_LEN);
        magic.copy_from_slice(&MAGIC);
        bits.copy_from_slice(&self.0.to_be_bytes());
        let id = LumpId::from_be_bytes(id);
        Record::DeleteRange { start: id, end: id }
    }

    /// The mark that a record is; `None`: it is none.
    #[must_use]
    pub fn of(record: &Record<'_>) -> Option<Self> {
        let Record::DeleteRange { start, end } = record else {
            return None;
        };
        let id = start.to_be_bytes();
        let bits = id.strip_prefix(&MAGIC)?.first_chunk()?;
        (start == end).then_some(Self(u64::from_be_bytes(*bits)))
    }
}

/// Follows the marks while records are read in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    ahead: u64,
}

impl Marks {
    /// Takes in the next record. True: it is the put of a foreign lump.
    pub fn pass(&mut self, record: &Record<'_>) -> bool {
        match record {
            Record::Put { .. } => {
                let foreign = self.ahead & 1 == 1;
                self.ahead >>= 1;
                foreign
            }
            Record::GoToFront => false,
            other => {
                self.ahead = Mark::of(other).map_or(0, |mark| mark.0);
                false
            }
        }
    }

    /// True: marked puts are still to come, so the journal must not begin here.
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.ahead != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Portion;
    use crate::units::{BlockCount, BlockIndex};

    #[test]
    fn marks_tell_of_the_puts_behind_them() {
        let portion = Portion::new(BlockIndex(1), BlockCount(1)).unwrap();
        let put = Record::Put {
            id: LumpId(1),
            portion,
        };
        let delete = Record::Delete { id: LumpId(1) };
        let mark = Mark(0b101).record();
        assert_eq!(Mark::of(&mark), Some(Mark(0b101)));
        assert_eq!(mark.encoded_len(), MARK_LEN);
        let mut marks = Marks::default();
        let records = [put, mark, put, put, Record::GoToFront, put, put];
        let told = records.map(|record| marks.pass(&record));
        assert_eq!(told, [false, false, true, false, false, true, false]);
        assert!(!marks.are_open());
        let told = [mark, delete, put].map(|record| marks.pass(&record));
        assert_eq!(told, [false; 3]);
        marks.pass(&mark);
        assert!(marks.are_open());
        let (start, end) = (LumpId(0), LumpId(0));
        assert_eq!(Mark::of(&Record::DeleteRange { start, end }), None);
        assert_eq!(Mark::of(&put), None);
    }
}
