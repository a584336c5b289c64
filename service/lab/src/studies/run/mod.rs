//! `lumpscope bench run`: a workload on one store, each command timed.
//!
//! The parts of it serve other benches, too: a [`CommandStream`] can be run on our engine, through
//! gRPC, or on the original engine, and gives the same [`RunStats`] each time.

mod args;
mod cannyls;
pub(crate) mod engine;
mod place;
mod report;
pub(crate) mod service;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lumpscope_client::Options;

use crate::failure::{argument, cannot_do, peer_failed, within};

pub use args::{RunArgs, Runs};
pub(crate) use cannyls::on_cannyls;
pub use cannyls::{CannylsJob, CannylsRun};

use crate::commands;
use crate::experiment;
use crate::experiment::report::Report;
use crate::load::runner::{Durability, RunOptions, RunOutcome, Target, Verified};
use crate::process::Interrupt;
use crate::stats::{Latencies, Timeline};
use crate::studies::engine::Peer;
use crate::workload::{CommandStream, Sizing};
use engine::{EngineRun, MOST_CLIENTS};
use place::{Place, PlaceView};
use report::RunRecord;

/// Result of a workload, from any target.
#[derive(Debug, Clone)]
pub struct RunStats {
    /// Program that ran it, with version.
    pub engine: String,
    /// Failure that an acknowledged put survived.
    pub durability: String,
    /// How long each call took. Their sum is the elapsed time of the published tables.
    pub latencies: Latencies,
    /// Throughput over time.
    pub timeline: Timeline,
    /// First command to end of the last, with what is not timed between them: content made,
    /// content compared.
    pub wall: Duration,
    /// Bytes of lumps put.
    pub bytes_put: u64,
    /// Bytes of lumps read.
    pub bytes_got: u64,
    /// Comparison at the end; `None`: not requested.
    pub verified: Option<Verified>,
}

impl RunStats {
    pub(crate) fn new(
        engine: String,
        durability: String,
        outcome: RunOutcome,
        verified: Option<Verified>,
    ) -> RunStats {
        RunStats {
            engine,
            durability,
            latencies: outcome.latencies,
            timeline: outcome.timeline,
            wall: outcome.wall,
            bytes_put: outcome.bytes_put,
            bytes_got: outcome.bytes_got,
            verified,
        }
    }
}

/// Runs the workload and prints what it measured, or prints its commands. `exe` is the program that
/// understands `serve`; `service`: how to reach the one that runs already.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it.
///
/// # Errors
/// Everything that keeps the workload from being run to its end, a wrong answer included.
pub fn run(args: &RunArgs, exe: &Path, service: Option<Options>) -> anyhow::Result<ExitCode> {
    if let Some(what) = args.print {
        return commands::print((what, args.limit), &args.workload.stream()?);
    }
    let output = &args.study.output;
    experiment::run(output, |interrupt| measure(args, (exe, service), interrupt))
}

fn measure(
    args: &RunArgs,
    (exe, service): (&Path, Option<Options>),
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, RunRecord)> {
    check(args)?;
    let stream = args.workload.stream_while(|_| interrupt.check())?;
    let sizing = match args.target {
        Runs::S3 => Sizing::with_names(&stream),
        Runs::Engine | Runs::Grpc | Runs::Cannyls => Sizing::of(&stream),
    };
    let run = EngineRun {
        sizing,
        block_size: args.block_size,
        durability: args.durability,
        options: RunOptions {
            clients: args.depth,
            verify_bytes: args.verify,
            slot: args.series,
            ..RunOptions::default()
        },
        verify: args.verify,
    };
    let (stats, place) = match (service, &args.name) {
        (Some(service), Some(store)) => {
            let place = PlaceView::running(&service.server, store);
            let target = Target::Service {
                service,
                store: store.clone(),
                durability: Some(args.durability),
            };
            let stats = service::on_running_service(&target, &stream, &run, interrupt)?;
            (stats, place)
        }
        _ => on_place(args, exe, &stream, &run, interrupt)?,
    };
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
    run: &EngineRun,
    interrupt: &Interrupt,
) -> anyhow::Result<(RunStats, PlaceView)> {
    let mut capacity = run.sizing.capacity_bytes;
    let peer = match args.target {
        Runs::Cannyls => {
            capacity = Sizing::original_bytes(stream);
            let found = Peer::find(args.cannyls_peer.as_deref());
            Some(found.map_err(|why| peer_failed(crate::studies::engine::PEER_PROGRAM, why))?)
        }
        Runs::Engine | Runs::Grpc | Runs::S3 => None,
    };
    let place = Place::new(args, exe, &run.sizing, interrupt)?;
    let mut view = PlaceView {
        what: place.name(args),
        block_size: Some(args.block_size),
        capacity_bytes: Some(capacity),
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
                verify: args.verify,
                slot: args.series,
                skip: 0,
                time: None,
                sync: false,
            };
            on_cannyls(peer, stream, &job, interrupt)
        }
        None => {
            engine::make(path, &run.sizing, run.block_size, false)?;
            match args.target {
                Runs::Grpc => service::on_service(exe, stream, path, run, interrupt),
                Runs::S3 => service::on_s3((exe, "md5"), stream, path, run, interrupt),
                Runs::Engine | Runs::Cannyls => engine::on_engine(stream, path, run, interrupt),
            }
        }
    })?;
    view.emulated = place.lateness()?;
    Ok((stats, view))
}

fn check(args: &RunArgs) -> anyhow::Result<()> {
    let wrong = |option, allowed| Err(argument(option, allowed));
    within("--depth", args.depth, 1..=MOST_CLIENTS)?;
    if args.block_size == 0 || !args.block_size.is_multiple_of(512) {
        return wrong("--block-size", "a multiple of 512, up to 65024");
    }
    if args.asks_service() && args.target != Runs::Grpc {
        bail!("--name needs --target grpc: only a service can be asked from outside");
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
    if args.verify && args.asks_service() {
        notes.push(
            "the service was not restarted: what lives was compared while it went on".to_owned(),
        );
    }
    if args.verify && args.target == Runs::Cannyls {
        notes.push(
            "an overwritten lump has other bytes than before, so a lost overwrite is found"
                .to_owned(),
        );
    }
    notes
}

/// How a durability is called in reports.
pub(crate) fn promise(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "each put survives a power cut (synced)",
        Durability::Journaled => "each put survives the death of the process (journaled)",
    }
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(cannot_do("start the runtime"))
}
