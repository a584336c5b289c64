use super::*;
use crate::drive::{MS, by_name};

const MIB: u32 = 2048;

fn disk(policy: Policy) -> Disk {
    Disk::new(&by_name("st1000dm003").unwrap(), policy).unwrap()
}

fn stream(requests: u64, request: impl Fn(u64) -> Request) -> Vec<Request> {
    (0..requests).map(request).collect()
}

/// Serves requests one after the other, each when the one before is done.
fn in_turn(disk: &mut Disk, requests: &[Request]) -> Vec<Served> {
    let mut now_ns = 0;
    let mut serve = |request| {
        let served = disk.serve(now_ns, request).unwrap();
        assert_eq!(served.parts_ns(), served.done_ns, "{request:?} {served:?}");
        assert!(served.begin_ns >= now_ns && served.done_ns >= served.begin_ns);
        now_ns = served.done_ns;
        served
    };
    requests.iter().map(&mut serve).collect()
}

#[test]
fn a_write_into_the_cache_takes_no_mechanics() {
    let mut disk = disk(Policy::default());
    let served = in_turn(&mut disk, &[Request::write(1 << 30, 8)]);
    assert!(served[0].cached);
    assert_eq!(served[0].latency_ns(), 100_000 + 7448);
    assert_eq!(disk.dirty_bytes(), 4096);
    assert_eq!(disk.counts().media_writes, 0);
}

#[test]
fn every_movement_of_the_arm_is_kept_for_who_asks() {
    let mut disk = disk(Policy::default());
    disk.keep_moves();
    let requests = [
        Request::read(1 << 30, 8),
        Request::write(1 << 20, 8),
        Request::write(1 << 28, 8),
        Request::flush(),
        Request::read(1 << 30, 8),
    ];
    in_turn(&mut disk, &requests);
    let moves = disk.moves();
    let places: Vec<u64> = moves.iter().map(|one| one.sector).collect();
    assert_eq!(places, [1 << 30, 1 << 20, 1 << 28]);
    let seek_ns: u64 = moves.iter().map(|one| one.seek_ns).sum();
    assert_eq!((disk.counts().seeks, disk.counts().seek_ns), (3, seek_ns));
}

#[test]
fn a_flush_waits_until_nothing_is_dirty() {
    let mut disk = disk(Policy::default());
    let flush = Request::flush();
    let requests = [Request::write(1 << 30, 8), flush, flush];
    let served = in_turn(&mut disk, &requests);
    assert!(served[1].latency_ns() > 10 * MS, "{:?}", served[1]);
    assert_eq!(disk.dirty_bytes(), 0);
    assert_eq!(disk.counts().media_sectors_written, 8);
    assert_eq!(served[2].latency_ns(), 100_000);
}

#[test]
fn dirty_sectors_are_read_from_the_cache() {
    let mut disk = disk(Policy::default());
    let requests = [
        Request::write(1 << 30, 100),
        Request::read((1 << 30) + 10, 90),
        Request::read((1 << 30) + 10, 91),
    ];
    let served = in_turn(&mut disk, &requests);
    assert!(served[1].cached && !served[2].cached);
}

#[test]
fn an_idle_drive_writes_out_by_itself() {
    let mut disk = disk(Policy::default());
    disk.serve(0, &Request::write(1 << 30, 8)).unwrap();
    disk.serve(200 * MS, &Request::read(0, 8)).unwrap();
    assert_eq!(disk.dirty_bytes(), 0);
    assert_eq!(disk.counts().media_writes, 1);
}

#[test]
fn a_drive_that_is_kept_busy_with_reads_does_not() {
    let mut disk = disk(Policy::default());
    let mut requests = vec![Request::write(1 << 30, 8)];
    requests.extend((0..100).map(|number| Request::read(number * 10_000_000, 8)));
    in_turn(&mut disk, &requests);
    assert_eq!(disk.dirty_bytes(), 4096);
}

#[test]
fn a_full_cache_makes_writes_wait_for_the_platters() {
    let mut disk = disk(Policy::default());
    let requests = stream(400, |number| Request::write(number * u64::from(MIB), MIB));
    let served = in_turn(&mut disk, &requests);
    assert!(served.iter().all(|one| one.cached));
    assert_eq!(served[10].wait_ns, 0);
    let steady = (served[399].done_ns - served[299].done_ns) / 100;
    // 1 MiB at 210 MB/s.
    assert!((4_900_000..5_100_000).contains(&steady), "{steady}");
    assert!(disk.dirty_bytes() <= disk.drive().cache_bytes);
    assert!(disk.counts().cache_full_ns > 0);
}

#[test]
fn a_read_waits_for_the_run_under_the_head_and_not_for_the_batch() {
    // Many small extents: a read waits for one of them at most.
    let mut disk = disk(Policy::default());
    let requests = stream(6000, |number| Request::write(number * 100_000, 8));
    let served = in_turn(&mut disk, &requests);
    let now_ns = served.last().unwrap().done_ns;
    assert!(disk.counts().media_writes > 0);
    let far = Request::read(1_900_000_000, 8);
    let read = disk.serve(now_ns, &far).unwrap();
    assert!(read.wait_ns < 15 * MS, "{read:?}");
    // One long run: it waits for that.
    let mut disk = self::disk(Policy::default());
    let requests = stream(22, |number| Request::write(number * u64::from(MIB), MIB));
    let now_ns = in_turn(&mut disk, &requests).last().unwrap().done_ns;
    let far = Request::read(1_900_000_000, 8);
    let read = disk.serve(now_ns, &far).unwrap();
    assert!((75 * MS..133 * MS).contains(&read.wait_ns), "{read:?}");
}

#[test]
fn what_is_dirty_may_be_written_out_before_a_read() {
    let policy = Policy {
        write_before_read: true,
        ..Policy::default()
    };
    let requests = [
        // Ends within a physical sector, which the next one completes.
        Request::write(1 << 20, 1001),
        Request::read(1 << 30, 8),
        Request::write((1 << 20) + 1001, 7),
        Request::read(1 << 29, 8),
    ];
    let mut eager = disk(policy);
    let served = in_turn(&mut eager, &requests);
    assert_eq!(eager.dirty_bytes(), 0);
    let counts = eager.counts();
    assert_eq!((counts.media_writes, counts.partial_revolutions), (2, 0));
    let mut lazy = disk(Policy::default());
    let waits = in_turn(&mut lazy, &requests);
    assert_eq!(lazy.dirty_bytes(), 1008 << 9);
    assert_eq!(lazy.counts().media_writes, 0);
    assert!(served[1].wait_ns > waits[1].wait_ns);
    // Rewriting an end that is on the platters costs a turn for its rest.
    let whole = [
        Request::write(1 << 20, 1008),
        Request::read(1 << 30, 8),
        Request::write((1 << 20) + 1001, 1007),
        Request::read(1 << 29, 8),
    ];
    let mut eager = disk(policy.with_overlap());
    in_turn(&mut eager, &whole);
    let counts = eager.counts();
    assert_eq!(counts.partial_revolutions, 1);
    assert_eq!(counts.overlap_revolutions, 0);
}

#[test]
fn a_write_through_that_follows_another_too_late_waits_a_turn() {
    let policy = Policy::default().write_through();
    let mut disk = disk(policy);
    let requests = stream(50, |number| Request::write(number * 512, 512));
    let served = in_turn(&mut disk, &requests);
    let mean = served[49].done_ns / 50;
    // A revolution and 256 KiB: 9.5 ms.
    assert!((9 * MS..10 * MS).contains(&mean), "{mean}");
    // Queued, they are one stream.
    let mut disk = self::disk(policy);
    let served = requests.iter().map(|request| disk.serve(0, request));
    let mean = served.last().unwrap().unwrap().done_ns / 50;
    assert!(mean < 1_600_000, "{mean}");
}

#[test]
fn fua_is_written_through() {
    let mut disk = disk(Policy::default());
    let write = Request::write(1 << 30, 8);
    let served = in_turn(&mut disk, &[write, Request { fua: true, ..write }]);
    assert!(!served[1].cached && served[1].seek_ns > 0);
    assert_eq!(disk.dirty_bytes(), 0, "it is on the platters");
}

#[test]
fn a_part_of_a_physical_sector_is_read_first() {
    let run = |partial, requests: &[Request]| {
        let mut disk = disk(Policy {
            partial,
            ..Policy::default()
        });
        let served = in_turn(&mut disk, requests);
        let total = served.last().unwrap().done_ns;
        (total, disk.counts().partial_revolutions)
    };
    let revolution_ns = 8_333_333;
    let through = [Request {
        fua: true,
        ..Request::write(1 << 30, 7)
    }];
    let cached = [Request::write(1 << 30, 7), Request::flush()];
    let (free, _) = run(PartialSectors::Free, &through);
    let expected = (free + revolution_ns, 1);
    assert_eq!(run(PartialSectors::ReadFirst, &through), expected);
    assert_eq!(run(PartialSectors::WriteThroughOnly, &through), expected);
    let (free, _) = run(PartialSectors::Free, &cached);
    let expected = (free + revolution_ns, 1);
    assert_eq!(run(PartialSectors::ReadFirst, &cached), expected);
    assert_eq!(run(PartialSectors::WriteThroughOnly, &cached), (free, 0));
    // Whole ones need nothing.
    let whole = [Request::write(1 << 30, 16), Request::flush()];
    assert_eq!(run(PartialSectors::ReadFirst, &whole).1, 0);
}

#[test]
fn reading_on_is_read_ahead() {
    let mut disk = disk(Policy::default());
    let requests = stream(200, |number| Request::read(number * 256, 256));
    let served = in_turn(&mut disk, &requests);
    assert!(served[1..].iter().all(|one| one.cached));
    assert_eq!(disk.counts().media_reads, 1);
    // After a pause it is all there, and the head has stopped behind it.
    let now_ns = served[199].done_ns + 500 * MS;
    let next = disk.serve(now_ns, &Request::read(200 * 256, 256)).unwrap();
    assert_eq!(next.latency_ns(), 100_000 + disk.first().bus_ns(256));
    let far = 200 * 256 + 8 * u64::from(MIB);
    let last = disk.serve(now_ns + 1, &Request::read(far, 256)).unwrap();
    assert!(!last.cached || last.transfer_ns > 600_000, "{last:?}");
}

#[test]
fn without_read_ahead_every_read_turns() {
    let mut disk = disk(Policy {
        read_ahead: false,
        ..Policy::default()
    });
    let requests = stream(50, |number| Request::read(number * 256, 256));
    let served = in_turn(&mut disk, &requests);
    assert!(served[1..].iter().all(|one| one.latency_ns() > 8 * MS));
}

#[test]
fn what_was_read_and_then_written_is_not_read_from_memory() {
    let mut disk = disk(Policy::default().write_through());
    let (far, here) = (Request::read(1 << 30, 8), Request::read(0, 8));
    let over = Request::write(4, 8);
    let served = in_turn(&mut disk, &[here, far, here, over, far, here]);
    assert!(served[2].cached && !served[5].cached);
}

#[test]
fn the_overlap_rule_costs_a_turn_behind_the_window() {
    let run = |policy: Policy| {
        let mut disk = disk(policy);
        // Appends of 1 MiB, each rewriting the last sector of the one before.
        let mut requests = stream(9, |number| Request::write(number * u64::from(MIB), MIB + 1));
        requests.push(Request::flush());
        let served = in_turn(&mut disk, &requests);
        (served.last().unwrap().done_ns, disk.counts())
    };
    let (free_ns, free) = run(Policy::default());
    let (ns, counts) = run(Policy::default().with_overlap());
    assert_eq!((free.overlaps_absorbed, free.overlap_revolutions), (0, 0));
    assert_eq!(counts.overlaps_absorbed, 6);
    assert_eq!(counts.overlap_revolutions, 2);
    assert_eq!(ns, free_ns + 2 * 8_333_333);
}

#[test]
fn nonsense_is_an_error_and_changes_nothing() {
    let mut disk = disk(Policy::default());
    let before = format!("{disk:?}");
    let end = disk.drive().sectors;
    for request in [
        Request::read(end, 1),
        Request::write(end - 7, 8),
        Request::read(u64::MAX, u32::MAX),
        Request {
            op: Op::Discard,
            ..Request::write(u64::MAX, 1)
        },
    ] {
        let error = disk.serve(5, &request).unwrap_err();
        assert!(matches!(error, RequestError::BeyondEnd { .. }), "{error}");
        assert_eq!(disk.positioning_ns(0, &request), 0);
    }
    let late = disk.serve(u64::MAX, &Request::read(0, 8)).unwrap_err();
    assert!(matches!(late, RequestError::TooLate { .. }), "{late}");
    assert!(disk.positioning_ns(u64::MAX, &Request::read(8, 8)) > 0);
    assert_eq!(format!("{disk:?}"), before);
    disk.serve(5, &Request::read(end - 8, 8)).unwrap();
    disk.serve(5, &Request::read(end, 0)).unwrap();
    let flush = Request {
        sector: u64::MAX,
        ..Request::flush()
    };
    disk.serve(5, &flush).unwrap();
    // A time before that of the request before counts as that one.
    assert_eq!(disk.serve(0, &Request::read(0, 8)).unwrap().arrived_ns, 5);
}

#[test]
fn the_largest_request_is_served() {
    let drive = by_name("st1000dm003").unwrap().resized(1 << 34);
    for policy in [Policy::default(), Policy::default().write_through()] {
        let mut disk = Disk::new(&drive, policy).unwrap();
        for request in [Request::write(1, u32::MAX), Request::read(1, u32::MAX)] {
            let served = disk.serve(0, &request).unwrap();
            assert_eq!(served.parts_ns(), served.done_ns);
        }
    }
}
