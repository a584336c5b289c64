//! Effects of the block layer on an I/O: splits, merges, flushes before and after, several stores
//! on one disk, and a disk below a disk.

use lumpscope_observer::{
    BlockOp, Class, Correlator, Declared, EndedRequest, Event, Input, Op, Purpose, StoreReport,
    Submission, TraceRequest,
};

use crate::support::{
    DEV, Feed, added, declared, drained, ended, event, filled, finished, has_step, owned, placed,
    raw_store, wrote,
};

const KIB: u64 = 1 << 10;

#[test]
fn a_split_write_is_one_request_s_in_whatever_order_its_parts_complete() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Write, 0, 4096 * KIB, 10));
    for part in [5_u64, 0, 7, 2, 1, 6, 3, 4] {
        let sector = part * 1024;
        it.apply(wrote(sector, 1024, 20, 30 + part, 90 - part));
    }
    it.feed([finished(1, 100), ended(1, 5, 105), drained(200)]);
    let told = it.explain(1).expect("kept");
    assert_eq!((told.block_requests, told.blocks.len()), (8, 8));
    let bytes: u64 = told.blocks.iter().map(|b| b.own_bytes).sum();
    assert_eq!(bytes, 4096 * KIB);
    // In the order in which the disk was sent them.
    let sectors: Vec<u64> = told.blocks.iter().map(|b| b.sector).collect();
    assert!(sectors.is_sorted(), "{sectors:?}");
    assert_eq!(told.lost, [], "its own parts are not others");
    let block = filled(&it).block;
    assert_eq!(block.attributed_bytes, 4096 * KIB);
    assert_eq!(block.unattributed_bytes, 0);
}

#[test]
fn a_part_that_completes_in_pieces_or_fails_is_still_its_owner_s() {
    let mut it = raw_store();
    let partial = Event {
        bytes: 512,
        failed: true,
        ..event(BlockOp::Write, 0, 8, 20, 30, 40)
    };
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        Input::Event(partial),
        // What was left, sent again.
        wrote(1, 7, 41, 45, 60),
        finished(1, 70),
        ended(1, 5, 75),
        drained(100),
    ]);
    let told = it.explain(1).expect("kept");
    assert_eq!(told.block_requests, 2);
    assert!(told.blocks[0].failed);
    assert!(!told.blocks[1].failed);
    has_step(&told, "at the device, failed");
    assert_eq!(filled(&it).block.unattributed_bytes, 0);
}

#[test]
fn a_merge_across_a_gap_gives_the_gap_to_nobody() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1, 2, 3], Op::Write, 0, 4096, 10),
        declared(2, &[], Op::Write, 8192, 4096, 10),
        wrote(0, 24, 20, 30, 40),
        finished(1, 50),
        finished(2, 50),
        ended(1, 5, 55),
        ended(2, 5, 55),
        ended(3, 5, 55),
        drained(60),
    ]);
    let bytes = |id| it.explain(id).expect("kept").blocks[0].own_bytes;
    assert_eq!((bytes(1), bytes(2), bytes(3)), (1366, 1365, 1365));
    let block = filled(&it).block;
    assert_eq!(block.own_bytes, 12288);
    assert_eq!(block.shared_bytes, 8192);
    assert_eq!(block.unattributed_bytes, 4096);
}

#[test]
fn a_write_wrapped_in_flushes_has_all_of_them_and_nothing_twice() {
    let mut it = raw_store();
    let flush = |issue, done| Event {
        queue_ns: None,
        ..event(BlockOp::Flush, 0, 0, 0, issue, done)
    };
    let mut journal = declared(1, &[1, 2], Op::Write, 0, 4096, 10);
    if let Input::Declared(io) = &mut journal {
        io.purpose = Purpose::Journal;
    }
    it.feed([
        journal,
        Input::Event(flush(22, 40)),
        Input::Event(Event {
            preflush: true,
            fua: true,
            ..event(BlockOp::Write, 0, 8, 20, 41, 60)
        }),
        Input::Event(flush(61, 80)),
        finished(1, 90),
        ended(1, 5, 95),
        ended(2, 5, 95),
        drained(100),
    ]);
    for id in [1, 2] {
        let told = it.explain(id).expect("kept");
        let kinds: Vec<&str> = told.blocks.iter().map(|b| b.operation.as_str()).collect();
        assert_eq!(kinds, ["flush", "write", "flush"]);
        assert!(told.blocks.iter().all(|b| b.shared));
        assert_eq!(told.lost, []);
    }
    let report = filled(&it);
    assert_eq!(owned(&report, "request", "flush"), (2, 0));
    assert_eq!(owned(&report, "request", "write"), (1, 4096));
}

/// Two stores of 1 MiB each on one disk, one behind the other; their tokens are alike.
fn two_stores() -> Correlator {
    let mut it = Correlator::new(2);
    for (store, file_system, sector) in [(0, "", 2048), (1, "ext4", 4096)] {
        it.apply(added(store, &format!("s{store}")));
        it.apply(placed(store, DEV, file_system, sector, 1 << 20));
    }
    it
}

fn of_store(store: usize, input: Input) -> Input {
    match input {
        Input::Declared(io) => Input::Declared(Declared { store, ..io }),
        Input::Finished { token, end_ns, .. } => Input::Finished {
            store,
            token,
            end_ns,
        },
        Input::Ended(of) => Input::Ended(EndedRequest { store, ..of }),
        other => other,
    }
}

#[test]
fn two_stores_on_one_disk_have_their_own_block_requests_and_are_others_to_each_other() {
    let mut it = two_stores();
    let watch = it.watch_blocks(TraceRequest::default(), 9);
    for store in [0, 1] {
        let io = declared(1, &[1 + store as u64], Op::Write, 0, 4096, 10);
        it.apply(of_store(store, io));
    }
    it.feed([wrote(2048, 8, 20, 30, 40), wrote(4096, 8, 20, 40, 55)]);
    for store in [0, 1] {
        it.apply(of_store(store, finished(1, 60)));
        it.apply(of_store(store, ended(1 + store as u64, 5, 65)));
    }
    it.apply(drained(100));
    let places = |id| {
        let told = it.explain(id).expect("kept");
        let sectors: Vec<u64> = told.blocks.iter().map(|b| b.sector).collect();
        let lost: u64 = told.lost.iter().map(|l| l.ns).sum();
        (told.store, sectors, lost)
    };
    assert_eq!(places(1), ("s0".to_owned(), vec![2048], 0));
    assert_eq!(places(2), ("s1".to_owned(), vec![4096], 10));
    let stores: Vec<Vec<String>> = watch.take().into_iter().map(|l| l.stores).collect();
    assert_eq!(stores, [["s0"], ["s1"]]);
}

#[test]
fn only_a_store_s_own_disk_counts_not_the_one_below_it() {
    let mut it = raw_store();
    let below = |dev, class| {
        Input::Event(Event {
            dev,
            class,
            own: false,
            ..event(BlockOp::Write, 0, 8, 25, 35, 45)
        })
    };
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        // The loop device's worker writes the same sectors of a disk that is not watched.
        below(DEV + 1, Class::Other),
        wrote(0, 8, 20, 30, 50),
        finished(1, 60),
        ended(1, 5, 65),
        drained(100),
    ]);
    let told = it.explain(1).expect("kept");
    assert_eq!((told.block_requests, told.lost.len()), (1, 0));
    let report = filled(&it);
    assert_eq!(report.block.owners.len(), 1, "{:?}", report.block.owners);
    assert_eq!(report.block.attributed_bytes, 4096);
}

#[test]
fn the_disk_below_may_be_another_store_s_and_is_kept_apart() {
    let mut it = raw_store();
    it.feed([added(1, "below"), placed(1, DEV + 1, "", 0, 1 << 30)]);
    let worker = Event {
        dev: DEV + 1,
        class: Class::Other,
        own: false,
        ..event(BlockOp::Write, 0, 8, 25, 35, 45)
    };
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        Input::Event(worker),
        wrote(0, 8, 20, 30, 50),
        finished(1, 60),
        ended(1, 5, 65),
        drained(100),
    ]);
    assert_eq!(it.explain(1).expect("kept").block_requests, 1);
    let mut below = StoreReport::default();
    it.fill(1, &mut below);
    assert_eq!(owned(&below, "other", "write"), (1, 4096));
    assert_eq!(owned(&below, "request", "write"), (0, 0));
    assert_eq!(below.block.own_bytes, 0);
}

#[test]
fn a_flush_given_to_a_disk_without_requests_is_its_asker_s_alone() {
    let mut it = raw_store();
    let flush = |token, queue, done| {
        Input::Event(Event {
            submission: Some(Submission { store: 0, token }),
            ..event(BlockOp::Flush, 0, 0, queue, queue, done)
        })
    };
    it.feed([
        declared(1, &[1], Op::Flush, 0, 0, 10),
        declared(2, &[2], Op::Flush, 0, 0, 11),
        flush(1, 20, 40),
        flush(2, 21, 41),
        finished(1, 50),
        finished(2, 50),
        ended(1, 5, 55),
        ended(2, 5, 55),
        drained(60),
    ]);
    for (request, queued) in [(1, 15), (2, 16)] {
        let told = it.explain(request).expect("kept");
        let blocks = told.blocks.iter().map(|b| (b.queued_at_ns, b.uncertain));
        assert!(blocks.eq([(Some(queued), false)]), "{told:#?}");
    }
    assert_eq!(it.limits().ambiguous, 0);
}
