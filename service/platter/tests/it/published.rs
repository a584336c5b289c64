//! Streams as file systems make them, and the ratios that the published tables and a prototype of
//! the model have for them. All in virtual time.
//!
//! xfs issues for a write of 2 MiB at an offset of 3584 bytes: a rewrite of the last sector of the
//! write before, the rest, and zeros to the end of the block, merged with the rest. So the head of
//! every write lies within the last physical sector of the one before.

use lumpscope_platter::disk::{Counts, Disk, PartialSectors, Policy, Request};
use lumpscope_platter::drive::by_name;

/// Sectors that one block request takes at most here: 512 KiB.
const LARGEST: u64 = 1024;

/// Serves writes as a program does that waits for each: its requests are issued together. How long
/// it took, and what the disk has done when everything is on the platters.
fn elapsed_ns(policy: Policy, writes: &[Vec<Request>]) -> (u64, Counts) {
    let drive = by_name("st1000dm003-tables").unwrap();
    let mut disk = Disk::new(&drive, policy).unwrap();
    let mut now_ns = 0;
    for requests in writes {
        let mut done_ns = now_ns;
        for request in requests {
            done_ns = done_ns.max(disk.serve(now_ns, request).unwrap().done_ns);
        }
        now_ns = done_ns;
    }
    disk.serve(now_ns, &Request::flush()).unwrap();
    (now_ns, disk.counts())
}

/// The block requests of one write of these sectors.
fn requests(mut sector: u64, end: u64) -> Vec<Request> {
    let mut all = Vec::new();
    while sector < end {
        let sectors = (end - sector).min(LARGEST);
        all.push(Request::write(sector, u32::try_from(sectors).unwrap()));
        sector += sectors;
    }
    all
}

/// `count` writes of `size` sectors in a row, from sector `first` of a block.
fn stream(first: u64, size: u64, count: u64) -> Vec<Vec<Request>> {
    let base = 1 << 20;
    (0..count)
        .map(|number| {
            let start = base + first + number * size;
            let (mut all, mut begin) = (Vec::new(), start);
            if first > 0 && number > 0 {
                all.push(Request::write(start, 1));
                begin += 1;
            }
            all.extend(requests(begin, (start + size).next_multiple_of(8)));
            all
        })
        .collect()
}

/// Appends of `size` sectors that need not be whole blocks, zeroed to the end of the block.
fn appends(size: u64, count: u64) -> Vec<Vec<Request>> {
    (0..count)
        .map(|number| requests(number * size, ((number + 1) * size).next_multiple_of(8)))
        .collect()
}

/// Appends that write exactly what they hold, as on a raw disk.
fn raw(size: u64, count: u64) -> Vec<Vec<Request>> {
    (0..count)
        .map(|number| requests(number * size, (number + 1) * size))
        .collect()
}

/// Hundredths.
fn ratio(policy: Policy, slow: &[Vec<Request>], fast: &[Vec<Request>]) -> u64 {
    elapsed_ns(policy, slow).0 * 100 / elapsed_ns(policy, fast).0
}

#[test]
fn without_the_overlap_rule_an_offset_costs_nothing() {
    for count in [500, 750, 1000] {
        let ratio = ratio(
            Policy::default(),
            &stream(7, 4096, count),
            &stream(0, 4096, count),
        );
        assert!((98..=102).contains(&ratio), "{count}: {ratio}");
    }
}

#[test]
fn with_the_overlap_rule_it_costs_as_much_as_in_the_longest_published_run() {
    // The prototype: 1.45, 1.45, 1.43; the table: 1.17, 1.17, 1.43.
    let policy = Policy::default().with_overlap();
    for count in [500, 750, 1000] {
        let ratio = ratio(policy, &stream(7, 4096, count), &stream(0, 4096, count));
        assert!((141..=147).contains(&ratio), "{count}: {ratio}");
    }
}

#[test]
fn streams_take_as_long_as_on_the_prototype() {
    // 500, 750 and 1000 writes of 2 MiB: 4.30, 6.55 and 9.0 s.
    for (count, want_ms) in [(500, 4300), (750, 6550), (1000, 9000)] {
        let ms = elapsed_ns(Policy::default(), &stream(0, 4096, count)).0 / 1_000_000;
        assert!(ms.abs_diff(want_ms) * 100 <= want_ms * 3, "{count}: {ms}");
    }
}

#[test]
fn written_through_every_write_waits_a_turn_and_partial_sectors_wait_more() {
    let policy = Policy::default().write_through();
    let free = Policy {
        partial: PartialSectors::Free,
        ..policy
    };
    // The prototype: 8.74 s, with the offset 8.73 s without and 17.07 s with reading first.
    let (aligned, offset) = (stream(0, 4096, 500), stream(7, 4096, 500));
    let ms = |policy, writes| elapsed_ns(policy, writes).0 / 1_000_000;
    let base = ms(policy, &aligned);
    assert!(base.abs_diff(8740) < 8740 * 3 / 100, "{base}");
    let without = ms(free, &offset);
    assert!(without.abs_diff(8730) < 8730 * 3 / 100, "{without}");
    // Each rewrite of a sector reads its block first: a turn more than without. The prototype had
    // another one, which depended on when and how the requests were cut.
    let (with_ns, counts) = elapsed_ns(policy, &offset);
    let turns = (with_ns / 1_000_000 - without) * 1000 / 8333;
    assert!((495..=510).contains(&turns), "{turns} in {with_ns} ns");
    // 499 rewrites, and the first write, which is cut into five requests.
    assert_eq!(counts.partial_revolutions, 504);
}

#[test]
fn appends_of_lumps_have_the_ratios_of_the_prototype() {
    // 256 KiB, 4 MiB and two bytes each, in sectors; hundredths of the prototype.
    for (size, count, want) in [(513, 12_500, 160), (8193, 625, 140)] {
        let policy = Policy::default().with_overlap();
        let (fs, disk) = (appends(size, count), raw(size, count));
        let got = ratio(policy, &fs, &disk);
        assert!(u64::abs_diff(got, want) <= 5, "{size}: {got}");
        let (_, counts) = elapsed_ns(policy, &fs);
        let overlaps = counts.overlaps_absorbed + counts.overlap_revolutions;
        let expected = (count - 1) * 7 / 8 + u64::from((count - 1) % 8 > 0);
        assert_eq!(overlaps, expected);
        assert_eq!(elapsed_ns(policy, &disk).1.overlap_revolutions, 0);
        // Whole blocks never overlap.
        let whole = size.next_multiple_of(8);
        let aligned = ratio(policy, &appends(whole, count), &raw(whole, count));
        assert_eq!(aligned, 100);
    }
}
