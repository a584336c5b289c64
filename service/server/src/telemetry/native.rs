//! Native histogram buckets of things that others have counted.

use std::collections::BTreeMap;

use prometheus_client::encoding::{NativeHistogram, NativeHistogramBuckets};

/// Each bucket ends at twice the end of the one before; bucket 0 ends at 1.
const SCHEMA: i32 = 0;
/// Values nearer to 0 count as zero: 2^-128, as the specification recommends.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Counts by native bucket. Bounded: cells end at the 129 powers of two from 2^-64 to 2^64.
#[derive(Debug, Clone, Default)]
pub(super) struct Native {
    zero: u64,
    above: BTreeMap<i32, u64>,
    below: BTreeMap<i32, u64>,
}

impl Native {
    /// Adds to the bucket that ends at two to the power of `exponent`, or to its mirror image below zero; `None`: to
    /// that of zero.
    pub(super) fn add(&mut self, exponent: Option<i32>, below: bool, count: u64) {
        let counts = if below {
            &mut self.below
        } else {
            &mut self.above
        };
        match exponent {
            None => self.zero += count,
            Some(exponent) => *counts.entry(exponent).or_insert(0) += count,
        }
    }

    /// The counts as the exposition wants them.
    pub(super) fn encode(&self) -> Encoded {
        Encoded {
            zero: self.zero,
            above: Runs::of(&self.above),
            below: Runs::of(&self.below),
        }
    }

    /// Sum of all counts.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        let sides = self.above.values().chain(self.below.values());
        self.zero + sides.sum::<u64>()
    }
}

/// Runs of neighbouring buckets, and the difference of each count to the one before.
#[derive(Debug, Default)]
struct Runs {
    spans: Vec<(i32, u32)>,
    deltas: Vec<i64>,
}

impl Runs {
    fn of(counts: &BTreeMap<i32, u64>) -> Self {
        let mut runs = Self::default();
        let (mut next, mut before) = (0, 0_i64);
        for (exponent, count) in counts {
            match runs.spans.last_mut() {
                Some((_, length)) if *exponent == next => *length += 1,
                _ => runs.spans.push((exponent - next, 1)),
            }
            next = exponent + 1;
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            runs.deltas.push(count - before);
            before = count;
        }
        runs
    }

    fn buckets(&self) -> NativeHistogramBuckets<'_> {
        NativeHistogramBuckets {
            spans: &self.spans,
            deltas: &self.deltas,
        }
    }
}

/// [`Native`] as runs and differences.
#[derive(Debug)]
pub(super) struct Encoded {
    zero: u64,
    above: Runs,
    below: Runs,
}

impl Encoded {
    /// In the words of the library.
    pub(super) fn histogram(&self) -> NativeHistogram<'_> {
        NativeHistogram {
            schema: SCHEMA,
            zero_threshold: ZERO_THRESHOLD,
            zero_count: self.zero,
            negative: self.below.buckets(),
            positive: self.above.buckets(),
            created: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_become_runs_and_differences() {
        let mut native = Native::default();
        for (exponent, count) in [
            (Some(-20), 3),
            (Some(-19), 5),
            (None, 2),
            (Some(4), 1),
            (Some(-19), 1),
        ] {
            native.add(exponent, false, count);
        }
        native.add(Some(9), true, 4);
        assert_eq!(native.count(), 16);
        let encoded = native.encode();
        assert_eq!(encoded.above.spans, [(-20, 2), (22, 1)]);
        assert_eq!(encoded.above.deltas, [3, 3, -5]);
        assert_eq!(encoded.below.spans, [(9, 1)]);
        assert_eq!(encoded.below.deltas, [4]);
        assert_eq!(encoded.histogram().zero_count, 2);
    }
}
