//! Inputs that tests make up, and recordings.

use std::path::Path;

use lumpscope_observer::{
    BlockOp, Class, Correlator, Declared, EndedRequest, Event, Extent, Input, Op, Placement,
    Purpose, StoreReport,
};

pub(crate) const DEV: u32 = 7 << 20;

/// The text of a committed recording.
pub(crate) fn recording(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    std::fs::read_to_string(path).expect("a recording")
}

pub(crate) fn replay(name: &str) -> StoreReport {
    let mut correlator = Correlator::new(1);
    for line in recording(name).lines() {
        correlator.apply(serde_json::from_str(line).expect("an input"));
    }
    filled(&correlator)
}

pub(crate) fn filled(correlator: &Correlator) -> StoreReport {
    let mut report = StoreReport::default();
    correlator.fill(0, &mut report);
    report
}

pub(crate) fn owned(report: &StoreReport, owner: &str, operation: &str) -> (u64, u64) {
    let found = report
        .block
        .owners
        .iter()
        .find(|o| o.owner == owner && o.operation == operation);
    found.map_or((0, 0), |o| (o.requests, o.bytes))
}

/// A correlator with one raw store.
pub(crate) fn raw_store() -> Correlator {
    let mut correlator = Correlator::new(1);
    place_raw(&mut correlator, 0);
    correlator
}

/// Places a store on all of the disk.
pub(crate) fn place_raw(correlator: &mut Correlator, store: usize) {
    let extents = vec![Extent {
        offset: 0,
        sector: 0,
        len: 1 << 40,
    }];
    let placement = Placement {
        dev: DEV,
        file_system: String::new(),
        ranges: Vec::new(),
        extents,
    };
    correlator.apply(Input::Placed {
        store,
        placement,
        disk: "loop7".to_owned(),
    });
}

pub(crate) fn declared(
    token: u64,
    requests: &[u64],
    op: Op,
    offset: u64,
    len: u64,
    begin: u64,
) -> Input {
    Input::Declared(Declared {
        store: 0,
        token,
        requests: requests.to_vec(),
        purpose: if op == Op::Flush {
            Purpose::Flush
        } else {
            Purpose::Data
        },
        op,
        offset,
        len,
        begin_ns: begin,
    })
}

pub(crate) fn finished(token: u64, end_ns: u64) -> Input {
    Input::Finished {
        store: 0,
        token,
        end_ns,
    }
}

pub(crate) fn event(
    op: BlockOp,
    sector: u64,
    sectors: u32,
    queue: u64,
    issue: u64,
    done: u64,
) -> Event {
    Event {
        dev: DEV,
        op,
        class: Class::Own,
        queue_ns: Some(queue),
        issue_ns: Some(issue),
        done_ns: done,
        done_unknown: false,
        sector,
        sectors,
        bytes: sectors * 512,
        seek: None,
        own: true,
        kernel_thread: false,
        merged: false,
        preflush: false,
        fua: false,
        flush_parent: false,
        failed: false,
        failure: None,
        forced: false,
        metadata: false,
        ahead: false,
        hardware_queue: None,
        tgid: 1,
        comm: "store".into(),
        cgroup: 0,
        submission: None,
    }
}

pub(crate) fn ended(request: u64, begin_ns: u64, end_ns: u64) -> Input {
    Input::Ended(EndedRequest {
        request,
        store: 0,
        method: "put".into(),
        bytes: 4096,
        begin_ns,
        end_ns,
        ok: true,
        stages_ns: [0, 0, 0, end_ns - begin_ns, 0, 0],
        commit_ns: [0; 3],
        control: false,
        waited_for: None,
        trace: None,
    })
}

pub(crate) fn apply(correlator: &mut Correlator, inputs: Vec<Input>) {
    for input in inputs {
        correlator.apply(input);
    }
}
