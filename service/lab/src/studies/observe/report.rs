//! The result: as JSON, and as tables for people.

use std::path::PathBuf;

use serde::Serialize;

use super::args::ObserveBenchArgs;
use super::fileserver::{BANDWIDTH, RATE, RESPONSE};
use super::mode::Mode;
use crate::experiment::Machine;
use crate::experiment::report::{Spread, Undecided};
use crate::experiment::text::{dash, figures, percent, percents, table};

/// The comparison, and how to read it.
const NOTES: [&str; 5] = [
    "Each run starts the service anew; a cost compares a run with the run without probes of the same \
     round. Shown are its median and its range over the rounds. The line \"not loaded, again\" is a \
     second run without probes: what it shows is noise, and a cost within its range is not told from \
     nothing.",
    "The goals are for processor time, which noise does not drown: that of the programs in the kernel, \
     by its own statistics, and of the observer's thread, as a share of all that the processors did \
     during the run. The kernel's reading of the clock for these statistics is part of it; what the \
     service does to declare its I/Os is not. Of bpftrace it is the programs alone.",
    "The client shares the processors with the service, and the programs run wherever a block request \
     is made or completes: the cost is of the machine, not of the service's process.",
    "The writes of 4 KiB are fio's, one after the other, direct, behind a small store of an idle \
     service on a loop device: the programs run for each of them, and its requests do nothing else.",
    "The file server is filebench's model with lumps for files: make (put), append (get and put of \
     the longer lump), read (get), stat (head), list of 100 ids, remove; sizes are gamma-distributed. \
     Every call counts as one operation; all gets are compared byte by byte.",
];

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    BytesPerSecond,
    PerSecond,
    MillisecondsPerOp,
}

/// One run, as it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) figure: String,
    pub(super) unit: Unit,
    pub(super) mode: Mode,
    pub(super) round: usize,
    pub(super) value: f64,
    /// Share of all processor time of the run that observation took; `None`: not measured.
    pub(super) share: Option<f64>,
}

/// One figure in one mode.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CostView {
    pub(super) figure: String,
    pub(super) unit: Unit,
    pub(super) mode: Mode,
    pub(super) value: Option<Spread>,
    /// Share of the speed without probes that was lost, round by round; below 0: it was faster.
    pub(super) cost: Option<Spread>,
    /// Share of the processor time that observation took.
    pub(super) share: Option<Spread>,
    /// Rounds of which that share is known.
    pub(super) rounds_of_share: usize,
    /// The largest share wanted.
    pub(super) goal: Option<f64>,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) loop_dir: Option<PathBuf>,
    pub(super) rounds: usize,
    pub(super) seconds_per_run: f64,
    pub(super) fileserver_seconds_per_run: f64,
    pub(super) files: usize,
    pub(super) clients: usize,
    pub(super) costs: Vec<CostView>,
    pub(super) notes: [&'static str; 5],
    pub(super) runs: Vec<Run>,
}

impl Report {
    pub(super) fn new(
        args: &ObserveBenchArgs,
        rounds: usize,
        loop_dir: Option<PathBuf>,
        machine: Machine,
        runs: Vec<Run>,
    ) -> Report {
        Report {
            machine: machine.and_after(),
            loop_dir,
            rounds,
            seconds_per_run: args.seconds,
            fileserver_seconds_per_run: args.fileserver_seconds,
            files: args.files,
            clients: args.clients,
            costs: costs(&runs),
            notes: NOTES,
            runs,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let is_server = |view: &&CostView| view.unit_of_server().is_some();
        let mut lines = Vec::new();
        let mut plain = self.costs.iter().filter(|v| !is_server(v)).peekable();
        if plain.peek().is_some() {
            lines.extend(figures(&self.table(plain)));
            lines.push(String::new());
        }
        if self.costs.iter().any(|v| is_server(&v)) {
            lines.push(format!(
                "file server: {} clients, {} lumps",
                self.clients, self.files
            ));
            lines.extend(self.server_table());
            lines.push(String::new());
        }
        lines.push(self.circumstances());
        lines.push(String::new());
        lines.extend(NOTES.map(|note| format!("- {note}")));
        lines.push(String::new());
        lines.join("\n")
    }

    /// In the layout of the published table: without, with, cost.
    fn server_table(&self) -> Vec<String> {
        let find = |figure: &str, mode: Mode| {
            self.costs
                .iter()
                .find(|view| view.figure == figure && view.mode == mode)
        };
        let mut table = table(&[
            "",
            "probes not loaded",
            "probes with events",
            "cost",
            "range",
            "noise",
        ]);
        for (figure, name) in [
            (RESPONSE, "mean response time (ms/op)"),
            (BANDWIDTH, "mean I/O bandwidth (MB/s)"),
            (RATE, "operations a second (ops/s)"),
        ] {
            let value = |mode| {
                let spread = find(figure, mode).and_then(|view| view.value.map(|v| (v, view.unit)));
                spread.map_or_else(dash, |(spread, unit)| plain(spread.median, unit))
            };
            let cost = |mode| find(figure, mode).and_then(|view| view.cost);
            table.add_row([
                name.to_owned(),
                value(Mode::Off),
                value(Mode::Events),
                cost(Mode::Events).map_or_else(dash, |cost| percent(cost.median)),
                cost(Mode::Events).map_or_else(dash, percents),
                cost(Mode::OffAgain).map_or_else(dash, |noise| {
                    format!("{} ({})", percent(noise.median), percents(noise))
                }),
            ]);
        }
        table.lines()
    }

    fn circumstances(&self) -> String {
        let image = self.loop_dir.as_ref().map_or(String::new(), |dir| {
            format!("; loop device on {}", dir.display())
        });
        format!(
            "{} rounds; {} s a run, {} s of the file server{image}; {}",
            self.rounds, self.seconds_per_run, self.fileserver_seconds_per_run, self.machine,
        )
    }
}

impl CostView {
    /// Whether every round met the goal, or none did; `None`: there is none.
    pub(super) fn judged(&self) -> Option<Result<bool, Undecided>> {
        let (share, goal) = (self.share?, self.goal?);
        Some(share.judged(self.rounds_of_share, &(f64::NEG_INFINITY..=goal)))
    }

    fn unit_of_server(&self) -> Option<Unit> {
        [RESPONSE, BANDWIDTH, RATE]
            .contains(&self.figure.as_str())
            .then_some(self.unit)
    }
}

/// Largest share of the processor time that observation may take.
fn goal(figure: &str, mode: Mode) -> Option<f64> {
    match mode {
        Mode::Events if figure.ends_with("gRPC") => Some(0.01),
        Mode::Events if figure.contains("4 KiB") => Some(0.03),
        _ => None,
    }
}

fn costs(runs: &[Run]) -> Vec<CostView> {
    let mut figures: Vec<(&str, Unit)> = Vec::new();
    for run in runs {
        if !figures.iter().any(|(figure, _)| *figure == run.figure) {
            figures.push((&run.figure, run.unit));
        }
    }
    let modes = [
        Mode::Off,
        Mode::OffAgain,
        Mode::Histograms,
        Mode::Events,
        Mode::Bpftrace,
    ];
    let mut views = Vec::new();
    for (figure, unit) in figures {
        let of = |mode: Mode| {
            let runs = runs.iter();
            runs.filter(move |run| run.figure == figure && run.mode == mode)
        };
        let cost_of = |mode: Mode| {
            let base = |round| of(Mode::Off).find(|run| run.round == round);
            let losses =
                of(mode).filter_map(|run| Some(lost(unit, base(run.round)?.value, run.value)));
            Spread::of(losses.filter(|lost| lost.is_finite()).collect())
        };
        for mode in modes {
            let values: Vec<f64> = of(mode).map(|run| run.value).collect();
            if values.is_empty() {
                continue;
            }
            views.push(CostView {
                figure: figure.to_owned(),
                unit,
                mode,
                value: Spread::of(values),
                cost: cost_of(mode).filter(|_| mode != Mode::Off),
                rounds_of_share: of(mode).filter(|run| run.share.is_some()).count(),
                share: Spread::of(of(mode).filter_map(|run| run.share).collect()),
                goal: goal(figure, mode),
            });
        }
    }
    views
}

/// Share of the speed that was lost.
fn lost(unit: Unit, without: f64, with: f64) -> f64 {
    match unit {
        Unit::BytesPerSecond | Unit::PerSecond => 1.0 - with / without,
        Unit::MillisecondsPerOp => with / without - 1.0,
    }
}

/// A number without its unit, which the row names.
fn plain(value: f64, unit: Unit) -> String {
    match unit {
        Unit::BytesPerSecond => format!("{:.2}", value / 1e6),
        Unit::PerSecond => format!("{value:.1}"),
        Unit::MillisecondsPerOp => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::human::as_float;

    fn run(figure: &str, unit: Unit, mode: Mode, round: usize, value: f64) -> Run {
        Run {
            figure: figure.to_owned(),
            unit,
            mode,
            round,
            value,
            share: (mode == Mode::Events).then_some(0.02 * as_float(round as u64)),
        }
    }

    #[test]
    fn a_cost_compares_runs_of_the_same_round() {
        let figure = "write 4 KiB at random, loop device";
        let per_second = Unit::PerSecond;
        let runs = [
            run(figure, per_second, Mode::Off, 1, 100.0),
            run(figure, per_second, Mode::Events, 1, 98.0),
            run(figure, per_second, Mode::OffAgain, 1, 101.0),
            run(figure, per_second, Mode::Off, 2, 200.0),
            run(figure, per_second, Mode::Events, 2, 190.0),
        ];
        let views = costs(&runs);
        let events = views
            .iter()
            .find(|v| v.mode == Mode::Events)
            .expect("measured");
        let cost = events.cost.expect("two pairs");
        assert!((cost.median - 0.035).abs() < 1e-9 && (cost.max - 0.05).abs() < 1e-9);
        let share = events.share.expect("two runs");
        assert!((share.median - 0.03).abs() < 1e-9);
        let judged = Some(Err(Undecided::FewRuns(2)));
        assert_eq!((events.goal, events.judged()), (Some(0.03), judged));
        assert!((lost(Unit::MillisecondsPerOp, 5.69, 6.0) - 0.0545).abs() < 1e-3);
    }
}
