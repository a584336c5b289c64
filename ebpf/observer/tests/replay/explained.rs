//! Explanations of requests after the fact.

use lumpscope_observer::{BlockOp, Class, Correlator, Ended, Input, Op};

use crate::support::{apply, declared, event, finished, raw_store};

/// Request 7 of store `fast`: a write behind one of the journal, and a flush that it shares.
fn told() -> Correlator {
    let mut it = raw_store();
    it.apply(Input::Added {
        store: 0,
        name: "fast".to_owned(),
    });
    let mut first = event(BlockOp::Write, 9000, 8, 90, 95, 150);
    first.class = Class::FsJournal;
    let mut write = event(BlockOp::Write, 8, 8, 110, 160, 190);
    write.seek = Some(8 - 9008);
    let mut flush = event(BlockOp::Flush, 0, 0, 0, 205, 240);
    flush.queue_ns = None;
    let asked = lumpscope_observer::Event {
        flush_parent: true,
        ..event(BlockOp::Flush, 0, 0, 202, 0, 241)
    };
    apply(
        &mut it,
        vec![
            declared(1, &[7], Op::Write, 4096, 4096, 105),
            Input::Event(first),
            Input::Event(write),
            finished(1, 195),
            declared(2, &[7, 8], Op::Flush, 0, 0, 200),
            Input::Event(flush),
            Input::Event(asked),
            finished(2, 245),
            Input::Ended(Ended {
                request: 7,
                store: 0,
                method: "put".into(),
                bytes: 4096,
                begin_ns: 100,
                end_ns: 260,
                ok: true,
                stages_ns: [2, 2, 1, 90, 3, 10],
                commit_ns: [7, 5, 35],
                waited_for: Some(6),
                trace: None,
            }),
            Input::Drained { until_ns: 300 },
        ],
    );
    it
}

#[test]
fn work_of_the_disk_while_a_body_comes_is_told_as_such() {
    let mut it = raw_store();
    it.apply(Input::Added {
        store: 0,
        name: "fast".to_owned(),
    });
    let piece = event(BlockOp::Write, 8, 8, 110, 160, 190);
    let last = event(BlockOp::Write, 16, 8, 225, 230, 240);
    apply(
        &mut it,
        vec![
            declared(1, &[7], Op::Write, 4096, 4096, 105),
            Input::Event(piece),
            finished(1, 195),
            declared(2, &[7], Op::Write, 8192, 4096, 222),
            Input::Event(last),
            finished(2, 245),
            Input::Ended(Ended {
                request: 7,
                store: 0,
                method: "put".into(),
                bytes: 8192,
                begin_ns: 100,
                end_ns: 260,
                ok: true,
                stages_ns: [120, 2, 0, 23, 3, 12],
                commit_ns: [0; 3],
                waited_for: None,
                trace: None,
            }),
            Input::Drained { until_ns: 300 },
        ],
    );
    let told = it.explain(7).expect("it is kept");
    let overlap = "120 ns receiving, 30 ns of it while the disk wrote what had come";
    assert!(told.sentence.contains(overlap), "{}", told.sentence);
    assert_eq!(told.blocks.len(), 2);
    let stages: u64 = told.stages.iter().map(|stage| stage.total_ns).sum();
    assert_eq!(stages, told.total_ns);
}

#[test]
fn a_request_is_explained_step_by_step_after_the_fact() {
    let mut it = told();
    let told = it.explain(7).expect("it is kept");
    assert_eq!(
        (told.store.as_str(), told.device.as_str()),
        ("fast", "loop7")
    );
    assert_eq!((told.begin_ns, told.total_ns, told.ok), (100, 160, true));
    assert_eq!(told.incomplete, "");
    assert_eq!(told.waited_for, Some(6));
    let told_wait = "commit 50 ns with 1 flush";
    assert!(told.sentence.contains(told_wait), "{}", told.sentence);
    let steps: Vec<(i64, u64, &str, &str)> = told
        .steps
        .iter()
        .map(|s| (s.from_ns, s.took_ns, s.stage.as_str(), s.text.as_str()))
        .collect();
    let write = "write of 4 KiB at sector 8, 4.4 MiB before the end of the previous access, by the \
                 file system's journal: queued 50 ns behind 1 other block request, 30 ns at the \
                 device";
    assert_eq!(
        steps,
        [
            (0, 2, "recv", "received"),
            (2, 2, "sched", "waited for the store's turn"),
            (4, 1, "index", "index lookup or block allocation"),
            (
                5,
                10,
                "submit",
                "system calls and checks, spread over 90 ns of data I/O"
            ),
            (10, 80, "device", write),
            (95, 7, "wait", "waited for the batch of request 6"),
            (102, 5, "write", "its batch was written to the journal"),
            (
                105,
                35,
                "flush",
                "flush of the disk's cache, shared with other requests: 35 ns at the device"
            ),
            (107, 35, "flush", "flushes that it needed"),
            (
                142,
                3,
                "journal",
                "commit, apart from waits, writes and flushes"
            ),
            (150, 10, "reply", "replied"),
        ]
    );
    let block = &told.blocks[0];
    assert_eq!(
        (block.queued_at_ns, block.issued_at_ns, block.done_at_ns),
        (Some(10), Some(60), Some(90))
    );
    let ids = |store, since| -> Vec<u64> {
        let found = it.slowest(store, since, 10);
        found.iter().map(|e| e.request_id).collect()
    };
    assert_eq!(ids(None, 0), [7]);
    assert_eq!((ids(Some(1), 0), ids(Some(0), 261)), (vec![], vec![]));
    it.apply(Input::Removed { store: 0 });
    assert_eq!(it.explain(7), None);
}
