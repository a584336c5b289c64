//! Reports: messages of `lumpscope/v1/observe.proto`, filled here, and the few things that are more than these.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lumpscope_proto::v1;
pub use lumpscope_proto::v1::{
    BlockIo, BlockLine, BlockReport, Bucket, FailureTotal, GuardedOpen, HeadMove, HeatCell,
    LostTime, OperationReport, OwnerTotal, ProbeProgram, ProcessTotal, SlowRequest, StageTime,
    Step,
};
use serde::{Deserialize, Serialize};

use crate::api::{GuardPolicy, TraceContext};

/// Everything known of one store since the observer started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoreReport {
    /// Name of the store.
    pub store: String,
    /// Whole disk below the store, e.g. `loop3`; empty: unknown.
    pub device: String,
    /// True: the probes watch that disk.
    pub observed: bool,
    /// Why not, in words; empty when observed.
    pub not_observed_because: String,
    /// One entry a method that was called.
    pub operations: Vec<OperationReport>,
    /// Block requests of the disk.
    pub block: BlockReport,
    /// Can the numbers be trusted?
    pub audit: AuditReport,
    /// Non-empty cells of the histogram seek distance x device time.
    pub heat: Vec<HeatCell>,
    /// Block requests of each owner class and operation in exact sums and small histograms.
    pub shapes: Vec<BlockShape>,
    /// Time at the device of the block requests that have a flag, in small histograms.
    pub flagged: Vec<FlaggedTime>,
    /// Block requests under way now; `block` says nothing of them.
    pub in_flight: InFlightReport,
    /// The slowest requests, slowest first, at most 5.
    pub slowest: Vec<SlowRequest>,
}

/// Can the numbers be trusted? The message, and what clients are not told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditReport {
    /// As clients are told.
    #[serde(flatten)]
    pub told: v1::AuditReport,
    /// Those of the completions seen that have an owner: all but the empty writes that ask for a flush.
    pub owned: u64,
    /// Of these: their owner has still to be found.
    pub unread: u64,
    /// Completed requests that no program was shown being sent to the disk: counted in
    /// `seen_requests`, their device time and distance are unknown.
    pub unsent: u64,
    /// Requests that failed, exactly.
    pub failed: u64,
    /// What the kernel merged into requests that were waiting, as it counts: bios that were read,
    /// written, discarded.
    pub merged: [u64; 3],
    /// Completed block requests without an event, by operation: their owner is `unknown`.
    pub untold: Vec<OwnerTotal>,
    /// Those of them that have a seek distance; absent: none.
    pub untold_moves: Option<HeadMove>,
    /// Bytes that this process read and wrote in them.
    pub untold_own_bytes: u64,
    /// True: the two counts differ by more than was under way, but have not for long. Within seconds
    /// they agree, or the audit says that it is incomplete. Not `complete` meanwhile if the kernel
    /// has counted more.
    pub settling: bool,
}

impl Deref for AuditReport {
    type Target = v1::AuditReport;

    fn deref(&self) -> &v1::AuditReport {
        &self.told
    }
}

impl DerefMut for AuditReport {
    fn deref_mut(&mut self) -> &mut v1::AuditReport {
        &mut self.told
    }
}

impl AuditReport {
    /// Adds the block requests without an event, as the kernel side counted them.
    pub(crate) fn tell_untold(&self, block: &mut BlockReport) {
        let data = |total: &&OwnerTotal| ["read", "write"].contains(&total.operation.as_str());
        let untold = self.untold.iter();
        block.data_requests += untold.clone().filter(data).map(|o| o.requests).sum::<u64>();
        block.lost_gaps += untold.map(|total| total.requests).sum::<u64>();
        for total in &self.untold {
            let same =
                |o: &&mut OwnerTotal| (&o.owner, &o.operation) == (&total.owner, &total.operation);
            match block.owners.iter_mut().find(same) {
                Some(known) => {
                    known.requests += total.requests;
                    known.bytes += total.bytes;
                }
                None => block.owners.push(total.clone()),
            }
        }
        if let Some(moves) = &self.untold_moves {
            block.sequential += moves.requests - moves.seeks.min(moves.requests);
            let same =
                |m: &&mut HeadMove| (&m.owner, &m.moved_by) == (&moves.owner, &moves.moved_by);
            match block.moves.iter_mut().find(same) {
                Some(known) => {
                    known.requests += moves.requests;
                    known.seeks += moves.seeks;
                    known.travel_bytes += moves.travel_bytes;
                }
                None => block.moves.push(moves.clone()),
            }
        }
        block.unknown_bytes += self.untold_own_bytes;
        block.own_bytes += self.untold_own_bytes;
    }
}

/// Block requests of one owner class and operation, counted by the probes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockShape {
    /// Class that the kernel side gave: see [`OwnerTotal::owner`].
    pub owner: String,
    /// `read`, `write`, `flush`, `discard`, `other`.
    pub operation: String,
    /// Time at the device by interval of the seek distance, exact sums.
    pub seeks: Vec<SeekTime>,
    /// Sum of |seek distance| in bytes.
    pub travel_bytes: u64,
    /// Time at the device of those without a seek distance, as flushes are.
    pub unplaced: Vec<Bucket>,
    /// Sum of that in nanoseconds.
    pub unplaced_ns: u64,
    /// Time from queued to issued, of those of which both were seen.
    pub queue: Vec<Bucket>,
    /// Sum of that in nanoseconds.
    pub queue_ns: u64,
    /// Lengths.
    pub sizes: Vec<Bucket>,
    /// Sum of the lengths in bytes.
    pub bytes: u64,
}

/// Time at the device of the block requests that have a flag, counted by the probes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlaggedTime {
    /// `fua`, `meta`, `ahead`.
    pub flag: String,
    /// Block requests by that time.
    pub device: Vec<Bucket>,
    /// Sum in nanoseconds.
    pub device_ns: u64,
}

/// Time at the device of block requests whose seek distance lies in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeekTime {
    /// Signed seek distance in bytes, from (inclusive).
    pub seek_from_bytes: i64,
    /// To (exclusive).
    pub seek_to_bytes: i64,
    /// Nanoseconds in all.
    pub device_ns: u64,
}

/// Block requests of a disk under way at this moment, whoever made them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InFlightReport {
    /// How many, as the kernel counts.
    pub requests: u64,
    /// How long the oldest has been under way, in nanoseconds; 0: there is none, or its begin was
    /// not seen.
    pub oldest_ns: u64,
    /// The oldest in words; empty: as above.
    pub oldest: String,
    /// Since the kernel knows the disk; absent: it does not count.
    pub time: Option<DiskTime>,
}

/// How long block requests of a disk were under way, as the kernel counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskTime {
    /// Any of them, in nanoseconds.
    pub busy_ns: u64,
    /// All of them, added up.
    pub under_way_ns: u64,
}

/// A request that is exported, explained.
#[derive(Debug, Clone, PartialEq)]
pub struct TracedRequest {
    /// Its explanation.
    pub request: SlowRequest,
    /// The trace it is exported in.
    pub trace: TraceContext,
    /// For each of its block requests, all requests that it served; empty: it is not shared.
    pub sharers: Vec<Arc<[u64]>>,
}

/// State and counts of one store's guard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardReport {
    /// The policy asked for.
    pub policy: GuardPolicy,
    /// True: it was proved, by trying, that it does what the policy says.
    pub effective: bool,
    /// Why not, in words; empty when effective or off.
    pub why_not: String,
    /// Foreign opens for writing that were denied.
    pub denied: u64,
    /// Foreign opens for writing that were seen and allowed.
    pub allowed: u64,
    /// The last of them, oldest first; at most 16.
    pub recent: Vec<GuardedOpen>,
}
