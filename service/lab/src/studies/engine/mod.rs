//! The engine measured without a network, in alternating rounds against what it must not fall
//! behind: fio on the same file (what the disk gives) and the published original (what it
//! replaces).
//!
//! A figure is a ratio of two runs of the same round, because the speed of a shared machine or a
//! cloud disk drifts; shown are the median and the range over all rounds. A peer that is not
//! installed is reported as missing. The result says what is compared and what is not equal.

mod args;
mod figures;
mod ours;
mod page;
mod peer;
mod report;
mod slow;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::failure::{PeerFailed, above_0, argument, message, nothing_chosen};

pub use args::EngineBenchArgs;
pub use peer::{PEER_PROGRAM, PeerReport};
pub use slow::SlowLoad;

use crate::experiment::{self, Machine};
use crate::load::fio::{Fio, Job, JobKind};
use crate::load::{Load, Promise};
use crate::process::Interrupt;
use figures::{Figure, Outcome, Run, Setting, TAIL_DEPTH};
pub(crate) use peer::Peer;
use report::{PeerView, Report, Round};
use target::Target;

/// Share of the target that lumps may fill: the rest is journal, checksums, padding.
const FILL: (u64, u64) = (7, 8);
/// Timed part of the run that looks at the slowest requests, in ordinary timed parts: a 99.9th
/// percentile needs many.
const TAIL_LENGTH: u32 = 6;
/// Smallest target in MiB: a few of the largest lumps and a journal.
const MIN_MIB: u64 = 64;

/// Measures and prints.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// Everything that keeps our engine from being measured. The message says what to do.
pub fn run(args: &EngineBenchArgs) -> anyhow::Result<ExitCode> {
    experiment::run(&args.output, (Report::text, Report::page), |interrupt| {
        measure(args.clone().effective(), interrupt)
    })
}

/// All that the runs need.
struct Bench {
    target: Target,
    fio: Result<Fio, String>,
    peer: Result<Peer, String>,
    seconds: Duration,
    count: u64,
    interrupt: Interrupt,
    failures: BTreeSet<String>,
    backend: Option<String>,
}

fn measure(args: EngineBenchArgs, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let figures = figures::chosen(args.only.as_deref());
    check(&args, &figures)?;
    let (capacity, machine) = (args.mib << 20, Machine::before());
    eprintln!("writing {} once", crate::human::bytes(capacity));
    let target = match &args.device {
        Some(device) => Target::on_device(device, capacity, interrupt)?,
        None => {
            let dir = args.dir.clone().unwrap_or_else(crate::disks::default_dir);
            Target::in_dir(&dir, capacity, interrupt)?
        }
    };
    let mut bench = Bench {
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
        Ok(fio) => PeerView::present(fio.version(interrupt)?),
        Err(why) => PeerView::missing(why),
    };
    let rounds = bench.rounds(&args, &figures)?;
    Ok(Report {
        machine: machine.and_after(),
        target: match &args.device {
            Some(device) => device.display().to_string(),
            None => "a file".to_owned(),
        },
        target_bytes: bench.target.capacity(),
        io_backend: bench.backend,
        seconds_per_run: args.seconds,
        rounds_asked: args.rounds,
        rounds: rounds.len(),
        fio,
        cannyls: match &bench.peer {
            Ok(_) => PeerView::present("cannyls 0.10.0".to_owned()),
            Err(why) => PeerView::missing(why),
        },
        failures: bench.failures.into_iter().collect(),
        figures: report::views(&figures, &rounds),
        notes: report::notes(),
        runs: report::runs(&rounds),
    })
}

fn check(args: &EngineBenchArgs, figures: &[Figure]) -> anyhow::Result<()> {
    let wrong = |option, allowed| Err(argument(option, allowed));
    if args.rounds == 0 {
        return wrong("--rounds", "at least 1");
    }
    above_0("--seconds", args.seconds, 60.0)?;
    if args.mib < MIN_MIB || args.mib > 1 << 30 {
        return wrong("--mib", "64 to 2^30");
    }
    if args.count == 0 {
        return wrong("--count", "at least 1");
    }
    above_0("--minutes", args.minutes, 100_000.0)?;
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

impl PeerView {
    fn present(version: String) -> PeerView {
        PeerView {
            version: Some(version),
            missing: None,
        }
    }

    fn missing(why: &str) -> PeerView {
        PeerView {
            version: None,
            missing: Some(why.to_owned()),
        }
    }
}

impl Bench {
    fn rounds(&mut self, args: &EngineBenchArgs, figures: &[Figure]) -> anyhow::Result<Vec<Round>> {
        let needed = figures::needed(figures);
        let (begin, mut rounds) = (Instant::now(), Vec::new());
        for number in 1..=args.rounds {
            let spent = begin.elapsed();
            if number > 1 && spent.as_secs_f64() > args.minutes * 60.0 {
                eprintln!(
                    "--minutes {} are over after {} rounds",
                    args.minutes,
                    number - 1
                );
                break;
            }
            eprintln!("round {number} of {} ({} s)", args.rounds, spent.as_secs());
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
    fn outcome(&mut self, setting: Setting, run: Run) -> anyhow::Result<Option<Outcome>> {
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
    fn load(&self, setting: Setting, promise: Promise) -> Load {
        let size = setting.size();
        let room = self.target.capacity() / FILL.1 * FILL.0 / (size.next_multiple_of(4096) + 4096);
        let (depth, time, count, distinct) = match setting {
            Setting::Plain { depth, .. } => (depth, self.seconds, room, room),
            // Overwritten lumps keep their blocks for a while.
            Setting::Tail => (TAIL_DEPTH, self.seconds * TAIL_LENGTH, u64::MAX, room / 2),
            Setting::Slow => (8, self.seconds, room, room),
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
            size: Setting::Slow.size(),
            lumps: 256.min(self.count),
            depth: 8,
            milliseconds: u64::try_from(self.seconds.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
        }
    }

    fn ours(&mut self, setting: Setting, promise: Promise) -> anyhow::Result<Outcome> {
        if setting == Setting::Slow {
            return Ok(Outcome {
                get: Some(slow::gets(&self.slow(), &self.interrupt)?),
                ..Outcome::default()
            });
        }
        let load = self.load(setting, promise);
        let store = self.target.open_store()?;
        self.backend = Some(store.info().backend.name().to_owned());
        let put = ours::puts(&store, &load, &self.interrupt)?;
        let get = match setting {
            Setting::Plain { .. } => {
                let lumps = put.requests.min(load.distinct);
                Some(ours::gets(&store, &load, lumps, &self.interrupt)?)
            }
            Setting::Tail | Setting::Slow => None,
        };
        store.close()?;
        Ok(Outcome {
            put: Some(put),
            get,
            ..Outcome::default()
        })
    }

    fn fio(&self, setting: Setting, kind: JobKind) -> anyhow::Result<Option<Outcome>> {
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
        Ok(Some(Outcome {
            put,
            get,
            ..Outcome::default()
        }))
    }

    fn cannyls(&self, setting: Setting, promise: Promise) -> anyhow::Result<Option<Outcome>> {
        let Ok(peer) = &self.peer else {
            return Ok(None);
        };
        let report = if setting == Setting::Slow {
            peer.slow(&self.slow(), &self.interrupt)?
        } else {
            let load = self.load(setting, promise);
            let (path, capacity) = (self.target.path(), self.target.capacity());
            let gets = promise != Promise::Buffered;
            peer.file(path, capacity, &load, gets, &self.interrupt)?
        };
        Ok(Some(Outcome {
            put: report.put,
            get: report.get,
            durability: Some(report.durability),
        }))
    }
}
