//! Head travel between one request and the next.

use lumpscope_platter::trace::{Op, Traced};
use serde::Serialize;

/// Distances of one sign and magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SeekBucket {
    /// Shortest distance in sectors: from (inclusive), signed.
    pub from: i64,
    /// Longest: to (inclusive).
    pub to: i64,
    pub requests: u64,
}

/// Seek distances: from the end of the read or write before to the begin of this one, in the order
/// of issue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Seeks {
    /// Reads and writes that had one before them.
    pub total: u64,
    /// Of these, those that began where the one before ended.
    pub sequential: u64,
    /// Of the others, those that went backwards.
    pub backwards: u64,
    /// Sum of all distances, forwards or backwards, in sectors.
    pub distance: u64,
    /// By powers of two, ascending; empty ones are left out.
    pub buckets: Vec<SeekBucket>,
}

impl Seeks {
    /// Of requests in the order of issue.
    #[must_use]
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a Traced>) -> Seeks {
        let mut seeks = Seeks::default();
        let mut before: Option<&Traced> = None;
        for request in requests {
            if !matches!(request.op, Op::Read | Op::Write) {
                continue;
            }
            if let Some(before) = before {
                seeks.add(distance(before.end(), request.sector));
            }
            before = Some(request);
        }
        seeks.buckets.sort_by_key(|bucket| bucket.from);
        seeks
    }

    /// Requests that went more than `sectors` either way.
    #[must_use]
    pub fn beyond(&self, sectors: u64) -> u64 {
        let far = |bucket: &&SeekBucket| {
            bucket.from.unsigned_abs().min(bucket.to.unsigned_abs()) > sectors
        };
        self.buckets.iter().filter(far).map(|b| b.requests).sum()
    }

    fn add(&mut self, distance: i64) {
        self.total += 1;
        self.sequential += u64::from(distance == 0);
        self.backwards += u64::from(distance < 0);
        self.distance = self.distance.saturating_add(distance.unsigned_abs());
        let (from, to) = edges(distance);
        match self.buckets.iter_mut().find(|bucket| bucket.from == from) {
            Some(bucket) => bucket.requests += 1,
            None => self.buckets.push(SeekBucket {
                from,
                to,
                requests: 1,
            }),
        }
    }
}

fn distance(from: u64, to: u64) -> i64 {
    let far = i64::try_from(to.abs_diff(from)).unwrap_or(i64::MAX);
    if to < from { -far } else { far }
}

/// First and last distance of the bucket: 0, then 1, 2..3, 4..7, and the same backwards.
fn edges(distance: i64) -> (i64, i64) {
    if distance == 0 {
        return (0, 0);
    }
    let low = 1_i64 << distance.unsigned_abs().ilog2().min(61);
    let high = low * 2 - 1;
    if distance > 0 {
        (low, high)
    } else {
        (-high, -low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sector: u64, sectors: u32) -> Traced {
        Traced {
            op: Op::Write,
            fua: false,
            sector,
            sectors,
            queue_ns: 0,
            issue_ns: 0,
            done_ns: 0,
            own: true,
        }
    }

    #[test]
    fn distances_are_from_end_to_begin() {
        let flush = Traced {
            op: Op::Flush,
            ..at(0, 0)
        };
        let seeks = Seeks::of(&[
            at(100, 8),
            at(108, 8),
            flush,
            at(115, 1),
            at(1_000, 8),
            at(0, 4),
        ]);
        assert_eq!((seeks.total, seeks.sequential, seeks.backwards), (4, 1, 2));
        assert_eq!(seeks.distance, 1 + 884 + 1008);
        let buckets: Vec<_> = seeks
            .buckets
            .iter()
            .map(|b| (b.from, b.to, b.requests))
            .collect();
        assert_eq!(
            buckets,
            [(-1023, -512, 1), (-1, -1, 1), (0, 0, 1), (512, 1023, 1)]
        );
        assert_eq!(
            (seeks.beyond(0), seeks.beyond(1), seeks.beyond(600)),
            (3, 2, 0)
        );
        assert_eq!(Seeks::of(&[]), Seeks::default());
        assert_eq!(Seeks::of(&[at(7, 1)]).total, 0);
    }

    #[test]
    fn the_longest_distance_has_a_bucket() {
        for distance in [i64::MAX, i64::MIN + 1, 1 << 61, -(1 << 62)] {
            let (from, to) = edges(distance);
            assert!(from < to && (from < 0) == (distance < 0), "{distance}");
        }
    }
}
