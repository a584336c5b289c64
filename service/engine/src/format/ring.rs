//! Space in the journal's ring (FORMAT.md section 5.2).

use super::record::{END_OF_RECORDS_LEN, GO_TO_FRONT_LEN};
use crate::units::{ByteLen, RingPosition};

/// Where a record may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingPlace {
    /// At the tail.
    AtTail,
    /// At ring position 0; a `GoToFront` at the tail leads there.
    AtFront,
    /// Nowhere until the head moves on.
    Full,
}

/// Decides where a record of `record_len` bytes goes, given the ring positions of the first record
/// that must survive (`head`) and of the present `EndOfRecords` (`tail`; equal to `head`: empty).
///
/// Every record is followed by an `EndOfRecords`, so 5 bytes always remain at the tail. Writes are
/// whole units of `write_unit` bytes (the device's logical block size), and what stands behind the
/// `EndOfRecords` in the last unit is overwritten: so the units written must not reach the head.
#[must_use]
pub fn room_for(
    head: RingPosition,
    tail: RingPosition,
    record_len: u64,
    ring_len: ByteLen,
    write_unit: ByteLen,
) -> RingPlace {
    let eor = END_OF_RECORDS_LEN as u64;
    let end_from = |start: u64| {
        start
            .checked_add(record_len)
            .and_then(|end| end.checked_add(eor))
    };
    let written_end =
        |start| end_from(start).and_then(|end| end.checked_next_multiple_of(write_unit.0.max(1)));
    let below = |limit: u64, start: u64| written_end(start).is_some_and(|end| end <= limit);
    if tail < head {
        return if below(head.0, tail.0) {
            RingPlace::AtTail
        } else {
            RingPlace::Full
        };
    }
    // The tail is behind the head (or the ring is empty): up to the end of the ring, then round.
    if end_from(tail.0).is_some_and(|end| end <= ring_len.0) {
        let limit = ring_len.0.saturating_add(head.0);
        return if below(limit, tail.0) {
            RingPlace::AtTail
        } else {
            RingPlace::Full
        };
    }
    let go_to_front_fits = tail
        .0
        .checked_add(GO_TO_FRONT_LEN as u64)
        .is_some_and(|end| end <= ring_len.0);
    if go_to_front_fits && below(head.0, 0) {
        RingPlace::AtFront
    } else {
        RingPlace::Full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(head: u64, tail: u64, record: u64, unit: u64) -> RingPlace {
        room_for(
            RingPosition(head),
            RingPosition(tail),
            record,
            ByteLen(8192),
            ByteLen(unit),
        )
    }

    #[test]
    fn an_empty_ring_takes_records_up_to_its_end() {
        assert_eq!(room(0, 0, 8187, 512), RingPlace::AtTail);
        assert_eq!(room(0, 0, 8188, 512), RingPlace::Full);
    }

    #[test]
    fn at_the_end_the_front_is_used_when_the_head_has_left_it() {
        assert_eq!(room(0, 8170, 28, 512), RingPlace::Full);
        assert_eq!(room(511, 8170, 28, 512), RingPlace::Full);
        assert_eq!(room(512, 8170, 28, 512), RingPlace::AtFront);
        assert_eq!(room(512, 8170, 28, 4096), RingPlace::Full);
        assert_eq!(room(4096, 8170, 28, 4096), RingPlace::AtFront);
    }

    #[test]
    fn a_tail_before_the_head_never_touches_the_heads_write_unit() {
        assert_eq!(room(1024, 0, 1019, 512), RingPlace::AtTail);
        assert_eq!(room(1023, 0, 1018, 512), RingPlace::Full);
        assert_eq!(room(1500, 1000, 28, 512), RingPlace::Full);
        assert_eq!(room(1536, 1000, 28, 512), RingPlace::AtTail);
    }

    #[test]
    fn absurd_lengths_do_not_overflow() {
        assert_eq!(room(0, 0, u64::MAX, 512), RingPlace::Full);
        assert_eq!(room(5, u64::MAX, 1, 512), RingPlace::Full);
    }
}
