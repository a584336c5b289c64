//! Which request starts when, which one is refused and which one is dropped: a store without
//! threads, in virtual time, so that every history is the same at every run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::stepped::{self, Answer, steady};
use crate::support::timed::{FLUSH_NS, READ_NS, Timed};
use crate::support::{buf, but, content, ctx};
use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::{
    Durability, Error, LumpData, LumpId, LumpRange, Placement, PutOptions, QueuePolicy, RequestCtx,
    StoreOptions,
};

const MS: Duration = Duration::from_millis(1);

fn options(policy: QueuePolicy) -> StoreOptions {
    let mut options = StoreOptions::new("sim");
    options.queue_policy = policy;
    options.queue_depth = 1;
    options
}

fn at(deadline: u64) -> RequestCtx {
    but(ctx(), |it| it.deadline = Some(deadline))
}

/// Sends gets of `(id, deadline)` while the only slot is taken; the ids in the order of answers.
fn order_of(store: &mut Timed, gets: &[(u128, Option<u64>)]) -> Vec<u128> {
    let blocker = store.begin_get(0, ctx());
    store.step();
    let order = Arc::new(Mutex::new(Vec::new()));
    for &(id, deadline) in gets {
        let order = Arc::clone(&order);
        let _time = virtual_time(store.disk.now_ns());
        let ctx = RequestCtx { deadline, ..ctx() };
        let done = Box::new(move |result: Result<LumpData, Error>, _| {
            result.unwrap();
            order.lock().unwrap().push(id);
        });
        store.store.submit_get(ctx, LumpId(id), done).unwrap();
    }
    store.settle();
    blocker.try_recv().unwrap().unwrap();
    let order = order.lock().unwrap();
    order.clone()
}

/// Lumps 0 to `count` - 1, one behind the other.
fn filled(policy: QueuePolicy, count: u128) -> Timed {
    let mut store = Timed::new(options(policy));
    for id in 0..count {
        store.put(id, &content(id, 1, 700));
    }
    store
}

#[test]
fn each_policy_has_its_order() {
    let gets = |now: u64| {
        [
            (3, None),
            (1, Some(now + 900 * READ_NS)),
            (4, None),
            (2, Some(now + 800 * READ_NS)),
            // Late already: it is done all the same, and before all others.
            (5, Some(now.saturating_sub(1))),
        ]
    };
    for (policy, expected) in [
        (QueuePolicy::Fifo, [3, 1, 4, 2, 5]),
        (QueuePolicy::Deadline, [5, 2, 1, 3, 4]),
        // The late one; then up from there, and from the lowest on.
        (QueuePolicy::Position, [5, 1, 2, 3, 4]),
    ] {
        let mut store = filled(policy, 6);
        let now = store.disk.now_ns();
        assert_eq!(order_of(&mut store, &gets(now)), expected, "{policy:?}");
        let stats = store.stats();
        assert_eq!((stats.deadline_missed, stats.deadline_dropped), (1, 0));
        assert_eq!(stats.overtakes == 0, policy == QueuePolicy::Fifo);
        assert_eq!(store.store.info().queue_policy, policy);
        assert!(stats.queue_started >= 12 && stats.queue_wait_ns >= 15 * READ_NS);
    }
}

#[test]
fn a_deadline_counts_once_it_is_at_risk() {
    // Reads take 1 ms and are known to. Four are ahead of the fifth in the sweep.
    let mut store = filled(QueuePolicy::Position, 7);
    for _ in 0..50 {
        store.get(1);
    }
    let now = store.disk.now_ns();
    let roomy = [(2, None), (3, None), (6, Some(now + 500 * READ_NS))];
    assert_eq!(order_of(&mut store, &roomy), [2, 3, 6]);
    assert_eq!(store.stats().overtakes, 0);
    let now = store.disk.now_ns();
    // When the slot is free 1 ms is gone; the get must start after one more at the latest.
    let due = Some(now + 3 * READ_NS);
    let tight = [(2, None), (3, None), (4, None), (6, due)];
    let order = order_of(&mut store, &tight);
    let place = order.iter().position(|&id| id == 6).unwrap();
    assert!(place < 2, "{order:?}");
    assert_eq!(store.stats().deadline_missed, 0);
}

#[test]
fn overtaking_has_an_end() {
    let mut options = options(QueuePolicy::Position);
    options.max_overtakes = 3;
    let mut store = Timed::new(options);
    for id in 0..10 {
        store.put(id, &content(id, 1, 700));
    }
    // The head is at 0 and goes up; 0 itself comes last in the sweep, if it may.
    let gets = [9, 1, 2, 3, 4, 5].map(|id| (id, None));
    let order = order_of(&mut store, &gets);
    assert_eq!(order, [1, 2, 3, 9, 4, 5]);
}

#[test]
fn reads_and_lists_never_wait_for_a_flush() {
    let mut store = filled(QueuePolicy::Position, 5);
    let put = store.begin_put(9, &content(9, 1, 700), PutOptions::default());
    // The data is written; its flush takes a second.
    store.pass(2 * MS);
    for id in 0..5 {
        let answer = store.begin_get(id, ctx());
        store.pass(2 * MS);
        assert_eq!(answer.try_recv().unwrap().unwrap()[..], content(id, 1, 700));
        let head = store
            .send(|store, done| store.submit_head(ctx(), LumpId(id), done))
            .unwrap();
        let list = store
            .send(|store, done| store.submit_list(ctx(), LumpRange::ALL, 2, done))
            .unwrap();
        store.step();
        assert_eq!(head.try_recv().unwrap().unwrap().length, 700);
        let list = list.try_recv().unwrap().unwrap();
        assert_eq!((list.ids.len(), list.next), (2, Some(LumpId(2))));
    }
    assert!(put.try_recv().is_err(), "the flush goes on");
    store.pass(Duration::from_nanos(4 * FLUSH_NS));
    put.try_recv().unwrap().unwrap();
}

#[test]
fn what_needs_no_data_io_does_not_wait_for_slots() {
    let mut store = filled(QueuePolicy::Position, 5);
    // A slow disk: all but one wait for the one slot.
    let gets: Vec<_> = (0..200).map(|n| store.begin_get(n % 4, ctx())).collect();
    store.step();
    let embedded = PutOptions {
        placement: Some(Placement::Embedded),
        ..PutOptions::default()
    };
    let put = store.begin_put(8, b"small", embedded);
    let delete = store.begin_delete(4);
    let missing = store.begin_get(77, ctx());
    let usage = store
        .send(|store, done| store.submit_usage(ctx(), LumpRange::ALL, done))
        .unwrap();
    store.step();
    let missing = missing.try_recv().unwrap();
    assert!(matches!(missing, Err(Error::NotFound { .. })));
    assert_eq!(usage.try_recv().unwrap().unwrap().lumps, 5);
    // All of the gets would take 200 ms, and no step has let time pass for one of them.
    assert!(gets.iter().all(|get| get.try_recv().is_err()));
    assert_eq!(store.stats().queue_length, 199);
    assert_eq!(store.stats().pending, 2, "both are on their way");
    store.settle();
    assert!(put.try_recv().unwrap().unwrap().created);
    assert!(delete.try_recv().unwrap().unwrap().existed);
    assert!(gets.iter().all(|get| get.try_recv().unwrap().is_ok()));
}

#[test]
fn what_is_late_and_wants_to_be_dropped_never_touches_the_disk() {
    let mut store = filled(QueuePolicy::Fifo, 5);
    let first = store.begin_get(0, ctx());
    store.step();
    let before = store.disk.submitted();
    let now = store.disk.now_ns();
    let dropped = but(at(now + READ_NS / 2), |it| it.drop_when_late = true);
    let late_get = store.begin_get(1, dropped);
    let buf = buf(&store.store, &content(9, 1, 700));
    let late_put = store
        .send(|store, done| {
            let (data, synced) = (Placement::Data, Durability::Synced);
            store.submit_put(dropped, LumpId(9), buf, data, synced, done)
        })
        .unwrap();
    let kept = store.begin_get(2, at(now + READ_NS / 2));
    // Not dropped a nanosecond early.
    store.disk.advance_to(now + READ_NS / 2);
    store.step();
    assert!(late_get.try_recv().is_err());
    // Answered when its time is over, not when the slot is free.
    store.disk.advance_to(now + READ_NS / 2 + 7);
    store.step();
    for late_ns in [
        late_get.try_recv().unwrap().map(drop),
        late_put.try_recv().unwrap().map(drop),
    ] {
        let is_right = matches!(late_ns, Err(Error::DeadlineExceeded { late_ns: 7 }));
        assert!(is_right, "{late_ns:?}");
    }
    assert!(first.try_recv().is_err());
    store.settle();
    assert!(first.try_recv().unwrap().is_ok() && kept.try_recv().unwrap().is_ok());
    assert_eq!(store.disk.submitted(), before + 1, "one more read");
    let stats = store.stats();
    assert_eq!((stats.deadline_dropped, stats.deadline_missed), (2, 1));
    assert_eq!((stats.queue_length, stats.buffer_used_bytes), (0, 0));
    assert_eq!(store.get(9), None);
    // What needs no slot is dropped too.
    let now = store.disk.now_ns();
    let over = but(at(now - 1), |it| it.drop_when_late = true);
    let delete = store
        .send(|store, done| store.submit_delete(over, LumpId(1), Durability::Synced, done))
        .unwrap();
    store.settle();
    let late = delete.try_recv().unwrap();
    assert!(matches!(late, Err(Error::DeadlineExceeded { late_ns: 1 })));
    assert!(store.get(1).is_some());
}

fn busy<T>(result: Result<Answer<T>, Error>) -> (usize, Duration) {
    match result {
        Err(Error::Busy { limit, retry_after }) => (limit, retry_after),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("let in"),
    }
}

#[test]
fn overload_is_refused_early_and_ends_by_itself() {
    let mut options = options(QueuePolicy::Position);
    options.queue_limit = 16;
    options.overload_threshold = 8;
    options.overload_after = 20 * MS;
    let mut store = Timed::new(options);
    for id in 0..4 {
        store.put(id, &content(id, 1, 700));
    }
    let mut waiting: Vec<Answer<LumpData>> = Vec::new();
    let ask = |store: &Timed, ctx: RequestCtx| {
        store.send(|store, done| store.submit_get(ctx, LumpId(1), done))
    };
    let prioritized = but(ctx(), |it| it.prioritized = true);
    // One a millisecond leaves, one comes: the queue stays at 10.
    waiting.extend((0..11).map(|_| ask(&store, ctx()).unwrap()));
    for _ in 0..19 {
        store.pass(MS);
        assert_eq!(store.stats().overloaded, 0);
        waiting.push(ask(&store, ctx()).unwrap());
    }
    store.pass(MS);
    assert_eq!(store.stats().overloaded, 1);
    let (limit, retry_after) = busy(ask(&store, ctx()));
    assert_eq!(limit, 8);
    // One a millisecond, and it recovers at 4.
    let expected = u32::try_from(store.stats().queue_length - 4).unwrap() * MS;
    assert!(retry_after > expected / 2, "{retry_after:?} {expected:?}");
    assert!(retry_after < 2 * expected, "{retry_after:?} {expected:?}");
    let own = but(prioritized, |it| it.max_queue_len = Some(3));
    assert_eq!(busy(ask(&store, own)).0, 3);
    waiting.push(ask(&store, prioritized).unwrap());
    while store.stats().queue_length < 16 {
        waiting.push(ask(&store, prioritized).unwrap());
        store.step();
    }
    assert_eq!(busy(ask(&store, prioritized)).0, 16, "the hard limit");
    // It recovers below the threshold, at half of it.
    while store.stats().queue_length > 5 {
        store.pass(MS);
        assert_eq!(busy(ask(&store, ctx())).0, 8);
    }
    store.pass(MS);
    assert_eq!(store.stats().overloaded, 0);
    waiting.push(ask(&store, ctx()).unwrap());
    store.settle();
    assert!(waiting.iter().all(|get| get.try_recv().unwrap().is_ok()));
    let stats = store.stats();
    assert_eq!((stats.overloads, stats.queue_refused), (1, 1));
    assert_eq!(stats.queue_refused_own_limit, 1);
    assert!(stats.overload_refused > 2);
}

/// A store that may have 32 data I/Os in flight, each of which takes so long, on a disk of so many blocks.
fn wide(blocks: u64, each_ns: u64) -> Timed {
    let mut options = options(QueuePolicy::Position);
    options.queue_depth = 32;
    Timed::on(stepped::disk(64, blocks, steady(each_ns, each_ns)), options)
}

/// I/Os in flight, and requests that wait for a slot.
fn begun_and_waiting(store: &mut Timed) -> (u64, u64) {
    let stats = store.stats();
    (stats.in_flight_ios, stats.queue_length)
}

#[test]
fn large_gets_are_read_a_few_at_a_time_and_small_ones_beside_them() {
    let mut store = wide(20_000, READ_NS);
    for id in 0..8 {
        store.put(id, &content(id, 1, 1 << 20));
    }
    store.put(8, &content(8, 1, 700));
    let gets: Vec<_> = (0..9).map(|id| store.begin_get(id, ctx())).collect();
    store.step();
    // 4 MiB, and the small one.
    assert_eq!(begun_and_waiting(&mut store), (5, 4));
    store.pass(Duration::from_nanos(READ_NS));
    assert_eq!(begun_and_waiting(&mut store), (4, 0));
    store.settle();
    for (id, get) in (0..).zip(gets) {
        let len = if id == 8 { 700 } else { 1 << 20 };
        let lump = get.try_recv().unwrap().unwrap();
        assert_eq!(lump.to_vec(), content(id, 1, len));
    }
}

#[test]
fn puts_are_written_a_few_at_a_time_beside_the_flush() {
    let mut store = wide(40_000, READ_NS);
    let puts: Vec<_> = (0..16)
        .map(|id| store.begin_put(id, &content(id, 1, 1 << 20), PutOptions::default()))
        .collect();
    assert_eq!(begun_and_waiting(&mut store).1, 8, "8 MiB are written");
    store.pass(Duration::from_nanos(READ_NS));
    let waiting = begun_and_waiting(&mut store).1;
    assert_eq!(waiting, 0, "the others need not wait for the flush");
    assert!(puts.iter().all(|put| put.try_recv().is_err()));
    store.settle();
    assert!(puts.iter().all(|put| put.try_recv().unwrap().is_ok()));
}

#[test]
fn what_the_disk_answers_late_holds_nobody_up() {
    let mut store = wide(80_000, FLUSH_NS);
    for id in 0..8 {
        store.put(id, &content(id, 1, 1 << 20));
    }
    let gets: Vec<_> = (0..8).map(|id| store.begin_get(id, ctx())).collect();
    let puts: Vec<_> = (10..26)
        .map(|id| store.begin_put(id, &content(id, 1, 1 << 20), PutOptions::default()))
        .collect();
    assert_eq!(begun_and_waiting(&mut store).1, 4 + 8);
    let now_ns = store.disk.now_ns();
    let due_ns = store.driver.due_ns().unwrap();
    assert_eq!(due_ns - now_ns, 10_000_000, "it wakes by itself");
    store.pass(Duration::from_nanos(due_ns - now_ns));
    assert_eq!(begun_and_waiting(&mut store).1, 0);
    store.settle();
    assert!(gets.iter().all(|get| get.try_recv().unwrap().is_ok()));
    assert!(puts.iter().all(|put| put.try_recv().unwrap().is_ok()));
}

#[test]
fn gets_wait_for_memory_and_puts_are_told() {
    const LUMP: usize = 16_000;
    let mut options = options(QueuePolicy::Position);
    options.queue_depth = 32;
    // A lump takes 16 KiB as it lies in memory; 4 of them, 3 for puts.
    options.buffer_budget = 65_536;
    let mut store = Timed::new(options);
    for id in 0..8 {
        store.put(id, &content(id, 1, LUMP));
    }
    let gets: Vec<_> = (0..8).map(|id| store.begin_get(id, ctx())).collect();
    store.settle();
    let come = || gets.iter().filter_map(|get| get.try_recv().ok());
    let mut held: Vec<LumpData> = come().map(Result::unwrap).collect();
    assert_eq!(held.len(), 4);
    let stats = store.stats();
    assert_eq!((stats.queue_length, stats.buffer_waits), (4, 1));
    assert_eq!(stats.buffer_used_bytes, 65_536);
    assert_eq!(stats.buffer_budget_bytes, 65_536);
    let refused = store.store.lump_buf(LUMP as u64).unwrap_err();
    let Error::BuffersExhausted {
        used: 65_536,
        budget: 65_536,
        needed: 16_384,
        retry_after,
    } = refused
    else {
        panic!("{refused}")
    };
    assert!(retry_after >= MS);
    assert_eq!(store.stats().buffer_refused, 1);
    // A put that has its memory does not wait for the gets that have none, nor do heads.
    held.pop();
    let put = store.begin_put(9, &content(9, 1, LUMP), PutOptions::default());
    store.settle();
    put.try_recv().unwrap().unwrap();
    while let Some(lump) = held.pop() {
        drop(lump);
        store.settle();
        held.extend(come().map(Result::unwrap));
        assert!(store.stats().buffer_used_bytes <= 65_536);
    }
    assert_eq!(store.stats().queue_length, 0);
    // A lump larger than all of the memory goes alone.
    store.put(10, &content(10, 1, 100_000));
    assert_eq!(store.get(10).unwrap(), content(10, 1, 100_000));
    store.step();
    assert_eq!(store.stats().buffer_used_bytes, 0);
}
