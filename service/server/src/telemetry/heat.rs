//! From the observer's fine cells (seek distance x device time) to histograms of bounded size.
//!
//! The observer's cells end at powers of two; so do the bounds here. A cell is counted in the
//! first bucket that holds all of it, so no count lands in a bucket that is too small.

use std::collections::BTreeMap;

use lumpscope_observer::HeatCell;

/// Upper bounds of device time: 2^13 ns (8 microseconds) to 2^34 ns (17 seconds).
const DEVICE_BITS: std::ops::RangeInclusive<u32> = 13..=34;
/// The same, coarser, for the two-dimensional histogram.
const DEVICE_COARSE_STEP: usize = 3;
/// Upper bounds of |seek distance|: 512 bytes to 32 TiB in steps of 8, after 0.
const SEEK_BITS: std::ops::RangeInclusive<u32> = 9..=45;
const SEEK_STEP: usize = 3;
/// Bounds of the signed intervals of the two-dimensional histogram, as powers of two.
const SIGNED: [(u32, &str); 5] = [
    (16, "64KiB"),
    (22, "4MiB"),
    (28, "256MiB"),
    (34, "16GiB"),
    (63, "inf"),
];

/// Histograms by the two labels that follow the store's.
pub(super) type HeatHistograms = BTreeMap<(String, String), Buckets>;

/// One histogram as the exposition wants it: upper bound and count, the last bound infinite.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    pub(super) bounds: Vec<(f64, u64)>,
    pub(super) sum: f64,
    pub(super) count: u64,
}

impl Buckets {
    fn new(bounds: impl Iterator<Item = f64>) -> Self {
        Self {
            bounds: bounds
                .chain([f64::INFINITY])
                .map(|bound| (bound, 0))
                .collect(),
            sum: 0.0,
            count: 0,
        }
    }

    fn add(&mut self, upper: f64, middle: f64, count: u64) {
        if let Some((_, n)) = self.bounds.iter_mut().find(|(bound, _)| *bound >= upper) {
            *n += count;
        }
        self.sum += middle * float(count);
        self.count += count;
    }
}

/// Nearest floating-point number: exact below 2^53, and a metric beyond that needs no more.
#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are floating-point numbers"
)]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}

fn power(bits: u32) -> f64 {
    f64::powi(2.0, i32::try_from(bits).unwrap_or(i32::MAX))
}

/// Device time by owner and operation.
pub(super) fn device_time(cells: &[HeatCell]) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in cells {
        all.entry((cell.owner.clone(), cell.operation.clone()))
            .or_insert_with(|| Buckets::new(DEVICE_BITS.map(|bits| power(bits) / 1e9)))
            .add(seconds(cell.device_to_ns), device_middle(cell), cell.count);
    }
    all
}

/// |Seek distance| by owner and operation.
pub(super) fn seek_distance(cells: &[HeatCell]) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in cells {
        let (near, far) = distance(cell);
        let upper = if far <= 1 { 0.0 } else { float(far) };
        let middle = if far <= 1 {
            0.0
        } else {
            float(near).midpoint(float(far))
        };
        all.entry((cell.owner.clone(), cell.operation.clone()))
            .or_insert_with(|| {
                Buckets::new(
                    [0.0]
                        .into_iter()
                        .chain(SEEK_BITS.step_by(SEEK_STEP).map(power)),
                )
            })
            .add(upper, middle, cell.count);
    }
    all
}

/// Device time by operation and interval of the signed seek distance.
pub(super) fn seek_device_time(cells: &[HeatCell]) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in cells {
        all.entry((cell.operation.clone(), interval(cell)))
            .or_insert_with(|| {
                Buckets::new(
                    DEVICE_BITS
                        .step_by(DEVICE_COARSE_STEP)
                        .map(|bits| power(bits) / 1e9),
                )
            })
            .add(seconds(cell.device_to_ns), device_middle(cell), cell.count);
    }
    all
}

fn device_middle(cell: &HeatCell) -> f64 {
    seconds(cell.device_from_ns).midpoint(seconds(cell.device_to_ns))
}

/// Nearest and farthest |seek distance| of a cell; (0, 1) is "no seek".
fn distance(cell: &HeatCell) -> (u64, u64) {
    if cell.seek_from_bytes >= 0 {
        (
            cell.seek_from_bytes.unsigned_abs(),
            cell.seek_to_bytes.unsigned_abs(),
        )
    } else {
        // [from, to) below zero: the distance of from belongs to the cell, that of to does not.
        let near = cell.seek_to_bytes.min(0).unsigned_abs();
        (near, cell.seek_from_bytes.unsigned_abs())
    }
}

fn interval(cell: &HeatCell) -> String {
    let (_, far) = distance(cell);
    if far <= 1 {
        return "0".to_owned();
    }
    let mut before = "0";
    for (bits, name) in SIGNED {
        if far <= 1 << bits || bits == 63 {
            return if cell.seek_from_bytes < 0 {
                format!("-{name}..-{before}")
            } else {
                format!("{before}..{name}")
            };
        }
        before = name;
    }
    before.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(seek: (i64, i64), device: (u64, u64), count: u64) -> HeatCell {
        HeatCell {
            owner: "request".into(),
            operation: "read".into(),
            seek_from_bytes: seek.0,
            seek_to_bytes: seek.1,
            device_from_ns: device.0,
            device_to_ns: device.1,
            count,
        }
    }

    #[test]
    fn every_count_lands_in_exactly_one_bucket() {
        let cells = [
            cell((0, 1), (1 << 16, 1 << 17), 7),
            cell((1 << 20, 1 << 21), (1 << 22, 1 << 23), 3),
            cell((-(1 << 30), -(1 << 29)), (1 << 40, 1 << 41), 2),
        ];
        for map in [
            device_time(&cells),
            seek_distance(&cells),
            seek_device_time(&cells),
        ] {
            let total: u64 = map.values().map(|b| b.count).sum();
            let spread: u64 = map.values().flat_map(|b| &b.bounds).map(|(_, n)| n).sum();
            assert_eq!((total, spread), (12, 12));
            let last = |b: &Buckets| b.bounds.last().map(|(bound, _)| *bound);
            assert!(map.values().all(|b| last(b) == Some(f64::INFINITY)));
        }
        let seeks = seek_distance(&cells);
        let buckets = &seeks[&("request".to_owned(), "read".to_owned())];
        assert_eq!(buckets.bounds[0], (0.0, 7), "no seek at all");
        let names: Vec<String> = seek_device_time(&cells).into_keys().map(|k| k.1).collect();
        assert_eq!(
            names,
            ["-16GiB..-256MiB", "0", "64KiB..4MiB"].map(str::to_owned)
        );
    }
}
