//! Explanations of requests after the fact.

use lumpscope_observer::{BlockOp, Class, Correlator, EndedRequest, Event, Input, Op};

use crate::support::{Feed, added, declared, drained, event, finished, put, raw_store, wrote};

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
