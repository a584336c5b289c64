//! Explanations of requests after the fact.

use lumpscope_observer::{BlockOp, Class, Correlator, EndedRequest, Event, Input, Op};

use crate::support::{
    Feed, added, declared, drained, event, filled, finished, put, raw_store, wrote,
};

/// Request 7 of store `fast`: a write behind one of the journal, and a flush that it shares.
fn told() -> Correlator {
    let mut it = raw_store();
    it.apply(added(0, "fast"));
    let mut first = event(BlockOp::Write, 9000, 8, 90, 95, 150);
    first.class = Class::FsJournal;
    let mut write = event(BlockOp::Write, 8, 8, 110, 160, 190);
    write.seek = Some(8 - 9008);
    let mut flush = event(BlockOp::Flush, 0, 0, 0, 205, 240);
    flush.queue_ns = None;
    let asked = Event {
        flush_parent: true,
        ..event(BlockOp::Flush, 0, 0, 202, 0, 241)
    };
    it.feed([
        declared(1, &[7], Op::Write, 4096, 4096, 105),
        Input::Event(first),
        Input::Event(write),
        finished(1, 195),
        declared(2, &[7, 8], Op::Flush, 0, 0, 200),
        Input::Event(flush),
        Input::Event(asked),
        finished(2, 245),
        Input::Ended(EndedRequest {
            stages_ns: [2, 2, 1, 90, 3, 10],
            commit_ns: [7, 5, 35],
            waited_for: Some(6),
            ..put(7, 100, 260)
        }),
        drained(300),
    ]);
    it
}

#[test]
fn work_of_the_disk_while_a_body_comes_is_told_as_such() {
    let mut it = raw_store();
    it.apply(added(0, "fast"));
    it.feed([
        declared(1, &[7], Op::Write, 4096, 4096, 105),
        wrote(8, 8, 110, 160, 190),
        finished(1, 195),
        declared(2, &[7], Op::Write, 8192, 4096, 222),
        wrote(16, 8, 225, 230, 240),
        finished(2, 245),
        Input::Ended(EndedRequest {
            bytes: 8192,
            stages_ns: [120, 2, 0, 23, 3, 12],
            ..put(7, 100, 260)
        }),
        drained(300),
    ]);
    let told = it.explain(7).expect("it is kept");
    let overlap = "120 ns receiving, at least 17 ns of it while the disk wrote what had come";
    assert!(told.sentence.contains(overlap), "{}", told.sentence);
    assert_eq!(told.blocks.len(), 2);
    let stages: u64 = told.stages.iter().map(|stage| stage.total_ns).sum();
    assert_eq!(stages, told.total_ns);
}

#[test]
fn a_request_is_explained_step_by_step_after_the_fact() {
    let it = told();
    let told = it.explain(7).expect("it is kept");
    assert_eq!(told.store.as_str(), "fast");
    assert_eq!(told.device.as_str(), "loop7");
    assert_eq!((told.begin_unix_ns, told.total_ns), (100, 160));
    assert!(told.ok);
    assert_eq!(told.incomplete, "");
    assert_eq!(told.waited_for_request_id, Some(6));
    let sentence = "put of 4 KiB took 160 ns, and the disk served the file system's journal for 40 ns \
                    of it: 50 ns queued behind 1 other block request, 1 write (4 KiB at sector 8, \
                    4.4 MiB before the end of the previous access, by the file system's journal), \
                    device 30 ns, commit 50 ns with 1 flush (35 ns at the disk), 10 ns replying";
    assert_eq!(told.sentence, sentence);
    let steps = told.steps.iter();
    let steps = steps.map(|s| (s.from_ns, s.took_ns, s.stage.as_str(), s.text.as_str()));
    let steps: Vec<(i64, u64, &str, &str)> = steps.collect();
    let write = "write of 4 KiB at sector 8, 4.4 MiB before the end of the previous access, by the \
                 file system's journal: queued 50 ns behind 1 other block request, 30 ns at the \
                 device";
    let none =
        "none of its block requests was queued or at the disk, spread over 90 ns of data I/O";
    let batch = "its batch is written to the journal, until the service has seen that";
    let shared = "flush of the disk's cache, shared with other requests: 35 ns at the device";
    let flushes = "flushes that it needs, until the service has seen their end";
    let expected = [
        (0, 2, "recv", "received"),
        (2, 2, "sched", "waited for the store's turn"),
        (4, 1, "index", "index lookup or block allocation"),
        (5, 10, "submit", none),
        (10, 80, "device", write),
        (95, 7, "wait", "waited for the batch of request 6"),
        (102, 5, "write", batch),
        (105, 35, "flush", shared),
        (107, 35, "flush", flushes),
        (
            142,
            3,
            "journal",
            "commit, apart from waits, writes and flushes",
        ),
        (150, 10, "reply", "replied"),
    ];
    assert_eq!(steps, expected);
    let block = &told.blocks[0];
    assert_eq!(block.queued_at_ns, Some(10));
    assert_eq!(block.issued_at_ns, Some(60));
    assert_eq!(block.done_at_ns, Some(90));
}

#[test]
fn the_slowest_are_of_a_store_and_of_a_time_and_go_with_the_store() {
    let mut it = told();
    let ids = |store, since| -> Vec<u64> {
        let found = it.slowest(store, false, since, 10);
        found.iter().map(|e| e.request_id).collect()
    };
    assert_eq!(ids(None, 0), [7]);
    assert_eq!((ids(Some(1), 0), ids(Some(0), 261)), (vec![], vec![]));
    it.apply(Input::Removed { store: 0 });
    assert_eq!(it.explain(7), None);
}

/// A put of 4 KiB that took so long, in data or in the last part of its commit.
fn took(data_ns: u64, flush_ns: u64) -> Input {
    Input::Ended(EndedRequest {
        stages_ns: [0, 0, 0, data_ns, 0, 0],
        commit_ns: [0, 0, flush_ns],
        ..put(7, 0, data_ns + flush_ns)
    })
}

fn sentence(inputs: Vec<Input>) -> String {
    let mut it = raw_store();
    it.feed(inputs);
    it.apply(drained(2_000_000_000));
    it.explain(7).expect("it is kept").sentence
}

#[test]
fn a_flush_that_was_ready_is_not_blamed_for_the_service_s_delay() {
    let ms = |tenths: u64| tenths * 100_000;
    let flush = Event {
        queue_ns: None,
        ..event(BlockOp::Flush, 0, 0, 0, ms(2), ms(26))
    };
    let asked = Event {
        flush_parent: true,
        ..event(BlockOp::Flush, 0, 0, ms(1), 0, ms(27))
    };
    let told = sentence(vec![
        declared(1, &[7], Op::Flush, 0, 0, ms(0)),
        Input::Event(flush),
        Input::Event(asked),
        finished(1, ms(30)),
        took(0, ms(2668)),
    ]);
    let words = "commit 266.8 ms with 1 flush (263.8 ms in the service)";
    assert_eq!(told, format!("put of 4 KiB took 266.8 ms: {words}"));
    // Nobody knows when the flush returned: the service is not blamed either.
    let told = sentence(vec![
        declared(1, &[7], Op::Flush, 0, 0, ms(0)),
        Input::Event(flush),
        Input::Event(asked),
        took(0, ms(30)),
    ]);
    let words = "put of 4 KiB took 3 ms: commit 3 ms with 1 flush (2.4 ms at the disk, 400 us on the way \
                 back from the disk, 200 us on the way to the disk)";
    assert_eq!(told, words);
}

#[test]
fn a_process_that_the_disk_served_is_named_first() {
    let ms = |ms: u64| ms * 1_000_000;
    let by = |pid: u32, name: &str, issue: u64, done: u64| {
        let sector = 7000 + u64::from(pid) * 16;
        Input::Event(Event {
            class: Class::Other,
            own: false,
            tgid: pid,
            comm: name.into(),
            ..event(BlockOp::Write, sector, 8, issue, issue, done)
        })
    };
    let told = sentence(vec![
        declared(1, &[7], Op::Write, 4096, 4096, 0),
        by(12659, "dd", ms(1), ms(50)),
        by(99, "cp", ms(48), ms(52)),
        by(12659, "dd", ms(50), ms(97)),
        wrote(8, 8, ms(1), ms(97), ms(106)),
        finished(1, ms(106)),
        took(ms(106), 0),
    ]);
    let head = "put of 4 KiB took 106 ms, and the disk served dd[12659] for 96 ms of it: 96 ms queued \
                behind 3 other block requests, ";
    assert!(told.starts_with(head), "{told}");
}

#[test]
fn what_ended_while_it_was_queued_was_before_it() {
    let stranger = |issue, done| {
        Input::Event(Event {
            class: Class::Other,
            own: false,
            ..event(BlockOp::Write, 9000 + done, 8, issue, issue, done)
        })
    };
    let told = sentence(vec![
        declared(1, &[7], Op::Write, 4096, 4096, 0),
        // Before it was queued, twice while it was, and while it was at the disk.
        stranger(1, 9),
        stranger(2, 30),
        stranger(31, 40),
        stranger(3, 55),
        wrote(8, 8, 10, 50, 60),
        finished(1, 61),
        took(70, 0),
    ]);
    let queued = "40 ns queued behind 2 other block requests,";
    assert!(told.contains(queued), "{told}");
}

#[test]
fn sums_are_of_all_block_requests_not_of_those_that_are_listed() {
    let mut inputs = vec![declared(1, &[7], Op::Write, 0, 100 * 4096, 0)];
    for number in 0..100_u64 {
        let at = 10 + number * 10;
        let mut one = event(BlockOp::Write, number * 8, 8, at, at + 1, at + 5);
        one.seek = Some(if number == 90 { 1 << 21 } else { 0 });
        inputs.push(Input::Event(one));
    }
    inputs.push(finished(1, 1010));
    inputs.push(took(1100, 0));
    let told = sentence(inputs);
    let all = "100 writes (the farthest 4 KiB at sector 720, 1 GiB past the end of the previous \
               access";
    assert!(told.contains(all), "{told}");
    assert!(told.contains("device 400 ns"), "{told}");
}

#[test]
fn what_comes_after_its_request_was_counted_is_missing_and_said() {
    let mut it = raw_store();
    let flush = Event {
        queue_ns: None,
        ..event(BlockOp::Flush, 0, 0, 0, 20, 70)
    };
    it.feed([
        declared(1, &[7], Op::Flush, 0, 0, 10),
        Input::Ended(put(7, 5, 50)),
        drained(60),
        Input::Event(flush),
        finished(1, 75),
        drained(80),
    ]);
    let told = it.explain(7).expect("kept");
    assert_eq!(told.block_requests, 0);
    let unreturned = "1 of its I/Os had not returned when it ended: their time may be in no stage, or \
                      count as reply";
    let later = "the completion of block requests of it was found only later: they are not in here";
    assert_eq!(told.incomplete, format!("{unreturned}; {later}"));
    // In the report, too.
    let slowest = filled(&it).slowest;
    assert_eq!(slowest[0].incomplete, told.incomplete);
}

#[test]
fn what_is_declared_after_its_request_was_counted_is_missing_and_said() {
    let mut it = raw_store();
    it.feed([
        Input::Ended(put(7, 5, 50)),
        drained(60),
        declared(1, &[7], Op::Write, 0, 4096, 70),
        wrote(0, 8, 75, 80, 90),
        finished(1, 95),
        drained(100),
    ]);
    assert_eq!(it.explain(7).expect("kept").incomplete, "");
    it.apply(drained(130_000_000_000));
    let told = it.explain(7).expect("kept").incomplete;
    assert!(
        told.ends_with("found only later: they are not in here"),
        "{told}"
    );
}

#[test]
fn a_request_is_remembered_as_long_as_it_has_ios() {
    let second = |s: u64| s * 1_000_000_000;
    let mut it = raw_store();
    for number in 0..4 {
        let at = second(number * 100);
        it.feed([
            declared(number, &[7], Op::Write, number * 4096, 4096, at),
            wrote(number * 8, 8, at + 5, at + 10, at + 100),
            finished(number, at + 110),
            drained(at + second(50)),
        ]);
    }
    it.feed([Input::Ended(put(7, 0, second(350))), drained(second(351))]);
    let told = it.explain(7).expect("kept");
    assert_eq!((told.block_requests, told.incomplete.as_str()), (4, ""));
}

#[test]
fn a_request_that_was_forgotten_says_so_and_no_later_one_does() {
    let (late, second) = (200_000_000_000, 1_000_000_000);
    let mut it = raw_store();
    it.feed([
        declared(1, &[7], Op::Write, 0, 4096, 10),
        wrote(0, 8, 20, 30, 40),
        finished(1, 50),
        declared(2, &[8], Op::Write, 4096, 4096, 10),
        wrote(8, 8, 20, 30, 40),
        finished(2, 50),
        drained(late),
        declared(3, &[7], Op::Write, 8192, 4096, late + 10),
        wrote(16, 8, late + 20, late + 30, late + 40),
        finished(3, late + 50),
        Input::Ended(put(7, 5, late + 60)),
        Input::Ended(put(8, 5, late + 60)),
        Input::Ended(put(9, late, late + 60)),
        drained(late + second),
    ]);
    let told = |id| {
        let told = it.explain(id).expect("kept");
        (told.block_requests, told.incomplete)
    };
    let forgotten = "its I/Os are not all remembered: too many requests were open, or it had none for \
                     2 minutes";
    assert_eq!(told(7), (1, forgotten.to_owned()));
    assert_eq!(told(8), (0, forgotten.to_owned()));
    assert_eq!(told(9), (0, String::new()));
}

#[test]
fn a_class_of_others_is_named_no_closer_than_it_is_known() {
    let ms = |ms: u64| ms * 1_000_000;
    let behind = |class| {
        let before = Event {
            class,
            tgid: 0,
            comm: "".into(),
            own: class == Class::Own,
            ..event(BlockOp::Write, 9000, 8, ms(1), ms(1), ms(90))
        };
        sentence(vec![
            declared(1, &[7], Op::Write, 4096, 4096, 0),
            Input::Event(before),
            wrote(8, 8, ms(1), ms(90), ms(100)),
            finished(1, ms(100)),
            took(ms(100), 0),
        ])
    };
    for (class, who) in [
        (Class::Own, "the service, in no known place"),
        (Class::Other, "others"),
    ] {
        let (told, head) = (
            behind(class),
            format!(", and the disk served {who} for 89 ms"),
        );
        assert!(told.contains(&head), "{told}");
    }
}

#[test]
fn what_the_disk_did_when_all_had_come_is_no_part_of_receiving() {
    // Its client gave up while the commit hung, so the engine's times of the data are not known.
    let mut it = raw_store();
    it.feed([
        declared(1, &[7], Op::Write, 4096, 4096, 160),
        wrote(8, 8, 165, 170, 240),
        finished(1, 245),
        Input::Ended(EndedRequest {
            stages_ns: [50, 0, 0, 0, 0, 0],
            ..put(7, 100, 300)
        }),
        drained(400),
    ]);
    let told = it.explain(7).expect("kept").sentence;
    assert!(told.contains(": 50 ns receiving, "), "{told}");
    assert!(!told.contains("while the disk wrote"), "{told}");
}
