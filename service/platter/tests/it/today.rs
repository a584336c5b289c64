//! Drives of today: tracks that overlap, and two actuators.

use lumpscope_platter::disk::{Disk, Policy, Request};
use lumpscope_platter::drive::{Drive, by_name};
use lumpscope_platter::queue::{Order, Queueing, Station};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn shingled() -> Drive {
    by_name("st5000as0011").unwrap()
}

/// The same mechanics, with tracks beside each other.
fn conventional(shingled: &Drive) -> Drive {
    Drive {
        band_bytes: 0,
        ..shingled.clone()
    }
}

/// Time of a stream of writes of 1 MiB, all on the platters.
fn stream(drive: &Drive, first: u64, count: u64) -> u64 {
    let mut disk = Disk::new(drive, Policy::default()).unwrap();
    let mut now_ns = 0;
    for number in 0..count {
        let request = Request::write(first + number * 2048, 2048);
        now_ns = disk.serve(now_ns, &request).unwrap().done_ns;
    }
    disk.serve(now_ns, &Request::flush()).unwrap().done_ns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn overlapping_tracks_cost_a_stream_next_to_nothing(place in 0_u64..9_700_000_000) {
        let first = place / 8 * 8;
        let [overlapping, beside] =
            [shingled(), conventional(&shingled())].map(|drive| stream(&drive, first, 512));
        // The begin of a stream, as far as it fills no whole band, goes to the log at the outside: at
        // most a fourteenth of it, which costs a way, and is written twice as fast as at the inside.
        prop_assert!(overlapping * 100 <= beside * 106, "{overlapping} {beside}");
        prop_assert!(beside * 100 <= overlapping * 106, "{overlapping} {beside}");
    }

    #[test]
    fn random_writes_pile_up_and_are_cleaned_later(seed in any::<u64>()) {
        let drive = Drive {
            band_bytes: 4 * MIB,
            media_cache_bytes: 8 * MIB,
            ..shingled().resized(20_000_000)
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut places: Vec<u64> = (0..20_000_000 / 8 - 1).step_by(601).map(|at| at * 8).collect();
        random.shuffle(&mut places);
        let policy = Policy::default().write_through();
        let mut disk = Disk::new(&drive, policy).unwrap();
        let mut other = Disk::new(&conventional(&drive), policy).unwrap();
        let fits = usize::try_from(8 * MIB / 4096).unwrap();
        let (mut now_ns, mut other_ns) = (0, 0);
        for place in &places[..fits] {
            let request = Request::write(*place, 8);
            now_ns = disk.serve(now_ns, &request).unwrap().done_ns;
            other_ns = other.serve(other_ns, &request).unwrap().done_ns;
        }
        // One behind the other in the log.
        prop_assert!(now_ns * 10 < other_ns * 11, "{now_ns} {other_ns}");
        prop_assert!(disk.waiting_bytes() >= 7 * MIB && disk.counts().bands_cleaned == 0);
        let (full_ns, other_full_ns) = (now_ns, other_ns);
        for place in &places[fits..fits + 200] {
            let request = Request::write(*place, 8);
            now_ns = disk.serve(now_ns, &request).unwrap().done_ns;
            other_ns = other.serve(other_ns, &request).unwrap().done_ns;
        }
        let cleaned = disk.counts().bands_cleaned;
        prop_assert!(cleaned > 0 && now_ns - full_ns > other_ns - other_full_ns);
        // A second does not do for all; an hour does.
        let read = Request::read(0, 8);
        disk.serve(now_ns + drive.clean_idle_ns / 2, &read).unwrap();
        prop_assert_eq!(disk.counts().bands_cleaned, cleaned);
        disk.serve(now_ns + 3_600_000_000_000, &read).unwrap();
        prop_assert_eq!(disk.waiting_bytes(), 0);
        prop_assert!(disk.counts().bands_cleaned > cleaned);
        // What is cleaned is in its place: reading it moves the head no more than elsewhere.
        prop_assert_eq!(disk.counts().requests, other.counts().requests + 2);
    }
}

/// Time of random reads of 4 KiB within these sectors, so many in flight.
fn reads(drive: &Drive, (order, flight): (Order, usize), sectors: std::ops::Range<u64>) -> u64 {
    let queueing = Queueing {
        order,
        ..Queueing::default()
    };
    let mut station = Station::new(Disk::new(drive, Policy::default()).unwrap(), queueing);
    let mut random = fastrand::Rng::with_seed(5);
    let (mut sent, mut ended, mut last_ns) = (0, 0, 0);
    while ended < 2000 {
        while sent < 2000 && station.outstanding() < flight {
            let sector = random.u64(sectors.start / 8..sectors.end / 8) * 8;
            let request = Request::read(sector, 8);
            station.submit(station.now_ns(), sent, &request).unwrap();
            sent += 1;
        }
        let next_ns = station.next_ns().unwrap();
        let count = |done: lumpscope_platter::queue::Done| {
            assert_eq!(done.served.parts_ns(), done.served.done_ns);
            (ended, last_ns) = (ended + 1, done.served.done_ns);
        };
        station.advance(next_ns, count).unwrap();
    }
    last_ns
}

#[test]
fn two_actuators_do_nearly_twice_as_much_if_both_have_work() {
    let two = by_name("st18000nm0092").unwrap();
    let one = Drive {
        actuators: 1,
        ..two.clone()
    };
    for order in Order::ALL {
        // As many to choose from for each arm.
        let alone = reads(&one, (order, 16), 0..one.sectors);
        let both = reads(&two, (order, 32), 0..two.sectors);
        let gain = alone * 100 / both;
        assert!((170..=205).contains(&gain), "{order}: {gain} %");
        // A half of the sectors is one actuator's, whose arm crosses all cylinders for them.
        let half = reads(&two, (order, 32), 0..two.sectors / 2 / 8 * 8);
        assert!(half > both * 15 / 10, "{order}: {half} {both}");
    }
}

#[test]
fn a_request_over_the_border_of_two_actuators_is_one() {
    let two = by_name("st18000nm0092").unwrap();
    let mut disk = Disk::new(&two, Policy::default()).unwrap();
    let border = two.sectors / 2 / 8 * 8;
    let served = disk.serve(0, &Request::read(border - 8, 16)).unwrap();
    assert_eq!(served.parts_ns(), served.done_ns);
    assert_eq!((disk.counts().requests, disk.counts().media_reads), (1, 2));
    assert!(disk.cylinder_of(border - 1) > 0 && disk.cylinder_of(border) == 0);
    disk.serve(served.done_ns, &Request::write(border - 8, 16))
        .unwrap();
    assert_eq!(disk.dirty_bytes(), 8192);
    disk.serve(served.done_ns, &Request::flush()).unwrap();
    assert_eq!((disk.dirty_bytes(), disk.counts().requests), (0, 3));
}
