//! The figures as a table.

use serde::Serialize;

use super::mode::Mode;
use crate::experiment::report::{Cell, Limit, Picture, Report, Table, Unit};

/// The comparison, and how to read it.
const NOTES: [&str; 4] = [
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
];

/// One run, as it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MeasuredRun {
    pub(super) figure: String,
    pub(super) unit: Unit,
    pub(super) mode: Mode,
    pub(super) round: usize,
    pub(super) value: f64,
    /// Share of all processor time of the run that observation took; `None`: not measured.
    pub(super) share: Option<f64>,
}

/// Largest share of the processor time that observation may take.
fn goal(figure: &str, mode: Mode) -> Option<Limit> {
    match mode {
        Mode::Events if figure.ends_with("gRPC") => Some(Limit::AtMost(0.01)),
        Mode::Events if figure.contains("4 KiB") => Some(Limit::AtMost(0.03)),
        _ => None,
    }
}

/// Shares of the speed of the runs in a mode that were lost against the runs without probes of the
/// same rounds; below 0: it was faster.
pub(crate) fn lost<'a, R: 'a>(
    runs: impl Iterator<Item = &'a R> + Clone,
    of: impl Fn(&R) -> (Mode, usize, f64),
    mode: Mode,
    slower_is_more: bool,
) -> Vec<f64> {
    let of_mode = |wanted| {
        runs.clone()
            .map(&of)
            .filter(move |(mode, ..)| *mode == wanted)
    };
    let lost = |(_, round, with): (Mode, usize, f64)| {
        let (_, _, without) = of_mode(Mode::Off).find(|(_, other, _)| *other == round)?;
        Some(match slower_is_more {
            true => with / without - 1.0,
            false => 1.0 - with / without,
        })
    };
    of_mode(mode).filter_map(lost).collect()
}

/// The cost of observation: for each figure a group, for each mode a row.
pub(super) fn report(runs: &[MeasuredRun]) -> Report {
    let mut table = Table::new(
        "Speed, and what observation costs.",
        &["measured", "cost", "processor time"],
    );
    table.picture = Some(Picture {
        columns: vec![1],
        reference: (0.0, "no cost"),
    });
    let mut figures: Vec<(&str, Unit)> = Vec::new();
    for run in runs {
        if !figures.iter().any(|(figure, _)| *figure == run.figure) {
            figures.push((&run.figure, run.unit));
        }
    }
    for (figure, unit) in figures {
        table.group(figure);
        let of_figure = || runs.iter().filter(move |run| run.figure == figure);
        for mode in Mode::EVERY {
            let of = || of_figure().filter(move |run| run.mode == mode);
            if of().next().is_none() {
                continue;
            }
            let cost = match mode {
                Mode::Off => Cell::Nothing,
                _ => Cell::runs(
                    Unit::Share,
                    lost(
                        of_figure(),
                        |run| (run.mode, run.round, run.value),
                        mode,
                        false,
                    ),
                ),
            };
            let cells = vec![
                Cell::runs(unit, of().map(|run| run.value)),
                cost,
                Cell::runs(Unit::Share, of().filter_map(|run| run.share))
                    .within(goal(figure, mode)),
            ];
            table.row(mode.name(), cells);
        }
    }
    let mut report = Report::new("What observation costs");
    report.section("Cost of the probes").add(table);
    report.note(&NOTES);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::{Row, Undecided};
    use crate::human::as_float;

    #[test]
    fn a_cost_compares_runs_of_the_same_round() {
        let run = |mode, round: usize, value| MeasuredRun {
            figure: "write 4 KiB at random, loop device".to_owned(),
            unit: Unit::PerSecond,
            mode,
            round,
            value,
            share: (mode == Mode::Events).then_some(0.02 * as_float(round as u64)),
        };
        let runs = [
            run(Mode::Off, 1, 100.0),
            run(Mode::Events, 1, 98.0),
            run(Mode::OffAgain, 1, 101.0),
            run(Mode::Off, 2, 200.0),
            run(Mode::Events, 2, 190.0),
        ];
        let of = |run: &MeasuredRun| (run.mode, run.round, run.value);
        let costs = lost(runs.iter(), of, Mode::Events, false);
        assert!((costs[0] - 0.02).abs() < 1e-9 && (costs[1] - 0.05).abs() < 1e-9);
        assert!(lost(runs.iter(), of, Mode::Events, true)[0] < 0.0);
        let report = report(&runs);
        let crate::experiment::report::Part::Table(table) = &report.sections[0].parts[0] else {
            panic!("a table");
        };
        let Some(Row::Cells(name, cells)) = table.rows.last() else {
            panic!("rows");
        };
        let share = cells[2].figure().expect("a figure");
        assert_eq!(name, Mode::Events.name());
        assert_eq!(share.judged(), Some(Err(Undecided::FewRuns(2))));
    }
}
