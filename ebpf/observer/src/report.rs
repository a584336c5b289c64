//! What the observer hands out: plain structs with the names of `lumpscope/v1/observe.proto`.
//!
//! The server copies them field by field; nothing here knows gRPC.

use serde::{Deserialize, Serialize};

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
pub struct BlockReport {
    /// Totals an owner class and operation.
    pub owners: Vec<OwnerTotal>,
    /// Reads and writes.
    pub data_requests: u64,
    /// Those that began exactly where the one before ended.
    pub sequential: u64,
    /// Median of |seek distance| in bytes over all data requests.
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
}

/// Totals of one owner class and operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnerTotal {
    /// `request`, `store`, `fs-journal`, `fs-metadata`, `writeback`, `other`.
    pub owner: String,
    /// `read`, `write`, `flush`, `discard`, `other`.
    pub operation: String,
    /// Block requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Can the numbers be trusted?
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditReport {
    /// Completions seen by the probes.
    pub seen_requests: u64,
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
    /// True: nothing was lost and the kernel's statistics agree.
    pub complete: bool,
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

/// One of the slowest requests, explained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowRequest {
    /// Id of the request.
    pub request_id: u64,
    /// Its method.
    pub method: String,
    /// Whole time in nanoseconds.
    pub total_ns: u64,
    /// Where the time went; the stages add up to `total_ns`.
    pub stages: Vec<StageTime>,
    /// Block requests attributed to it.
    pub block_requests: u32,
    /// What happened, in one sentence.
    pub sentence: String,
    /// Its block requests in the order in which the disk was sent them, at most 64.
    pub blocks: Vec<BlockIo>,
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
    /// Signed distance in bytes from the end of the request sent before; absent: unknown.
    pub seek_bytes: Option<i64>,
    /// Owner of the request the disk was sent before; empty: unknown.
    pub previous_owner: String,
    /// Queued to issued, in nanoseconds.
    pub queue_ns: u64,
    /// Issued to completed, in nanoseconds.
    pub device_ns: u64,
}
