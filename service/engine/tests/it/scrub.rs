//! The scrubber of an open store, in virtual time on a simulated disk: what it reads, what it finds,
//! how fast it goes, and that it stays out of the way.

use std::time::Duration;

use crate::support::stepped::{Stepped, disk, steady};
use crate::support::{but, options};
use lumpscope_engine::device::sim::{Random, SimDisk, SimOptions, Survivors};
use lumpscope_engine::{FindingKind, LumpId, Placement, Store, StoreOptions};

const SECOND: u64 = 1_000_000_000;
const RING: u64 = 256;
/// First byte of the data region.
const DATA: u64 = (2 + RING) * 512;
const LARGE: usize = 3 * 1024 * 1024 + 77;

fn with_rate(rate: u64) -> StoreOptions {
    but(options(), |it| it.scrub_rate = rate)
}

/// Small lumps 1 to 40, a large one, 50, and embedded ones 60 to 62, on a disk that takes 100 us for
/// an I/O.
fn filled() -> SimDisk {
    let mut it = Stepped::open(disk(RING, 16_384, steady(100_000, 100_000)), options());
    for id in 1..=40 {
        it.put(id, 100 * id as usize, Placement::Data);
    }
    it.put(50, LARGE, Placement::Data);
    for id in 60..63 {
        it.put(id, 700, Placement::Embedded);
    }
    it.close()
}

/// Where the bytes of `lump` are on the disk.
fn find(disk: &SimDisk, bytes: &[u8]) -> u64 {
    let all = disk.bytes(0..disk.size());
    let found = all.windows(bytes.len()).position(|window| window == bytes);
    found.unwrap() as u64
}

fn content_of(disk: &SimDisk, id: u128) -> Vec<u8> {
    let mut it = Stepped::open(disk.clone(), options());
    let answer = it.submit_get(id);
    it.wait(&answer).unwrap().to_vec()
}

fn pass(disk: SimDisk, options: StoreOptions) -> Stepped {
    let mut it = Stepped::open(disk, options);
    it.until(|it| it.store.scrub_status().passes > 0);
    it
}

#[test]
fn a_pass_looks_at_every_lump() {
    let it = pass(filled(), with_rate(1 << 40));
    let status = it.store.scrub_status();
    assert_eq!((status.verified_lumps, status.unverified_lumps), (44, 0));
    assert_eq!((status.corrupt_lumps, status.read_errors), (0, 0));
    assert_eq!(status.findings.total, 0);
    assert_eq!(status.position, status.end);
    let last = status.last_pass.unwrap();
    assert_eq!(last.lumps, 44);
    assert_eq!(last.damaged, 0);
    assert_eq!(last.bytes, status.bytes);
    let stats = it.store.stats();
    assert_eq!((stats.scrub_lumps, stats.scrub_passes), (44, 1));
    assert_eq!(stats.scrub_bytes, status.bytes);
    // All of it once, the end of the large lump twice, and little more: the small ones in few
    // reads.
    let blocks = |len: u64| (len + 20).div_ceil(512) * 512;
    let small: u64 = (1..=40).map(|id| blocks(100 * id)).sum();
    let (least, read) = (small + blocks(LARGE as u64) + 4096, status.bytes);
    assert!((least..least + 8192).contains(&read), "{read} of {least}");
}

#[test]
fn off_means_off_until_told() {
    let mut it = Stepped::open(filled(), options());
    while it.advance() {}
    let before = it.disk.submitted();
    assert_eq!(it.store.stats().scrub_bytes, 0);
    assert!(!it.store.scrub_status().running);
    it.store.scrub_start(None);
    assert!(it.store.scrub_status().running);
    it.until(|it| it.store.scrub_status().passes == 1);
    assert!(it.disk.submitted() > before);
}

#[test]
fn the_rate_is_held_and_the_next_pass_waits_for_its_time() {
    let rate = 1_000_000;
    let mut opened = with_rate(rate);
    opened.scrub_interval = Duration::from_secs(3600);
    let disk = filled();
    let began = disk.now_ns();
    let mut it = pass(disk, opened);
    let (took, bytes) = (it.disk.now_ns() - began, it.store.scrub_status().bytes);
    let least = bytes * 1000 - 200_000_000 - (1 << 20) * 1000;
    let in_time = (least..bytes * 1000 + SECOND).contains(&took);
    assert!(in_time, "{bytes} bytes in {took} ns");
    // Then nothing happens until the hour is over.
    it.until(|it| it.disk.in_flight() == 0 && it.driver.due_ns() > Some(began + 3599 * SECOND));
    assert!(!it.store.scrub_status().running);
    let (before, now) = (it.disk.submitted(), it.disk.now_ns());
    assert!(it.driver.due_ns() < Some(began + 3601 * SECOND));
    it.disk.advance_to(now + 1800 * SECOND);
    it.step();
    assert_eq!(it.disk.submitted(), before, "I/O in an idle half hour");
    it.until(|it| it.store.scrub_status().passes == 2);
    assert!(it.disk.now_ns() >= began + 3600 * SECOND);
}

#[test]
fn damage_is_found_and_named() {
    let disk = filled();
    let place = |id| find(&disk, &content_of(&disk, id));
    let mut want = Vec::new();
    let mut rotten = Vec::new();
    for (id, at, kind) in [
        (7, 3, FindingKind::Checksum),
        (50, 2_500_000, FindingKind::Checksum),
        (61, 300, FindingKind::Record),
    ] {
        rotten.push(place(id) + at);
        want.push((LumpId(id), kind));
    }
    // A sector that cannot be read, among lumps that are read together.
    let bad = place(20) + 600;
    want.push((LumpId(20), FindingKind::Read));
    let mut it = Stepped::open(disk, options());
    for at in rotten {
        it.disk.rot(at, 0x40);
    }
    it.disk.make_unreadable(bad..bad + 1);
    it.store.scrub_start(None);
    it.until(|it| it.store.scrub_status().passes == 1);
    let status = it.store.scrub_status();
    let found = status.findings.list.iter();
    let mut found: Vec<_> = found.map(|it| (it.lump.unwrap(), it.kind)).collect();
    found.sort_by_key(|(id, _)| *id);
    want.sort_by_key(|(id, _)| *id);
    assert_eq!(found, want);
    assert_eq!((status.corrupt_lumps, status.read_errors), (3, 1));
    assert_eq!(status.verified_lumps, 40);
    assert_eq!(status.last_pass.unwrap().damaged, 4);
    for finding in &status.findings.list {
        assert!(finding.sectors > 0 && !finding.why.is_empty(), "{finding}");
        if finding.kind == FindingKind::Read {
            let bytes = finding.offset..finding.offset + finding.len;
            assert!(bytes.contains(&bad), "{finding}");
        }
    }
}

#[test]
fn a_lump_that_is_replaced_meanwhile_is_no_finding() {
    for delete in [false, true] {
        let disk = filled();
        let bytes = content_of(&disk, 7);
        disk.rot(find(&disk, &bytes), 0x01);
        // Reads take so long that a change overtakes them.
        let image = disk.bytes(0..disk.size());
        let slow = but(SimOptions::default(), |it| {
            it.latency = steady(SECOND, 1000)
        });
        let mut it = Stepped::open(SimDisk::new(&image, slow), options());
        it.store.scrub_start(None);
        it.until(|it| it.store.scrub_status().bytes > 0 && it.disk.in_flight() > 0);
        let bytes = it.store.scrub_status().bytes;
        if delete {
            it.delete(7);
        } else {
            it.put(7, 900, Placement::Data);
        }
        // The read is still under way.
        assert_eq!(it.store.scrub_status().bytes, bytes);
        it.until(|it| it.store.scrub_status().passes == 1);
        let status = it.store.scrub_status();
        assert_eq!(status.findings.total, 0, "{:?}", status.findings);
        it.check_all();
    }
}

#[test]
fn requests_that_wait_for_a_slot_leave_it_a_small_share() {
    let mut alone = Stepped::open(filled(), with_rate(1 << 40));
    let before = alone.disk.submitted();
    alone.until(|it| it.store.scrub_status().passes == 1);
    let reads = alone.disk.submitted() - before;
    assert!(reads > 5, "{reads}");
    let mut opened = with_rate(1 << 40);
    opened.queue_depth = 2;
    let mut it = Stepped::open(filled(), opened);
    let began = it.disk.now_ns();
    let mut waiting = Vec::new();
    let mut served = 0;
    while it.store.stats().scrub_passes == 0 {
        while waiting.len() < 6 {
            waiting.push(it.submit_get(1 + u128::from(served) % 40));
            served += 1;
        }
        it.advance();
        waiting.retain(|answer| match answer.try_recv() {
            Ok(got) => got.unwrap().is_empty(),
            Err(_) => true,
        });
    }
    // Each of its reads takes 100 us, of 2 ms: the requests had both slots all the time.
    let took = it.disk.now_ns() - began;
    let share = took / 2_000_000;
    let is_small = (reads - 2..reads + 3).contains(&share);
    assert!(is_small, "{reads} in {took} ns");
    assert!(served >= took / 100_000 * 2 - 4, "{served} in {took} ns");
}

#[test]
fn a_pass_goes_on_after_a_restart() {
    let disk = filled();
    let whole = pass(disk, with_rate(1 << 40)).store.scrub_status().bytes;
    let disk = filled();
    let mut it = Stepped::open(disk, with_rate(1 << 20));
    it.until(|it| it.store.scrub_status().position > DATA + (1 << 18));
    assert_eq!(it.store.scrub_status().passes, 0);
    let first = it.store.scrub_status();
    let disk = it.close();
    let it = pass(disk, with_rate(1 << 20));
    let second = it.store.scrub_status();
    // No lump twice, none left out.
    assert_eq!(first.verified_lumps + second.verified_lumps, 44);
    assert!(first.bytes + second.bytes <= whole + 8192);
    // After a whole pass the next one is not due.
    let disk = it.close();
    let mut it = Stepped::open(disk, with_rate(1 << 20));
    let before = it.disk.submitted();
    it.step();
    assert!(it.driver.due_ns().unwrap() > it.disk.now_ns() + SECOND);
    assert_eq!(it.disk.submitted(), before);
    // Unless somebody asks for one.
    it.store.scrub_start(None);
    it.until(|it| it.store.scrub_status().passes == 1);
    assert_eq!(it.store.scrub_status().verified_lumps, 44);
}

#[test]
fn a_read_only_store_is_scrubbed_and_not_written() {
    let disk = filled();
    let before = disk.bytes(0..disk.size());
    let mut opened = with_rate(1 << 40);
    opened.read_only = true;
    let it = pass(disk, opened);
    let disk = it.close();
    assert_eq!(disk.bytes(0..disk.size()), before);
    assert_eq!(disk.uncertain_writes(), 0);
}

#[test]
fn a_power_cut_during_a_pass_costs_nothing() {
    let mut it = Stepped::open(filled(), with_rate(4 << 20));
    let mut random = Random::new(11);
    let mut answers = Vec::new();
    let mut cuts = 0;
    for round in 0..400_u32 {
        if round % 8 == 0 {
            answers.push(it.submit_put(100 + u128::from(round % 5), 400, Placement::Embedded));
        }
        it.advance();
        if round % 3 == 0 {
            let survivors = Survivors::ALL[round as usize / 3 % Survivors::ALL.len()];
            let after = it.disk.power_cut(survivors, &mut random);
            let store = Store::open_on(after.device(), options()).unwrap();
            assert!(store.info().replay.lumps >= 44);
            cuts += 1;
        }
    }
    assert!(cuts > 100 && it.store.scrub_status().bytes > 0);
    assert_eq!(it.disk.violations(), Vec::<String>::new());
    while let Some(answer) = answers.pop() {
        it.wait(&answer).unwrap();
    }
    it.check_all();
}
