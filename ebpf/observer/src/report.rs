//! Reports: plain structs with the names of `lumpscope/v1/observe.proto`.
//!
//! The observer does not link gRPC, so the server copies them field by field.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::{GuardPolicy, TraceContext};

/// Everything known of one store since the observer started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub shapes: Vec<BlockShape>,
    /// Time at the device of the block requests that have a flag, in small histograms.
    #[serde(default)]
    pub flagged: Vec<FlaggedTime>,
    /// Block requests under way now.
    #[serde(default)]
    pub in_flight: InFlightReport,
    /// The slowest requests, slowest first, at most 5.
    pub slowest: Vec<SlowRequest>,
}

/// Totals of one method on one store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// `put`, `get`, ...
    pub method: String,
    /// Requests that ended, failed ones included.
    pub count: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Body bytes moved.
    pub bytes: u64,
    /// Sum of the whole requests' times, in nanoseconds.
    pub total_ns: u64,
    /// Median of the whole requests' times, in nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile, in nanoseconds.
    pub p90_ns: u64,
    /// 95th percentile, in nanoseconds.
    pub p95_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Where the time went; the stages add up to `total_ns`.
    pub stages: Vec<StageTime>,
    /// Block requests attributed to these requests (a shared one counts for each).
    pub block_requests: u64,
    /// How long the whole requests took, since the beginning: the non-empty buckets, ascending.
    /// The difference of two reports gives the quantiles of the time between them.
    #[serde(default)]
    pub latency: Vec<LatencyBucket>,
}

/// Requests that took about as long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// At least so many nanoseconds.
    pub from_ns: u64,
    /// Less than so many; a bucket without an end ends at the largest number there is.
    pub to_ns: u64,
    /// How many.
    pub count: u64,
}

/// Time spent in one stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// One of [`crate::STAGES`].
    pub stage: String,
    /// Nanoseconds.
    pub total_ns: u64,
}

/// Block requests of the disk below one store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockReport {
    /// Totals an owner class and operation.
    pub owners: Vec<OwnerTotal>,
    /// Reads and writes.
    pub data_requests: u64,
    /// Those that began exactly where the one before ended.
    pub sequential: u64,
    /// Median of |seek distance| in bytes over the data requests with an event.
    pub seek_median_bytes: u64,
    /// 99th percentile of |seek distance| in bytes.
    pub seek_p99_bytes: u64,
    /// Bytes of data I/O that this process declared or was seen to ask for.
    pub own_bytes: u64,
    /// Of these: tied to exactly one request (or to the store itself).
    pub attributed_bytes: u64,
    /// Of these: in block requests that served several requests; split by overlap.
    pub shared_bytes: u64,
    /// Of these: not tied to anything.
    pub unattributed_bytes: u64,
    /// Of these: moved by this process in block requests without an event.
    pub unknown_bytes: u64,
    /// Head moves, by owner class and class of the one before. Both are `unknown` for block
    /// requests without an event: see [`OwnerTotal::owner`].
    pub moves: Vec<HeadMove>,
    /// Time that requests of this store lost to others, by the class of the others.
    pub lost: Vec<LostTime>,
    /// Block requests without an event, and requests of which not all that held them up is known:
    /// if there are any, `lost` is at least what is said.
    pub lost_gaps: u64,
    /// Those that failed, by why, as far as events were handed out: see [`AuditReport::failed`].
    pub failures: Vec<FailureTotal>,
    /// The processes that made block requests, as far as they are remembered: by number and
    /// cgroup. The last without a name or number: those that are not.
    pub processes: Vec<ProcessTotal>,
}

impl BlockReport {
    /// Adds the block requests without an event, as the kernel side counted them.
    pub(crate) fn add_untold(&mut self, audit: &AuditReport) {
        let data = |total: &&OwnerTotal| ["read", "write"].contains(&total.operation.as_str());
        let untold = audit.untold.iter();
        self.data_requests += untold.clone().filter(data).map(|o| o.requests).sum::<u64>();
        self.lost_gaps += untold.map(|total| total.requests).sum::<u64>();
        for total in &audit.untold {
            let same =
                |o: &&mut OwnerTotal| (&o.owner, &o.operation) == (&total.owner, &total.operation);
            match self.owners.iter_mut().find(same) {
                Some(known) => {
                    known.requests += total.requests;
                    known.bytes += total.bytes;
                }
                None => self.owners.push(total.clone()),
            }
        }
        if let Some(moves) = &audit.untold_moves {
            self.sequential += moves.requests - moves.seeks.min(moves.requests);
            let same =
                |m: &&mut HeadMove| (&m.owner, &m.moved_by) == (&moves.owner, &moves.moved_by);
            match self.moves.iter_mut().find(same) {
                Some(known) => {
                    known.requests += moves.requests;
                    known.seeks += moves.seeks;
                    known.travel_bytes += moves.travel_bytes;
                }
                None => self.moves.push(moves.clone()),
            }
        }
        self.unknown_bytes += audit.untold_own_bytes;
        self.own_bytes += audit.untold_own_bytes;
    }
}

/// Block requests that failed alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureTotal {
    /// `read`, `write`, `flush`, `discard`, `other`.
    pub operation: String,
    /// See [`crate::Failure::name`].
    pub failure: String,
    /// How many.
    pub requests: u64,
}

/// Block requests of one owner class that followed one of another, or of the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadMove {
    /// Owner class of the block request that had to travel: see [`OwnerTotal::owner`].
    pub owner: String,
    /// Owner class of the one before it, from whose end it had to; `unknown`: that is not certain.
    pub moved_by: String,
    /// Block requests with a seek distance, 0 included.
    pub requests: u64,
    /// Those of them whose distance was not 0.
    pub seeks: u64,
    /// Sum of |seek distance| in bytes.
    pub travel_bytes: u64,
}

/// Totals of one owner class and operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerTotal {
    /// `request`, `store`, `fs-journal`, `fs-metadata`, `writeback`, `other`; `unknown`: made by the
    /// service in a place that it had not told of, or completed without an event, because it was not sampled or did not fit into the ring. While there are
    /// such, the others are at least what is said; the sum is exact.
    pub owner: String,
    /// `read`, `write`, `flush`, `discard`, `other`.
    pub operation: String,
    /// Block requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Can the numbers be trusted?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditReport {
    /// Completions seen by the probes.
    pub seen_requests: u64,
    /// Those of them that have an owner: all but the empty writes that ask for a flush.
    pub owned: u64,
    /// Of these: their owner has still to be found.
    pub unread: u64,
    /// Completions counted by the kernel's disk statistics over the same time.
    pub kernel_requests: u64,
    /// Bytes of the completions seen.
    pub seen_bytes: u64,
    /// Bytes counted by the kernel.
    pub kernel_bytes: u64,
    /// Events lost between kernel and user space, exactly.
    pub lost_events: u64,
    /// Requests whose start was not seen, or whose table was full.
    pub unmatched: u64,
    /// Times the kernel skipped a probe because it was already running.
    pub recursion_misses: u64,
    /// Completions that no program was shown and that were found later: counted in `seen_requests`,
    /// their device time is unknown.
    pub found_late: u64,
    /// Completed requests that no program was shown being sent to the disk: counted in
    /// `seen_requests`, their device time and distance are unknown.
    pub unsent: u64,
    /// Requests that did not fit into the table of those in flight.
    pub in_flight_full: u64,
    /// Requests sent to the disk again because the driver was busy.
    pub reissues: u64,
    /// Requests that failed, exactly.
    pub failed: u64,
    /// What the kernel merged into requests that were waiting, as it counts: bios that were read,
    /// written, discarded.
    pub merged: [u64; 3],
    /// Events not handed out because the event policy did not ask for them.
    pub not_sampled: u64,
    /// Block requests of which submission (thread or io_uring) and place name the same I/O.
    pub agreements: u64,
    /// Those of which they name different ones.
    pub conflicts: u64,
    /// Own block requests whose submission was not seen, as those that kernel workers make.
    pub submission_unknown: u64,
    /// Block requests whose owner is not certain: place and time suit another one as well.
    pub ambiguous: u64,
    /// Completed block requests without an event, by operation: their owner is `unknown`.
    pub untold: Vec<OwnerTotal>,
    /// Those of them that have a seek distance; absent: none.
    pub untold_moves: Option<HeadMove>,
    /// Bytes that this process read and wrote in them.
    pub untold_own_bytes: u64,
    /// True: nothing was lost and the kernel's statistics agree.
    pub complete: bool,
    /// True: the two counts differ by more than was under way, but have not for long. Within seconds
    /// they agree, or the audit says that it is incomplete. Not `complete` meanwhile if the kernel
    /// has counted more.
    pub settling: bool,
    /// In words, what is incomplete and why.
    pub finding: String,
}

/// One non-empty cell of the histogram seek distance x device time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatCell {
    /// Class that the kernel side gave: see [`OwnerTotal::owner`].
    pub owner: String,
    /// `read` or `write`.
    pub operation: String,
    /// Signed seek distance in bytes, from (inclusive).
    pub seek_from_bytes: i64,
    /// To (exclusive).
    pub seek_to_bytes: i64,
    /// Device time in nanoseconds, from (inclusive).
    pub device_from_ns: u64,
    /// To (exclusive).
    pub device_to_ns: u64,
    /// Block requests.
    pub count: u64,
}

/// Block requests of one owner class and operation, counted by the probes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    pub unplaced: Vec<LatencyBucket>,
    /// Sum of that in nanoseconds.
    pub unplaced_ns: u64,
    /// Time from queued to issued, of those of which both were seen.
    pub queue: Vec<LatencyBucket>,
    /// Sum of that in nanoseconds.
    pub queue_ns: u64,
    /// Lengths.
    pub sizes: Vec<SizeBucket>,
    /// Sum of the lengths in bytes.
    pub bytes: u64,
}

/// Time at the device of the block requests that have a flag, counted by the probes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlaggedTime {
    /// `fua`, `meta`, `ahead`.
    pub flag: String,
    /// Block requests by that time.
    pub device: Vec<LatencyBucket>,
    /// Sum in nanoseconds.
    pub device_ns: u64,
}

/// Time at the device of block requests whose seek distance lies in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekTime {
    /// Signed seek distance in bytes, from (inclusive).
    pub seek_from_bytes: i64,
    /// To (exclusive).
    pub seek_to_bytes: i64,
    /// Nanoseconds in all.
    pub device_ns: u64,
}

/// Block requests about as long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// At least so many bytes.
    pub from_bytes: u64,
    /// Less than so many.
    pub to_bytes: u64,
    /// How many.
    pub count: u64,
}

/// Block requests of a disk under way at this moment, whoever made them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskTime {
    /// Any of them, in nanoseconds.
    pub busy_ns: u64,
    /// All of them, added up.
    pub under_way_ns: u64,
}

/// One request that has ended, explained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowRequest {
    /// Id of the request.
    pub request_id: u64,
    /// Name of its store.
    pub store: String,
    /// Whole disk below the store; empty: unknown.
    pub device: String,
    /// Its method.
    pub method: String,
    /// Body bytes moved.
    pub bytes: u64,
    /// False: it failed.
    pub ok: bool,
    /// When it was accepted: `CLOCK_MONOTONIC` in nanoseconds.
    pub begin_ns: u64,
    /// Whole time in nanoseconds.
    pub total_ns: u64,
    /// The trace it is exported in.
    pub trace: Option<TraceContext>,
    /// Where the time went; the stages add up to `total_ns`.
    pub stages: Vec<StageTime>,
    /// The request whose batch its commit waited for the longest, of those in stage wait; 0: the
    /// store's own work; absent: it did not wait.
    #[serde(default)]
    pub waited_for: Option<u64>,
    /// Block requests attributed to it.
    pub block_requests: u32,
    /// Its story, in one sentence.
    pub sentence: String,
    /// Timeline in words, in the order of time.
    pub steps: Vec<Step>,
    /// Time in which the disk served others while block requests of this one waited, by the class
    /// of the others.
    pub lost: Vec<LostTime>,
    /// Such time in all, in nanoseconds: a moment lost to two classes counts once.
    #[serde(default)]
    pub lost_in_all_ns: u64,
    /// Its block requests in the order in which the disk was sent them, at most 64.
    pub blocks: Vec<BlockIo>,
    /// Possible gaps, in words; empty: nothing was lost as far as is known.
    pub incomplete: String,
}

/// One step of a request's timeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Begin, in nanoseconds after the request's own.
    pub from_ns: i64,
    /// Length in nanoseconds.
    pub took_ns: u64,
    /// One of [`crate::STAGES`].
    pub stage: String,
    /// The event, in words.
    pub text: String,
}

/// Time lost to others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LostTime {
    /// Owner class of the others: see [`OwnerTotal::owner`].
    pub owner: String,
    /// Nanoseconds.
    pub ns: u64,
}

/// One block request, as seen by one of the requests it served.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockIo {
    /// `read`, `write`, `flush`.
    pub operation: String,
    /// `data`, `journal`, `header`, `flush`.
    pub purpose: String,
    /// First 512-byte sector on the whole disk; 0 for a flush.
    pub sector: u64,
    /// Number of 512-byte sectors; 0 for a flush.
    pub sectors: u32,
    /// Bytes of it that belong to this request.
    pub own_bytes: u64,
    /// True: it served other requests too.
    pub shared: bool,
    /// All requests that it served, if it is shared; not kept for later questions.
    #[serde(skip)]
    pub sharers: Arc<[u64]>,
    /// Signed distance in bytes from the end of the request sent before; absent: unknown.
    pub seek_bytes: Option<i64>,
    /// Owner of the request the disk was sent before; empty: unknown.
    pub previous_owner: String,
    /// Queued to issued, in nanoseconds.
    pub queue_ns: u64,
    /// Issued to completed, in nanoseconds.
    pub device_ns: u64,
    /// When it was queued, in nanoseconds after the request's begin; absent: not seen.
    pub queued_at_ns: Option<i64>,
    /// When the driver was given it; absent: not seen, or never.
    pub issued_at_ns: Option<i64>,
    /// When it completed; absent: it did, but when was not seen.
    pub done_at_ns: Option<i64>,
    /// It failed.
    pub failed: bool,
    /// Why: see [`crate::Failure::name`]; empty: it did not fail, or that is not known.
    #[serde(default)]
    pub failure: String,
    /// See [`crate::Event::flag_names`].
    #[serde(default)]
    pub flags: Vec<String>,
    /// Hardware queue of the disk that it was sent to, from 0; absent: unknown.
    #[serde(default)]
    pub hardware_queue: Option<u32>,
    /// That it was made for this request is not certain: place and time suit another as well.
    #[serde(default)]
    pub uncertain: bool,
    /// Name of the thread that made it; empty: unknown.
    #[serde(default)]
    pub process: String,
    /// Its process; 0: unknown.
    #[serde(default)]
    pub pid: u32,
    /// Its cgroup.
    #[serde(default)]
    pub cgroup: Cgroup,
    /// Path of the cgroup of the process that `previous_owner` names; empty: none, or unknown.
    #[serde(default)]
    pub previous_cgroup: String,
}

/// A cgroup, in the hierarchy of version 2.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Inode of its directory; 0: unknown.
    pub id: u64,
    /// From the root of the hierarchy, as far as the service sees it; empty: unknown.
    pub path: String,
}

/// Block requests of one process in one cgroup, on one disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTotal {
    /// Name of the first of its threads that was seen; empty: unknown.
    pub process: String,
    /// 0: unknown.
    pub pid: u32,
    /// Its cgroup.
    pub cgroup: Cgroup,
    /// Block requests that completed.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes that it asked for.
    pub flushes: u64,
    /// Their time at the device, added up.
    pub device_ns: u64,
}

/// One completed block request of a watched disk, whoever made it, for live watching.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockLine {
    /// When it completed: `CLOCK_MONOTONIC` in nanoseconds.
    pub done_ns: u64,
    /// Whole disk, e.g. `loop3`.
    pub device: String,
    /// Stores it was made for; when none is known: the stores on that disk.
    pub stores: Vec<String>,
    /// `read`, `write`, `flush`, `discard`, `other`.
    pub operation: String,
    /// Owner class: see [`OwnerTotal::owner`].
    pub owner: String,
    /// Requests it was made for; empty: none, or unknown.
    pub requests: Vec<u64>,
    /// Name of the thread that made it; empty: unknown.
    pub process: String,
    /// Its process, as the first PID namespace numbers it; 0: unknown.
    #[serde(default)]
    pub pid: u32,
    /// Its cgroup.
    #[serde(default)]
    pub cgroup: Cgroup,
    /// First 512-byte sector on the whole disk; 0 for a flush.
    pub sector: u64,
    /// Number of sectors; 0 for a flush.
    pub sectors: u32,
    /// Signed seek distance in bytes; absent: unknown or none.
    pub seek_bytes: Option<i64>,
    /// Owner of the request the disk was sent before: an owner class, or `request N`; empty: unknown.
    pub previous_owner: String,
    /// Whose it is, is not certain: see [`BlockIo::uncertain`].
    #[serde(default)]
    pub uncertain: bool,
    /// Queued to issued; absent: not seen.
    pub queue_ns: Option<u64>,
    /// Issued to completed; absent: not seen.
    pub device_ns: Option<u64>,
    /// It failed.
    pub failed: bool,
    /// Why: see [`BlockIo::failure`].
    #[serde(default)]
    pub failure: String,
    /// See [`crate::Event::flag_names`].
    #[serde(default)]
    pub flags: Vec<String>,
    /// Hardware queue of the disk that it was sent to, from 0; absent: unknown.
    #[serde(default)]
    pub hardware_queue: Option<u32>,
}

/// One eBPF program of the observer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramReport {
    /// Name, e.g. `start_btf`.
    pub name: String,
    /// Where it is to be attached, e.g. `block_io_start`.
    pub hook: String,
    /// True: it is attached.
    pub attached: bool,
    /// Why not, in words; empty when attached.
    pub why_not: String,
    /// True: nothing works without it.
    pub needed: bool,
    /// Times it ran while the kernel's BPF statistics were on; 0: this observer did not switch them
    /// on: see [`crate::Tuning::program_statistics`].
    pub runs: u64,
    /// Nanoseconds it ran while they were on.
    pub run_ns: u64,
    /// Times the kernel skipped it because it was already running.
    pub recursion_misses: u64,
}

/// State and counts of one store's guard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// An open of a guarded device for writing by another process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedOpen {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Device that was opened, e.g. `sdb1`: the store's own, or one that leads to its bytes too.
    pub device: String,
    /// Name of the thread.
    pub process: String,
    /// Process id, in the service's pid namespace if the process is in it, else in the outermost.
    pub pid: u32,
    /// User id, in the outermost user namespace.
    pub uid: u32,
    /// False: it was seen and allowed.
    pub denied: bool,
}
