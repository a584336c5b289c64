//! The choice on small queues.

use super::*;
use crate::owner::waiting::order::curve::Pair;

const GIB: u64 = 1 << 30;

/// Spots on either side of `head`, the nearest first.
fn sides(head: u64, positions: &[u64]) -> (Vec<Spot>, Vec<Spot>) {
    let spot = |(number, &position): (u64, &u64)| Spot {
        position,
        len: 4096,
        number,
        overtaken: 0,
    };
    let all = (0..).zip(positions).map(spot);
    let (mut up, mut down): (Vec<Spot>, Vec<Spot>) = all.partition(|spot| spot.position >= head);
    up.sort_by_key(|spot| spot.position);
    down.sort_by_key(|spot| std::cmp::Reverse(spot.position));
    (up, down)
}

fn chosen(curve: &Curve, head: u64, positions: &[u64]) -> Option<u64> {
    let (up, down) = sides(head, positions);
    choose(curve, head, (&up, &down), positions.len() as u64)
}

#[test]
fn the_nearest_goes_first_and_up_before_down() {
    let curve = Curve::default();
    assert_eq!(chosen(&curve, 10 * GIB, &[]), None);
    assert_eq!(chosen(&curve, 10 * GIB, &[2 * GIB]), Some(0));
    assert_eq!(chosen(&curve, 10 * GIB, &[9 * GIB, 15 * GIB]), Some(0));
    assert_eq!(chosen(&curve, 10 * GIB, &[9 * GIB, 11 * GIB]), Some(1));
}

#[test]
fn many_near_ones_beat_a_single_nearer_one() {
    let curve = Curve::default();
    let crowd = [
        8 * GIB,
        11 * GIB,
        11 * GIB + 8192,
        11 * GIB + 16384,
        11 * GIB + 24576,
    ];
    assert_eq!(chosen(&curve, 9 * GIB, &crowd[..2]), Some(0));
    assert_eq!(chosen(&curve, 9 * GIB, &crowd), Some(1));
}

#[test]
fn who_was_overtaken_often_is_worth_a_longer_way() {
    let curve = Curve::default();
    let (up, mut down) = sides(10 * GIB, &[10 * GIB + 5000, GIB]);
    let number = |down: &[Spot]| choose(&curve, 10 * GIB, (&up, down), 2);
    assert_eq!(number(&down), Some(0));
    down[0].overtaken = 2 * PATIENCE;
    assert_eq!(number(&down), Some(1));
}

#[test]
fn on_a_flat_disk_it_makes_no_difference() {
    let mut curve = Curve::default();
    for n in 0..400_i64 {
        curve.learn(Pair {
            distance: (1 << (20 + n % 20)) * if n % 2 == 0 { 1 } else { -1 },
            len: 4096,
            took_ns: 90_000,
        });
    }
    assert_eq!(chosen(&curve, 10 * GIB, &[9 * GIB, 11 * GIB]), None);
}

#[test]
fn the_ends_of_the_device_are_places_as_well() {
    let curve = Curve::default();
    assert_eq!(chosen(&curve, 0, &[u64::MAX, 0]), Some(1));
    assert_eq!(chosen(&curve, u64::MAX, &[0, u64::MAX]), Some(1));
    assert_eq!(chosen(&curve, u64::MAX, &[0]), Some(0));
}
