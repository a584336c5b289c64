//! Owners of block requests.

use lumpscope_observer::{BlockOp, Class, Correlator, Event, Input, Op};

use crate::support::{
    DEV, Feed, declared, drained, ended, event, filled, finished, owned, placed, raw_store, replay,
    wrote,
};

#[test]
fn a_recorded_ext4_tells_data_journal_and_strangers_apart() {
    let report = replay("ext4.jsonl");
    assert_eq!(report.block.attributed_bytes, 6 << 20);
    assert_eq!(report.block.shared_bytes, 6 * 4096);
    assert_eq!(report.block.unattributed_bytes, 0);
    assert_eq!(owned(&report, "other", "write").1, 6 * (256 << 10));
    let owners = &report.block.owners;
    assert!(owned(&report, "fs-journal", "write").0 >= 6, "{owners:?}");
    let sentences: Vec<&str> = report.slowest.iter().map(|s| s.sentence.as_str()).collect();
    let after_journal = |s: &&str| s.contains("previous access, by the ext4 journal");
    assert!(sentences.iter().any(after_journal), "{sentences:#?}");
    let of_1_mib = |s: &&str| s.starts_with("put of 1 MiB took ");
    assert!(sentences.iter().all(of_1_mib), "{sentences:#?}");
}

#[test]
fn a_recorded_xfs_tells_data_journal_and_strangers_apart() {
    let report = replay("xfs.jsonl");
    assert_eq!(report.block.attributed_bytes, 6 << 20);
    assert_eq!(report.block.unattributed_bytes, 0);
    assert_eq!(owned(&report, "other", "write").1, 6 * (256 << 10));
    let owners = &report.block.owners;
    assert!(owned(&report, "fs-journal", "write").0 >= 6, "{owners:?}");
    assert_eq!(report.operations[0].count, 6);
}

#[test]
fn a_merged_block_request_is_split_by_overlap() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        declared(2, &[2], Op::Write, 4096, 8192, 11),
        wrote(0, 24, 20, 30, 40),
        finished(1, 50),
        finished(2, 50),
        ended(1, 5, 55),
        ended(2, 5, 55),
        drained(60),
    ]);
    let report = filled(&it);
    assert_eq!(report.block.shared_bytes, 12288);
    assert_eq!(report.block.attributed_bytes, 0);
    assert_eq!(report.block.unattributed_bytes, 0);
    let own = |id: u64| {
        let block = &it.explain(id).expect("kept").blocks[0];
        (block.own_bytes, block.shared)
    };
    assert_eq!((own(1), own(2)), ((4096, true), (8192, true)));
}

#[test]
fn two_readers_of_the_same_sectors_get_one_block_request_each() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Read, 0, 4096, 10),
        declared(2, &[2], Op::Read, 0, 4096, 11),
        Input::Event(event(BlockOp::Read, 0, 8, 20, 30, 40)),
        Input::Event(event(BlockOp::Read, 0, 8, 21, 31, 41)),
        finished(1, 50),
        finished(2, 50),
        ended(1, 5, 55),
        ended(2, 5, 55),
        drained(60),
    ]);
    let report = filled(&it);
    assert_eq!(report.block.attributed_bytes, 8192);
    let slowest = &report.slowest;
    assert!(slowest.iter().all(|s| s.block_requests == 1), "{slowest:?}");
    // The second is known only as far as the first is.
    assert_eq!(it.limits().ambiguous, 2);
}

#[test]
fn neither_another_operation_nor_another_time_nor_another_place_is_taken() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 100),
        finished(1, 200),
        Input::Event(event(BlockOp::Read, 0, 8, 110, 120, 130)),
        wrote(0, 8, 90, 120, 130),
        wrote(0, 8, 110, 120, 201),
        wrote(8, 8, 110, 120, 130),
        drained(300),
    ]);
    let report = filled(&it);
    assert_eq!(report.block.unattributed_bytes, 4 * 4096);
    assert_eq!(report.block.attributed_bytes, 0);
}

#[test]
fn a_flush_belongs_to_all_who_asked_before_it_was_sent_and_to_nobody_else() {
    let mut it = raw_store();
    let mut flush = event(BlockOp::Flush, 0, 0, 30, 30, 40);
    flush.queue_ns = None;
    it.feed([
        declared(1, &[1], Op::Flush, 0, 0, 10),
        declared(2, &[2, 3], Op::Flush, 0, 0, 20),
        declared(3, &[4], Op::Flush, 0, 0, 35),
        Input::Event(flush),
    ]);
    let mut inputs: Vec<Input> = (1..=3).map(|token| finished(token, 50)).collect();
    inputs.extend((1..=4).map(|id| ended(id, 5, 55)));
    inputs.push(drained(60));
    it.feed(inputs);
    let report = filled(&it);
    let blocks = |id: u64| it.explain(id).map(|told| told.block_requests);
    assert_eq!(blocks(1), Some(1));
    assert_eq!(blocks(2), Some(1));
    assert_eq!(blocks(3), Some(1));
    assert_eq!(blocks(4), Some(0));
    assert_eq!(owned(&report, "request", "flush"), (1, 0));
}

#[test]
fn a_request_is_counted_when_it_is_known_whose_its_flush_was() {
    let begun = || {
        let mut it = raw_store();
        let mut flush = event(BlockOp::Flush, 0, 0, 30, 30, 40);
        flush.queue_ns = None;
        it.feed([
            declared(1, &[1], Op::Flush, 0, 0, 10),
            declared(2, &[2], Op::Flush, 0, 0, 20),
            Input::Event(flush),
            finished(1, 50),
            ended(1, 5, 55),
            ended(3, 5, 35),
            drained(60),
        ]);
        it
    };
    let told = |it: &Correlator, id| {
        let told = it.explain(id)?;
        assert!(!told.incomplete.contains("later"), "{}", told.incomplete);
        Some(told.block_requests)
    };
    // The second may have asked for it alone.
    let mut it = begun();
    assert_eq!(told(&it, 1), None);
    assert_eq!(told(&it, 3), Some(0), "it ended before");
    it.feed([finished(2, 70), ended(2, 5, 75), drained(80)]);
    assert_eq!(told(&it, 1), Some(1));
    assert_eq!(told(&it, 2), Some(1));
    // For a second at most.
    let mut it = begun();
    it.apply(drained(1_000_000_040));
    assert_eq!(told(&it, 1), Some(1));
    let mut it = begun();
    it.finish();
    assert_eq!(told(&it, 1), Some(1));
}

#[test]
fn who_was_there_before_is_said_only_when_the_chain_fits() {
    let mut it = raw_store();
    let mut first = event(BlockOp::Write, 1000, 8, 20, 30, 90);
    first.class = Class::Other;
    first.comm = "fio".into();
    let mut fits = event(BlockOp::Write, 8, 8, 40, 50, 60);
    fits.seek = Some(8 - 1008);
    let mut lost = event(BlockOp::Write, 16, 8, 70, 75, 80);
    lost.seek = Some(5);
    it.feed([
        declared(1, &[1], Op::Write, 4096, 8192, 10),
        Input::Event(fits),
        Input::Event(lost),
        Input::Event(first),
        finished(1, 95),
        ended(1, 5, 99),
        drained(100),
    ]);
    let report = filled(&it);
    let slow = &report.slowest[0];
    assert_eq!(slow.blocks[0].previous_owner, "other (fio[1])");
    assert_eq!(slow.blocks[1].previous_owner, "");
    let by_fio = "before the end of the previous access, by process fio";
    assert!(slow.sentence.contains(by_fio), "{}", slow.sentence);
}

#[test]
fn a_moved_file_is_found_after_its_place_was_read_again() {
    let mut it = Correlator::new(1);
    let at = |sector| placed(0, DEV, "ext4", sector, 1 << 20);
    it.feed([
        at(0),
        declared(1, &[1], Op::Write, 0, 4096, 10),
        wrote(50_000, 8, 20, 30, 40),
    ]);
    assert!(it.take_stale());
    assert!(!it.take_stale(), "asked once");
    it.feed([at(50_000), finished(1, 50), drained(60)]);
    let report = filled(&it);
    assert_eq!(report.block.attributed_bytes, 4096);
    assert_eq!(report.block.unattributed_bytes, 0);
    assert_eq!(it.limits().looked_up_again, 1);
}

#[test]
fn what_never_ends_is_dropped_and_counted() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        drained(200_000_000_000),
    ]);
    let limits = it.limits();
    assert_eq!((limits.declared_dropped, limits.requests_dropped), (1, 1));
    let late = 200_000_000_001;
    for token in 0..70_000 {
        let io = declared(token, &[token], Op::Write, token * 4096, 4096, late);
        it.apply(io);
    }
    assert_eq!(it.limits().declared_dropped, 1 + 70_000 - 65_536);
}

#[test]
fn ios_without_events_are_no_loss_when_there_are_many() {
    let mut it = raw_store();
    // 100,000 I/Os a second for two seconds, as when no event is handed out.
    for number in 0..200_000_u64 {
        let begin = number * 10_000;
        let io = declared(number, &[], Op::Write, number % 1000 * 4096, 4096, begin);
        it.feed([io, finished(number, begin + 1000)]);
        if number % 1000 == 0 {
            it.apply(drained(begin));
        }
    }
    assert_eq!(it.limits().declared_dropped, 0);
    // One of those that lack block requests is still found, a while later.
    let begin = 199_000 * 10_000;
    it.apply(drained(begin + 20_000_000 + 200_000_000));
    let late = Event {
        done_unknown: true,
        ..event(BlockOp::Write, 0, 8, begin + 100, begin + 200, begin + 200)
    };
    it.apply(Input::Event(late));
    assert_eq!(filled(&it).block.attributed_bytes, 4096);
}
