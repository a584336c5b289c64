//! Observations from the engine's own I/Os: the time of a read behind another one, and the distance
//! between the two. Pure: no clock, no I/O.
//!
//! Only pairs that can mean nothing else are told. The read before has ended, alone, and was fine;
//! no write and no flush was at the disk since, whose place of work the disk keeps to itself; the
//! read followed within [`LONGEST_PAUSE_NS`], so that the arm is probably still there; and it was
//! the only I/O that the owner thread saw ending, so that the time is its own. The time runs from
//! the end of the read before, or from the begin of this one if that was later: a disk does one
//! thing after the other, also when it chooses the order. If it does many at once, as one without
//! an arm, this is what one more takes, and it is the same for all ways.
//!
//! A read that the disk had in its cache counts as well: near ways are cheap because of it. Far
//! away it is rare, and the curve gives little on what is rare.

use super::waiting::order::curve::Pair;

/// Longest time between two reads of a pair, in nanoseconds: behind it the drive may have parked
/// its arm, or somebody else may have used it.
const LONGEST_PAUSE_NS: u64 = 100_000_000;

/// An I/O that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// True: a read; false: a write or flush.
    pub(super) is_read: bool,
    /// First byte in the device.
    pub(super) offset: u64,
    /// Bytes transferred.
    pub(super) len: u64,
    /// When it was handed over, in nanoseconds of the engine's clock.
    pub(super) begin_ns: u64,
    /// When it was seen to end.
    pub(super) end_ns: u64,
    /// True: without an error, and no other I/O was seen to end at the same time.
    pub(super) clear: bool,
}

/// The read that ended last, if it says where the disk is.
#[derive(Clone, Copy, Debug)]
struct Before {
    end: u64,
    at_ns: u64,
}

/// Makes pairs of the I/Os of one device.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    before: Option<Before>,
    /// Writes and flushes in flight.
    others: usize,
}

impl Pairs {
    /// An I/O is handed over.
    pub(super) fn begun(&mut self, is_read: bool) {
        if !is_read {
            self.others += 1;
            self.before = None;
        }
    }

    /// An I/O has ended. The pair that it makes with the one before.
    pub(super) fn ended(&mut self, seen: Seen) -> Option<Pair> {
        if !seen.is_read {
            self.others = self.others.saturating_sub(1);
            self.before = None;
            return None;
        }
        let clear = seen.clear && self.others == 0;
        let here = Before {
            end: seen.offset.saturating_add(seen.len),
            at_ns: seen.end_ns,
        };
        let before = std::mem::replace(&mut self.before, clear.then_some(here))?;
        let pause = seen.begin_ns.saturating_sub(before.at_ns);
        if !clear || pause > LONGEST_PAUSE_NS {
            return None;
        }
        let from = seen.begin_ns.max(before.at_ns);
        Some(Pair {
            distance: distance(before.end, seen.offset),
            len: seen.len,
            took_ns: seen.end_ns.saturating_sub(from),
        })
    }
}

/// Signed bytes from one place to another.
pub(super) fn distance(from: u64, to: u64) -> i64 {
    let far = i64::try_from(from.abs_diff(to)).unwrap_or(i64::MAX);
    if to < from { -far } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(offset: u64, begin_ns: u64, end_ns: u64) -> Seen {
        Seen {
            is_read: true,
            offset,
            len: 100,
            begin_ns,
            end_ns,
            clear: true,
        }
    }

    fn took(pair: Option<Pair>) -> Option<(i64, u64)> {
        pair.map(|pair| (pair.distance, pair.took_ns))
    }

    #[test]
    fn a_read_behind_a_read_is_a_pair() {
        let mut pairs = Pairs::default();
        assert_eq!(took(pairs.ended(read(1000, 0, 10))), None, "from where?");
        assert_eq!(took(pairs.ended(read(1100, 12, 20))), Some((0, 8)));
        // Handed over before the other had ended: it began when the disk was free.
        assert_eq!(took(pairs.ended(read(200, 11, 50))), Some((-1000, 30)));
        let late = 50 + LONGEST_PAUSE_NS + 1;
        assert_eq!(took(pairs.ended(read(300, late, late + 9))), None);
        assert_eq!(took(pairs.ended(read(400, late, late + 19))), Some((0, 10)));
    }

    #[test]
    fn what_may_mean_something_else_is_no_pair() {
        let mut pairs = Pairs::default();
        pairs.ended(read(0, 0, 10));
        pairs.begun(false);
        assert_eq!(took(pairs.ended(read(0, 10, 20))), None, "beside a write");
        let write = Seen {
            is_read: false,
            ..read(0, 10, 30)
        };
        assert_eq!(took(pairs.ended(write)), None);
        assert_eq!(took(pairs.ended(read(0, 30, 40))), None, "behind a write");
        assert_eq!(took(pairs.ended(read(0, 40, 50))), Some((-100, 10)));
        let mixed = Seen {
            clear: false,
            ..read(0, 50, 60)
        };
        assert_eq!(took(pairs.ended(mixed)), None);
        assert_eq!(took(pairs.ended(read(0, 60, 70))), None, "behind it");
        assert_eq!(took(pairs.ended(read(0, 70, 80))), Some((-100, 10)));
    }
}
