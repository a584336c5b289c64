//! From the observer's fine cells (seek distance x device time) to histograms of bounded size.
//!
//! The observer's cells end at powers of two; so do the bounds here. Of the classic buckets a cell
//! is counted in the first that holds all of it, so no count lands in one that is too small. Of the
//! native ones (schema 0: each ends at twice the end of the one before) it has one of its own: for
//! distances that of the same edges; for times the one nearest to it, because native buckets end
//! at powers of two of a second and cells at those of a nanosecond: its edges are 7 % below.

use std::collections::BTreeMap;

use lumpscope_observer::{BlockShape, Bucket, HeatCell, StoreReport};
pub(super) use lumpscope_units::human::as_float as float;

use super::native::Native;

/// Upper bounds of device time: 2^13 ns (8 microseconds) to 2^34 ns (17 seconds).
const DEVICE_BITS: std::ops::RangeInclusive<u32> = 13..=34;
/// Coarser step, for the two-dimensional histogram.
const DEVICE_COARSE_STEP: usize = 3;
/// Upper bounds of |seek distance|: 4 KiB to 32 TiB in steps of 8, after 0.
const SEEK_BITS: std::ops::RangeInclusive<u32> = 12..=45;
const SEEK_STEP: usize = 3;
/// Bounds of the signed seek distance: every power of two from a sector to 32 TiB, in both directions.
const SIGNED_BITS: std::ops::RangeInclusive<u32> = 9..=45;
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

/// One histogram as the exposition wants it.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    /// Classic buckets: upper bound and count, the last bound infinite.
    pub(super) bounds: Vec<(f64, u64)>,
    /// The counts in native buckets.
    pub(super) native: Native,
    pub(super) sum: f64,
    pub(super) count: u64,
}

/// Where a cell belongs.
struct CellBounds {
    /// All of it is at most this.
    upper: f64,
    /// Its native bucket, which ends at two to the power of this; `None`: it is zero.
    exponent: Option<i32>,
    /// It is below zero: that native bucket is the mirror image.
    below: bool,
}

impl CellBounds {
    fn above(upper: f64, exponent: Option<i32>) -> Self {
        Self {
            upper,
            exponent,
            below: false,
        }
    }
}

impl Buckets {
    fn new(bounds: impl Iterator<Item = f64>) -> Self {
        Self {
            bounds: bounds
                .chain([f64::INFINITY])
                .map(|bound| (bound, 0))
                .collect(),
            native: Native::default(),
            sum: 0.0,
            count: 0,
        }
    }

    fn add(&mut self, place: &CellBounds, count: u64) {
        let mut bounds = self.bounds.iter_mut();
        if let Some((_, n)) = bounds.find(|(bound, _)| *bound >= place.upper) {
            *n += count;
        }
        self.native.add(place.exponent, place.below, count);
        self.count += count;
    }
}

pub(super) fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}

fn power(bits: u32) -> f64 {
    f64::powi(2.0, i32::try_from(bits).unwrap_or(i32::MAX))
}

/// Bounds of device and queue time.
fn time_bounds() -> Buckets {
    Buckets::new(DEVICE_BITS.map(|bits| power(bits) / 1e9))
}

/// Device time by owner and operation.
pub(super) fn device_time(report: &StoreReport) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in &report.heat {
        all.entry((cell.owner.clone(), cell.operation.clone()))
            .or_insert_with(time_bounds)
            .add(&time(cell.device_to_ns), cell.count);
    }
    for shape in &report.shapes {
        if let Some(buckets) = all.get_mut(&of(shape)) {
            let ns = shape.seeks.iter().map(|seek| seek.device_ns).sum();
            buckets.sum = seconds(ns);
        }
    }
    all
}

/// |Seek distance| by owner and operation.
pub(super) fn seek_distance(report: &StoreReport) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in &report.heat {
        all.entry((cell.owner.clone(), cell.operation.clone()))
            .or_insert_with(|| {
                Buckets::new(
                    [0.0]
                        .into_iter()
                        .chain(SEEK_BITS.step_by(SEEK_STEP).map(power)),
                )
            })
            .add(&travel(cell), cell.count);
    }
    for shape in &report.shapes {
        if let Some(buckets) = all.get_mut(&of(shape)) {
            buckets.sum = float(shape.travel_bytes);
        }
    }
    all
}

/// Signed seek distance by operation. Nobody adds up distances with their signs: the sum is not a number.
pub(super) fn signed_seek(report: &StoreReport) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in &report.heat {
        all.entry((cell.operation.clone(), String::new()))
            .or_insert_with(|| {
                let back = SIGNED_BITS.rev().map(|bits| -power(bits));
                let ahead = SIGNED_BITS.skip(1).map(power);
                Buckets {
                    sum: f64::NAN,
                    ..Buckets::new(back.chain([0.0]).chain(ahead))
                }
            })
            .add(&signed_travel(cell), cell.count);
    }
    all
}

/// Device time by operation and interval of the signed seek distance. An operation has all intervals from its first
/// block request on: whoever draws them always has the same rows.
pub(super) fn seek_device_time(report: &StoreReport) -> HeatHistograms {
    let mut all = BTreeMap::new();
    for cell in &report.heat {
        let seek = interval((cell.seek_from_bytes, cell.seek_to_bytes));
        let key = (cell.operation.clone(), seek);
        if !all.contains_key(&key) {
            let bounds = DEVICE_BITS.step_by(DEVICE_COARSE_STEP);
            let none = Buckets::new(bounds.map(|bits| power(bits) / 1e9));
            all.extend(intervals().map(|seek| ((cell.operation.clone(), seek), none.clone())));
        }
        if let Some(buckets) = all.get_mut(&key) {
            buckets.add(&time(cell.device_to_ns), cell.count);
        }
    }
    for shape in &report.shapes {
        for seek in &shape.seeks {
            let at = interval((seek.seek_from_bytes, seek.seek_to_bytes));
            if let Some(buckets) = all.get_mut(&(shape.operation.clone(), at)) {
                buckets.sum += seconds(seek.device_ns);
            }
        }
    }
    all
}

fn of(shape: &BlockShape) -> (String, String) {
    (shape.owner.clone(), shape.operation.clone())
}

pub(super) fn flush_time(report: &StoreReport) -> HeatHistograms {
    unplaced_time(report, "flush")
}

pub(super) fn discard_time(report: &StoreReport) -> HeatHistograms {
    unplaced_time(report, "discard")
}

/// Device time of an operation that has no seek distance.
fn unplaced_time(report: &StoreReport, operation: &str) -> HeatHistograms {
    let shapes = report.shapes.iter().filter(|s| s.operation == operation);
    let shapes = shapes.filter(|shape| !shape.unplaced.is_empty());
    let of_one = |s: &BlockShape| (of(s), times(&s.unplaced, s.unplaced_ns));
    shapes.map(of_one).collect()
}

pub(super) fn flagged_time(report: &StoreReport) -> HeatHistograms {
    let flagged = report.flagged.iter();
    flagged
        .map(|f| {
            (
                (f.flag.clone(), String::new()),
                times(&f.device, f.device_ns),
            )
        })
        .collect()
}

/// Time in the queue by owner and operation.
pub(super) fn queue_time(report: &StoreReport) -> HeatHistograms {
    let queued = report.shapes.iter().filter(|s| !s.queue.is_empty());
    queued
        .map(|shape| (of(shape), times(&shape.queue, shape.queue_ns)))
        .collect()
}

fn times(counts: &[Bucket], sum_ns: u64) -> Buckets {
    let mut buckets = time_bounds();
    for bucket in counts {
        buckets.add(&time(bucket.to), bucket.count);
    }
    buckets.sum = seconds(sum_ns);
    buckets
}

/// Upper bounds of lengths: 512 bytes to 64 MiB.
const SIZE_BITS: std::ops::RangeInclusive<u32> = 9..=26;

/// Lengths of reads and writes by owner and operation.
pub(super) fn size(report: &StoreReport) -> HeatHistograms {
    let data = report.shapes.iter();
    let data = data.filter(|s| matches!(&*s.operation, "read" | "write"));
    let of_one = |shape: &BlockShape| {
        let mut buckets = Buckets::new(SIZE_BITS.map(power));
        for size in &shape.sizes {
            // The largest of the cell: lengths are whole sectors.
            let most = size.to.saturating_sub(SECTOR);
            let upper = float(most.checked_next_power_of_two().unwrap_or(u64::MAX));
            let exponent = (most > 0).then(|| exponent(most));
            buckets.add(&CellBounds::above(upper, exponent), size.count);
        }
        buckets.sum = float(shape.bytes);
        (of(shape), buckets)
    };
    data.map(of_one).collect()
}

/// Exponents of nanoseconds are this much above those of seconds: 2^30 is the nearest to 10^9.
const NANO_EXPONENT: i32 = 30;

/// Place of a time below this.
fn time(to_ns: u64) -> CellBounds {
    let exponent = exponent(to_ns) - NANO_EXPONENT;
    CellBounds::above(seconds(to_ns), Some(exponent))
}

/// Place by |seek distance|.
fn travel(cell: &HeatCell) -> CellBounds {
    match distance((cell.seek_from_bytes, cell.seek_to_bytes)) {
        None => CellBounds::above(0.0, None),
        Some(far) => CellBounds::above(float(far), Some(exponent(far))),
    }
}

/// Place by signed seek distance.
fn signed_travel(cell: &HeatCell) -> CellBounds {
    let place = travel(cell);
    if cell.seek_from_bytes >= 0 {
        return place;
    }
    // Of a cell that lies back the nearest distance is the largest number.
    let nearest = cell.seek_to_bytes.saturating_sub_unsigned(SECTOR);
    CellBounds {
        upper: -float(nearest.unsigned_abs()),
        below: true,
        ..place
    }
}

/// The power of two that a cell's end is, or that comes next.
fn exponent(end: u64) -> i32 {
    let bits = end.checked_next_power_of_two();
    bits.map_or(64, u64::trailing_zeros)
        .try_into()
        .unwrap_or(i32::MAX)
}

/// Bytes of a sector, the unit in which distances are counted.
const SECTOR: u64 = 512;

/// First |seek distance| behind an interval; `None`: no seek.
fn distance((from, to): (i64, i64)) -> Option<u64> {
    match from {
        0 => None,
        1.. => Some(to.unsigned_abs()),
        // Towards sector 0 a cell begins at its farthest distance and ends before its nearest:
        // the mirror image of the other direction is a sector farther away.
        ..0 => Some(from.unsigned_abs().saturating_add(SECTOR)),
    }
}

/// Name of the interval whose farthest bound this is, the number of [`SIGNED`].
fn interval_name(at: usize, back: bool) -> String {
    let name = SIGNED[at].1;
    let before = at.checked_sub(1).map_or("0", |before| SIGNED[before].1);
    if back {
        format!("-{name}..-{before}")
    } else {
        format!("{before}..{name}")
    }
}

fn interval(seek: (i64, i64)) -> String {
    let Some(far) = distance(seek) else {
        return "0".to_owned();
    };
    let at = SIGNED.iter().position(|(bits, _)| far <= 1_u64 << *bits);
    interval_name(at.unwrap_or(SIGNED.len() - 1), seek.0 < 0)
}

/// The names of all intervals.
fn intervals() -> impl Iterator<Item = String> {
    let sides = (0..SIGNED.len()).flat_map(|at| [true, false].map(|back| interval_name(at, back)));
    sides.chain(["0".to_owned()])
}

#[cfg(test)]
mod tests {
    use lumpscope_observer::SeekTime;

    use super::*;

    /// As the observer gives them: multiples of sectors, towards sector 0 shifted by one.
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

    fn cells() -> [HeatCell; 5] {
        [
            cell((0, 512), (1 << 16, 1 << 17), 7),
            cell((1 << 20, 1 << 21), (1 << 22, 1 << 23), 3),
            cell((512 - (1 << 30), 512 - (1 << 29)), (1 << 40, u64::MAX), 2),
            cell((-512, 0), (0, 1 << 10), 4),
            cell((512, 1024), (0, 1 << 10), 5),
        ]
    }

    /// With the exact sums of the same block requests.
    fn report() -> StoreReport {
        let seeks = cells().map(|cell| SeekTime {
            seek_from_bytes: cell.seek_from_bytes,
            seek_to_bytes: cell.seek_to_bytes,
            device_ns: cell.device_from_ns * cell.count,
        });
        StoreReport {
            heat: cells().to_vec(),
            shapes: vec![BlockShape {
                owner: "request".into(),
                operation: "read".into(),
                seeks: seeks.to_vec(),
                travel_bytes: 12_345,
                queue: vec![Bucket {
                    from: 1 << 16,
                    to: 1 << 17,
                    count: 3,
                }],
                queue_ns: 250_000,
                sizes: vec![Bucket {
                    from: 4096,
                    to: 8192,
                    count: 21,
                }],
                bytes: 21 * 4096,
                ..BlockShape::default()
            }],
            ..StoreReport::default()
        }
    }

    #[test]
    fn sums_are_those_of_the_probes() {
        let report = report();
        let key = ("request".to_owned(), "read".to_owned());
        let ns: u64 = cells().iter().map(|c| c.device_from_ns * c.count).sum();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(device_time(&report)[&key].sum, seconds(ns));
        near(seek_distance(&report)[&key].sum, 12_345.0);
        let by_seek = seek_device_time(&report);
        near(by_seek.values().map(|b| b.sum).sum(), seconds(ns));
        let queue = &queue_time(&report)[&key];
        assert_eq!(queue.count, 3);
        near(queue.sum, 0.000_25);
        let sizes = &size(&report)[&key];
        assert_eq!((sizes.count, sizes.bounds[4]), (21, (8192.0, 21)));
        near(sizes.sum, 21.0 * 4096.0);
        assert!(flush_time(&report).is_empty() && discard_time(&report).is_empty());
        let discards = BlockShape {
            operation: "discard".into(),
            unplaced: report.shapes[0].queue.clone(),
            unplaced_ns: 250_000,
            ..report.shapes[0].clone()
        };
        let shapes = vec![discards];
        let report = StoreReport { shapes, ..report };
        let times = discard_time(&report);
        let of = &times[&("request".to_owned(), "discard".to_owned())];
        assert_eq!((of.count, flush_time(&report).len()), (3, 0));
        near(of.sum, 0.000_25);
    }

    #[test]
    fn every_count_lands_in_exactly_one_bucket_of_each_form() {
        let report = report();
        for map in [
            device_time(&report),
            seek_distance(&report),
            signed_seek(&report),
            seek_device_time(&report),
        ] {
            let total: u64 = map.values().map(|b| b.count).sum();
            let classic: u64 = map.values().flat_map(|b| &b.bounds).map(|(_, n)| n).sum();
            let native: u64 = map.values().map(|b| b.native.count()).sum();
            assert_eq!((total, classic, native), (21, 21, 21));
            let last = |b: &Buckets| b.bounds.last().map(|(bound, _)| *bound);
            assert!(map.values().all(|b| last(b) == Some(f64::INFINITY)));
        }
        let seeks = seek_distance(&report);
        let buckets = &seeks[&("request".to_owned(), "read".to_owned())];
        assert_eq!(buckets.bounds[0], (0.0, 7), "no seek at all");
        let expected = (4096.0, 9);
        assert_eq!(buckets.bounds[1], expected, "a sector in both directions");
        let by_seek = seek_device_time(&report);
        assert_eq!(by_seek.len(), 11, "each interval is there at once");
        let filled = by_seek.into_iter().filter(|(_, b)| b.count > 0);
        let names: Vec<String> = filled.map(|(key, _)| key.1).collect();
        let want = [
            "-16GiB..-256MiB",
            "-64KiB..-0",
            "0",
            "0..64KiB",
            "64KiB..4MiB",
        ];
        assert_eq!(names, want.map(str::to_owned));
    }

    #[test]
    fn a_signed_distance_lies_below_the_bound_of_its_octave() {
        let signed = signed_seek(&report());
        let buckets = &signed[&("read".to_owned(), String::new())];
        let bounds: Vec<f64> = buckets.bounds.iter().map(|(bound, _)| *bound).collect();
        assert!(bounds.is_sorted(), "{bounds:?}");
        let filled = buckets.bounds.iter().filter(|(_, n)| *n > 0);
        let filled: Vec<(f64, u64)> = filled.copied().collect();
        let want = [
            (-power(29), 2),
            (-512.0, 4),
            (0.0, 7),
            (1024.0, 5),
            (power(21), 3),
        ];
        assert_eq!(filled, want);
        assert!(buckets.sum.is_nan());
        let far = cell((i64::MIN, -(1 << 50)), (0, 1), 1);
        let place = signed_travel(&far);
        assert!(place.upper <= bounds[0] && place.below, "{}", place.upper);
    }

    #[test]
    fn both_directions_have_the_same_native_bucket_and_it_fits_the_cell() {
        let [none, ahead, back, one_back, one_ahead] = cells();
        assert_eq!(travel(&none).exponent, None);
        assert_eq!(travel(&ahead).exponent, Some(21));
        assert_eq!(travel(&back).exponent, Some(30));
        assert_eq!(travel(&one_back).exponent, travel(&one_ahead).exponent);
        let far = cell((i64::MIN, -(1 << 50)), (0, 1), 1);
        assert_eq!(travel(&far).exponent, Some(64), "the outermost has no end");
        for cell in [&none, &ahead, &one_back] {
            let end = f64::powi(2.0, time(cell.device_to_ns).exponent.unwrap());
            let (from, to) = (seconds(cell.device_from_ns), seconds(cell.device_to_ns));
            assert!(from < end && end < to, "{from} {end} {to}");
            assert!(end / to > 0.93, "{end} {to}");
        }
    }
}
