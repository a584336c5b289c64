//! Inputs that tests make up, and recordings.

use std::ops::RangeInclusive;
use std::path::Path;

use lumpscope_observer::{
    BlockOp, Class, Correlator, Declared, EndedRequest, Event, Extent, Input, Op, Placement,
    Purpose, SlowRequest, StoreReport,
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

/// A store that has a name.
pub(crate) fn added(store: usize, name: &str) -> Input {
    let name = name.to_owned();
    Input::Added { store, name }
}

/// A store that is bytes of a disk, from a sector on.
pub(crate) fn placed(store: usize, dev: u32, file_system: &str, sector: u64, len: u64) -> Input {
    let offset = 0;
    let placement = Placement {
        dev,
        file_system: file_system.to_owned(),
        ranges: Vec::new(),
        extents: vec![Extent {
            offset,
            sector,
            len,
        }],
    };
    let disk = if dev == DEV { "loop7" } else { "sdx" }.to_owned();
    Input::Placed {
        store,
        placement,
        disk,
    }
}

/// Places a store on all of the disk.
pub(crate) fn place_raw(correlator: &mut Correlator, store: usize) {
    correlator.apply(placed(store, DEV, "", 0, 1 << 40));
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

/// A write of the service's that the disk has done.
pub(crate) fn wrote(sector: u64, sectors: u32, queue: u64, issue: u64, done: u64) -> Input {
    Input::Event(event(BlockOp::Write, sector, sectors, queue, issue, done))
}

/// A put of 4 KiB, all of whose time is data time.
pub(crate) fn put(request: u64, begin_ns: u64, end_ns: u64) -> EndedRequest {
    EndedRequest {
        request,
        method: "put".into(),
        bytes: 4096,
        begin_ns,
        end_ns,
        ok: true,
        stages_ns: [0, 0, 0, end_ns - begin_ns, 0, 0],
        ..EndedRequest::default()
    }
}

pub(crate) fn ended(request: u64, begin_ns: u64, end_ns: u64) -> Input {
    Input::Ended(put(request, begin_ns, end_ns))
}

pub(crate) fn drained(until_ns: u64) -> Input {
    Input::Drained { until_ns }
}

pub(crate) trait Feed {
    /// Applies one after the other.
    fn feed(&mut self, inputs: impl IntoIterator<Item = Input>);

    /// Ends I/Os at this time, then the requests that have their numbers, and all that can still come.
    fn ends(&mut self, ids: RangeInclusive<u64>, end_ns: u64) {
        self.feed(ids.clone().map(|id| finished(id, end_ns)));
        self.feed(ids.map(|id| ended(id, 5, end_ns + 1)));
        self.feed([drained(end_ns + 2)]);
    }
}

impl Feed for Correlator {
    fn feed(&mut self, inputs: impl IntoIterator<Item = Input>) {
        for input in inputs {
            self.apply(input);
        }
    }
}

/// Fails unless a step of the explanation ends so.
#[track_caller]
pub(crate) fn has_step(told: &SlowRequest, end: &str) {
    let found = told.steps.iter().any(|step| step.text.ends_with(end));
    assert!(found, "{end}: {:#?}", told.steps);
}
