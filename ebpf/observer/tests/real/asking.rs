//! Queries after the fact and live watches, on a real disk.

use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use lumpscope_observer::{
    BlockLine, EndedRequest, FlightOptions, Op, Purpose, Replay, SlowRequest, StoreReport,
    TraceContext, TraceRequest, TracedRequest, Tuning,
};

use crate::support::{Aligned, LoopDevice, Watched, now, ready, until_complete};

const MIB: u64 = 1 << 20;
const TRACE: TraceContext = TraceContext {
    trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
    span_id: 7,
    parent_span_id: 1,
};

/// Results about the three requests, by every way there is.
struct RequestViews {
    report: StoreReport,
    explained: Vec<SlowRequest>,
    slowest: Vec<SlowRequest>,
    lines: Vec<BlockLine>,
    traced: Vec<TracedRequest>,
    recorded: String,
    lost: u64,
}

fn three_requests() -> RequestViews {
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, Tuning::default());
    let observer = &it.observer;
    let filter = TraceRequest {
        operation: "write".to_owned(),
        ..TraceRequest::default()
    };
    let blocks = observer.watch_blocks(filter, 1000);
    let traced = observer.watch_traced(10);
    let inputs = observer.watch_inputs(10_000);
    it.request(1, "put", MIB, || it.write(1, MIB, 1 << 20));
    it.request(2, "put", 4096, || {
        it.write(2, 32 * MIB, 4096);
        it.io(&[2], Purpose::Flush, Op::Flush, 0, 0);
    });
    let begin_ns = now();
    it.write(3, 0, 8192);
    let end_ns = now();
    observer.request_done(EndedRequest {
        request: 3,
        store: it.index,
        method: "put".into(),
        bytes: 8192,
        begin_ns,
        end_ns,
        ok: true,
        stages_ns: [0, 0, 0, end_ns - begin_ns, 0, 0],
        trace: Some(TRACE),
        ..EndedRequest::default()
    });
    let report = it.report();
    let explained = (1..=3).filter_map(|id| observer.explain(id)).collect();
    let slowest = observer.slowest(Some("it"), false, Duration::from_secs(60), 10);
    let none = observer.slowest(Some("none"), false, Duration::from_secs(60), 10);
    assert_eq!(none, []);
    assert_eq!(observer.explain(4), None);
    RequestViews {
        report,
        explained,
        slowest,
        lines: blocks.take().into(),
        traced: traced.take().into(),
        lost: blocks.dropped() + traced.dropped() + inputs.dropped(),
        recorded: Vec::from(inputs.take()).join("\n"),
    }
}

#[test]
fn a_request_is_explained_watched_recorded_and_replayed_alike() {
    let Some(_one) = ready() else { return };
    let mut last = None;
    let _ = until_complete(|| {
        let found = three_requests();
        last.insert(found).report.clone()
    });
    let found = last.expect("it ran");
    assert_eq!(found.explained.len(), 3);
    assert_eq!(found.slowest.len(), 3);
    assert_eq!(found.lost, 0);
    for told in &found.explained {
        assert!(told.block_requests >= 1, "{told:#?}");
        assert!(!told.steps.is_empty(), "{told:#?}");
        assert_eq!(told.store.as_str(), "it");
        assert_eq!(told.device.as_str(), &*found.report.device);
        let total = i64::try_from(told.total_ns).expect("short");
        for block in &told.blocks {
            let times = [block.queued_at_ns, block.issued_at_ns, block.done_at_ns];
            let known: Vec<i64> = times.into_iter().flatten().collect();
            assert!(known.is_sorted(), "{told:#?}");
            assert!(known.iter().all(|at| (0..=total).contains(at)), "{told:#?}");
        }
        assert!(found.slowest.contains(told));
    }
    assert_eq!(found.traced.len(), 1);
    assert_eq!(found.traced[0].request.request_id, 3);
    assert_eq!(found.traced[0].trace, TRACE);

    let lines = &found.lines;
    let written: u64 = lines.iter().map(|line| u64::from(line.sectors) * 512).sum();
    assert_eq!(written, MIB + 4096 + 8192, "{lines:#?}");
    for line in lines {
        assert!(
            line.owner == "request" && line.stores == ["it"],
            "{line:#?}"
        );
    }

    let mut replay = Replay::new();
    let mut replayed = Vec::new();
    let read = replay.read(found.recorded.as_bytes(), |line| replayed.push(line));
    read.expect("a whole recording");
    let again = replay.report("it").expect("the store");
    assert_eq!(again.block, found.report.block);
    assert_eq!(again.operations, found.report.operations);
    assert!(again.audit.seen_requests > 0, "{:?}", again.audit);
    for told in &found.explained {
        let again = replay.explain(told.request_id).expect("it was recorded");
        assert_eq!((&again.steps, &again.blocks), (&told.steps, &told.blocks));
    }
    replayed.retain(|line| line.operation == "write");
    assert_eq!(replayed, found.lines);
}

/// The one file of a flight recorder, once it is whole, and what is in it.
fn flight_of(dir: &std::path::Path) -> (String, Replay) {
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_millis(20));
        let files = std::fs::read_dir(dir).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let names = names.map(|n| n.to_string_lossy().into_owned());
        let names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        let Some(name) = names.first() else { continue };
        let text = std::fs::read_to_string(dir.join(name)).expect("a recording");
        let mut replay = Replay::new();
        if text.ends_with('\n') && replay.read(text.as_bytes(), |_| {}).is_ok() {
            assert_eq!(names.len(), 1, "one a minute");
            return (name.clone(), replay);
        }
    }
    panic!("no recording came");
}

fn recorded_flight(dir: &std::path::Path) -> Tuning {
    Tuning {
        flight: Some(FlightOptions {
            dir: dir.to_owned(),
            // A busy machine's disk takes some tenths of a second now and then.
            slower_than_ns: 1_500_000_000,
            slower_than_without_arm_ns: 1_500_000_000,
        }),
        ..Tuning::default()
    }
}

#[test]
fn the_last_minute_is_written_when_a_request_is_slow() {
    let Some(_one) = ready() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, recorded_flight(dir.path()));
    it.request(1, "put", 4096, || it.write(1, MIB, 4096));
    it.request(2, "put", 4096, || {
        it.write(2, 2 * MIB, 4096);
        std::thread::sleep(Duration::from_millis(1600));
    });
    let (name, replay) = flight_of(dir.path());
    assert!(name.ends_with("-put-2.jsonl"), "{name}");
    for request in [1, 2] {
        let told = replay.explain(request).expect("of the last minute");
        assert_eq!(told.blocks.len(), 1, "{told:#?}");
        assert_eq!((&*told.store, told.blocks[0].sectors), ("it", 8));
    }
}

#[test]
fn what_is_slow_is_judged_by_the_disk() {
    let Some(_one) = ready() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let device = LoopDevice::new(64 * MIB);
    let name = device.path.file_name().expect("a name").to_str();
    let queue = format!("/sys/block/{}/queue", name.expect("UTF-8"));
    for (rotational, file) in [("1", "-put-2.jsonl"), ("0", "-put-1.jsonl")] {
        std::fs::write(format!("{queue}/rotational"), rotational).expect("told");
        let folder = dir.path().join(rotational);
        std::fs::create_dir(&folder).expect("made");
        let mut tuning = recorded_flight(&folder);
        let flight = tuning.flight.as_mut().expect("a recorder");
        (flight.slower_than_ns, flight.slower_than_without_arm_ns) = (300_000_000, 100_000_000);
        let it = Watched::new(&device.path, tuning);
        let status = it.observer.store_status("it").expect("the store");
        assert_eq!(status.armless, rotational == "0");
        for (request, ms) in [(1, 150), (2, 350)] {
            it.request(request, "put", 4096, || {
                it.write(request, MIB, 4096);
                std::thread::sleep(Duration::from_millis(ms));
            });
        }
        let (name, _) = flight_of(&folder);
        assert!(name.ends_with(file), "{name}");
    }
}

#[test]
fn the_last_minute_is_written_while_an_io_does_not_return() {
    let Some(_one) = ready() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, recorded_flight(dir.path()));
    it.request(1, "put", 4096, || it.write(1, MIB, 4096));
    let io = |token| {
        let (name, replay) = flight_of(dir.path());
        assert!(name.ends_with("-stall.jsonl"), "{name}");
        assert!(replay.explain(1).is_some() && replay.explain(2).is_none());
        it.observer.entering(it.index, token);
        it.undeclared(Op::Write, 2 * MIB, 4096);
    };
    it.request(2, "put", 4096, || {
        it.declared(&[2], Purpose::Data, Op::Write, (2 * MIB, 4096), io);
    });
    let told = || {
        let (_, replay) = flight_of(dir.path());
        assert_eq!(replay.written_for(), Some(2));
        replay.explain(2)
    };
    let told = std::iter::repeat_with(told).find_map(|told| told);
    let told = told.expect("it never ends without");
    assert_eq!((told.blocks.len(), told.blocks[0].sectors), (1, 8));
    assert_eq!(told.incomplete, "");
}

#[test]
fn the_last_minute_is_written_when_a_block_request_fails_or_somebody_asks_for_it() {
    let Some(_one) = ready() else { return };
    for fails in [true, false] {
        let dir = tempfile::tempdir().expect("a folder");
        let device = LoopDevice::new(64 * MIB);
        let it = Watched::new(&device.path, recorded_flight(dir.path()));
        it.request(1, "put", 4096, || it.write(1, MIB, 4096));
        let end = if fails {
            device.empty();
            it.declared(&[2], Purpose::Data, Op::Read, (MIB, 4096), |_| {
                let read = it.file.read_at(Aligned::new(4096).get(), MIB);
                read.expect_err("it is gone");
            });
            "-disk-error.jsonl"
        } else {
            it.observer.keep_last_minute("LumpscopeRefusals");
            "-LumpscopeRefusals.jsonl"
        };
        let (name, replay) = flight_of(dir.path());
        assert!(name.ends_with(end), "{name}");
        assert!(replay.explain(1).is_some());
    }
}
