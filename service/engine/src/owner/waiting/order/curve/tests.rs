//! The curve against disks whose times are known.

use proptest::prelude::*;

use super::*;
use crate::random::Random;

const MS: u64 = 1_000_000;

fn pair(distance: i64, len: u64, took_ns: u64) -> Pair {
    Pair {
        distance,
        len,
        took_ns,
    }
}

/// A disk with an arm: 1 to 16 ms for the way, and 0 to 8 ms for the turn.
fn arm_ns(distance: i64) -> u64 {
    let way = distance.unsigned_abs().isqrt();
    MS + way * 15 * MS / (1_u64 << 40).isqrt()
}

fn far(random: &mut Random) -> i64 {
    let place = |random: &mut Random| i64::try_from(random.below(1 << 40)).unwrap();
    place(random) - place(random)
}

#[test]
fn buckets_follow_each_other_without_gaps() {
    assert_eq!(bucket_of(0), (0, 0));
    assert_eq!(bucket_of(-1), (1, 0));
    assert_eq!(bucket_of(i64::MIN), (1, SIDE - 1));
    assert_eq!(bucket_of(i64::MAX), (0, SIDE - 1));
    for place in 1..SIDE {
        let first = i64::try_from(edge(place)).unwrap();
        assert_eq!(bucket_of(first), (0, place));
        assert_eq!(bucket_of(first - 1), (0, place - 1));
        assert_eq!(bucket_of(-first), (1, place));
    }
}

#[test]
fn of_an_unknown_disk_the_nearest_is_the_cheapest() {
    let curve = Curve::default();
    assert_eq!((curve.known(), curve.is_flat()), (0, false));
    let mut before = 0;
    for step in 0..46 {
        let (up, down) = (1_i64 << step, -(1_i64 << step));
        let (up, down) = (curve.positioning_ns(up), curve.positioning_ns(down));
        assert!(before <= up && up < down, "{step}");
        before = up;
    }
    // Twice the way costs more than another direction.
    assert!(curve.positioning_ns(-(1 << 30)) < curve.positioning_ns(1 << 31));
    assert_eq!(curve.longest_ns(), prior(1, SIDE - 1));
    assert!((4 * MS..6 * MS).contains(&curve.transfer_ns(1 << 20)));
}

#[test]
fn ways_and_transfer_are_told_apart() {
    const RATE: u64 = 10_000;
    let mut curve = Curve::default();
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let distance = far(&mut random);
        let len = [4096, 65536, 1 << 20][usize::try_from(random.below(3)).unwrap()];
        let turn = random.below(8 * MS);
        let took = arm_ns(distance) + turn + len / 1024 * RATE;
        curve.learn(pair(distance, len, took));
    }
    let slope = curve.transfer_ns(1 << 20) / 1024;
    assert!(slope.abs_diff(RATE) < RATE / 10, "{slope}");
    for distance in [1 << 33, 1 << 36, 1 << 39, -(1 << 35), -(1 << 38)] {
        let (is, should) = (curve.positioning_ns(distance), arm_ns(distance) + 4 * MS);
        assert!(
            is.abs_diff(should) < should / 6,
            "{distance}: {is} {should}"
        );
    }
    // Nothing was seen of the short ways: they cost no more than the shortest that was.
    assert!(curve.positioning_ns(1 << 20) < curve.positioning_ns(1 << 33));
    assert!(!curve.is_flat());
}

#[test]
fn what_happens_once_says_little() {
    let mut curve = Curve::default();
    for turn in 0..200 {
        curve.learn(pair(1 << 30, 4096, 6 * MS + turn % 4 * MS));
    }
    let before = curve.positioning_ns(1 << 30);
    curve.learn(pair(1 << 30, 4096, u64::MAX));
    curve.learn(pair(1 << 30, 4096, 0));
    assert!(curve.positioning_ns(1 << 30).abs_diff(before) < before / 8);
}

#[test]
fn a_disk_that_changes_is_followed() {
    let mut curve = Curve::default();
    let mut feed = |took: u64| {
        for _ in 0..1000 {
            curve.learn(pair(1 << 30, 4096, took));
        }
        curve.predict(1 << 30, 4096)
    };
    for took in [8 * MS, 80_000, 12 * MS] {
        let is = feed(took);
        assert!(is.abs_diff(took) < took / 10, "{is} {took}");
    }
}

#[test]
fn a_disk_without_an_arm_is_flat() {
    let mut curve = Curve::default();
    let mut random = Random::new(9);
    for _ in 0..4000 {
        curve.learn(pair(far(&mut random), 4096, 70_000 + random.below(40_000)));
    }
    assert!(curve.is_flat());
    let mut curve = Curve::default();
    for _ in 0..4000 {
        let distance = far(&mut random);
        let took = arm_ns(distance) + random.below(8 * MS);
        curve.learn(pair(distance, 4096, took));
    }
    assert!(!curve.is_flat());
}

proptest! {
    /// For all observations: no overflow, no value out of bounds, an equal curve each time.
    #[test]
    fn nothing_breaks_it(
        pairs in prop::collection::vec((any::<i64>(), any::<u64>(), any::<u64>(), 0_u32..64), 0..300),
        asked in any::<i64>(),
    ) {
        let draw = || {
            let mut curve = Curve::default();
            for &(distance, len, took, fine) in &pairs {
                curve.learn(pair(distance >> fine, len >> fine, took >> fine));
            }
            curve
        };
        let (curve, again) = (draw(), draw());
        let ns = curve.positioning_ns(asked);
        prop_assert_eq!(ns, again.positioning_ns(asked));
        prop_assert!(curve.predict(asked, u64::MAX) >= ns);
        prop_assert!(curve.longest_ns() < 1 << 50);
        for (side, place) in (0..2).flat_map(|side| (0..SIDE).map(move |place| (side, place))) {
            prop_assert!(curve.table[side][place] < 1 << 50);
        }
    }
}
