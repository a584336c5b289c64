//! Crash simulation until it is told to stop: `./dev soak --help`.
//!
//! Every history is a function of its seed, so a failure is reported with the command that repeats
//! exactly that one.

#[path = "../tests/it/crash/harness/mod.rs"]
mod harness;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use harness::scenario::Scenario;
use harness::{Coverage, HistoryFailure, HistoryPlace, Only, run, run_faulty, run_lost_write};
use lumpscope_engine::CommitMode;
use lumpscope_engine::device::WriteCache;

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Every so many histories one runs on a failing disk.
const FAULTY_EVERY: u64 = 4;

/// Cuts the power of simulated stores at every I/O of random histories, and checks what is left.
///
/// Without a limit it runs until Ctrl-C. Exit code 1: a check failed.
#[derive(Debug, Parser)]
#[command(name = "./dev soak")]
struct Args {
    /// Seed of the first history; the next ones follow. Default: from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after this time.
    #[arg(long)]
    hours: Option<f64>,
    /// Stop after this time, beside that of --hours.
    #[arg(long)]
    seconds: Option<f64>,
    /// Stop after this many cuts.
    #[arg(long)]
    cuts: Option<u64>,
    /// Stop after this many seeds.
    #[arg(long)]
    histories: Option<u64>,
    /// Of a history make only the cut after this event, to repeat one failure.
    #[arg(long, requires = "choice")]
    event: Option<u64>,
    /// Number of the cut after --event.
    #[arg(long)]
    choice: Option<u64>,
    /// The disks write through.
    #[arg(long, conflicts_with = "fua")]
    through: bool,
    /// The disks offer forced writes.
    #[arg(long)]
    fua: bool,
    /// Puts are committed as ordered, none in a run.
    #[arg(long)]
    ordered: bool,
    /// Run histories on failing disks only.
    #[arg(long)]
    faulty: bool,
    /// Run histories on disks that lose one write of the journal only.
    #[arg(long, conflicts_with = "faulty")]
    lost: bool,
}

impl Args {
    fn time_limit(&self) -> Duration {
        let seconds = self.hours.map(|hours| hours * 3600.0);
        if seconds.is_none() && self.seconds.is_none() {
            return Duration::MAX;
        }
        let total = seconds.unwrap_or(0.0) + self.seconds.unwrap_or(0.0);
        Duration::try_from_secs_f64(total).unwrap_or(Duration::MAX)
    }

    fn scenario(&self, seed: u64) -> Scenario {
        let mut scenario = Scenario::new(seed);
        if self.through {
            scenario.cache = WriteCache::Through;
        }
        scenario.fua = self.fua;
        if !self.ordered {
            scenario.commit = CommitMode::Runs;
        }
        scenario
    }

    fn only(&self) -> Only {
        match self.event {
            Some(event) => Only::Cut(HistoryPlace {
                event,
                choice: self.choice,
            }),
            None => Only::All,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // A panic of the engine is a failure with a seed; its text is in the report.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("cannot catch signals: {error}");
            return ExitCode::FAILURE;
        }
    }
    let first = args
        .seed
        .unwrap_or_else(|| lumpscope_engine::clock::wall_ns() % 1_000_000_000_000);
    let started = Instant::now();
    let mut shown = started;
    let mut coverage = Coverage::default();
    let mut seed = first;
    println!("soak from seed {first}");
    let failure = loop {
        let elapsed = started.elapsed();
        let done = stop.load(Ordering::Relaxed)
            || elapsed >= args.time_limit()
            || args.cuts.is_some_and(|cuts| coverage.cuts >= cuts)
            || args
                .histories
                .is_some_and(|histories| seed - first >= histories);
        if done {
            break None;
        }
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            progress(&coverage, seed, elapsed);
        }
        if let Err(failure) = one(&args, seed, &mut coverage) {
            break Some(failure);
        }
        seed += 1;
    };
    summary(&coverage, first, seed, started.elapsed());
    match failure {
        None => ExitCode::SUCCESS,
        Some((failure, how)) => {
            report(&failure, how);
            ExitCode::FAILURE
        }
    }
}

/// Runs the histories of a seed; a failure comes with the option that repeats it.
fn one(
    args: &Args,
    seed: u64,
    coverage: &mut Coverage,
) -> Result<(), (HistoryFailure, &'static str)> {
    let scenario = args.scenario(seed);
    let also = args.event.is_none() && seed.is_multiple_of(FAULTY_EVERY);
    if !args.faulty && !args.lost {
        run(&scenario, args.only(), coverage).map_err(|failure| (failure, ""))?;
    }
    if args.faulty || (also && !args.lost) {
        run_faulty(seed, scenario.commit, coverage).map_err(|failure| (failure, " --faulty"))?;
    }
    if args.lost || (also && !args.faulty) {
        run_lost_write(seed, scenario.commit, coverage).map_err(|failure| (failure, " --lost"))?;
    }
    Ok(())
}

fn progress(coverage: &Coverage, seed: u64, elapsed: Duration) {
    println!(
        "{:>8.0} s  {:>12} cuts  {:>8.0} cuts/s  {:>10} histories  at seed {seed}",
        elapsed.as_secs_f64(),
        coverage.cuts,
        rate(coverage, elapsed),
        coverage.histories,
    );
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown without digits behind the point"
)]
fn rate(coverage: &Coverage, elapsed: Duration) -> f64 {
    coverage.cuts as f64 / elapsed.as_secs_f64().max(1e-9)
}

fn summary(coverage: &Coverage, first: u64, end: u64, elapsed: Duration) {
    println!("seeds {first} to {}: {coverage:#?}", end.max(first + 1) - 1);
    println!(
        "{} cuts in {:.1} s: {:.0} a second, {:.0} an hour",
        coverage.cuts,
        elapsed.as_secs_f64(),
        rate(coverage, elapsed),
        rate(coverage, elapsed) * 3600.0
    );
}

fn report(failure: &HistoryFailure, how: &str) {
    let HistoryFailure { seed, place, why } = failure;
    println!("\nFAILED: {why}");
    println!("the store: {}", Scenario::new(*seed).describe());
    let what = match place.choice {
        Some(choice) => format!(" --event {} --choice {choice}", place.event),
        None => how.to_owned(),
    };
    println!("again: ./dev soak --seed {seed} --histories 1{what}");
}
