//! The figures as a table, and the runs behind them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::figures::{EngineOutcome, Figure, Run, RunGroup};
use crate::experiment::report::{Report, Table};

/// The comparison, and where it is unequal.
const NOTES: &[&str] = &[
    "All engines use the same file or device, written once before; runs of one round follow each \
     other, every second round in reverse. A ratio is ours to the peer's of the same round; shown \
     are its median and its range over the rounds.",
    "Payloads are random bytes; they are made, copied into the engine's buffers, and (ours) \
     summed up with CRC32C before the timed part. Puts are of fresh lumps, gets in random order; \
     a sample is compared byte by byte afterwards.",
    "Our synced put: data and checksums, and the journal record beside them, then one flush, which \
     requests that are under way together share; where the device has an arm, runs. Our journaled \
     put answers before the flush. Our get verifies the checksum.",
    "fio: O_DIRECT, io_uring, the same block size and depth, sequential writes, random reads. It \
     writes data only: no record, no flush, no checksum. Its buffers lie on ordinary pages, ours \
     on huge ones where the kernel has them, which makes fewer block requests.",
    "cannyls synced: data, record, one fdatasync for both, in no order. cannyls against our \
     journaled puts: data and record written, no flush. cannyls buffered, its default: the record \
     stays in memory, and the death of the process loses the put. It verifies nothing.",
    "cannyls at depth 1 is its Storage without a thread between; deeper, its Device with as many \
     requests waiting. Its blocks are 4096 bytes, as ours.",
    "99.9 %: fio runs one job for each request in flight, each doing a random write that is durable \
     when it ends (O_DSYNC: the kernel writes, then flushes). Our lumps are overwritten.",
    "5 ms disk: in memory, any number of I/Os at a time, each takes 5 ms; the same for both.",
];

/// One run, as it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunView {
    pub(super) round: usize,
    pub(super) setting: String,
    pub(super) run: String,
    pub(super) outcome: EngineOutcome,
}

/// The data behind the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EngineRuns {
    /// Runs of peers that failed, and why.
    pub(super) failures: BTreeSet<String>,
    pub(super) runs: Vec<RunView>,
}

/// Results of one round.
pub(super) type Round = BTreeMap<RunGroup, BTreeMap<Run, EngineOutcome>>;

/// One row for each figure.
pub(super) fn report(figures: &[Figure], rounds: &[Round]) -> Report {
    let mut table = Table::compared("Ours beside fio and the original.");
    for figure in figures {
        let of = rounds.iter().filter_map(|round| round.get(&figure.setting));
        let pairs: Vec<_> = of.map(|outcomes| figure.values(outcomes)).collect();
        table.pair(&figure.name, figure.unit, figure.goal, &pairs);
    }
    let mut report = Report::new("The engine beside fio and the original");
    report.note(NOTES);
    report.section("Ratios").add(table);
    report
}

/// All runs, in the order of rounds and settings.
pub(super) fn runs(rounds: &[Round]) -> Vec<RunView> {
    let mut views = Vec::new();
    for (index, round) in rounds.iter().enumerate() {
        for (setting, outcomes) in round {
            views.extend(outcomes.iter().map(|(run, outcome)| RunView {
                round: index + 1,
                setting: setting.name(),
                run: run.name(),
                outcome: outcome.clone(),
            }));
        }
    }
    views
}

impl Run {
    fn name(self) -> String {
        match self {
            Run::Ours(promise) => format!("lumpscope {}", promise.name()),
            Run::FioWrite => "fio write".to_owned(),
            Run::FioRead => "fio randread".to_owned(),
            Run::FioDurable => "fio randwrite, O_DSYNC".to_owned(),
            Run::Cannyls(promise) => format!("cannyls {}", promise.name()),
        }
    }
}
