//! Live watches of what the correlator finds out. Nothing is made or copied when nobody watches.

use crate::api::TraceRequest;
use crate::clock::WallClock;
use crate::event::{BlockOp, Event};
use crate::live::{self, Feed, Watch};
use crate::report::{BlockLine, TracedRequest};

use super::owner::{OWNERS, Owner};
use super::processes::Cgroups;
use super::settle::Unsettled;

/// All live watches.
#[derive(Debug, Default)]
pub(super) struct Taps {
    blocks: Vec<(TraceRequest, Feed<BlockLine>)>,
    traced: Vec<Feed<TracedRequest>>,
}

/// The disk that a block request went to.
pub(super) struct At<'a> {
    pub(super) disk: &'a str,
    /// The stores on it: index and name.
    pub(super) stores: &'a [(usize, &'a str)],
    pub(super) cgroups: &'a Cgroups,
    pub(super) clock: WallClock,
}

impl Taps {
    pub(super) fn watch_blocks(
        &mut self,
        filter: TraceRequest,
        capacity: usize,
    ) -> Watch<BlockLine> {
        let (watch, feed) = live::watch(capacity);
        self.blocks.push((filter, feed));
        watch
    }

    pub(super) fn watch_traced(&mut self, capacity: usize) -> Watch<TracedRequest> {
        let (watch, feed) = live::watch(capacity);
        self.traced.push(feed);
        watch
    }

    /// True: somebody watches block requests.
    pub(super) fn want_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// True: somebody watches traced requests.
    pub(super) fn want_traced(&self) -> bool {
        !self.traced.is_empty()
    }

    /// Forgets watches that have ended.
    pub(super) fn prune(&mut self) {
        self.blocks.retain(|(_, feed)| feed.is_watched());
        self.traced.retain(Feed::is_watched);
    }

    pub(super) fn block(&mut self, one: &Unsettled, previous: Option<&Owner>, at: &At<'_>) {
        let mut line = None;
        for (filter, feed) in &self.blocks {
            if !wants(filter, one, at) {
                continue;
            }
            let line = line.get_or_insert_with(|| block_line(one, previous, at));
            feed.put(line.clone());
        }
    }

    pub(super) fn traced(&mut self, explained: &TracedRequest) {
        for feed in &self.traced {
            feed.put(explained.clone());
        }
    }
}

fn wants(filter: &TraceRequest, one: &Unsettled, at: &At<'_>) -> bool {
    let event = &one.event;
    let asks = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
    let (store, request) = (filter.store.as_str(), filter.for_request_id);
    let far = event.seek.map(|s| s.unsigned_abs().saturating_mul(512));
    asks(&filter.operation, event.op.name())
        && asks(&filter.owner, OWNERS[one.owner.class()])
        && (request == 0 || one.owner.serves(request))
        && (filter.min_latency_ns == 0 || latency_ns(event) >= Some(filter.min_latency_ns))
        && (filter.min_distance_bytes == 0 || far >= Some(filter.min_distance_bytes))
        && (store.is_empty() || at.stores.iter().any(|(_, name)| *name == store))
}

/// From queued (or first seen) to completed; `None`: unknown.
fn latency_ns(event: &Event) -> Option<u64> {
    Some(event.completed_ns()?.saturating_sub(event.first_ns()))
}

fn block_line(one: &Unsettled, previous: Option<&Owner>, at: &At<'_>) -> BlockLine {
    let event = &one.event;
    let placed = event.op != BlockOp::Flush;
    let on_disk = at.stores.iter();
    let stores = on_disk.filter(|(index, _)| one.stores.is_empty() || one.stores.contains(index));
    BlockLine {
        done_unix_ns: at.clock.unix_ns(event.done_ns),
        device: at.disk.to_owned(),
        stores: stores.map(|(_, name)| (*name).to_owned()).collect(),
        operation: event.op.name().to_owned(),
        owner: OWNERS[one.owner.class()].to_owned(),
        request_ids: one.owner.requests().to_vec(),
        process: event.comm.text(),
        pid: event.tgid,
        cgroup_id: event.cgroup,
        cgroup: at.cgroups.path(event.cgroup).to_owned(),
        container: at.cgroups.container(event.cgroup),
        sector: if placed { event.sector } else { 0 },
        sectors: if placed { event.sectors } else { 0 },
        seek_bytes: event.seek.map(|seek| seek.saturating_mul(512)),
        previous_owner: previous.map(Owner::short_name).unwrap_or_default(),
        uncertain: one.uncertain,
        queue_ns: event
            .queue_ns
            .zip(event.issue_ns)
            .map(|_| event.queue_time_ns()),
        device_ns: event.at_device_ns().map(|_| event.device_time_ns()),
        failed: event.failed,
        failure: event.failure_name().to_owned(),
        flags: event.flag_names(),
        hardware_queue: event.hardware_queue,
    }
}
