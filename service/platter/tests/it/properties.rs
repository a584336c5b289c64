//! Properties that hold for any requests on any drive.

use lumpscope_platter::disk::{Disk, PartialSectors, Policy, Request, Served};
use lumpscope_platter::drive::{DRIVES, Drive};
use lumpscope_platter::trace::Op;
use proptest::prelude::*;

fn drives() -> impl Strategy<Value = Drive> {
    let sectors = prop_oneof![8_u64..5000, 5000_u64..3_000_000, Just(u64::MAX)];
    (0..DRIVES.len(), sectors).prop_map(|(number, sectors)| match sectors {
        u64::MAX => DRIVES[number].clone(),
        sectors => DRIVES[number].resized(sectors),
    })
}

fn policies() -> impl Strategy<Value = Policy> {
    let partial = prop_oneof![
        Just(PartialSectors::Free),
        Just(PartialSectors::WriteThroughOnly),
        Just(PartialSectors::ReadFirst),
    ];
    (any::<[bool; 4]>(), partial).prop_map(|(set, partial)| {
        let [through, overlap, read_ahead, write_before_read] = set;
        let mut policy = Policy {
            partial,
            read_ahead,
            write_before_read,
            ..Policy::default()
        };
        if through {
            policy = policy.write_through();
        }
        if overlap {
            policy = policy.with_overlap();
        }
        policy
    })
}

/// Pause before it, operation, FUA, place in a few hot spots or anywhere, length.
type Step = (u64, u8, bool, u64, u32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![Just(0), 0_u64..3_000_000, 0_u64..500_000_000];
    let place = prop_oneof![0_u64..5000, any::<u64>()];
    let sectors = prop_oneof![0_u32..20, 0_u32..5000];
    prop::collection::vec((pause, 0_u8..8, any::<bool>(), place, sectors), 1..150)
}

fn request(drive: &Drive, &(_, op, fua, place, sectors): &Step) -> Request {
    let sectors = u64::from(sectors).min(drive.sectors);
    let sector = place % (drive.sectors - sectors + 1);
    let op = match op {
        0..=2 => Op::Read,
        3..=5 => Op::Write,
        6 => Op::Flush,
        _ => Op::Discard,
    };
    Request {
        op,
        fua,
        sector,
        sectors: u32::try_from(sectors).unwrap(),
    }
}

/// Serves the steps; each comes after its pause, whether or not the one before is done.
fn run(disk: &mut Disk, steps: &[Step]) -> Vec<Served> {
    let (drive, mut now_ns) = (disk.drive().clone(), 0);
    let mut serve = |step: &Step| {
        now_ns += step.0;
        let served = disk.serve(now_ns, &request(&drive, step)).unwrap();
        assert_eq!(served.arrived_ns, now_ns);
        served
    };
    steps.iter().map(&mut serve).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn time_never_goes_back_and_every_nanosecond_is_accounted_for(
        drive in drives(), policy in policies(), steps in steps(),
    ) {
        let mut disk = Disk::new(&drive, policy).unwrap();
        for served in run(&mut disk, &steps) {
            prop_assert!(served.arrived_ns <= served.begin_ns);
            prop_assert!(served.begin_ns + drive.overhead_ns <= served.done_ns);
            prop_assert_eq!(served.parts_ns(), served.done_ns);
            let room = drive.cache_bytes.max(u64::from(drive.actuators) << 20);
            prop_assert!(disk.dirty_bytes() <= room + 4096 * u64::from(drive.actuators));
        }
    }

    #[test]
    fn the_same_requests_give_the_same_times(
        drive in drives(), policy in policies(), steps in steps(),
    ) {
        let mut one = Disk::new(&drive, policy).unwrap();
        let mut two = Disk::new(&drive, policy).unwrap();
        prop_assert_eq!(run(&mut one, &steps), run(&mut two, &steps));
        prop_assert_eq!(one.counts(), two.counts());
    }

    #[test]
    fn after_a_flush_everything_that_was_written_is_on_the_platters(
        drive in drives(), policy in policies(), steps in steps(),
    ) {
        let mut disk = Disk::new(&drive, policy).unwrap();
        run(&mut disk, &steps);
        let mut sectors = std::collections::BTreeSet::new();
        for step in steps.iter().filter(|step| (3..=5).contains(&step.1)) {
            let request = request(&drive, step);
            sectors.extend(request.sector..request.end());
        }
        let flushed = disk.serve(u64::MAX >> 3, &Request::flush()).unwrap();
        prop_assert_eq!(disk.dirty_bytes(), 0);
        prop_assert!(flushed.done_ns >= flushed.begin_ns);
        let written = disk.counts().media_sectors_written;
        prop_assert!(written >= u64::try_from(sectors.len()).unwrap());
    }

    #[test]
    fn a_stream_is_never_faster_than_the_outermost_zone(
        drive in drives(), place in any::<u64>(), size in 8_u32..4096, write in any::<bool>(),
        policy in policies(),
    ) {
        let count = 200.min(drive.sectors / u64::from(size));
        let length = count * u64::from(size);
        let first = (place % (drive.sectors - length + 1)) / 8 * 8;
        let mut disk = Disk::new(&drive, policy).unwrap();
        let mut now_ns = 0;
        for number in 0..count {
            let sector = first + number * u64::from(size);
            let request = if write { Request::write(sector, size) } else { Request::read(sector, size) };
            now_ns = disk.serve(now_ns, &request).unwrap().done_ns;
        }
        if write {
            now_ns = disk.serve(now_ns, &Request::flush()).unwrap().done_ns;
        }
        // A single track passes faster than a whole zone, as it has no switches.
        let skews_ns = 2 * (drive.cylinder_skew_ns + drive.track_skew_ns);
        let fastest = u128::from(drive.outer_rate) * u128::from(drive.actuators);
        let least_ns = u128::from(length) * 512 * 1_000_000_000 / fastest;
        let least_ns = u64::try_from(least_ns).unwrap().saturating_sub(skews_ns);
        prop_assert!(now_ns >= least_ns, "{} < {}", now_ns, least_ns);
    }

    #[test]
    fn writes_that_fit_the_cache_take_the_same_in_any_order(
        places in prop::collection::vec(0_u64..100_000, 2..60), seed in any::<u64>(),
    ) {
        // Nothing is written out meanwhile, so the order can only matter to the flush, and not to
        // that either: the sweep goes by address.
        let mut places = places;
        let total = |places: &[u64]| {
            let mut disk = Disk::new(&DRIVES[0], Policy::default()).unwrap();
            for place in places {
                disk.serve(0, &Request::write(place * 8 * 100, 8)).unwrap();
            }
            disk.serve(0, &Request::flush()).unwrap().done_ns
        };
        let before = total(&places);
        fastrand::Rng::with_seed(seed).shuffle(&mut places);
        prop_assert_eq!(total(&places), before);
    }

    #[test]
    fn any_input_is_served_or_refused(
        drive in drives(), policy in policies(), now_ns in any::<u64>(), op in 0_u8..8,
        fua in any::<bool>(), sector in any::<u64>(), sectors in any::<u32>(),
    ) {
        let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][usize::from(op % 4)];
        // Longer ones are served too, but walk over millions of tracks.
        let sectors = if sectors < 1 << 31 { sectors % 100_000 } else { sectors };
        let request = Request { op, fua, sector, sectors };
        let mut disk = Disk::new(&drive, policy).unwrap();
        for _ in 0..3 {
            let _ = disk.positioning_ns(now_ns, &request);
            if let Ok(served) = disk.serve(now_ns, &request) {
                prop_assert_eq!(served.parts_ns(), served.done_ns);
            }
        }
    }
}
