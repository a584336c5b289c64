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
    counts: BTreeMap<i32, u64>,
}

impl Native {
    /// Adds to the bucket that ends at two to the power of `exponent`; `None`: to that of zero.
    pub(super) fn add(&mut self, exponent: Option<i32>, count: u64) {
        match exponent {
            None => self.zero += count,
            Some(exponent) => *self.counts.entry(exponent).or_insert(0) += count,
        }
    }

    /// The counts as the exposition wants them: runs of neighbouring buckets, and the difference
    /// of each count to the one before.
    pub(super) fn encode(&self) -> Encoded {
        let mut encoded = Encoded {
            zero: self.zero,
            spans: Vec::new(),
            deltas: Vec::with_capacity(self.counts.len()),
        };
        let (mut next, mut before) = (0, 0_i64);
        for (exponent, count) in &self.counts {
            match encoded.spans.last_mut() {
                Some((_, length)) if *exponent == next => *length += 1,
                _ => encoded.spans.push((exponent - next, 1)),
            }
            next = exponent + 1;
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            encoded.deltas.push(count - before);
            before = count;
        }
        encoded
    }

    /// Sum of all counts.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.zero + self.counts.values().sum::<u64>()
    }
}

/// [`Native`] as runs and differences.
#[derive(Debug)]
pub(super) struct Encoded {
    zero: u64,
    spans: Vec<(i32, u32)>,
    deltas: Vec<i64>,
}

impl Encoded {
    /// In the words of the library.
    pub(super) fn histogram(&self) -> NativeHistogram<'_> {
        NativeHistogram {
            schema: SCHEMA,
            zero_threshold: ZERO_THRESHOLD,
            zero_count: self.zero,
            negative: NativeHistogramBuckets {
                spans: &[],
                deltas: &[],
            },
            positive: NativeHistogramBuckets {
                spans: &self.spans,
                deltas: &self.deltas,
            },
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
            native.add(exponent, count);
        }
        assert_eq!(native.count(), 12);
        let encoded = native.encode();
        assert_eq!(encoded.spans, [(-20, 2), (22, 1)]);
        assert_eq!(encoded.deltas, [3, 3, -5]);
        assert_eq!(encoded.histogram().zero_count, 2);
    }
}
