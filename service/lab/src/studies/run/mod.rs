//! `lumpscope bench run`: a workload on one store, each command timed.
//!
//! The parts of it serve other benches, too: a [`CommandStream`] can be run on our engine, through
//! gRPC, or on the original engine, and gives the same [`RunStats`] each time.

mod args;
mod cannyls;
mod place;
mod report;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

use crate::failure::{argument, peer_failed, within};

pub use args::{RunArgs, Runs};
pub(crate) use cannyls::on_cannyls;
pub use cannyls::{CannylsJob, CannylsRun};

use crate::commands;
use crate::experiment;
use crate::experiment::report::Report;
use crate::load::runner::{self, Durability, RunOptions, RunOutcome, Verified};
use crate::process::Interrupt;
use crate::studies::engine::{PEER_PROGRAM, Peer};
use crate::studies::host::{Host, MOST_CLIENTS, S3Keys, make, runtime};
use crate::workload::{CommandStream, Sizing};
use place::{Place, PlaceView};
use report::RunRecord;

/// Result of a workload, from any target.
#[derive(Debug, Clone)]
pub struct RunStats {
    /// Program that ran it, with version.
    pub engine: String,
    /// Failure that an acknowledged put survived.
    pub durability: String,
    /// The commands that were run.
    pub outcome: RunOutcome,
    /// Comparison at the end; `None`: not requested.
    pub verified: Option<Verified>,
}

/// Runs the workload and prints what it measured, or prints its commands. `exe` is the program that
/// understands `serve`.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it.
///
/// # Errors
/// Everything that keeps the workload from being run to its end, a wrong answer included.
pub fn run(args: &RunArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    if let Some(what) = args.print {
        return commands::print((what, args.limit), &args.workload.stream()?);
    }
    let output = &args.study.output;
    experiment::run(output, |interrupt| measure(args, exe, interrupt))
}

fn measure(
    args: &RunArgs,
    exe: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, RunRecord)> {
    check(args)?;
    let stream = args.workload.stream_while(|_| interrupt.check())?;
    let (stats, place) = on_place(args, exe, &stream, interrupt)?;
    let emulated = place.emulated.as_ref().map(ToString::to_string);
    let (mut report, data) = report::report((&args.workload, &stream), place, stats);
    report.fact("In flight", args.depth.to_string());
    report.notes = notes(args);
    report.notes.extend(emulated);
    Ok((report, data))
}

fn on_place(
    args: &RunArgs,
    exe: &Path,
    stream: &CommandStream,
    interrupt: &Interrupt,
) -> anyhow::Result<(RunStats, PlaceView)> {
    let sizing = match args.target {
        Runs::S3 => Sizing::with_names(stream),
        Runs::Engine | Runs::Grpc | Runs::Cannyls => Sizing::of(stream),
    };
    let mut capacity = sizing.capacity_bytes;
    let peer = match args.target {
        Runs::Cannyls => {
            capacity = Sizing::original_bytes(stream);
            let found = Peer::find(args.cannyls_peer.as_deref());
            Some(found.map_err(|why| peer_failed(PEER_PROGRAM, why))?)
        }
        Runs::Engine | Runs::Grpc | Runs::S3 => None,
    };
    let place = Place::new(args, exe, &sizing, interrupt)?;
    let mut view = PlaceView {
        what: place.name(args),
        block_size: args.block_size,
        capacity_bytes: capacity,
        emulated: None,
    };
    let path = place.path();
    // The thread inside may have another working directory.
    let workload = args.workload.absolute()?;
    let stats = place.inside(|| match &peer {
        Some(peer) => {
            let job = CannylsJob {
                workload,
                path: path.to_owned(),
                capacity,
                block_size: args.block_size,
                options: options(args),
                sync: false,
            };
            on_cannyls(peer, stream, &job, interrupt)
        }
        None => {
            make(path, &sizing, args.block_size, false)?;
            on_host(args, (exe, path), stream, interrupt)
        }
    })?;
    view.emulated = place.lateness()?;
    Ok((stats, view))
}

fn options(args: &RunArgs) -> RunOptions {
    RunOptions {
        clients: args.depth,
        verify_bytes: args.verify,
        ..RunOptions::default()
    }
}

/// Runs the commands on what is wanted of ours, and once more starts it to verify.
fn on_host(
    args: &RunArgs,
    (exe, path): (&Path, &Path),
    stream: &CommandStream,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let durability = args.durability;
    let mut keys = None;
    let mut start = || match args.target {
        Runs::Grpc => Host::grpc((exe, path, false), durability, interrupt),
        Runs::S3 => {
            let keys = match &mut keys {
                Some(keys) => keys,
                none => none.insert(S3Keys::new()?),
            };
            keys.start((exe, path, "md5"), durability, interrupt)
        }
        Runs::Engine | Runs::Cannyls => Host::engine(path, durability),
    };
    let host = start()?;
    let outcome = host.run(stream, &options(args), interrupt)?;
    let engine = host.name.clone();
    host.end()?;
    let verified = match args.verify {
        true => {
            let host = start()?;
            let verify = runner::verify_survivors(stream, &host.target);
            let verified = runtime()?.block_on(interrupt.or_stop(verify))?;
            host.end()?;
            Some(verified)
        }
        false => None,
    };
    Ok(RunStats {
        engine,
        durability: promise(durability).to_owned(),
        outcome,
        verified,
    })
}

fn check(args: &RunArgs) -> anyhow::Result<()> {
    let wrong = |option, allowed| Err(argument(option, allowed));
    within("--depth", args.depth, 1..=MOST_CLIENTS)?;
    if args.block_size == 0 || !args.block_size.is_multiple_of(512) {
        return wrong("--block-size", "a multiple of 512, up to 65024");
    }
    if args.target == Runs::Cannyls && args.depth > 1 {
        bail!(
            "--target cannyls runs one command after the other, as the original benchmark does; \
             leave --depth out"
        );
    }
    Ok(())
}

fn notes(args: &RunArgs) -> Vec<String> {
    let mut notes = vec![
        "the published lines count each percentile by the original's rule and sum the timed calls; \
         the table below them comes from HDR histograms"
            .to_owned(),
    ];
    if args.verify && args.target == Runs::Cannyls {
        notes.push(
            "an overwritten lump has other bytes than before, so a lost overwrite is found"
                .to_owned(),
        );
    }
    notes
}

/// How a durability is called in reports.
fn promise(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "each put survives a power cut (synced)",
        Durability::Journaled => "each put survives the death of the process (journaled)",
    }
}
