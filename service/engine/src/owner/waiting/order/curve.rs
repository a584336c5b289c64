//! Time of the disk to get to a place, learnt from pairs of distance and device time. Pure: no
//! clock, no I/O, no floating point; every history of pairs gives one curve.
//!
//! Distances are signed, from the end of what the disk did before to the first byte asked for, and
//! fall into buckets of half an octave on each side. A bucket keeps a running mean of the times and
//! of the lengths, in which old pairs fade; one pair cannot move it far, however long the disk
//! stood still. Time grows with the length, too: that slope is learnt once for all buckets, from
//! how times and lengths differ from the means of their bucket, so that a bucket of long reads does
//! not look like one of long ways. What is left is the time to get there: arm, rotation on average,
//! and what the disk does for any request.
//!
//! A bucket without enough pairs is read off its neighbours. Where there is none on one side, the
//! shape of the prior is scaled to the next one: so a disk of which nothing is known is served the
//! nearest first, with a slight preference for going up.

use std::array;

/// The shortest distance that has a side and an octave, as a power of two: 4 KiB.
const FIRST_LOG: u32 = 12;

/// Distances from 2 to this power on are one bucket: 16 TiB.
const LAST_LOG: u32 = 44;

/// Buckets of one side: below 4 KiB, and two an octave.
pub(crate) const SIDE: usize = 2 * (LAST_LOG - FIRST_LOG) as usize + 1;

/// Pairs after which a bucket is believed.
const ENOUGH: u32 = 4;

/// Pairs after which the oldest have faded: the weight of a new one is never less than one in so
/// many.
const MEMORY: u32 = 128;

/// Memory of the slope, which all buckets share.
const SLOPE_MEMORY: i64 = 512;

/// A time counts at most as one that is off by so many mean deviations.
const CLIP: i64 = 4;

/// Longest time of a pair, in nanoseconds: a second. More says nothing of positioning.
pub(crate) const MAX_TOOK_NS: u64 = 1_000_000_000;

/// Longest transfer of a pair in KiB: that of the largest lump.
const MAX_KIB: u64 = 1 << 19;

/// Nanoseconds for a KiB while nothing is known: 200 MiB/s.
const PRIOR_SLOPE: i64 = 4_883;

/// Fastest and slowest slope, in nanoseconds for a KiB: 100 GB/s and 1 MB/s.
const SLOPES: (i64, i64) = (10, 1_000_000);

/// How much the prior slope weighs: as eight pairs that are 64 KiB off.
const PRIOR_VARIANCE: i64 = 8 * 64 * 64;

/// The prior of a way of less than 4 KiB up, in nanoseconds: the next sector comes at once.
const PRIOR_NEXT_NS: u64 = 500_000;

/// The prior of the shortest other way in nanoseconds: half a turn and the settling of the arm.
const PRIOR_FIRST_NS: u64 = 5_000_000;

/// Addition of each half octave to the prior, in nanoseconds.
const PRIOR_STEP_NS: u64 = 200_000;

/// Addition for going down to the prior, in nanoseconds.
const PRIOR_BACK_NS: u64 = 100_000;

/// Buckets that must be believed before the curve is called flat.
const FLAT_BUCKETS: usize = 6;

/// A curve is flat when its longest way takes no more than one part in so many above its shortest.
const FLAT_PART: u64 = 3;

/// One observation of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Bytes from the end of the I/O before to the begin of this one; negative: back.
    pub(crate) distance: i64,
    /// Bytes transferred.
    pub(crate) len: u64,
    /// Nanoseconds the disk spent on it and nothing else.
    pub(crate) took_ns: u64,
}

/// Observations of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Pairs, up to [`MEMORY`].
    seen: u32,
    mean_ns: i64,
    deviation_ns: i64,
    mean_kib: i64,
}

/// Bucket of a distance: its side and its place on that side.
fn bucket_of(distance: i64) -> (usize, usize) {
    let far = distance.unsigned_abs();
    let side = usize::from(distance < 0);
    let log = far.max(1).ilog2();
    if log < FIRST_LOG {
        return (side, 0);
    }
    let half = (far >> (log - 1)) & 1;
    let place = 1 + 2 * (log - FIRST_LOG) as usize + usize::from(half == 1);
    (side, place.min(SIDE - 1))
}

/// First byte of a bucket.
const fn edge(place: usize) -> u64 {
    if place == 0 {
        return 0;
    }
    let octave = 1_u64 << (FIRST_LOG as usize + (place - 1) / 2);
    octave + octave / 2 * ((place as u64 - 1) % 2)
}

/// The distance that stands for a bucket: its middle.
const fn middle(place: usize) -> u64 {
    edge(place).midpoint(edge(place + 1))
}

fn prior(side: usize, place: usize) -> u64 {
    if (side, place) == (0, 0) {
        return PRIOR_NEXT_NS;
    }
    PRIOR_FIRST_NS + PRIOR_STEP_NS * place as u64 + PRIOR_BACK_NS * side as u64
}

/// The curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    buckets: [[Bucket; SIDE]; 2],
    /// Nanoseconds for a way of the middle of each bucket, kept up to date.
    table: [[u64; SIDE]; 2],
    /// Sums of the products of how much lengths (KiB) and times (ns) are off, in which old ones
    /// fade.
    covariance: i64,
    variance: i64,
    /// Kept up to date with the table.
    longest_ns: u64,
    flat: bool,
}

impl Default for Curve {
    fn default() -> Self {
        let mut curve = Self {
            buckets: [[Bucket::default(); SIDE]; 2],
            table: [[0; SIDE]; 2],
            covariance: PRIOR_SLOPE * PRIOR_VARIANCE,
            variance: PRIOR_VARIANCE,
            longest_ns: 0,
            flat: false,
        };
        curve.draw();
        curve
    }
}

/// A length in KiB, rounded up and bounded.
fn kib(len: u64) -> i64 {
    i64::try_from(len.div_ceil(1024).min(MAX_KIB)).unwrap_or(0)
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl Curve {
    /// Nanoseconds for a KiB.
    fn slope(&self) -> i64 {
        (self.covariance / self.variance.max(1)).clamp(SLOPES.0, SLOPES.1)
    }

    /// Nanoseconds to transfer `len` bytes.
    pub(crate) fn transfer_ns(&self, len: u64) -> u64 {
        (self.slope() * kib(len)).unsigned_abs()
    }

    /// Nanoseconds until the disk is there and begins to transfer.
    pub(crate) fn positioning_ns(&self, distance: i64) -> u64 {
        let (side, place) = bucket_of(distance);
        let table = &self.table[side];
        let far = distance.unsigned_abs();
        // Below 4 KiB it is the next sector or one that has just passed: no line leads there.
        let (before, after) = match place {
            0 => return table[0],
            1 if far < middle(1) => return table[1],
            _ if place + 1 == SIDE && far >= middle(place) => return table[place],
            _ if far < middle(place) => (place - 1, place),
            _ => (place, place + 1),
        };
        between(
            far,
            (middle(before), table[before]),
            (middle(after), table[after]),
        )
    }

    /// Nanoseconds for an I/O.
    pub(crate) fn predict(&self, distance: i64, len: u64) -> u64 {
        self.positioning_ns(distance)
            .saturating_add(self.transfer_ns(len))
    }

    /// Buckets that are believed.
    pub(crate) fn known(&self) -> usize {
        let known = |bucket: &&Bucket| bucket.seen >= ENOUGH;
        self.buckets.iter().flatten().filter(known).count()
    }

    /// The longest positioning time that is known, or else that of the prior, in nanoseconds.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// True: enough is known to say that the way makes no difference, as on a disk without an arm.
    pub(crate) fn is_flat(&self) -> bool {
        self.flat
    }

    /// Takes up one pair. The same work for every pair.
    pub(crate) fn learn(&mut self, pair: Pair) {
        let (side, place) = bucket_of(pair.distance);
        let slope = self.slope();
        let kib = kib(pair.len);
        let took = signed(pair.took_ns.min(MAX_TOOK_NS));
        let bucket = &mut self.buckets[side][place];
        if bucket.seen == 0 {
            bucket.mean_ns = took;
            bucket.deviation_ns = took / 2;
            bucket.mean_kib = kib;
            bucket.seen = 1;
        } else {
            let longer = kib - bucket.mean_kib;
            let expected = bucket.mean_ns + slope * longer;
            // A disk that has become slower is believed in the end: a part of the mean is let in.
            let reach = CLIP * bucket.deviation_ns.max(bucket.mean_ns / 8).max(1);
            let off = (took - expected).clamp(-reach, reach);
            bucket.seen = (bucket.seen + 1).min(MEMORY);
            let weight = i64::from(bucket.seen);
            if bucket.seen > ENOUGH {
                let later = off + slope * longer;
                self.covariance += longer * later - self.covariance / SLOPE_MEMORY;
                self.variance += longer * longer - self.variance / SLOPE_MEMORY;
            }
            bucket.mean_ns += (off + slope * longer) / weight;
            bucket.mean_kib += longer / weight;
            bucket.deviation_ns += (off.abs() - bucket.deviation_ns) / weight.min(16);
        }
        self.draw();
    }

    /// Positioning time of a bucket that is believed.
    fn of_bucket(&self, side: usize, place: usize) -> Option<u64> {
        let bucket = &self.buckets[side][place];
        let alone = bucket.mean_ns - self.slope() * bucket.mean_kib;
        (bucket.seen >= ENOUGH).then(|| u64::try_from(alone).unwrap_or(0))
    }

    /// Brings the table up to date.
    fn draw(&mut self) {
        for side in [0, 1] {
            self.table[side] = self.draw_side(side);
        }
        let ways = || (0..2).flat_map(|side| (1..SIDE).map(move |place| (side, place)));
        let known = || ways().filter_map(|(side, place)| self.of_bucket(side, place));
        let longest = known().max();
        let shortest = known().min();
        self.flat = known().count() >= FLAT_BUCKETS
            && longest.zip(shortest).is_some_and(|(longest, shortest)| {
                longest.saturating_sub(shortest) <= longest / FLAT_PART
            });
        self.longest_ns = longest.unwrap_or_else(|| prior(1, SIDE - 1));
    }

    fn draw_side(&self, side: usize) -> [u64; SIDE] {
        let known: [Option<u64>; SIDE] = array::from_fn(|place| self.of_bucket(side, place));
        // Nothing follows from the first for the others: what comes next may lie in a cache.
        let mut above = [None; SIDE];
        let mut next = None;
        for (place, slot) in above.iter_mut().enumerate().skip(1).rev() {
            next = known[place].map(|ns| (place, ns)).or(next);
            *slot = next;
        }
        above[0] = next;
        let mut below = None;
        array::from_fn(|place| {
            if let Some(ns) = known[place] {
                below = (place > 0).then_some((place, ns));
                return ns;
            }
            match (below, above[place]) {
                // What lies between two that are known lies on a line, by octaves.
                (Some((from, low)), Some((to, high))) => {
                    between(place as u64, (from as u64, low), (to as u64, high))
                }
                (Some(one), None) | (None, Some(one)) => scaled(side, place, one),
                (None, None) => self.mirrored(side, place),
            }
        })
    }

    /// The value of a side of which nothing is known: that of the other one, if it is known there.
    fn mirrored(&self, side: usize, place: usize) -> u64 {
        let other = 1 - side;
        match self.of_bucket(other, place) {
            Some(ns) if place > 0 => ns.saturating_mul(prior(side, place)) / prior(other, place),
            _ => prior(side, place),
        }
    }
}

/// The prior of a bucket, as much higher or lower as that of a known one was found to be.
fn scaled(side: usize, place: usize, (known, ns): (usize, u64)) -> u64 {
    // The next sector is another thing: nothing follows for it from others.
    if (side, place) == (0, 0) {
        return prior(side, place);
    }
    ns.saturating_mul(prior(side, place)) / prior(side, known)
}

/// The value at `x` on the line through two points, `x` between them.
fn between(x: u64, (x0, y0): (u64, u64), (x1, y1): (u64, u64)) -> u64 {
    let width = u128::from(x1.saturating_sub(x0).max(1));
    let part = u128::from(x.saturating_sub(x0)).min(width);
    let value = (u128::from(y0) * (width - part) + u128::from(y1) * part) / width;
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
