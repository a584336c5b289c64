//! Head moves, and time lost to others.

use lumpscope_observer::{BlockOp, Class, Event, HeadMove, Input, LostTime, Op, StoreReport};

use crate::support::{
    Feed, added, declared, drained, ended, event, filled, finished, place_raw, raw_store, wrote,
};

fn strange(class: Class, sector: u64, queue: u64, issue: u64, done: u64) -> Input {
    Input::Event(Event {
        class,
        own: false,
        ..event(BlockOp::Write, sector, 8, queue, issue, done)
    })
}

fn lost(owner: &str, ns: u64) -> LostTime {
    LostTime {
        owner: owner.to_owned(),
        ns,
    }
}

#[test]
fn time_is_lost_to_others_that_completed_before_and_counts_once() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 90),
        // Ended before it was queued; at the device when it was queued; the same time again;
        // a piece more; still at the device when it ended.
        strange(Class::FsJournal, 5000, 10, 20, 95),
        strange(Class::FsJournal, 5008, 40, 50, 120),
        strange(Class::FsJournal, 5016, 40, 110, 115),
        strange(Class::FsJournal, 5024, 40, 130, 140),
        strange(Class::Other, 7000, 40, 135, 160),
        strange(Class::Other, 7008, 40, 150, 300),
        wrote(0, 8, 100, 140, 200),
        finished(1, 205),
        ended(1, 80, 210),
        drained(400),
    ]);
    let expected = [lost("fs-journal", 20 + 10), lost("other", 25)];
    let told = it.explain(1).expect("kept");
    assert_eq!(told.lost, expected);
    // From 135 to 140 both were at the device.
    assert_eq!(told.lost_in_all_ns, Some(20 + 30));
    assert_eq!(filled(&it).block.lost, expected);
    // Another store on the disk has lost nothing.
    it.apply(added(1, "other"));
    place_raw(&mut it, 1);
    let mut other = StoreReport::default();
    it.fill(1, &mut other);
    assert_eq!(other.block.owners, filled(&it).block.owners);
    assert_eq!((other.block.lost, other.block.lost_gaps), (vec![], 0));
}

#[test]
fn what_a_request_shares_is_not_lost_and_other_requests_of_ours_are_others() {
    let mut it = raw_store();
    let flush = |issue, done| {
        Input::Event(Event {
            queue_ns: None,
            ..event(BlockOp::Flush, 0, 0, 0, issue, done)
        })
    };
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 90),
        declared(2, &[2], Op::Write, 4096, 4096, 90),
        // One of the two was done first.
        wrote(0, 8, 100, 110, 150),
        wrote(8, 8, 100, 150, 180),
        finished(1, 155),
        finished(2, 185),
        declared(3, &[1, 2], Op::Flush, 0, 0, 190),
        flush(200, 240),
        finished(3, 245),
        ended(1, 80, 250),
        ended(2, 80, 250),
        drained(400),
    ]);
    assert_eq!(it.explain(1).expect("kept").lost, []);
    assert_eq!(it.explain(2).expect("kept").lost, [lost("request", 40)]);
    let told = it.explain(2).expect("kept");
    let steps = format!("{:#?}", told.steps);
    assert!(steps.contains("behind 1 other block request"), "{steps}");
    assert_eq!(filled(&it).block.lost, [lost("request", 40)]);
}

fn moved(owner: &str, moved_by: &str, requests: u64, seeks: u64, travel_bytes: u64) -> HeadMove {
    HeadMove {
        owner: owner.to_owned(),
        moved_by: moved_by.to_owned(),
        requests,
        seeks,
        travel_bytes,
    }
}

#[test]
fn head_moves_say_who_had_to_travel_because_of_whom() {
    let mut it = raw_store();
    let own = |sector, seek, issue, done| {
        Input::Event(Event {
            seek,
            ..event(BlockOp::Write, sector, 8, 95, issue, done)
        })
    };
    let mut journal = event(BlockOp::Write, 1000, 8, 100, 110, 119);
    (journal.class, journal.seek) = (Class::FsJournal, Some(1000 - 8));
    it.feed([
        declared(1, &[1], Op::Write, 0, 64 << 10, 90),
        own(0, None, 100, 101),
        Input::Event(journal),
        own(8, Some(8 - 1008), 120, 300),
        drained(310),
        // Its predecessor completes later than it does.
        own(24, Some(0), 140, 320),
        drained(330),
        own(16, Some(0), 130, 340),
        // The chain is broken.
        own(100, Some(5), 150, 350),
        drained(400),
    ]);
    let known = |requests| {
        [
            moved("request", "request", requests, 0, 0),
            moved("request", "fs-journal", 1, 1, 1000 * 512),
            moved("fs-journal", "request", 1, 1, 992 * 512),
        ]
    };
    assert_eq!(filled(&it).block.moves, known(1));
    it.apply(drained(1_000_000_310));
    assert_eq!(filled(&it).block.moves, known(2));
    it.apply(drained(2_000_000_000));
    let mut all = known(2).to_vec();
    all.insert(2, moved("request", "unknown", 1, 1, 5 * 512));
    assert_eq!(filled(&it).block.moves, all);
}

#[test]
fn a_block_request_found_late_makes_what_was_lost_before_a_lower_bound() {
    let put = |request: u64, at: u64| {
        vec![
            declared(request, &[request], Op::Write, 0, 4096, at),
            wrote(0, 8, at + 5, at + 10, at + 100),
            finished(request, at + 110),
        ]
    };
    let mut it = raw_store();
    it.feed(put(1, 1000));
    it.feed([ended(1, 1000, 1120), drained(1500)]);
    it.feed(put(2, 2000));
    it.feed([ended(2, 2000, 2120), drained(2500)]);
    // Still open when it is found.
    it.feed(put(3, 3000));
    let mut late = event(BlockOp::Write, 5000, 8, 2000, 2050, 2050);
    late.done_unknown = true;
    it.feed([
        drained(3500),
        Input::Event(late),
        drained(4000),
        ended(3, 3000, 4100),
        drained(5000),
    ]);
    let doubted = [1, 2, 3].map(|id| it.explain(id).expect("kept").incomplete);
    let has = |text: &String| text.contains("it may have lost more time");
    let has = doubted.each_ref().map(has);
    assert_eq!(has, [false, true, true], "{doubted:#?}");
}

#[test]
fn a_hundred_thousand_at_once_lose_time_but_not_the_count() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Write, 0, 4096, 5));
    for number in 0..100_000_u64 {
        let (sector, issue) = (5000 + number * 8, 20 + number);
        it.apply(strange(Class::Other, sector, 10, issue, issue + 10));
    }
    it.feed([
        wrote(0, 8, 20, 200_000, 200_010),
        finished(1, 200_020),
        ended(1, 5, 200_030),
        drained(300_000),
    ]);
    let told = it.explain(1).expect("kept");
    let said = &told.incomplete;
    assert!(said.contains("it may have lost more time"), "{said}");
    assert!(told.lost[0].ns > 4000, "{:?}", told.lost);
    let strangers = filled(&it).block.owners;
    assert_eq!(strangers.iter().map(|o| o.requests).sum::<u64>(), 100_001);
}
