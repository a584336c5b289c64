//! Place and submission, held against each other; and completions whose time was not seen.

use lumpscope_observer::{BlockOp, Class, Correlator, Event, Input, Op, StoreReport, Submission};

use crate::support::{
    Feed, declared, drained, ended, event, filled, finished, has_step, raw_store, wrote,
};

fn submitted(token: u64, of: Event) -> Input {
    Input::Event(Event {
        submission: Some(Submission { store: 0, token }),
        ..of
    })
}

fn checked(report: &StoreReport) -> (u64, u64, u64) {
    let audit = &report.audit;
    (audit.agreements, audit.conflicts, audit.submission_unknown)
}

fn two_writes() -> Correlator {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        declared(2, &[2], Op::Write, 4096, 4096, 11),
    ]);
    it
}

#[test]
fn a_token_among_the_ios_of_the_place_agrees_and_merged_requests_agree_with_either() {
    for token in [1, 2] {
        let mut it = two_writes();
        it.apply(submitted(token, event(BlockOp::Write, 0, 16, 20, 30, 40)));
        assert_eq!(checked(&filled(&it)), (1, 0, 0));
    }
}

#[test]
fn the_place_wins_and_one_conflict_is_told_in_words() {
    let mut it = two_writes();
    it.feed([
        submitted(2, event(BlockOp::Write, 0, 8, 20, 30, 40)),
        submitted(9, event(BlockOp::Write, 8, 8, 20, 30, 40)),
        finished(1, 50),
        finished(2, 50),
        ended(1, 5, 55),
        ended(2, 5, 55),
        drained(60),
    ]);
    let report = filled(&it);
    assert_eq!(checked(&report), (0, 2, 0));
    assert!(
        report.audit.finding.contains(
            "disagree 2 times: a write of 8 sectors at sector 0 was submitted for I/O 2 of store \
             0, its place is that of I/O 1 of store 0"
        ),
        "{}",
        report.audit.finding
    );
    assert_eq!(it.explain(1).expect("kept").block_requests, 1);
    assert_eq!(report.block.attributed_bytes, 8192);
}

#[test]
fn what_was_not_seen_is_unknown_and_what_others_make_is_not_checked() {
    let mut it = two_writes();
    let mut worker = event(BlockOp::Write, 0, 8, 20, 30, 40);
    (worker.class, worker.own) = (Class::Writeback, false);
    let mut log = event(BlockOp::Write, 9000, 8, 20, 30, 40);
    log.class = Class::FsJournal;
    it.feed([
        // A kernel worker's, with our sectors.
        Input::Event(worker),
        wrote(8, 8, 20, 30, 40),
        // The log of a file system, written by a thread of ours.
        submitted(1, log),
    ]);
    assert_eq!(checked(&filled(&it)), (0, 0, 2));
}

#[test]
fn an_unknown_time_at_the_device_is_never_a_number() {
    let mut it = raw_store();
    let late = Event {
        done_unknown: true,
        ..event(BlockOp::Write, 0, 8, 20, 30, 5000)
    };
    it.feed([
        declared(1, &[1], Op::Write, 0, 8192, 10),
        Input::Event(late),
        wrote(8, 8, 20, 35, 60),
        finished(1, 90),
        ended(1, 5, 105),
        drained(200),
    ]);
    let told = it.explain(1).expect("kept");
    let stage = |name: &str| {
        let found = told.stages.iter().find(|s| s.stage == name);
        found.map(|s| s.total_ns)
    };
    assert_eq!((stage("queue"), stage("device")), (Some(15), Some(25)));
    assert_eq!(stage("submit"), Some(60));
    let (late, seen) = (&told.blocks[0], &told.blocks[1]);
    assert_eq!((late.done_at_ns, late.device_ns), (None, 0));
    assert_eq!((seen.done_at_ns, seen.device_ns), (Some(55), 25));
    let not_seen = "when 1 of its block requests completed was not seen";
    assert!(told.incomplete.contains(not_seen));
    has_step(&told, "when it completed was not seen");
    assert_eq!(filled(&it).block.attributed_bytes, 8192);
}

#[test]
fn what_is_found_after_its_request_was_counted_is_attributed_and_noted() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        finished(1, 90),
        declared(2, &[1], Op::Flush, 0, 0, 91),
        finished(2, 100),
        ended(1, 5, 105),
        drained(200),
    ]);
    let told = it.explain(1).expect("kept").incomplete;
    assert!(told.starts_with("4,096 bytes read or written"), "{told}");
    let late = |of: Event| {
        Input::Event(Event {
            done_unknown: true,
            done_ns: of.first_ns(),
            ..of
        })
    };
    let flush = Event {
        queue_ns: None,
        ..event(BlockOp::Flush, 0, 0, 0, 95, 0)
    };
    it.feed([
        drained(900_000_000),
        late(event(BlockOp::Write, 0, 8, 20, 30, 0)),
        late(flush),
        drained(900_000_001),
    ]);
    let told = it.explain(1).expect("kept").incomplete;
    assert_eq!(told.matches("was found only later").count(), 1, "{told}");
    let report = filled(&it);
    assert_eq!(report.block.attributed_bytes, 4096);
    assert_eq!(crate::support::owned(&report, "request", "flush"), (1, 0));
}
