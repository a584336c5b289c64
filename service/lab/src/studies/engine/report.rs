//! The result: as JSON, and as a table for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{Figure, Outcome, Run, Setting, Unit};
use crate::experiment::Machine;
use crate::human;

/// A line of the result.
pub(super) type Compared = crate::experiment::Figure<Unit>;

/// The comparison, and where it is unequal.
const NOTES: [&str; 8] = [
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

/// A peer, or why it is not there.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PeerView {
    /// Version, where it is there.
    pub(super) version: Option<String>,
    /// Why it is not.
    pub(super) missing: Option<String>,
}

/// One run, as it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunView {
    pub(super) round: usize,
    pub(super) setting: String,
    pub(super) run: String,
    pub(super) outcome: Outcome,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) target: String,
    pub(super) target_bytes: u64,
    pub(super) io_backend: Option<String>,
    pub(super) seconds_per_run: f64,
    pub(super) rounds_asked: usize,
    pub(super) rounds: usize,
    pub(super) fio: PeerView,
    pub(super) cannyls: PeerView,
    /// Runs of peers that failed, and why.
    pub(super) failures: Vec<String>,
    pub(super) figures: Vec<Compared>,
    pub(super) notes: [&'static str; 8],
    pub(super) runs: Vec<RunView>,
}

/// Results of one round.
pub(super) type Round = BTreeMap<Setting, BTreeMap<Run, Outcome>>;

pub(super) fn notes() -> [&'static str; 8] {
    NOTES
}

/// One line for each figure.
pub(super) fn views(figures: &[Figure], rounds: &[Round]) -> Vec<Compared> {
    let view = |figure: &Figure| {
        let values: Vec<_> = rounds
            .iter()
            .filter_map(|round| round.get(&figure.setting))
            .map(|outcomes| figure.values(outcomes))
            .collect();
        Compared::of(figure.name.clone(), figure.unit, figure.goal, &values)
    };
    figures.iter().map(view).collect()
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

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = Compared::lines(&self.figures);
        lines.push(String::new());
        lines.push(self.circumstances());
        for (name, peer) in [("fio", &self.fio), ("cannyls", &self.cannyls)] {
            let missing = peer.missing.iter();
            lines.extend(missing.map(|why| format!("{name} is MISSING, not compared: {why}")));
        }
        lines.extend(
            self.failures
                .iter()
                .map(|why| format!("FAILED, left out: {why}")),
        );
        lines.push(String::new());
        lines.extend(NOTES.map(|note| format!("- {note}")));
        lines.push(String::new());
        lines.join("\n")
    }

    fn circumstances(&self) -> String {
        format!(
            "{} rounds of {} s a run on {} ({}), {}, {}",
            self.rounds,
            self.seconds_per_run,
            self.target,
            human::bytes(self.target_bytes),
            self.io_backend.as_deref().unwrap_or("no backend"),
            self.machine,
        )
    }
}
