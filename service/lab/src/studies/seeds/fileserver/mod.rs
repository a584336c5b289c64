//! `lumpscope bench seeds fileserver`: the published table of what observing a file server costs,
//! for the probes of this service.

mod files;
mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;

use super::published::{OVERHEAD_FLOWOPS, OVERHEAD_SUMMARY, OverheadRow};
use crate::disks::StoreFile;
use crate::experiment::report::{Cell, Limit, Picture, Report, Table, Unit};
use crate::experiment::{self, StudyArgs};
use crate::failure::{above_0, within};
use crate::load::grpc::{content, runtime};
use crate::process::Interrupt;
use crate::studies::observe::{Mode, lost};
use files::Files;
use lumpscope_units::tell;
use server::{Flowop, ServerRun};

const NOTES: [&str; 4] = [
    "Published: filebench's fileserver, native against a file system that asks an eBPF sandbox for \
     each operation, on Linux 4.11 in a virtual machine, 10 runs of 60 s. Here: the same model with \
     lumps for files, probes not loaded against probes that hand out every event. The two observe \
     different things; what is compared is what observing costs.",
    "A cost compares a run with the run without probes of the same round. A/A is the cost of a \
     second run without probes: a cost within its range is not distinguishable from zero.",
    "A lump is put whole: createfile and writefile are one put, appending is a get and a put of the \
     longer lump, a put is synced when it is acknowledged, and nothing is opened or closed.",
    "makedir and removedir have no counterpart: lumps have no directories.",
];

/// Measure what observing costs a file server, in the layout of the published table: probes not
/// loaded, with all events, and not loaded once more, in alternating runs.
#[derive(Clone, Debug, clap::Args)]
pub struct FileserverArgs {
    /// Timed part of one run, in seconds. The published table had 60
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    seconds: f64,
    /// Files: lumps of 128 KiB on average
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    files: usize,
    /// Clients
    #[arg(long, default_value_t = 50, value_name = "N")]
    clients: usize,
    /// Rounds; each has a run in every mode
    #[arg(long, default_value_t = 10, value_name = "N")]
    rounds: usize,
    #[command(flatten)]
    study: StudyArgs,
}

/// Runs, prints, and writes what is asked for.
pub(super) fn run(args: &FileserverArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| {
        within("--rounds", args.rounds, 1..=1000)?;
        above_0("--seconds", args.seconds, 600.0)?;
        within("--files", args.files, 100..=1_000_000)?;
        within("--clients", args.clients, 1..=1000)?;
        content::prepare();
        let bench = FileserverBench {
            args,
            dir: args.study.dir(),
            exe,
            interrupt,
        };
        // The future runs on this thread, to which the children are tied.
        let runs = runtime()?.block_on(bench.runs())?;
        let mut report = report(&runs);
        let (clients, files) = (args.clients, args.files);
        report.fact(
            "File server",
            format!("{clients} clients, {files} lumps of 128 KiB on average"),
        );
        report.fact(
            "Runs",
            format!("{} rounds of {} s a run", args.rounds, args.seconds),
        );
        Ok((report, FileserverRuns { runs }))
    })
}

/// The data behind the figures.
#[derive(Serialize)]
struct FileserverRuns {
    runs: Vec<ServerRun>,
}

/// All that the runs need.
struct FileserverBench<'a> {
    args: &'a FileserverArgs,
    dir: PathBuf,
    exe: &'a Path,
    interrupt: &'a Interrupt,
}

impl FileserverBench<'_> {
    async fn runs(&self) -> anyhow::Result<Vec<ServerRun>> {
        let bytes = server::store_bytes(self.args.files);
        tell(&format!("making a store in {}", self.dir.display()));
        let store = StoreFile::make(self.exe, &self.dir, bytes, self.interrupt)?;
        let files =
            Files::new(self.args.files).context("the sizes of files have no distribution")?;
        let files = Arc::new(files);
        tell(&format!("making {} files", files.to_fill()));
        server::fill(self, store.path(), &files).await?;
        let mut runs = Vec::new();
        for round in 1..=self.args.rounds {
            tell(&format!(
                "file server, round {round} of {}",
                self.args.rounds
            ));
            runs.extend(server::round(self, store.path(), &files, round).await?);
        }
        Ok(runs)
    }
}

const COLUMNS: [&str; 6] = [
    "without probes",
    "with probes",
    "cost",
    "A/A",
    "published without",
    "with",
];

fn report(runs: &[ServerRun]) -> Report {
    let figures: [fn(&ServerRun) -> f64; 3] = [
        |run| run.ms_per_op,
        |run| run.bytes_per_second / 1e6,
        |run| run.ops_per_second,
    ];
    let mut summary = Table::new("The published sums, and ours.", &COLUMNS);
    summary.picture = Some(Picture {
        columns: vec![2, 3],
        reference: (0.0, "no cost"),
    });
    for (published, of) in OVERHEAD_SUMMARY.iter().zip(figures) {
        let slower_is_more = published.name.contains("ms/op");
        row(
            &mut summary,
            (published, published.name),
            runs,
            (of, slower_is_more),
        );
    }
    let mut flowops = Table::new("Operations per second, by kind.", &COLUMNS);
    for published in &OVERHEAD_FLOWOPS {
        match counterpart(published.name) {
            Ok(flowop) => {
                let rate = |run: &ServerRun| run.flowops_per_second[flowop as usize];
                row(
                    &mut flowops,
                    (published, published.name),
                    runs,
                    (rate, false),
                );
            }
            Err(why) => {
                let name = format!("{} ({why})", published.name);
                row(
                    &mut flowops,
                    (published, &name),
                    &[],
                    (|_: &ServerRun| 0.0, false),
                );
            }
        }
    }
    let mut report = Report::new("What observing costs a file server");
    report
        .section("Cost of the probes")
        .add(summary)
        .add(flowops);
    report.note(&NOTES);
    report
}

/// A published row, and ours beside it.
fn row(
    table: &mut Table,
    (published, name): (&OverheadRow, &str),
    runs: &[ServerRun],
    (of, slower_is_more): (impl Fn(&ServerRun) -> f64, bool),
) {
    let values = |mode: Mode| {
        let runs = runs.iter().filter(move |run| run.mode == mode);
        Cell::runs(Unit::Plain, runs.map(&of).collect::<Vec<f64>>())
    };
    let cost = |mode: Mode| {
        let of = |run: &ServerRun| (run.mode, run.round, of(run));
        Cell::runs(Unit::Share, lost(runs.iter(), of, mode, slower_is_more))
    };
    let limit = Limit::Published(published.cost / 100.0, None);
    let cells = vec![
        values(Mode::Off),
        values(Mode::Events),
        cost(Mode::Events).within(limit),
        cost(Mode::OffAgain),
        Cell::value(Some(published.without), Unit::Plain),
        Cell::value(Some(published.with), Unit::Plain),
    ];
    table.row(name, cells);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::{Part, Row};

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
        let report = report(&runs);
        let [Part::Table(summary), Part::Table(flowops)] = &report.sections[0].parts[..] else {
            panic!("two tables");
        };
        let costs = |row: &Row, column: usize| match row {
            Row::Cells(_, cells) => cells[column].figure().expect("a figure").runs.clone(),
            Row::Group(_) => panic!("no groups"),
        };
        assert_eq!((summary.rows.len(), flowops.rows.len()), (3, 10));
        for row in &flowops.rows {
            let Row::Cells(name, _) = row else {
                panic!("no groups");
            };
            assert_ne!(costs(row, 2).is_empty(), !name.contains('('), "{name}");
        }
        let ops = costs(&summary.rows[2], 2);
        assert!((ops[0] - 0.05).abs() < 1e-9 && (ops[1] - 0.01).abs() < 1e-9);
        assert!((costs(&summary.rows[2], 3)[0] + 0.01).abs() < 1e-9);
        assert!(costs(&summary.rows[0], 2)[0] > 0.05);
    }
}
