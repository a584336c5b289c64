//! The cost of observation.
//!
//! One workload is done by a service whose probes are not loaded, by one that keeps histograms
//! only, and by one that hands out every event; one run after the other, each round in another
//! order. A cost is the loss of a run against the run without probes of its round. A second run
//! without probes in each round gives the noise: a cost within its range cannot be told from zero. Goals are
//! judged by processor time instead (`Meter`), which other work on the machine does not change.

mod args;
mod mode;
mod objects;
mod report;
mod sectors;

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::{above_0, nothing_chosen, within};

pub use args::ObserveBenchArgs;
pub(crate) use mode::Mode;
pub(crate) use report::lost;

use crate::disks::StoreFile;
use crate::experiment;
use crate::experiment::report::{Report, disk};
use crate::load::grpc::{content, runtime};
use crate::process::Interrupt;
use lumpscope_units::tell;
use report::MeasuredRun;
use sectors::Sectors;

/// MiB of the store of lumps of 1 MiB.
const LUMPS_MIB: u64 = 1024;
/// Names for `--only`.
const PARTS: [&str; 2] = ["objects", "sectors"];

/// Measures the service that `exe` is and prints.
///
/// Blocks, and installs signal handlers: call it from the main thread. Needs root. The exit code is
/// 130 when a signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// Everything that keeps the cost from being measured. The message says what to do.
pub fn run(args: &ObserveBenchArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| {
        check(args)?;
        let bench = ObserveBench {
            args,
            exe,
            interrupt,
        };
        bench.measure()
    })
}

/// The data behind the figures.
#[derive(Serialize)]
struct ObserveRuns {
    runs: Vec<MeasuredRun>,
}

fn check(args: &ObserveBenchArgs) -> anyhow::Result<()> {
    within("--rounds", args.rounds, 1..=1000)?;
    above_0("--seconds", args.seconds, 600.0)?;
    if PARTS.iter().any(|part| wanted(args, part)) {
        return Ok(());
    }
    Err(nothing_chosen(args.only.as_deref(), PARTS.join("; ")))
}

fn wanted(args: &ObserveBenchArgs, part: &str) -> bool {
    args.only
        .as_ref()
        .is_none_or(|only| part.contains(only.as_str()))
}

/// All that the runs need.
struct ObserveBench<'a> {
    args: &'a ObserveBenchArgs,
    exe: &'a Path,
    interrupt: &'a Interrupt,
}

impl ObserveBench<'_> {
    fn measure(&self) -> anyhow::Result<(Report, ObserveRuns)> {
        content::prepare();
        let mut runs = Vec::new();
        // The future runs on this thread, to which the children are tied.
        if wanted(self.args, PARTS[0]) {
            runtime()?.block_on(self.objects(&mut runs))?;
        }
        let loop_dir = match wanted(self.args, PARTS[1]) {
            true => Some(self.sectors(&mut runs)?),
            false => None,
        };
        let mut report = report::report(&runs);
        let (rounds, seconds) = (self.args.rounds, self.args.seconds);
        report.fact("Runs", format!("{rounds} rounds of {seconds} s a run"));
        if let Some(dir) = loop_dir {
            report.fact("Image of the loop device", disk(&dir));
        }
        Ok((report, ObserveRuns { runs }))
    }

    fn store(&self, mib: u64) -> anyhow::Result<StoreFile> {
        let dir = self.args.study.dir();
        tell(&format!("making a store of {mib} MiB in {}", dir.display()));
        StoreFile::make(self.exe, &dir, mib << 20, self.interrupt)
    }

    async fn objects(&self, runs: &mut Vec<MeasuredRun>) -> anyhow::Result<()> {
        let store = self.store(LUMPS_MIB)?;
        objects::fill(self, store.path()).await?;
        for round in 1..=self.args.rounds {
            tell(&format!(
                "objects of 1 MiB, round {round} of {}",
                self.args.rounds
            ));
            objects::round(self, store.path(), round, runs).await?;
        }
        Ok(())
    }

    fn sectors(&self, runs: &mut Vec<MeasuredRun>) -> anyhow::Result<std::path::PathBuf> {
        let sectors = Sectors::make(self)?;
        for round in 1..=self.args.rounds {
            tell(&format!(
                "writes of 4 KiB, round {round} of {}",
                self.args.rounds
            ));
            sectors.round(self, round, runs)?;
        }
        Ok(sectors.dir)
    }
}
