//! Effects of the block layer on an I/O: splits, merges, flushes before and after, several stores
//! on one disk, and a disk below a disk.

use lumpscope_observer::{
    BlockFilter, BlockOp, Class, Correlator, Declared, EndedRequest, Event, Extent, Input, Op,
    Placement, Purpose, Submission,
};

use crate::support::{DEV, apply, declared, ended, event, filled, finished, owned, raw_store};

const KIB: u64 = 1 << 10;

#[test]
fn a_split_write_is_one_request_s_in_whatever_order_its_parts_complete() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Write, 0, 4096 * KIB, 10));
    for part in [5_u64, 0, 7, 2, 1, 6, 3, 4] {
        let sector = part * 1024;
        it.apply(Input::Event(event(
            BlockOp::Write,
            sector,
            1024,
            20,
            30 + part,
            90 - part,
        )));
    }
    apply(
        &mut it,
        vec![
            finished(1, 100),
            ended(1, 5, 105),
            Input::Drained { until_ns: 200 },
        ],
    );
    let told = it.explain(1).expect("kept");
    assert_eq!((told.block_requests, told.blocks.len()), (8, 8));
    assert_eq!(
        told.blocks.iter().map(|b| b.own_bytes).sum::<u64>(),
        4096 * KIB
    );
    let sectors: Vec<u64> = told.blocks.iter().map(|b| b.sector).collect();
    assert!(
        sectors.is_sorted(),
        "in the order in which the disk was sent them: {sectors:?}"
    );
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
    apply(
        &mut it,
        vec![
            declared(1, &[1], Op::Write, 0, 4096, 10),
            Input::Event(partial),
            // What was left, sent again.
            Input::Event(event(BlockOp::Write, 1, 7, 41, 45, 60)),
            finished(1, 70),
            ended(1, 5, 75),
            Input::Drained { until_ns: 100 },
        ],
    );
    let told = it.explain(1).expect("kept");
    assert_eq!(told.block_requests, 2);
    assert!(told.blocks[0].failed);
    assert!(!told.blocks[1].failed);
    assert!(
        told.steps
            .iter()
            .any(|s| s.text.ends_with("at the device, failed"))
    );
    assert_eq!(filled(&it).block.unattributed_bytes, 0);
}

#[test]
fn a_merge_across_a_gap_gives_the_gap_to_nobody() {
    let mut it = raw_store();
    apply(
        &mut it,
        vec![
            declared(1, &[1, 2, 3], Op::Write, 0, 4096, 10),
            declared(2, &[], Op::Write, 8192, 4096, 10),
            Input::Event(event(BlockOp::Write, 0, 24, 20, 30, 40)),
            finished(1, 50),
            finished(2, 50),
            ended(1, 5, 55),
            ended(2, 5, 55),
            ended(3, 5, 55),
            Input::Drained { until_ns: 60 },
        ],
    );
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
    let journal = Declared {
        store: 0,
        token: 1,
        requests: vec![1, 2],
        purpose: Purpose::Journal,
        op: Op::Write,
        offset: 0,
        len: 4096,
        begin_ns: 10,
    };
    apply(
        &mut it,
        vec![
            Input::Declared(journal),
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
            Input::Drained { until_ns: 100 },
        ],
    );
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
        it.apply(Input::Added {
            store,
            name: format!("s{store}"),
        });
        it.apply(Input::Placed {
            store,
            placement: Placement {
                dev: DEV,
                file_system: file_system.to_owned(),
                ranges: Vec::new(),
                extents: vec![Extent {
                    offset: 0,
                    sector,
                    len: 1 << 20,
                }],
            },
            disk: "sdx".to_owned(),
        });
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
    let watch = it.watch_blocks(BlockFilter::default(), 9);
    for store in [0, 1] {
        it.apply(of_store(
            store,
            declared(1, &[1 + store as u64], Op::Write, 0, 4096, 10),
        ));
    }
    let first = event(BlockOp::Write, 2048, 8, 20, 30, 40);
    let second = event(BlockOp::Write, 4096, 8, 20, 40, 55);
    for event in [first, second] {
        it.apply(Input::Event(event));
    }
    for store in [0, 1] {
        it.apply(of_store(store, finished(1, 60)));
        it.apply(of_store(store, ended(1 + store as u64, 5, 65)));
    }
    it.apply(Input::Drained { until_ns: 100 });
    let places = |id| {
        let told = it.explain(id).expect("kept");
        let sectors: Vec<u64> = told.blocks.iter().map(|b| b.sector).collect();
        (
            told.store,
            sectors,
            told.lost.iter().map(|l| l.ns).sum::<u64>(),
        )
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
    apply(
        &mut it,
        vec![
            declared(1, &[1], Op::Write, 0, 4096, 10),
            // The loop device's worker writes the same sectors of a disk that is not watched.
            below(DEV + 1, Class::Other),
            Input::Event(event(BlockOp::Write, 0, 8, 20, 30, 50)),
            finished(1, 60),
            ended(1, 5, 65),
            Input::Drained { until_ns: 100 },
        ],
    );
    let told = it.explain(1).expect("kept");
    assert_eq!((told.block_requests, told.lost.len()), (1, 0));
    let report = filled(&it);
    assert_eq!(report.block.owners.len(), 1, "{:?}", report.block.owners);
    assert_eq!(report.block.attributed_bytes, 4096);
}

#[test]
fn the_disk_below_may_be_another_store_s_and_is_kept_apart() {
    let mut it = raw_store();
    it.apply(Input::Added {
        store: 1,
        name: "below".to_owned(),
    });
    it.apply(Input::Placed {
        store: 1,
        placement: Placement {
            dev: DEV + 1,
            file_system: String::new(),
            ranges: Vec::new(),
            extents: vec![Extent {
                offset: 0,
                sector: 0,
                len: 1 << 30,
            }],
        },
        disk: "sdx".to_owned(),
    });
    let worker = Event {
        dev: DEV + 1,
        class: Class::Other,
        own: false,
        ..event(BlockOp::Write, 0, 8, 25, 35, 45)
    };
    apply(
        &mut it,
        vec![
            declared(1, &[1], Op::Write, 0, 4096, 10),
            Input::Event(worker),
            Input::Event(event(BlockOp::Write, 0, 8, 20, 30, 50)),
            finished(1, 60),
            ended(1, 5, 65),
            Input::Drained { until_ns: 100 },
        ],
    );
    assert_eq!(it.explain(1).expect("kept").block_requests, 1);
    let mut below = lumpscope_observer::StoreReport::default();
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
    apply(
        &mut it,
        vec![
            declared(1, &[1], Op::Flush, 0, 0, 10),
            declared(2, &[2], Op::Flush, 0, 0, 11),
            flush(1, 20, 40),
            flush(2, 21, 41),
            finished(1, 50),
            finished(2, 50),
            ended(1, 5, 55),
            ended(2, 5, 55),
            Input::Drained { until_ns: 60 },
        ],
    );
    for (request, queued) in [(1, 15), (2, 16)] {
        let told = it.explain(request).expect("kept");
        let blocks = told.blocks.iter().map(|b| (b.queued_at_ns, b.uncertain));
        assert!(blocks.eq([(Some(queued), false)]), "{told:#?}");
    }
    assert_eq!(it.limits().ambiguous, 0);
}
