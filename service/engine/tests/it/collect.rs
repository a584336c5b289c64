//! The journal's garbage collection, in virtual time on a simulated disk: it works in steps, within
//! its budget, and not at all when there is nothing to gain.

use crate::support::stepped::{Stepped, disk, steady};
use crate::support::{but, options};
use lumpscope_engine::Placement;

const SECOND: u64 = 1_000_000_000;
const LATENCY_NS: u64 = 100_000;

fn open(ring_blocks: u64, gc_rate: u64) -> Stepped {
    let options = but(options(), |it| it.gc_rate = gc_rate);
    Stepped::open(
        disk(ring_blocks, 4096, steady(LATENCY_NS, LATENCY_NS)),
        options,
    )
}

/// 2.4 MB of records, half of them live, in a ring of 8 MiB: the collection rests.
fn half_garbage(gc_rate: u64) -> Stepped {
    let mut it = open(16_384, gc_rate);
    for round in 0..2 {
        let answers: Vec<_> = (0..400)
            .map(|id| it.submit_put(id, 3000 + round, Placement::Embedded))
            .collect();
        for answer in &answers {
            it.wait(answer).unwrap();
        }
    }
    it.settle();
    assert_eq!(it.store.stats().gc_runs, 0);
    it
}

#[test]
fn a_store_with_nothing_to_do_does_no_io() {
    let mut it = half_garbage(0);
    let answer = it.submit_collect();
    it.wait(&answer).unwrap();
    // A ring that has gone round several times, with more than half of it live at the end.
    let mut small = open(64, 1000);
    for round in 0..3000 {
        small.put(round % 400, 60, Placement::Data);
    }
    assert!(small.store.stats().gc_runs > 0);
    for mut it in [it, small] {
        while it.advance() {}
        let before = it.disk.submitted();
        for _ in 0..48 {
            it.disk.advance_to(it.disk.now_ns() + 3600 * SECOND);
            it.driver.step(it.disk.now_ns());
        }
        assert_eq!(it.disk.submitted(), before, "I/O in two idle days");
        assert_eq!(it.driver.due_ns(), None);
        it.check_all();
    }
}

#[test]
fn a_round_on_request_frees_all_garbage_and_says_so() {
    let mut it = half_garbage(0);
    let before = it.store.stats();
    let answer = it.submit_collect();
    let outcome = it.wait(&answer).unwrap();
    // The last chunk may reach into what was moved already.
    assert!((400..500).contains(&outcome.relocated), "{outcome:?}");
    assert!(outcome.dropped >= 400, "{outcome:?}");
    assert_eq!(outcome.live_bytes, before.journal_live_bytes);
    let expected = before.journal_used_bytes - outcome.used_bytes;
    assert_eq!(outcome.freed_bytes, expected);
    assert!(
        outcome.used_bytes < outcome.live_bytes + 100_000,
        "{outcome:?}"
    );
    // There is nothing more to gain: no I/O.
    it.settle();
    let submitted = it.disk.submitted();
    let answer = it.submit_collect();
    let again = it.wait(&answer).unwrap();
    assert_eq!((again.freed_bytes, again.relocated), (0, 0));
    assert_eq!(it.disk.submitted(), submitted);
    it.check_all();
    let disk = it.close();
    let found = Stepped::open(disk, options()).store.info().replay.lumps;
    assert_eq!(found, 400);
}

#[test]
fn requests_are_served_between_the_steps_of_a_round() {
    let mut it = half_garbage(0);
    let round = it.submit_collect();
    it.until(|it| it.store.stats().gc_read_bytes > 0);
    let began = it.disk.submitted();
    let mut served = 0;
    // As long as the round goes on, a get takes its own read, and a put the phases of at most two
    // batches: the one under way, and its own.
    while round.try_recv().is_err() {
        let start = it.disk.now_ns();
        let get = it.submit_get(served % 400);
        it.wait(&get).unwrap();
        assert!(it.disk.now_ns() - start <= 2 * LATENCY_NS, "a get waited");
        let start = it.disk.now_ns();
        it.put(1000 + served, 50, Placement::Data);
        let phases = (it.disk.now_ns() - start) / LATENCY_NS;
        assert!(phases <= 10, "a put took {phases} times an I/O");
        served += 1;
    }
    assert!(served >= 5, "the round was one step: {served}");
    assert!(it.disk.submitted() - began > 20);
    it.check_all();
}

#[test]
fn the_budget_is_held_but_not_at_the_cost_of_a_request() {
    // Without need: 2.4 MB read and half of it written, at 100 KB/s.
    let mut it = half_garbage(100_000);
    let start = it.disk.now_ns();
    let answer = it.submit_collect();
    it.wait(&answer).unwrap();
    let took = it.disk.now_ns() - start;
    let bytes = it.store.stats().gc_read_bytes;
    assert!(took > 20 * SECOND, "{bytes} bytes in {took} ns");
    // In a ring that is full again and again no put waits for a budget of nothing.
    let mut it = open(32, 1);
    let start = it.disk.now_ns();
    for round in 0..2000 {
        it.put(round % 100, 60, Placement::Data);
    }
    assert!(it.store.stats().gc_relocated > 0);
    let took = it.disk.now_ns() - start;
    assert!(took < 2000 * 20 * LATENCY_NS, "{took} ns");
    it.check_all();
}
