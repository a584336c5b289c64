//! The result: as JSON, and as a table for people.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

use crate::experiment::report::Spread;

use super::figures::{Figure, Outcome, Run, Setting, Unit};
use crate::experiment::Machine;
use crate::human;

/// What is compared, and what is not equal about it.
const NOTES: [&str; 8] = [
    "All engines use the same file or device, written once before; runs of one round follow each \
     other, every second round in reverse. A ratio is ours to the peer's of the same round; shown \
     are its median and its range over the rounds.",
    "Payloads are random bytes; they are made, copied into the engine's buffers, and (ours) \
     summed up with CRC32C before the timed part. Puts are of fresh lumps, gets in random order; \
     a sample is compared byte by byte afterwards.",
    "Our synced put: write of data and checksums, flush, journal record, flush; requests that are \
     under way together share the flushes. Our journaled put answers before the last flush. Our \
     get verifies the checksum.",
    "fio: O_DIRECT, io_uring, the same block size and depth, sequential writes, random reads. It \
     writes data only: no record, no flush, no checksum. Its buffers lie on ordinary pages, ours \
     on huge ones where the kernel has them, which makes fewer block requests.",
    "cannyls synced: data, record, one fdatasync for both, in no order. cannyls against our \
     journaled puts: data and record written, no flush. cannyls buffered, its default: the record \
     stays in memory, and the death of the process loses the put. It verifies nothing.",
    "cannyls at depth 1 is its Storage without a thread between; deeper, its Device with as many \
     requests waiting. Its blocks are 4096 bytes, as ours.",
    "99.9 %: fio runs one job for each request in flight, each doing a random write and then \
     fdatasync; it tells the latencies of both apart only, so that of a durable write lies between \
     the slower of the two (which has the goal) and their sum. Our lumps are overwritten.",
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

/// One line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FigureView {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) higher_is_better: bool,
    pub(super) ours: Option<Spread>,
    pub(super) peer: Option<Spread>,
    /// Ours to the peer's, round by round.
    pub(super) ratio: Option<Spread>,
    pub(super) goal: Option<f64>,
    pub(super) met: Option<bool>,
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
    pub(super) figures: Vec<FigureView>,
    pub(super) notes: [&'static str; 8],
    pub(super) runs: Vec<RunView>,
}

/// Results of one round.
pub(super) type Round = BTreeMap<Setting, BTreeMap<Run, Outcome>>;

pub(super) fn notes() -> [&'static str; 8] {
    NOTES
}

/// One line for each figure.
pub(super) fn views(figures: &[Figure], rounds: &[Round]) -> Vec<FigureView> {
    let view = |figure: &Figure| {
        let values: Vec<_> = rounds
            .iter()
            .filter_map(|round| round.get(&figure.setting))
            .map(|outcomes| figure.values(outcomes))
            .collect();
        let ratios = values
            .iter()
            .filter_map(|(ours, peer)| Some((*ours)? / (*peer)?));
        let ratio = Spread::of(ratios.collect());
        let met = ratio.zip(figure.goal).map(|(ratio, goal)| {
            if figure.higher_is_better() {
                ratio.median >= goal
            } else {
                ratio.median <= goal
            }
        });
        FigureView {
            name: figure.name.clone(),
            unit: figure.unit,
            higher_is_better: figure.higher_is_better(),
            ours: Spread::of(values.iter().filter_map(|(ours, _)| *ours).collect()),
            peer: Spread::of(values.iter().filter_map(|(_, peer)| *peer).collect()),
            ratio,
            goal: figure.goal,
            met,
        }
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
            Run::FioDurable => "fio randwrite, fdatasync after each".to_owned(),
            Run::Cannyls(promise) => format!("cannyls {}", promise.name()),
        }
    }
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        table.set_header(["", "ours", "peer", "ratio", "range", "goal", ""]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for figure in &self.figures {
            table.add_row(row(figure));
        }
        let mut lines: Vec<String> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
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

fn row(figure: &FigureView) -> Vec<Cell> {
    let dash = || "–".to_owned();
    let amount = |spread: Option<Spread>| {
        spread.map_or_else(dash, |spread| amount(spread.median, figure.unit))
    };
    let sign = if figure.higher_is_better {
        '≥'
    } else {
        '≤'
    };
    let verdict = match figure.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    [
        figure.name.clone(),
        amount(figure.ours),
        amount(figure.peer),
        figure
            .ratio
            .map_or_else(dash, |ratio| format!("{:.2}", ratio.median)),
        figure
            .ratio
            .map_or_else(dash, |ratio| format!("{:.2}..{:.2}", ratio.min, ratio.max)),
        figure
            .goal
            .map_or_else(String::new, |goal| format!("{sign} {goal}")),
        verdict.to_owned(),
    ]
    .into_iter()
    .map(Cell::new)
    .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for display only: positive and far below 2^64"
)]
fn amount(value: f64, unit: Unit) -> String {
    match unit {
        Unit::BytesPerSecond => format!("{}/s", human::bytes(value as u64)),
        Unit::RequestsPerSecond => format!("{} /s", human::count(value as u64)),
        Unit::Nanoseconds => human::duration_ns(value as u64),
    }
}
