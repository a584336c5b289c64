//! Explains a request that has ended: sentence, timeline, block requests, and what is missing.

mod steps;
mod story;
mod words;

use std::sync::Arc;

use lumpscope_units::human::counted;

use crate::api::STAGES;
use crate::clock::WallClock;
use crate::event::BlockOp;
use crate::report::{BlockIo, SlowRequest};

use super::EndedRequest;
use super::disk::DiskTotals;
use super::lost;
use super::owner::{CLASSES, Owner};
use super::processes::Cgroups;
use super::requests::{Block, Gaps, Open};
use super::totals::stage_times;
use story::Story;

/// Everything known of a request that has ended.
pub(super) struct RequestFacts<'a> {
    pub(super) ended: &'a EndedRequest,
    pub(super) open: &'a Open,
    /// Nanoseconds by stage.
    pub(super) stages: &'a [u64; STAGES.len()],
    /// Nanoseconds lost, by class of the others.
    pub(super) lost: &'a [u64; CLASSES],
    pub(super) store: &'a str,
    /// Where its block requests went, when that is observed.
    pub(super) disk: Option<&'a DiskTotals>,
    pub(super) cgroups: &'a Cgroups,
    /// File system between the store and the disk; empty: none.
    pub(super) file_system: &'a str,
    pub(super) clock: WallClock,
}

impl RequestFacts<'_> {
    /// Owner of the data request that the disk was sent before.
    fn previous<'b>(&'b self, block: &'b Block) -> Option<&'b Owner> {
        let later = || self.disk?.recent.previous(&block.event);
        block.previous.as_ref().or_else(later)
    }

    /// Nanoseconds after the request's begin.
    fn after_begin(&self, ns: u64) -> i64 {
        let far = i64::try_from(ns.abs_diff(self.ended.begin_ns)).unwrap_or(i64::MAX);
        if ns < self.ended.begin_ns { -far } else { far }
    }
}

pub(super) fn explain(known: &RequestFacts<'_>) -> SlowRequest {
    let (ended, open) = (known.ended, known.open);
    let blocks = in_order(open);
    let trace_id = ended.trace.map(|trace| format!("{:032x}", trace.trace_id));
    SlowRequest {
        request_id: ended.request,
        store: known.store.to_owned(),
        device: known.disk.map(|disk| disk.name.clone()).unwrap_or_default(),
        method: ended.method.to_string(),
        bytes: ended.bytes,
        ok: ended.ok,
        begin_unix_ns: known.clock.unix_ns(ended.begin_ns),
        total_ns: ended.total_ns(),
        trace_id: trace_id.unwrap_or_default(),
        stages: stage_times(known.stages),
        waited_for_request_id: ended.waited_for,
        block_requests: open.count,
        sentence: Story { known }.sentence(),
        steps: steps::steps(known, &blocks),
        lost: lost::report(known.lost),
        lost_in_all_ns: Some(open.lost.in_all()),
        blocks: blocks.iter().map(|block| block_io(known, block)).collect(),
        incomplete: incomplete(known),
    }
}

/// In the order in which the disk was sent them.
fn in_order(open: &Open) -> Vec<Block> {
    let mut blocks = open.blocks.clone();
    blocks.sort_by_key(|block| block.event.issue_ns.unwrap_or(block.event.last_ns()));
    blocks
}

/// For each of its block requests, as [`explain`] lists them, all requests that it served; empty: it is not
/// shared.
pub(super) fn sharers(open: &Open) -> Vec<Arc<[u64]>> {
    let blocks = in_order(open).into_iter();
    blocks
        .map(|block| block.share.sharers.unwrap_or_default())
        .collect()
}

fn block_io(known: &RequestFacts<'_>, block: &Block) -> BlockIo {
    let (event, share) = (&block.event, &block.share);
    let placed = event.op != BlockOp::Flush;
    let previous = known.previous(block);
    BlockIo {
        operation: event.op.name().to_owned(),
        purpose: words::purpose_name(share.purpose).to_owned(),
        sector: if placed { event.sector } else { 0 },
        sectors: if placed { event.sectors } else { 0 },
        own_bytes: share.own_bytes,
        shared: share.sharers.is_some(),
        seek_bytes: event.seek.map(|seek| seek.saturating_mul(512)),
        previous_owner: previous.map(Owner::short_name).unwrap_or_default(),
        queue_ns: event.queue_time_ns(),
        device_ns: event.device_time_ns(),
        queued_at_ns: event.queue_ns.map(|ns| known.after_begin(ns)),
        issued_at_ns: event.issue_ns.map(|ns| known.after_begin(ns)),
        done_at_ns: event.completed_ns().map(|ns| known.after_begin(ns)),
        failed: event.failed,
        failure: event.failure_name().to_owned(),
        flags: event.flag_names(),
        hardware_queue: event.hardware_queue,
        uncertain: share.uncertain,
        process: event.comm.text(),
        pid: event.tgid,
        cgroup_id: event.cgroup,
        cgroup: known.cgroups.path(event.cgroup).to_owned(),
        container: known.cgroups.container(event.cgroup),
        previous_cgroup: previous
            .map_or("", |owner| known.cgroups.path(owner.cgroup()))
            .to_owned(),
    }
}

/// Gap: what others made a request lose is not all known.
pub(super) const MAY_HAVE_LOST_MORE: &str = "it may have lost more time to others than is known";

/// Possible gaps, in words, as far as the correlator knows them.
fn incomplete(known: &RequestFacts<'_>) -> String {
    let open = known.open;
    let mut gaps = Vec::new();
    if known.disk.is_none() {
        gaps.push("its block requests were not observed".to_owned());
    }
    if open.gaps.not_remembered {
        gaps.push(
            "its I/Os are not all remembered: too many requests were open, or it had none for 2 \
             minutes"
                .to_owned(),
        );
    }
    let unreturned = open.unreturned_at(known.ended.end_ns);
    if unreturned > 0 {
        gaps.push(format!(
            "{unreturned} of its I/Os had not returned when it ended: their time may be in no \
             stage, or count as reply"
        ));
    }
    if u32::try_from(open.blocks.len()).is_ok_and(|listed| listed < open.count) {
        gaps.push(format!(
            "{} of its {} block requests listed",
            open.blocks.len(),
            open.count
        ));
    }
    if open.gaps.too_many_intervals {
        gaps.push("the times of some of its block requests count as submit".to_owned());
    }
    gaps.extend(unseen(open.gaps));
    if open.uncertain > 0 {
        gaps.push(format!(
            "{} of its block requests not certain to be its own",
            open.uncertain
        ));
    }
    if open.gaps.perhaps_merged > 0 {
        gaps.push(format!(
            "some of its own may be merged into {} of others",
            counted(open.gaps.perhaps_merged.into(), "block request")
        ));
    }
    if open.lacks > 0 {
        gaps.push(format!(
            "{} read or written for it in none of its block requests",
            counted(open.lacks, "byte")
        ));
    }
    if open.lost.at_least {
        gaps.push(MAY_HAVE_LOST_MORE.to_owned());
    }
    gaps.join("; ")
}

/// Moments of its block requests that were not seen, in words.
fn unseen(gaps: Gaps) -> Vec<String> {
    let Gaps {
        unqueued,
        unsent,
        unfinished,
        ..
    } = gaps;
    let mut told = Vec::new();
    if unqueued > 0 {
        told.push(format!(
            "when {unqueued} of its reads and writes were queued was not seen"
        ));
    }
    if unsent > 0 {
        told.push(format!(
            "when {unsent} of its block requests were sent to the disk was not seen: their time \
             there is not known and counts as submit"
        ));
    }
    if unfinished > 0 {
        told.push(format!(
            "when {unfinished} of its block requests completed was not seen: their time at the \
             device is not known and counts as submit"
        ));
    }
    told
}
