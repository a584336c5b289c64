//! The cost of observation.
//!
//! One workload is done by a service whose probes are not loaded, by one that keeps histograms
//! only, and by one that hands out every event; one run after the other, each round in another
//! order. A cost is the loss of a run against the run without probes of its round. A second run
//! without probes in each round gives the noise: a cost within its range cannot be told from zero. Goals are
//! judged by processor time instead (`Meter`), which other work on the machine does not change.

mod args;
mod files;
mod fileserver;
mod mode;
mod objects;
mod page;
mod report;
mod sectors;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::failure::{above_0, nothing_chosen, within};

pub use args::ObserveBenchArgs;
pub(crate) use fileserver::{Flowop, ServerRun};
pub(crate) use mode::Mode;

use crate::disks::default_dir;
use crate::experiment::{self, Machine};
use crate::load::grpc::{content, runtime};
use crate::process::Interrupt;
use crate::studies::grpc::Transport;
use crate::studies::grpc::disk::StoreFile;
use files::Files;
use report::{Report, Run};
use sectors::Sectors;

/// MiB of the store of lumps of 1 MiB.
const LUMPS_MIB: u64 = 1024;
/// Names for `--only`.
const PARTS: [&str; 3] = ["objects", "sectors", "fileserver"];

/// Measures the service that `exe` is and prints. `transport` is what `lumpscope serve` does
/// without flags.
///
/// Blocks, and installs signal handlers: call it from the main thread. Needs root. The exit code is
/// 130 when a signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// Everything that keeps the cost from being measured. The message says what to do.
pub fn run(args: &ObserveBenchArgs, exe: &Path, transport: Transport) -> anyhow::Result<ExitCode> {
    let args = args.clone().effective();
    check(&args)?;
    experiment::run(&args.output, (Report::text, Report::page), |interrupt| {
        let bench = Bench {
            args: &args,
            exe,
            transport,
            interrupt,
        };
        bench.measure()
    })
}

/// The runs of the file server alone, in alternating modes, round by round. All of them: none is
/// left out.
///
/// Blocks; call it from the main thread. Needs root.
///
/// # Errors
/// As [`run`].
pub(crate) fn fileserver_runs(
    args: &ObserveBenchArgs,
    exe: &Path,
    transport: Transport,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<ServerRun>> {
    check(args)?;
    content::prepare();
    let bench = Bench {
        args,
        exe,
        transport,
        interrupt,
    };
    // The future runs on this thread, to which the children are tied.
    runtime()?.block_on(bench.fileserver())
}

fn check(args: &ObserveBenchArgs) -> anyhow::Result<()> {
    within("--rounds", args.rounds, 1..=1000)?;
    above_0("--seconds", args.seconds, 600.0)?;
    above_0("--fileserver-seconds", args.fileserver_seconds, 600.0)?;
    within("--files", args.files, 100..=1_000_000)?;
    within("--clients", args.clients, 1..=1000)?;
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
struct Bench<'a> {
    args: &'a ObserveBenchArgs,
    exe: &'a Path,
    transport: Transport,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    fn measure(&self) -> anyhow::Result<Report> {
        let machine = Machine::before();
        content::prepare();
        let runtime = runtime()?;
        let mut runs = Vec::new();
        // The futures run on this thread, to which the children are tied.
        if wanted(self.args, PARTS[0]) {
            runtime.block_on(self.objects(&mut runs))?;
        }
        let loop_dir = if wanted(self.args, PARTS[1]) {
            Some(self.sectors(&mut runs)?)
        } else {
            None
        };
        if wanted(self.args, PARTS[2]) {
            let served = runtime.block_on(self.fileserver())?;
            runs.extend(served.iter().flat_map(ServerRun::figures));
        }
        let rounds = self.args.rounds;
        Ok(Report::new(self.args, rounds, loop_dir, machine, runs))
    }

    fn store(&self, mib: u64) -> anyhow::Result<StoreFile> {
        let dir = self.args.dir.clone().unwrap_or_else(default_dir);
        eprintln!("making a store of {mib} MiB in {}", dir.display());
        StoreFile::make(self.exe, &dir, mib, self.interrupt)
    }

    async fn objects(&self, runs: &mut Vec<Run>) -> anyhow::Result<()> {
        let store = self.store(LUMPS_MIB)?;
        objects::fill(self, store.path()).await?;
        for round in 1..=self.args.rounds {
            eprintln!("objects of 1 MiB, round {round} of {}", self.args.rounds);
            objects::round(self, store.path(), round, runs).await?;
        }
        Ok(())
    }

    fn sectors(&self, runs: &mut Vec<Run>) -> anyhow::Result<std::path::PathBuf> {
        let sectors = Sectors::make(self)?;
        for round in 1..=self.args.rounds {
            eprintln!("writes of 4 KiB, round {round} of {}", self.args.rounds);
            sectors.round(self, round, runs)?;
        }
        Ok(sectors.dir)
    }

    async fn fileserver(&self) -> anyhow::Result<Vec<ServerRun>> {
        let store = self.store(fileserver::store_mib(self.args.files))?;
        let mut runs = Vec::new();
        let files = Files::new(self.args.files).map(Arc::new);
        let Some(files) = files else {
            return Ok(runs);
        };
        eprintln!("making {} files", files.to_fill());
        fileserver::fill(self, store.path(), &files).await?;
        for round in 1..=self.args.rounds {
            eprintln!("file server, round {round} of {}", self.args.rounds);
            runs.extend(fileserver::round(self, store.path(), &files, round).await?);
        }
        Ok(runs)
    }
}
