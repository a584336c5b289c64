//! The engine measured without a network, in alternating rounds against what it must not fall
//! behind: fio on the same file (what the disk gives) and the published original (what it
//! replaces).
//!
//! A figure is a ratio of two runs of the same round, because the speed of a shared machine or a
//! cloud disk drifts; shown are the median and the range over all rounds. A peer that is not
//! installed is reported as missing. The result says what is compared and what is not equal.

mod figures;
mod ours;
mod peer;
mod report;
mod slow;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use crate::failure::{PeerFailed, above_0, message, nothing_chosen, within};
use crate::human;

pub use peer::{PEER_PROGRAM, PeerReport};
pub use slow::SlowLoad;

use crate::experiment::report::Report;
use crate::experiment::{self, StudyArgs};
use crate::load::fio::{Fio, Job, JobKind};
use crate::load::{Load, Promise};
use crate::process::Interrupt;
use figures::{EngineOutcome, Figure, Run, RunGroup, TAIL_DEPTH};
use lumpscope_units::tell;
pub(crate) use peer::Peer;
use report::{EngineRuns, Round};
use target::BenchTarget;

/// Share of the target that lumps may fill: the rest is journal, checksums, padding.
const FILL: (u64, u64) = (7, 8);
/// Timed part of the run that looks at the slowest requests, in ordinary timed parts: a 99.9th
/// percentile needs many.
const TAIL_LENGTH: u32 = 6;
/// Smallest target in bytes: a few of the largest lumps and a journal.
const LEAST: u64 = 64 << 20;

/// Measure the engine against fio and the original engine, in alternating rounds on one file.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineBenchArgs {
    /// Use this block device instead. It must be empty, and is emptied afterwards
    #[arg(long, value_name = "DEVICE", conflicts_with = "dir")]
    device: Option<PathBuf>,
    /// Size of the file, or of the used part of the device
    #[arg(long, default_value = "2G", value_name = "SIZE", value_parser = lumpscope_units::size_within(LEAST, 1 << 50))]
    capacity: u64,
    /// Rounds; each gives one ratio of each figure
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Longest timed part of one run, in seconds
    #[arg(long, default_value_t = 0.4, value_name = "SECONDS")]
    seconds: f64,
    /// Maximum number of puts in one run
    #[arg(long, default_value_t = u64::MAX, value_name = "N", hide_default_value = true)]
    count: u64,
    /// Only figures whose name contains this text, e.g. "1 MiB" or "depth 8"
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Program that runs the original engine [default: lumpscope-cannyls-peer beside this program]
    #[arg(long, value_name = "PROGRAM")]
    cannyls_peer: Option<PathBuf>,
    #[command(flatten)]
    study: StudyArgs,
}

/// Measures and prints.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// Everything that keeps our engine from being measured. The message says what to do.
pub fn run(args: &EngineBenchArgs) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| measure(args, interrupt))
}

/// All that the runs need.
struct EngineBench {
    target: BenchTarget,
    fio: Result<Fio, String>,
    peer: Result<Peer, String>,
    seconds: Duration,
    count: u64,
    interrupt: Interrupt,
    failures: BTreeSet<String>,
    backend: Option<String>,
}

fn measure(args: &EngineBenchArgs, interrupt: &Interrupt) -> anyhow::Result<(Report, EngineRuns)> {
    let figures = figures::chosen(args.only.as_deref());
    check(args, &figures)?;
    tell(&format!("writing {} once", human::bytes(args.capacity)));
    let target = match &args.device {
        Some(device) => BenchTarget::on_device(device, args.capacity, interrupt)?,
        None => BenchTarget::in_dir(&args.study.dir(), args.capacity, interrupt)?,
    };
    let mut bench = EngineBench {
        target,
        fio: Fio::find(),
        peer: Peer::find(args.cannyls_peer.as_deref()),
        seconds: Duration::from_secs_f64(args.seconds),
        count: args.count,
        interrupt: interrupt.clone(),
        failures: BTreeSet::new(),
        backend: None,
    };
    let fio = match &bench.fio {
        Ok(fio) => fio.version(interrupt)?,
        Err(why) => format!("MISSING, not compared: {why}"),
    };
    let cannyls = match &bench.peer {
        Ok(_) => "cannyls 0.10.0".to_owned(),
        Err(why) => format!("MISSING, not compared: {why}"),
    };
    let rounds = bench.rounds(args, &figures)?;
    let mut report = report::report(&figures, &rounds);
    let device = args
        .device
        .as_ref()
        .map(|device| device.display().to_string());
    let target = device.unwrap_or_else(|| "a file".to_owned());
    let capacity = human::bytes(bench.target.capacity());
    report.fact("Target", format!("{target}, {capacity}"));
    report.fact(
        "Our I/O backend",
        bench.backend.as_deref().unwrap_or("none"),
    );
    report.fact("fio", fio);
    report.fact("cannyls", cannyls);
    report.fact(
        "Runs",
        format!("{} rounds of {} s a run", rounds.len(), args.seconds),
    );
    let failures = bench
        .failures
        .iter()
        .map(|why| format!("FAILED, left out: {why}"));
    report.findings.differs.extend(failures);
    let data = EngineRuns {
        failures: bench.failures,
        runs: report::runs(&rounds),
    };
    Ok((report, data))
}

fn check(args: &EngineBenchArgs, figures: &[Figure]) -> anyhow::Result<()> {
    within("--rounds", args.rounds, 1..=1000)?;
    above_0("--seconds", args.seconds, 60.0)?;
    within("--count", args.count, 1..=u64::MAX)?;
    if figures.is_empty() {
        let known: BTreeSet<String> = figures::chosen(None)
            .iter()
            .map(|figure| figure.setting.name())
            .collect();
        return Err(nothing_chosen(
            args.only.as_deref(),
            known.into_iter().collect::<Vec<_>>().join(" "),
        ));
    }
    Ok(())
}

impl EngineBench {
    fn rounds(&mut self, args: &EngineBenchArgs, figures: &[Figure]) -> anyhow::Result<Vec<Round>> {
        let needed = figures::needed(figures);
        let mut rounds = Vec::new();
        for number in 1..=args.rounds {
            tell(&format!("round {number} of {}", args.rounds));
            let mut round = Round::new();
            for (&setting, runs) in &needed {
                let mut order: Vec<Run> = runs.iter().copied().collect();
                order.sort_by_key(|run| run.place());
                let mut outcomes = BTreeMap::new();
                for run in experiment::alternate(order, number) {
                    if let Some(outcome) = self.outcome(setting, run)? {
                        outcomes.insert(run, outcome);
                    }
                }
                round.insert(setting, outcomes);
            }
            rounds.push(round);
        }
        Ok(rounds)
    }

    /// `None`: the peer is missing or failed.
    fn outcome(&mut self, setting: RunGroup, run: Run) -> anyhow::Result<Option<EngineOutcome>> {
        self.interrupt.check()?;
        let outcome = match run {
            Run::Ours(promise) => {
                let ours = self.ours(setting, promise);
                return ours
                    .context("the engine failed while it was measured")
                    .map(Some);
            }
            Run::FioWrite => self.fio(setting, JobKind::Write),
            Run::FioRead => self.fio(setting, JobKind::Read),
            Run::FioDurable => self.fio(setting, JobKind::DurableWrite),
            Run::Cannyls(promise) => self.cannyls(setting, promise),
        };
        match outcome {
            Err(error) if error.is::<PeerFailed>() => {
                self.failures
                    .insert(format!("{} {}", setting.name(), message(&error)));
                Ok(None)
            }
            other => other,
        }
    }

    /// The load of a setting. Only `Slow` has one of its own.
    fn load(&self, setting: RunGroup, promise: Promise) -> Load {
        let size = setting.size();
        let room = self.target.capacity() / FILL.1 * FILL.0 / (size.next_multiple_of(4096) + 4096);
        let (depth, time, count, distinct) = match setting {
            RunGroup::Plain { depth, .. } => (depth, self.seconds, room, room),
            // Overwritten lumps keep their blocks for a while.
            RunGroup::Tail => (TAIL_DEPTH, self.seconds * TAIL_LENGTH, u64::MAX, room / 2),
            RunGroup::Slow => (8, self.seconds, room, room),
        };
        Load {
            size,
            depth,
            count: count.min(self.count),
            distinct,
            time,
            promise,
            seed: 1,
        }
    }

    fn slow(&self) -> SlowLoad {
        SlowLoad {
            latency_us: 5000,
            size: RunGroup::Slow.size(),
            lumps: 256.min(self.count),
            depth: 8,
            milliseconds: u64::try_from(self.seconds.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
        }
    }

    fn ours(&mut self, setting: RunGroup, promise: Promise) -> anyhow::Result<EngineOutcome> {
        if setting == RunGroup::Slow {
            return Ok(EngineOutcome {
                get: Some(slow::gets(&self.slow(), &self.interrupt)?),
                ..EngineOutcome::default()
            });
        }
        let load = self.load(setting, promise);
        let store = self.target.open_store()?;
        self.backend = Some(store.info().backend.name().to_owned());
        let put = ours::puts(&store, &load, &self.interrupt)?;
        let get = match setting {
            RunGroup::Plain { .. } => {
                let lumps = put.requests.min(load.distinct);
                Some(ours::gets(&store, &load, lumps, &self.interrupt)?)
            }
            RunGroup::Tail | RunGroup::Slow => None,
        };
        store.close()?;
        Ok(EngineOutcome {
            put: Some(put),
            get,
            ..EngineOutcome::default()
        })
    }

    fn fio(&self, setting: RunGroup, kind: JobKind) -> anyhow::Result<Option<EngineOutcome>> {
        let Ok(fio) = &self.fio else {
            return Ok(None);
        };
        let load = self.load(setting, Promise::Synced);
        let job = Job {
            kind,
            block: load.size,
            depth: load.depth,
            from: 0,
            time: load.time,
        };
        let (path, size) = (self.target.path(), self.target.capacity());
        let result = Some(fio.run(path, size, &job, &self.interrupt)?);
        let (put, get) = match kind {
            JobKind::Read => (None, result),
            _ => (result, None),
        };
        Ok(Some(EngineOutcome {
            put,
            get,
            ..EngineOutcome::default()
        }))
    }

    fn cannyls(
        &self,
        setting: RunGroup,
        promise: Promise,
    ) -> anyhow::Result<Option<EngineOutcome>> {
        let Ok(peer) = &self.peer else {
            return Ok(None);
        };
        let report = if setting == RunGroup::Slow {
            peer.slow(&self.slow(), &self.interrupt)?
        } else {
            let load = self.load(setting, promise);
            let (path, capacity) = (self.target.path(), self.target.capacity());
            let gets = promise != Promise::Buffered;
            peer.file(path, capacity, &load, gets, &self.interrupt)?
        };
        Ok(Some(EngineOutcome {
            put: report.put,
            get: report.get,
            durability: Some(report.durability),
        }))
    }
}
