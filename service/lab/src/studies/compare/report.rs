//! The result of a comparison as data: what `--json` prints and what the renderers read.
//!
//! Times are nanoseconds, sizes and distances bytes.

use std::path::PathBuf;
use std::time::Duration;

use lumpscope_proto::v1;
use lumpscope_units::nanoseconds;
use serde::Serialize;

use super::watch::Seen;
use crate::disks::{EmulatedView, StoreKind};
use crate::experiment::report::Curve;
use crate::human;
use crate::load::runner::RunOutcome;
use crate::stats::Summary;

/// A whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this program.
    pub version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The workload.
    pub workload: WorkloadView,
    /// Requests in flight at a time.
    pub clients: usize,
    /// `lab`: images behind loop devices; `emulated NAME`: emulated drives; `own`: disks named by
    /// the user.
    pub disks: String,
    /// Did the ext4 of the lab have a journal? Absent: not known, it was the user's.
    pub ext4_journal: Option<bool>,
    /// How late the emulated drives answered; empty: the disks were none.
    pub emulated: Vec<EmulatedView>,
    /// raw, ext4, xfs.
    pub stores: Vec<StoreView>,
}

/// The workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadView {
    /// Name or file.
    pub name: String,
    /// Factor on its repetition counts, as text.
    pub scale: String,
    /// Commands run against every store.
    pub commands: usize,
    /// Bytes put into every store.
    pub bytes_put: u64,
    /// Most bytes alive at a time.
    pub peak_bytes: u64,
    /// For a builtin workload: elapsed time on minfs, ext4 and xfs over that on minfs, as published
    /// for a 7200 rpm disk.
    pub published_ratios: Option<[f64; 3]>,
}

/// One store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreView {
    /// Kind, and name in the service.
    pub kind: StoreKind,
    /// Device or file.
    pub path: PathBuf,
    /// Why it has no results; empty when it has.
    pub failed: String,
    /// The client's view.
    pub client: Option<ClientView>,
    /// What service and disk did.
    pub disk: Option<DiskView>,
    /// What an independent tracer counted; absent: none was asked for.
    pub tracer: Option<TracerView>,
    /// What only a report has.
    #[serde(skip)]
    pub for_report: ForReport,
}

/// What only a report shows: too much for `--json`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForReport {
    /// Latencies of each kind of command.
    pub curves: Vec<Curve>,
    /// Single block requests; absent: they were not looked at.
    pub(super) seen: Option<Seen>,
    /// Why they were not; empty: they were, or no report was asked for.
    pub not_seen_because: String,
    /// What the kernel says about the disk.
    pub disk: String,
}

/// What an independent tracer counted while the workload ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TracerView {
    /// Block requests completed, as the tracer counted.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The same, as the probes saw.
    pub seen_requests: u64,
    /// Their bytes.
    pub seen_bytes: u64,
    /// The two agree.
    pub equal: bool,
}

/// The client's view.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientView {
    /// Time the commands took: the sum of the calls with one client, the clock's with several.
    pub elapsed_ns: u64,
    /// The clock's time, with making and checking content.
    pub wall_ns: u64,
    /// `elapsed_ns` over that of the raw store; absent when that has none.
    pub ratio_to_raw: Option<f64>,
    /// Bytes of lumps put and read.
    pub bytes: u64,
    /// `bytes` over `elapsed_ns`, in MiB/s.
    pub mib_per_second: f64,
    /// One entry a kind of command.
    pub kinds: Vec<LatencyView>,
    /// All commands.
    pub overall: Option<LatencyView>,
    /// The lines of the published tables.
    pub published: Vec<String>,
}

/// Latency of one kind of command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LatencyView {
    pub kind: String,
    pub count: usize,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub total_ns: u64,
}

/// What service and disk did: the service's own report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct DiskView {
    /// Disk below the store, e.g. `loop3`; empty: unknown.
    pub device: String,
    /// Every block request of the disk was observed.
    pub observed: bool,
    /// Why not.
    pub not_observed_because: String,
    /// One entry a method.
    pub operations: Vec<OperationView>,
    /// Block requests.
    pub block: BlockView,
    /// Can the numbers be trusted?
    pub audit: AuditView,
    /// Seek distance x device time.
    pub heat: Vec<HeatView>,
    /// Slowest first.
    pub slowest: Vec<SlowView>,
}

/// One method, as the service saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct OperationView {
    pub method: String,
    pub count: u64,
    pub errors: u64,
    pub bytes: u64,
    pub total_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub stages: Vec<StageView>,
    pub block_requests: u64,
}

/// Time in one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct StageView {
    pub stage: String,
    pub total_ns: u64,
}

/// Block requests of the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct BlockView {
    pub owners: Vec<OwnerView>,
    pub data_requests: u64,
    pub sequential: u64,
    pub seek_median_bytes: u64,
    pub seek_p99_bytes: u64,
    pub own_bytes: u64,
    pub attributed_bytes: u64,
    pub shared_bytes: u64,
    pub unattributed_bytes: u64,
}

/// Block requests of one owner class and operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct OwnerView {
    pub owner: String,
    pub operation: String,
    pub requests: u64,
    pub bytes: u64,
}

/// Losses, and the comparison with the kernel's own counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct AuditView {
    pub seen_requests: u64,
    pub kernel_requests: u64,
    pub seen_bytes: u64,
    pub kernel_bytes: u64,
    pub lost_events: u64,
    pub unmatched: u64,
    pub recursion_misses: u64,
    pub complete: bool,
    pub finding: String,
}

/// One cell of the histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct HeatView {
    pub owner: String,
    pub operation: String,
    pub seek_from_bytes: i64,
    pub seek_to_bytes: i64,
    pub device_from_ns: u64,
    pub device_to_ns: u64,
    pub count: u64,
}

/// One slow request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct SlowView {
    pub request_id: u64,
    pub method: String,
    pub total_ns: u64,
    pub stages: Vec<StageView>,
    pub block_requests: u32,
    pub sentence: String,
    pub blocks: Vec<BlockIoView>,
}

/// One block request of a slow request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[expect(missing_docs, reason = "as in observe.proto")]
pub struct BlockIoView {
    pub operation: String,
    pub purpose: String,
    pub sector: u64,
    pub sectors: u32,
    pub own_bytes: u64,
    pub shared: bool,
    pub seek_bytes: Option<i64>,
    pub previous_owner: String,
    pub queue_ns: u64,
    pub device_ns: u64,
}

impl Comparison {
    /// Fills in every store's ratio to the raw one.
    pub(super) fn set_ratios(&mut self) {
        let raw = self
            .stores
            .iter()
            .find(|store| store.kind == StoreKind::Raw);
        let raw = raw
            .and_then(|store| store.client.as_ref())
            .map(|client| client.elapsed_ns);
        for client in self
            .stores
            .iter_mut()
            .filter_map(|store| store.client.as_mut())
        {
            client.ratio_to_raw = raw.and_then(|raw| human::ratio(client.elapsed_ns, raw));
        }
    }
}

impl ClientView {
    pub(super) fn new(outcome: &RunOutcome, clients: usize) -> ClientView {
        let overall = outcome.latencies.overall();
        let sum = overall.map_or(Duration::ZERO, |overall| overall.total);
        let elapsed = if clients > 1 { outcome.wall } else { sum };
        let bytes = outcome.bytes_put + outcome.bytes_got;
        ClientView {
            elapsed_ns: nanoseconds(elapsed),
            wall_ns: nanoseconds(outcome.wall),
            ratio_to_raw: None,
            bytes,
            mib_per_second: human::as_float(bytes)
                / f64::from(1 << 20)
                / elapsed.as_secs_f64().max(1e-9),
            kinds: outcome
                .latencies
                .summaries()
                .iter()
                .map(|(kind, summary)| LatencyView::new(kind.to_string(), summary))
                .collect(),
            overall: overall.map(|summary| LatencyView::new("Overall".to_owned(), &summary)),
            published: outcome.latencies.published_lines(),
        }
    }
}

impl LatencyView {
    fn new(kind: String, summary: &Summary) -> LatencyView {
        LatencyView {
            kind,
            count: summary.count,
            p50_ns: nanoseconds(summary.p50),
            p90_ns: nanoseconds(summary.p90),
            p95_ns: nanoseconds(summary.p95),
            p99_ns: nanoseconds(summary.p99),
            total_ns: nanoseconds(summary.total),
        }
    }
}

/// The latencies of each kind as a curve.
pub(super) fn curves(outcome: &RunOutcome) -> Vec<Curve> {
    let kinds = outcome.latencies.by_kind();
    kinds
        .map(|(kind, all)| Curve::of(kind.to_string(), all.iter().map(|one| nanoseconds(*one))))
        .collect()
}

impl From<v1::StoreReport> for DiskView {
    fn from(report: v1::StoreReport) -> DiskView {
        DiskView {
            device: report.device,
            observed: report.observed,
            not_observed_because: report.not_observed_because,
            operations: report
                .operations
                .into_iter()
                .map(OperationView::from)
                .collect(),
            block: report.block.map(BlockView::from).unwrap_or_default(),
            audit: report.audit.map(AuditView::from).unwrap_or_default(),
            heat: report.heat.into_iter().map(HeatView::from).collect(),
            slowest: report.slowest.into_iter().map(SlowView::from).collect(),
        }
    }
}

impl From<v1::OperationReport> for OperationView {
    fn from(report: v1::OperationReport) -> OperationView {
        let v1::OperationReport {
            method,
            count,
            errors,
            bytes,
            total_ns,
            ..
        } = report;
        let v1::OperationReport {
            p50_ns,
            p90_ns,
            p95_ns,
            p99_ns,
            block_requests,
            ..
        } = report;
        let stages = report.stages.into_iter().map(StageView::from).collect();
        OperationView {
            method,
            count,
            errors,
            bytes,
            total_ns,
            p50_ns,
            p90_ns,
            p95_ns,
            p99_ns,
            stages,
            block_requests,
        }
    }
}

impl From<v1::StageTime> for StageView {
    fn from(v1::StageTime { stage, total_ns }: v1::StageTime) -> StageView {
        StageView { stage, total_ns }
    }
}

impl From<v1::BlockReport> for BlockView {
    fn from(report: v1::BlockReport) -> BlockView {
        let owner = |total: v1::OwnerTotal| OwnerView {
            owner: total.owner,
            operation: total.operation,
            requests: total.requests,
            bytes: total.bytes,
        };
        BlockView {
            owners: report.owners.into_iter().map(owner).collect(),
            data_requests: report.data_requests,
            sequential: report.sequential,
            seek_median_bytes: report.seek_median_bytes,
            seek_p99_bytes: report.seek_p99_bytes,
            own_bytes: report.own_bytes,
            attributed_bytes: report.attributed_bytes,
            shared_bytes: report.shared_bytes,
            unattributed_bytes: report.unattributed_bytes,
        }
    }
}

impl From<v1::AuditReport> for AuditView {
    fn from(report: v1::AuditReport) -> AuditView {
        AuditView {
            seen_requests: report.seen_requests,
            kernel_requests: report.kernel_requests,
            seen_bytes: report.seen_bytes,
            kernel_bytes: report.kernel_bytes,
            lost_events: report.lost_events,
            unmatched: report.unmatched,
            recursion_misses: report.recursion_misses,
            complete: report.complete,
            finding: report.finding,
        }
    }
}

impl From<v1::HeatCell> for HeatView {
    fn from(cell: v1::HeatCell) -> HeatView {
        HeatView {
            owner: cell.owner,
            operation: cell.operation,
            seek_from_bytes: cell.seek_from_bytes,
            seek_to_bytes: cell.seek_to_bytes,
            device_from_ns: cell.device_from_ns,
            device_to_ns: cell.device_to_ns,
            count: cell.count,
        }
    }
}

impl From<v1::SlowRequest> for SlowView {
    fn from(request: v1::SlowRequest) -> SlowView {
        let block = |io: v1::BlockIo| BlockIoView {
            operation: io.operation,
            purpose: io.purpose,
            sector: io.sector,
            sectors: io.sectors,
            own_bytes: io.own_bytes,
            shared: io.shared,
            seek_bytes: io.seek_bytes,
            previous_owner: io.previous_owner,
            queue_ns: io.queue_ns,
            device_ns: io.device_ns,
        };
        SlowView {
            request_id: request.request_id,
            method: request.method,
            total_ns: request.total_ns,
            stages: request.stages.into_iter().map(StageView::from).collect(),
            block_requests: request.block_requests,
            sentence: request.sentence,
            blocks: request.blocks.into_iter().map(block).collect(),
        }
    }
}
