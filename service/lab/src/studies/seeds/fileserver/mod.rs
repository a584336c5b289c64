//! `lumpscope bench seeds fileserver`: the published table of what observing a file server costs,
//! for the probes of this service.

mod args;
mod page;

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::published::{OVERHEAD_FLOWOPS, OVERHEAD_SUMMARY, OverheadRow};
use crate::experiment::report::Spread;
use crate::experiment::text;
use crate::experiment::{self, Machine};
use crate::studies::grpc::Transport;
use crate::studies::observe::{self, Flowop, Mode, ServerRun};

pub use args::FileserverArgs;

const NOTES: [&str; 4] = [
    "Published: filebench's fileserver, native against a file system that asks an eBPF sandbox for \
     each operation, on Linux 4.11 in a virtual machine, 10 runs of 60 s. Here: the same model with \
     lumps for files, probes not loaded against probes that hand out every event. The two observe \
     different things; what is compared is what observing costs.",
    "A cost compares a run with the run without probes of the same round. The noise is that of a \
     second run without probes (A/A): a cost within its range is not told from nothing. No run is \
     left out.",
    "A lump is put whole: createfile and writefile are one put, appending is a get and a put of the \
     longer lump, a put is synced when it is acknowledged, and nothing is opened or closed.",
    "makedir and removedir have no counterpart: lumps have no directories.",
];

/// Runs, prints, and writes what is asked for.
pub(super) fn run(
    args: &FileserverArgs,
    exe: &Path,
    transport: Transport,
) -> anyhow::Result<ExitCode> {
    experiment::run(&args.output, (Report::text, Report::page), |interrupt| {
        let machine = Machine::before();
        let runs = observe::fileserver_runs(&args.observe(), exe, transport, interrupt)?;
        Ok(Report::new(args, machine, runs))
    })
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    published: OverheadRow,
    /// Without probes.
    without: Option<Spread>,
    /// With all events.
    with: Option<Spread>,
    /// Share of the speed that was lost, round by round.
    cost: Option<Spread>,
    /// Noise from a second run without probes.
    noise: Option<Spread>,
    /// Why there is nothing of ours.
    no_counterpart: Option<&'static str>,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    clients: usize,
    files: usize,
    rounds: usize,
    seconds_per_run: f64,
    summary: Vec<Row>,
    flowops: Vec<Row>,
    notes: [&'static str; 4],
    runs: Vec<ServerRun>,
}

impl Report {
    fn new(args: &FileserverArgs, machine: Machine, runs: Vec<ServerRun>) -> Report {
        let figures: [fn(&ServerRun) -> f64; 3] = [
            |run| run.ms_per_op,
            |run| run.bytes_per_second / 1e6,
            |run| run.ops_per_second,
        ];
        let summary = OVERHEAD_SUMMARY.iter().zip(figures);
        let summary = summary.map(|(published, of)| {
            let slower_is_more = published.name.contains("ms/op");
            Row::new(*published, &runs, of, slower_is_more)
        });
        Report {
            machine: machine.and_after(),
            clients: args.clients,
            files: args.files,
            rounds: args.rounds,
            seconds_per_run: args.seconds,
            summary: summary.collect(),
            flowops: OVERHEAD_FLOWOPS.iter().map(|p| flowop(*p, &runs)).collect(),
            notes: NOTES,
            runs,
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![format!(
            "file server: {} clients, {} lumps of 128 KiB on average",
            self.clients, self.files
        )];
        lines.extend(table(&self.summary));
        lines.push(String::new());
        lines.push("operations a second, by kind".to_owned());
        lines.extend(table(&self.flowops));
        lines.push(String::new());
        lines.push(format!(
            "{} rounds of {} s a run; {}",
            self.rounds, self.seconds_per_run, self.machine
        ));
        lines.extend(NOTES.map(|note| format!("- {note}")));
        lines.push(String::new());
        lines.join("\n")
    }
}

impl Row {
    fn new(
        published: OverheadRow,
        runs: &[ServerRun],
        of: impl Fn(&ServerRun) -> f64,
        slower_is_more: bool,
    ) -> Row {
        let values = |mode: Mode| {
            let runs = runs.iter().filter(|run| run.mode == mode);
            runs.map(|run| (run.round, of(run))).collect::<Vec<_>>()
        };
        let base = values(Mode::Off);
        let cost = |mode: Mode| {
            let pairs = values(mode).into_iter().filter_map(|(round, with)| {
                let (_, without) = base.iter().find(|(other, _)| *other == round)?;
                let lost = if slower_is_more {
                    with / without - 1.0
                } else {
                    1.0 - with / without
                };
                lost.is_finite().then_some(lost)
            });
            Spread::of(pairs.collect())
        };
        let spread = |mode| Spread::of(values(mode).into_iter().map(|(_, value)| value).collect());
        Row {
            published,
            without: spread(Mode::Off),
            with: spread(Mode::Events),
            cost: cost(Mode::Events),
            noise: cost(Mode::OffAgain),
            no_counterpart: None,
        }
    }
}

/// Our line beside a published one.
fn flowop(published: OverheadRow, runs: &[ServerRun]) -> Row {
    match counterpart(published.name) {
        Ok(flowop) => {
            let at = flowop as usize;
            let rate = move |run: &ServerRun| run.flowops_per_second[at];
            Row::new(published, runs, rate, false)
        }
        Err(why) => Row {
            no_counterpart: Some(why),
            ..Row::new(published, &[], |_| 0.0, false)
        },
    }
}

/// Counterpart of a file system's operation in a store of lumps, or the reason for its absence.
fn counterpart(flowop: &str) -> Result<Flowop, &'static str> {
    match flowop {
        "deletefile" => Ok(Flowop::Delete),
        "listdir" => Ok(Flowop::List),
        "statfile" => Ok(Flowop::Stat),
        "appendfilerand" => Ok(Flowop::AppendWrite),
        "readfile" => Ok(Flowop::Read),
        "writefile" | "createfile" => Ok(Flowop::Create),
        "fsyncfile" => Err("within each put"),
        _ => Err("nothing is opened or closed"),
    }
}

fn table(rows: &[Row]) -> Vec<String> {
    let mut table = text::table(&[
        "",
        "without probes",
        "with probes",
        "cost",
        "range",
        "A/A",
        "A/A range",
        "| published",
        "with",
        "cost",
    ]);
    let number = |spread: Option<Spread>| {
        spread.map_or_else(text::dash, |spread| text::number(spread.median))
    };
    let share = |spread: Option<Spread>| {
        spread.map_or_else(text::dash, |spread| text::percent(spread.median))
    };
    let range = |spread: Option<Spread>| spread.map_or_else(text::dash, text::percents);
    for row in rows {
        let published = &row.published;
        let name = match row.no_counterpart {
            None => published.name.to_owned(),
            Some(why) => format!("{} ({why})", published.name),
        };
        table.add_row([
            name,
            number(row.without),
            number(row.with),
            share(row.cost),
            range(row.cost),
            share(row.noise),
            range(row.noise),
            format!("| {}", text::number(published.without)),
            text::number(published.with),
            format!("{:.2} %", published.cost),
        ]);
    }
    table.lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mode: Mode, round: usize, ops: f64) -> ServerRun {
        ServerRun {
            mode,
            round,
            ms_per_op: 1000.0 / ops,
            bytes_per_second: ops * 1e5,
            ops_per_second: ops,
            flowops_per_second: [ops / 7.0; Flowop::ALL.len()],
        }
    }

    #[test]
    fn every_published_row_has_ours_or_a_reason() {
        let runs = [
            run(Mode::Off, 1, 1000.0),
            run(Mode::Events, 1, 950.0),
            run(Mode::OffAgain, 1, 1010.0),
            run(Mode::Off, 2, 2000.0),
            run(Mode::Events, 2, 1980.0),
        ];
        for published in OVERHEAD_FLOWOPS {
            let row = flowop(published, &runs);
            assert_ne!(
                row.cost.is_some(),
                row.no_counterpart.is_some(),
                "{}",
                published.name
            );
        }
        let row = Row::new(OVERHEAD_SUMMARY[2], &runs, |run| run.ops_per_second, false);
        let (cost, noise) = (row.cost.expect("two"), row.noise.expect("one"));
        assert!((cost.min - 0.01).abs() < 1e-9 && (cost.max - 0.05).abs() < 1e-9);
        assert!((noise.median + 0.01).abs() < 1e-9);
        let row = Row::new(OVERHEAD_SUMMARY[0], &runs, |run| run.ms_per_op, true);
        assert!(row.cost.expect("two").max > 0.05);
    }
}
