//! The model serves what the data sheets say. All in virtual time.
//!
//! | figure | where it comes from |
//! |---|---|
//! | mean seek, full stroke, turn, rates | the drive's parameters; `parameters()` says whose they are |
//! | 4 KiB anywhere | overhead + mean seek + half a turn + 4 KiB at the mean rate |
//! | 13.06 ms, 11.1 ms, 9.5 ms, 228.8 and 113.1 MB/s | measured on a live emulation of the same drive by a prototype of this model |

use fastrand::Rng;
use lumpscope_platter::disk::{Disk, Policy, Request, Served};
use lumpscope_platter::drive::{DRIVES, Drive, by_name};
use lumpscope_platter::figures::Figures;

/// Within so many thousandths.
fn near(what: &str, got: u64, want: u64, thousandths: u64) {
    let off = got.abs_diff(want);
    assert!(
        off * 1000 <= want * thousandths,
        "{what}: {got} is not within {thousandths}/1000 of {want}"
    );
}

fn mean(served: &[Served], part: impl Fn(&Served) -> u64) -> u64 {
    served.iter().map(part).sum::<u64>() / u64::try_from(served.len()).unwrap()
}

/// Serves requests one after the other.
fn in_turn(disk: &mut Disk, from_ns: u64, requests: impl Iterator<Item = Request>) -> Vec<Served> {
    let mut now_ns = from_ns;
    requests
        .map(|request| {
            let served = disk.serve(now_ns, &request).unwrap();
            now_ns = served.done_ns;
            served
        })
        .collect()
}

fn random_reads(drive: &Drive, sectors: u32, within: u64, count: usize) -> Vec<Served> {
    let mut disk = Disk::new(drive, Policy::default()).unwrap();
    let mut random = Rng::with_seed(42);
    let place = |_| {
        Request::read(
            random.u64(0..(within - u64::from(sectors)) / 8) * 8,
            sectors,
        )
    };
    let requests: Vec<Request> = (0..count).map(place).collect();
    in_turn(&mut disk, 0, requests.into_iter())
}

/// Bytes a second of a stream of reads of 1 MiB.
fn stream_rate(drive: &Drive, first: u64) -> u64 {
    let mut disk = Disk::new(drive, Policy::default()).unwrap();
    let requests = (0..400).map(|number| Request::read(first + number * 2048, 2048));
    let served = in_turn(&mut disk, 0, requests);
    let took_ns = served[399].done_ns - served[99].done_ns;
    300 * (1 << 20) * 1_000_000_000 / took_ns
}

#[test]
fn seeks_take_what_the_parameters_say() {
    for drive in DRIVES {
        let disk = Disk::new(drive, Policy::default()).unwrap();
        let (cylinders, mut random) = (disk.cylinders(), Rng::with_seed(1));
        let pairs = 200_000;
        let sum: u64 = (0..pairs)
            .map(|_| {
                let (from, to) = (random.u64(0..cylinders), random.u64(0..cylinders));
                disk.seek_ns(from.abs_diff(to))
            })
            .sum();
        near("mean seek", sum / pairs, drive.average_seek_ns, 10);
        let full = Figures::of(drive).unwrap().full_stroke_ns;
        near(
            "full stroke",
            full,
            drive.full_stroke_ns.unwrap_or(full),
            10,
        );
        // From the outermost to the innermost sector, and not only by the curve.
        let mut disk = disk;
        disk.serve(0, &Request::read(0, 8)).unwrap();
        let far = Request::read(drive.sectors - 8, 8);
        let served = disk.serve(1_000_000_000, &far).unwrap();
        near("served stroke", served.seek_ns, full, 10);
        assert_eq!(disk.seek_ns(1), drive.track_to_track_ns);
    }
}

#[test]
fn the_published_drives_stroke_is_18_3_ms() {
    let figures = Figures::of(&by_name("st1000dm003").unwrap()).unwrap();
    near("full stroke", figures.full_stroke_ns, 18_290_000, 5);
}

#[test]
fn a_sector_comes_back_after_one_turn() {
    // Where tracks overlap, it is written to another place each time.
    for drive in DRIVES.iter().filter(|drive| drive.band_bytes == 0) {
        let mut disk = Disk::new(drive, Policy::default().write_through()).unwrap();
        let write = Request::write(80_000, 8);
        let served = in_turn(&mut disk, 0, (0..50).map(|_| write));
        let turn_ns = (served[49].done_ns - served[9].done_ns) / 40;
        near("turn", turn_ns, 60_000_000_000 / u64::from(drive.rpm), 1);
    }
}

#[test]
fn streams_run_at_the_rate_of_their_zone() {
    for drive in DRIVES {
        near("outer", stream_rate(drive, 0), drive.outer_rate, 10);
        let inner = drive.sectors - 401 * 2048;
        near("inner", stream_rate(drive, inner), drive.inner_rate, 10);
        let middle = stream_rate(drive, drive.sectors / 2);
        assert!(middle < drive.outer_rate && middle > drive.inner_rate);
    }
}

#[test]
fn random_reads_take_overhead_seek_half_a_turn_and_the_data() {
    for drive in DRIVES {
        let want = Figures::of(drive).unwrap().random_read_ns;
        let served = random_reads(drive, 8, drive.sectors, 20_000);
        near(&drive.name, mean(&served, Served::latency_ns), want, 30);
        let rotation = mean(&served, |one| one.rotation_ns);
        near("half a turn", rotation, drive.revolution_ns() / 2, 20);
    }
}

#[test]
fn the_prototypes_figures() {
    let drive = by_name("st1000dm003-tables").unwrap();
    near("outer", stream_rate(&drive, 0), 228_800_000, 30);
    let inner = (900 << 30) / 512;
    near("at 900 GiB", stream_rate(&drive, inner), 113_100_000, 30);
    let reads = random_reads(&drive, 8, drive.sectors, 20_000);
    // Of the prototype's 13.06 ms, its plumbing took 0.052 ms, and its answers were up to 0.013 ms late.
    let want_ns = 13_060_000 - 52_000 - 13_000;
    near("4 KiB", mean(&reads, Served::latency_ns), want_ns, 30);
    let reads = random_reads(&drive, 2048, (25 << 30) / 512, 20_000);
    near(
        "1 MiB within 25 GiB",
        mean(&reads, Served::latency_ns),
        11_100_000,
        30,
    );
    let mut disk = Disk::new(&drive, Policy::default().write_through()).unwrap();
    let writes = in_turn(
        &mut disk,
        0,
        (0..500).map(|one| Request::write(one * 512, 512)),
    );
    near("256 KiB", mean(&writes, Served::latency_ns), 9_500_000, 30);
}
