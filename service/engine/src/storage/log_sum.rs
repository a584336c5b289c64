//! The sum of the log while it is replayed (FORMAT.md section 5.7).

use crate::crc32c;
use crate::format::Geometry;
use crate::format::seal::{LogSum, Seal};
use crate::units::RingPosition;

/// Why the records cannot be those that the seal at their end was made for.
pub(crate) fn differs(seal: Option<Seal>, sum: Option<u32>) -> Option<String> {
    let (written, found) = (seal?.log_sum?, sum?);
    (written != found).then(|| {
        "the records before this end are not those that were written: the disk has lost a write"
            .to_owned()
    })
}

/// A sum of the log at some place, and the epoch of the journal that it is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownSum {
    pub(super) epoch: u64,
    pub(super) sum: LogSum,
}

/// The sum of the log, from a place on at which it is known.
pub(crate) struct Summing {
    from: RingPosition,
    begin: u32,
    /// `None`: that place has not come yet.
    sum: Option<u32>,
    /// True: records were read whose bytes are not those that were written.
    is_broken: bool,
}

impl Summing {
    pub(crate) fn new(known: LogSum, geometry: &Geometry) -> Self {
        Self {
            from: RingPosition(known.at.checked_rem(geometry.ring_len().0).unwrap_or(0)),
            begin: known.sum,
            sum: None,
            is_broken: false,
        }
    }

    /// A record was read at a position. `record`: its bytes as they were written; `None`: nobody
    /// knows.
    pub(crate) fn add(&mut self, position: RingPosition, record: Option<&[u8]>) {
        let before = self.sum(position);
        self.is_broken |= record.is_none();
        self.sum = before.map(|sum| crc32c::append(sum, record.unwrap_or_default()));
    }

    /// The sum behind the last record, at a position.
    pub(crate) fn sum(&self, position: RingPosition) -> Option<u32> {
        let begins = || (position == self.from).then_some(self.begin);
        self.sum.or_else(begins).filter(|_| !self.is_broken)
    }
}
