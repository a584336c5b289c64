//! Block requests of others on a store's own sectors, and their flushes.

use lumpscope_observer::{BlockIo, BlockOp, Class, Correlator, Event, Input, Op, Submission};

use lumpscope_units::human::counted;

use crate::support::{Feed, declared, event, filled, has_step, owned, raw_store};

fn by(process: &str, of: Event) -> Event {
    Event {
        class: Class::Other,
        own: false,
        tgid: 77,
        comm: process.into(),
        ..of
    }
}

fn by_kernel(thread: &str, of: Event) -> Event {
    Event {
        kernel_thread: true,
        ..by(thread, of)
    }
}

fn submitted(token: u64, of: Event) -> Event {
    Event {
        submission: Some(Submission { store: 0, token }),
        ..of
    }
}

const MERGED: &str = "some of its own may be merged into 1 block request of others";

fn lacking(bytes: u64) -> String {
    format!(
        "{} read or written for it in none of its block requests",
        counted(bytes, "byte")
    )
}

fn read(queue: u64) -> Event {
    event(BlockOp::Read, 0, 8, queue, queue + 5, queue + 10)
}

/// A flush of the disk: nobody's context.
fn flush(issue: u64, done: u64) -> Event {
    Event {
        class: Class::Own,
        own: false,
        tgid: 0,
        queue_ns: None,
        comm: "".into(),
        ..event(BlockOp::Flush, 0, 0, 0, issue, done)
    }
}

/// The empty request of somebody who asks for one.
fn asks(queue: u64, done: u64) -> Event {
    Event {
        flush_parent: true,
        preflush: true,
        issue_ns: None,
        ..event(BlockOp::Flush, 0, 0, queue, 0, done)
    }
}

fn blocks(it: &Correlator, request: u64) -> Vec<BlockIo> {
    it.explain(request).expect("kept").blocks
}

#[test]
fn a_stranger_s_read_of_the_same_sectors_is_the_stranger_s() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Read, 0, 4096, 10));
    for queue in [20, 21, 23] {
        it.apply(Input::Event(by("dd", read(queue))));
    }
    it.apply(Input::Event(submitted(1, read(22))));
    it.ends(1..=1, 90);
    let report = filled(&it);
    assert_eq!(owned(&report, "other", "read"), (3, 3 * 4096));
    assert_eq!(owned(&report, "request", "read"), (1, 4096));
    assert_eq!((report.block.own_bytes, report.audit.ambiguous), (4096, 0));
    let told = it.explain(1).expect("kept");
    assert_eq!((told.block_requests, told.incomplete.as_str()), (1, ""));
    assert_eq!(told.blocks[0].queued_at_ns, Some(22 - 5));
}

#[test]
fn a_kernel_thread_may_work_for_us_which_is_said_and_counted() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Read, 0, 4096, 10));
    it.apply(Input::Event(by_kernel("kworker/0:1", read(20))));
    // All has been read by now.
    it.apply(Input::Event(by_kernel("kworker/0:1", read(30))));
    it.ends(1..=1, 90);
    let report = filled(&it);
    assert_eq!(owned(&report, "request", "read").0, 1);
    assert_eq!(report.audit.ambiguous, 1);
    let said = "the owner of 1 block request is not certain";
    let found = &report.audit.finding;
    assert!(found.contains(said), "{found}");
    let told = it.explain(1).expect("kept");
    assert_eq!((told.blocks.len(), told.blocks[0].uncertain), (1, true));
    let said = "1 of its block requests not certain to be its own";
    assert_eq!(told.incomplete, said);
    has_step(&told, "possibly not its own");
}

#[test]
fn ours_may_be_merged_into_a_stranger_s_which_is_said_and_counted() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Read, 4096, 4096, 10));
    let both = Event {
        merged: true,
        ..event(BlockOp::Read, 0, 16, 20, 30, 40)
    };
    it.apply(Input::Event(by("dd", both)));
    it.ends(1..=1, 90);
    let report = filled(&it);
    assert_eq!((report.block.own_bytes, report.audit.ambiguous), (0, 1));
    let told = it.explain(1).expect("kept");
    assert!(told.blocks.is_empty());
    assert_eq!(told.incomplete, format!("{MERGED}; {}", lacking(4096)));
}

#[test]
fn ours_may_be_merged_into_what_a_stranger_asked_for_before() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Read, 4096, 4096, 10));
    let both = Event {
        merged: true,
        ..event(BlockOp::Read, 0, 16, 6, 30, 40)
    };
    it.apply(Input::Event(by("dd", both)));
    // It had been sent when ours was declared.
    let sent = Event {
        merged: true,
        ..event(BlockOp::Read, 0, 16, 6, 8, 40)
    };
    it.apply(Input::Event(by("dd", sent)));
    it.ends(1..=1, 90);
    assert_eq!(filled(&it).audit.ambiguous, 1);
    let said = format!("{MERGED}; {}", lacking(4096));
    assert_eq!(it.explain(1).expect("kept").incomplete, said);
}

#[test]
fn a_block_request_that_waits_takes_in_what_is_asked_for_later() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Write, 0, 4096, 10));
    it.apply(declared(2, &[2], Op::Write, 4096, 4096, 25));
    let both = Event {
        merged: true,
        ..submitted(1, event(BlockOp::Write, 0, 16, 20, 30, 40))
    };
    it.apply(Input::Event(both));
    it.ends(1..=2, 90);
    for id in 1..=2 {
        let told = it.explain(id).expect("kept");
        assert_eq!((told.blocks.len(), told.incomplete.as_str()), (1, ""));
        let block = &told.blocks[0];
        assert_eq!((block.own_bytes, block.shared), (4096, true));
    }
    assert_eq!(filled(&it).block.unattributed_bytes, 0);
}

#[test]
fn what_is_in_no_block_request_is_said() {
    let mut it = raw_store();
    it.apply(declared(1, &[1, 2], Op::Read, 0, 8192, 10));
    it.apply(declared(2, &[2], Op::Read, 8192, 4096, 10));
    it.apply(Input::Event(submitted(1, read(20))));
    it.ends(1..=2, 90);
    for (id, bytes) in [(1, 4096), (2, 4096 + 4096)] {
        let told = it.explain(id).expect("kept");
        assert_eq!(told.incomplete, lacking(bytes));
    }
}

#[test]
fn concurrent_gets_of_one_lump_are_told_apart_by_submission() {
    let mut it = raw_store();
    for id in 1..=16 {
        it.apply(declared(id, &[id], Op::Read, 0, 4096, 10 + id));
    }
    for id in (1..=16).map(|n| n * 7 % 17) {
        it.apply(Input::Event(submitted(id, read(100 + id))));
    }
    it.ends(1..=16, 900);
    for id in 1..=16 {
        let queued: Vec<_> = blocks(&it, id).iter().map(|b| b.queued_at_ns).collect();
        assert_eq!(queued, [Some(100 + i64::try_from(id).expect("small") - 5)]);
        assert_eq!(it.explain(id).expect("kept").incomplete, "");
    }
    let audit = filled(&it).audit;
    assert_eq!(audit.agreements, 16);
    assert_eq!(audit.conflicts, 0);
    assert_eq!(audit.ambiguous, 0);
}

#[test]
fn without_submission_equal_places_are_ambiguous() {
    let mut it = raw_store();
    for id in 1..=3 {
        it.apply(declared(id, &[id], Op::Read, 0, 4096, 10 + id));
    }
    for id in 1..=3 {
        it.apply(Input::Event(read(100 + id)));
    }
    it.ends(1..=3, 900);
    assert_eq!(filled(&it).audit.ambiguous, 3);
    assert_eq!(it.limits().ambiguous, 3);
    for id in 1..=3 {
        let of = blocks(&it, id);
        assert_eq!((of.len(), of[0].uncertain), (1, true));
    }
}

#[test]
fn a_stranger_s_flushes_are_not_the_request_s() {
    for forced_by_thread in [false, true] {
        let mut it = raw_store();
        it.apply(declared(1, &[1], Op::Flush, 0, 0, 100));
        let mut told = Vec::new();
        for at in (110..200).step_by(10) {
            told.push(flush(at + 1, at + 5));
            told.push(by("fio", asks(at, at + 6)));
        }
        let own = asks(201, 207);
        told.push(flush(202, 206));
        told.push(if forced_by_thread {
            submitted(1, own)
        } else {
            own
        });
        told.push(flush(211, 215));
        told.push(by("fio", asks(209, 216)));
        it.feed(told.into_iter().map(Input::Event));
        it.ends(1..=1, 300);
        let of = blocks(&it, 1);
        assert_eq!(of.len(), 1);
        assert_eq!(of[0].issued_at_ns, Some(202 - 5));
        assert!(!of[0].uncertain);
        let report = filled(&it);
        assert_eq!(owned(&report, "other", "flush"), (10, 0));
        assert_eq!(owned(&report, "request", "flush"), (1, 0));
        assert_eq!(report.audit.ambiguous, 0);
    }
}

#[test]
fn a_flush_that_a_stranger_asked_for_too_is_the_request_s() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Flush, 0, 0, 100));
    // Asked after the block layer had gathered the askers of the first: served by the second.
    let events = [
        flush(112, 120),
        by("fio", asks(105, 121)),
        flush(122, 130),
        asks(111, 131),
        by("fio", asks(111, 132)),
    ];
    it.feed(events.map(Input::Event));
    it.ends(1..=1, 300);
    let of = blocks(&it, 1);
    assert_eq!(of.len(), 1);
    assert_eq!(of[0].issued_at_ns, Some(122 - 5));
    assert!(!of[0].uncertain);
    assert_eq!(owned(&filled(&it), "other", "flush"), (1, 0));
}

#[test]
fn what_a_journal_s_thread_asks_for_may_be_the_request_s() {
    let mut it = raw_store();
    it.apply(declared(1, &[1], Op::Flush, 0, 0, 100));
    let commit = Event {
        preflush: true,
        fua: true,
        ..event(BlockOp::Write, 9000, 8, 110, 125, 130)
    };
    let commit = Event {
        class: Class::FsJournal,
        ..by_kernel("jbd2/sda1-8", commit)
    };
    let events = [flush(112, 120), commit, flush(132, 140)];
    it.feed(events.map(Input::Event));
    it.ends(1..=1, 300);
    let of = blocks(&it, 1);
    assert!(of.iter().map(|b| b.uncertain).eq([true, true]));
    let report = filled(&it);
    assert_eq!(owned(&report, "request", "flush").0, 2);
    assert_eq!(report.audit.ambiguous, 2);
    assert_eq!(owned(&report, "fs-journal", "write"), (1, 4096));
}
