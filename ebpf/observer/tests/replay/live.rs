//! Live watches of the correlator.

use lumpscope_observer::{
    BlockOp, Class, Correlator, EndedRequest, Event, Input, Op, TraceContext, TraceRequest,
};

use crate::support::{
    Feed, added, declared, drained, ended, event, finished, put, raw_store, wrote,
};

/// A write of request 1, and one of the journal behind it.
fn two(it: &mut Correlator) {
    it.apply(added(0, "fast"));
    let mut journal = event(BlockOp::Write, 1000, 8, 100, 120, 160);
    (journal.class, journal.seek, journal.comm) = (Class::FsJournal, Some(992), "jbd2".into());
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 90),
        Input::Event(Event {
            seek: Some(0),
            ..event(BlockOp::Write, 0, 8, 100, 110, 150)
        }),
        Input::Event(journal),
        finished(1, 155),
        ended(1, 80, 250),
        drained(400),
    ]);
}

#[test]
fn block_requests_are_told_with_owner_and_predecessor() {
    let mut it = raw_store();
    let watch = it.watch_blocks(TraceRequest::default(), 10);
    let one = it.watch_blocks(TraceRequest::default(), 1);
    two(&mut it);
    let lines = watch.take();
    assert_eq!(lines.len(), 2);
    let (own, journal) = (&lines[0], &lines[1]);
    assert_eq!(own.owner.as_str(), "request");
    assert_eq!(own.request_ids.as_slice(), [1].as_slice());
    assert_eq!((own.queue_ns, own.device_ns), (Some(10), Some(40)));
    assert_eq!(own.stores.join(" "), "fast");
    assert_eq!(own.device.as_str(), "loop7");
    assert_eq!(journal.owner.as_str(), "fs-journal");
    assert_eq!(journal.process.as_str(), "jbd2");
    assert_eq!(journal.previous_owner, "request 1");
    assert_eq!(journal.seek_bytes, Some(992 * 512));
    assert_eq!((one.take().len(), one.dropped()), (1, 1));
}

#[test]
fn each_filter_lets_through_what_it_names() {
    type Change = fn(&mut TraceRequest);
    let cases: [(Change, &str); 8] = [
        (|f| f.store = "fast".to_owned(), "request fs-journal"),
        (|f| f.store = "slow".to_owned(), ""),
        (|f| f.owner = "fs-journal".to_owned(), "fs-journal"),
        (|f| f.operation = "read".to_owned(), ""),
        (|f| f.for_request_id = 1, "request"),
        (|f| f.min_latency_ns = 55, "fs-journal"),
        (|f| f.min_distance_bytes = 512, "fs-journal"),
        (|f| f.min_distance_bytes = 1 << 30, ""),
    ];
    for (change, expected) in cases {
        let mut filter = TraceRequest::default();
        change(&mut filter);
        let mut it = raw_store();
        let watch = it.watch_blocks(filter.clone(), 10);
        two(&mut it);
        let owners: Vec<String> = watch.take().into_iter().map(|line| line.owner).collect();
        assert_eq!(owners.join(" "), expected, "{filter:?}");
    }
}

#[test]
fn traced_requests_are_told_once_their_block_requests_are_known() {
    let mut it = raw_store();
    let watch = it.watch_traced(10);
    let trace = TraceContext {
        trace_id: u128::MAX - 1,
        span_id: 7,
        parent_span_id: 0,
    };
    it.feed([
        declared(1, &[1, 2], Op::Write, 0, 4096, 90),
        Input::Ended(EndedRequest {
            trace: Some(trace),
            ..put(1, 80, 250)
        }),
        ended(2, 80, 250),
        finished(1, 155),
        wrote(0, 8, 100, 110, 150),
    ]);
    assert_eq!(watch.take().len(), 0);
    it.apply(drained(400));
    let told = watch.take();
    assert_eq!(told.len(), 1);
    let request = &told[0].request;
    assert_eq!((told[0].trace, request.block_requests), (trace, 1));
    assert_eq!(request.trace_id, format!("{:032x}", trace.trace_id));
    assert_eq!(told[0].sharers[0][..], [1, 2]);
    let kept = it.explain(1).expect("it is kept");
    assert!(kept.blocks[0].shared);
}

#[test]
fn a_process_is_told_with_its_cgroup_live_and_in_what_goes_on_from_here() {
    let id = "0123456789abcdef".repeat(4);
    let path = format!("/docker/{id}");
    let mut it = raw_store();
    let watch = it.watch_blocks(TraceRequest::default(), 10);
    it.apply(Input::Cgroup {
        id: 77,
        path: path.clone(),
    });
    let mut dd = event(BlockOp::Read, 5000, 8, 60, 61, 70);
    (dd.class, dd.own, dd.comm) = (Class::Other, false, "dd".into());
    (dd.tgid, dd.cgroup) = (4711, 77);
    dd.seek = Some(0);
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 90),
        Input::Event(dd),
        Input::Event(Event {
            seek: Some(-5008),
            ..event(BlockOp::Write, 0, 8, 100, 110, 150)
        }),
        finished(1, 155),
        ended(1, 80, 250),
        drained(400),
    ]);
    let line = &watch.take()[0];
    assert_eq!(line.cgroup_id, 77);
    assert_eq!(line.cgroup.as_str(), path.as_str());
    assert_eq!(line.container.as_str(), id.as_str());
    let block = &it.explain(1).expect("kept").blocks[0];
    assert_eq!(block.process.as_str(), "store");
    assert_eq!(block.pid, 1);
    assert_eq!(block.cgroup_id, 0);
    assert_eq!(block.previous_owner, "other (dd[4711])");
    assert_eq!(block.previous_cgroup, path);
    // A recording that begins now knows it too.
    let told = it.standing();
    let is_it = |input: &Input| matches!(input, Input::Cgroup { id: 77, .. });
    assert!(told.iter().any(is_it));
}
