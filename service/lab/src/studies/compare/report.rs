//! The result of a comparison as data: what `--json` prints and what the renderers read.
//!
//! Times are nanoseconds, sizes and distances bytes.

use std::path::PathBuf;

use lumpscope_platter::drive::Drive;
use lumpscope_proto::v1::StoreReport;
use lumpscope_units::nanoseconds;
use serde::Serialize;

use super::args::CompareArgs;
use super::modelled::ModelledView;
use super::plan::Plan;
use super::watch::DiskObservations;
use crate::disks::{EmulatedView, StoreKind};
use crate::experiment::report::Curve;
use crate::human;
use crate::load::runner::RunOutcome;
use crate::stats::Summary;
use crate::workload;

/// A whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
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
    /// Drives that the block requests were replayed on, and the rule of their firmware.
    pub models: Vec<ModelView>,
    /// raw, ext4, xfs, and again for each further block size.
    pub stores: Vec<StoreView>,
}

/// A modelled drive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelView {
    /// Its name.
    pub name: String,
    /// Description.
    pub title: String,
    /// Revolutions a minute.
    pub rpm: u32,
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
    /// Bytes of a block of the store.
    pub block_size: u16,
    /// Device or file.
    pub path: PathBuf,
    /// Time on each of the modelled drives, in their order.
    pub modelled: Vec<ModelledView>,
    /// Why there is none, or what it lacks; empty: nothing.
    pub model_note: String,
    /// The client's view.
    pub client: ClientView,
    /// Work of service and disk: the service's own report.
    pub disk: Option<StoreReport>,
    /// Counts of an independent tracer; absent: none was asked for.
    pub tracer: Option<TracerView>,
    /// Details for the HTML report alone.
    #[serde(skip)]
    pub for_report: ForReport,
}

/// Details of the HTML report: too much for `--json`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForReport {
    /// Latencies of each kind of command.
    pub curves: Vec<Curve>,
    /// Single block requests; absent: they were not seen.
    pub(super) seen: Option<DiskObservations>,
    /// The kernel's description of the disk.
    pub disk: String,
}

/// Counts of an independent tracer while the workload ran.
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
    pub kinds: Vec<Summary>,
    /// All commands.
    pub overall: Option<Summary>,
    /// The lines of the published tables.
    pub published: Vec<String>,
}

impl Comparison {
    /// Without a store.
    pub(super) fn new(args: &CompareArgs, plan: &Plan) -> anyhow::Result<Comparison> {
        let is_lab = args.raw.is_none();
        let model = |drive: &Drive| ModelView {
            name: drive.name.to_string(),
            title: drive.title.to_string(),
            rpm: drive.rpm,
        };
        Ok(Comparison {
            workload: WorkloadView {
                name: args.workload.clone(),
                scale: args.scale.to_string(),
                commands: plan.stream.commands.len(),
                bytes_put: plan.stream.bytes_put(),
                peak_bytes: plan.stream.peak_bytes,
                published_ratios: workload::builtin(&args.workload)
                    .map(|builtin| builtin.published_ratios),
            },
            clients: args.depth,
            disks: match &args.drive {
                Some(drive) => format!("emulated {drive}"),
                None if is_lab => "lab".to_owned(),
                None => "own".to_owned(),
            },
            ext4_journal: is_lab.then_some(!args.no_ext4_journal),
            emulated: Vec::new(),
            models: args.models()?.iter().map(model).collect(),
            stores: Vec::new(),
        })
    }

    /// Heading of the times that were measured.
    pub(super) fn where_measured(&self) -> String {
        match self.disks.as_str() {
            "lab" | "own" => "On this machine's disks".to_owned(),
            emulated => format!("On the {emulated}"),
        }
    }

    /// Whether the ext4 of the lab has a journal, in words that follow others.
    pub(super) fn journal(&self) -> &'static str {
        match self.ext4_journal {
            Some(true) => "; ext4 with its journal",
            Some(false) => "; ext4 without a journal",
            None => "",
        }
    }

    /// Fills in every store's ratios to the raw one with blocks of its size.
    pub(super) fn set_ratios(&mut self) {
        let raws: Vec<StoreView> = self.of_kind(StoreKind::Raw).cloned().collect();
        for store in &mut self.stores {
            let raw = raws.iter().find(|raw| raw.block_size == store.block_size);
            let client = &mut store.client;
            client.ratio_to_raw =
                raw.and_then(|raw| human::ratio(client.elapsed_ns, raw.client.elapsed_ns));
            for (place, view) in store.modelled.iter_mut().enumerate() {
                let raw = raw.and_then(|raw| raw.modelled.get(place));
                view.ratio_to_raw =
                    raw.and_then(|raw| human::ratio(view.elapsed_ns, raw.elapsed_ns));
            }
        }
    }

    /// The stores of one kind, by block size.
    pub(super) fn of_kind(&self, kind: StoreKind) -> impl Iterator<Item = &StoreView> {
        self.stores.iter().filter(move |store| store.kind == kind)
    }
}

impl StoreView {
    /// Kind and block size, as a heading.
    pub(super) fn name(&self) -> String {
        format!("{}, blocks of {}", self.kind.name(), self.block_size)
    }
}

impl ClientView {
    pub(super) fn new(outcome: &RunOutcome, clients: usize) -> ClientView {
        let overall = outcome.latencies.overall();
        let sum_ns = overall.as_ref().map_or(0, |overall| overall.total_ns);
        let wall_ns = nanoseconds(outcome.wall);
        let elapsed_ns = if clients > 1 { wall_ns } else { sum_ns };
        let bytes = outcome.bytes_put + outcome.bytes_got;
        ClientView {
            elapsed_ns,
            wall_ns,
            ratio_to_raw: None,
            bytes,
            mib_per_second: human::as_float(bytes)
                / f64::from(1 << 20)
                / (human::as_float(elapsed_ns) / 1e9).max(1e-9),
            kinds: outcome.latencies.summaries(),
            overall,
            published: outcome.latencies.published_lines(),
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
