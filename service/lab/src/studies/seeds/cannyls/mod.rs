//! `lumpscope bench seeds cannyls`: the published comparison of minfs, ext4 and xfs, repeated with
//! the original engine and with ours, with the reason for each ratio.

mod case;
mod published_workload;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::ModelledArgs;
use crate::disks::StoreKind;
use crate::experiment;
use crate::experiment::report::Report;
use crate::failure::{argument, peer_failed, within};
use crate::process::Interrupt;
use crate::studies::engine::{PEER_PROGRAM, Peer};
use crate::studies::predict;
use case::{Case, CaseRunner};
use lumpscope_units::tell;
use published_workload::PublishedWorkload;
use report::{CannylsRuns, RunView};

/// The four published workloads on a raw disk, on an ext4 without a journal and on an xfs: how long the
/// published drive would have taken, and why.
#[derive(Clone, Debug, clap::Args)]
pub struct CannylsArgs {
    /// Scale all repetition counts of the workloads, and the drive, by this factor
    #[arg(long, default_value_t = 0.05, value_name = "FACTOR")]
    scale: f64,
    /// Which workloads
    #[arg(
        long = "workload",
        value_delimiter = ',',
        default_value = "seq1,seq2,rand1,rand2",
        value_name = "LIST"
    )]
    workloads: Vec<String>,
    /// Block sizes of the store in bytes. The published tables have 512
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "512,4096",
        value_name = "LIST"
    )]
    block_size: Vec<u16>,
    /// Which engine. The original one is left out, with a message, when its program is not there
    #[arg(long, value_enum, default_value_t = Engines::Both)]
    engine: Engines,
    /// Program that runs the original engine [default: lumpscope-cannyls-peer beside this program]
    #[arg(long, value_name = "PROGRAM")]
    cannyls_peer: Option<PathBuf>,
    #[command(flatten)]
    modelled: ModelledArgs,
}

/// Which engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engines {
    /// The published crate.
    Original,
    /// Ours.
    Lumpscope,
    /// Both.
    Both,
}

/// One engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Original,
    Lumpscope,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Original => "original",
            Engine::Lumpscope => "lumpscope",
        }
    }
}

/// Runs, prints, and writes what is asked for.
pub(super) fn run(args: &CannylsArgs) -> anyhow::Result<ExitCode> {
    check(args)?;
    let output = &args.modelled.study.output;
    experiment::run(output, |interrupt| measure(args, interrupt))
}

fn check(args: &CannylsArgs) -> anyhow::Result<()> {
    within("--rounds", args.modelled.rounds, 1..=100)?;
    let known = ["seq1", "seq2", "rand1", "rand2"];
    let fits = |name: &String| known.contains(&name.as_str());
    if args.workloads.is_empty() || !args.workloads.iter().all(fits) {
        return Err(argument("--workload", "some of seq1, seq2, rand1, rand2"));
    }
    let fits = |size: &u16| *size > 0 && size.is_multiple_of(512);
    if args.block_size.is_empty() || !args.block_size.iter().all(fits) {
        return Err(argument("--block-size", "multiples of 512, up to 65024"));
    }
    if !(args.scale > 0.0 && args.scale <= 1.0) {
        return Err(argument("--scale", "above 0 and at most 1"));
    }
    Ok(())
}

fn measure(args: &CannylsArgs, interrupt: &Interrupt) -> anyhow::Result<(Report, CannylsRuns)> {
    let rounds = args.modelled.rounds;
    let drive = predict::drive_named(&args.modelled.model)?;
    let mut engines = match args.engine {
        Engines::Original => vec![Engine::Original],
        Engines::Lumpscope => vec![Engine::Lumpscope],
        Engines::Both => vec![Engine::Original, Engine::Lumpscope],
    };
    let peer = match Peer::find(args.cannyls_peer.as_deref()) {
        Ok(peer) => Some(peer),
        Err(why) if args.engine == Engines::Original => {
            return Err(peer_failed(PEER_PROGRAM, why));
        }
        Err(why) => {
            if args.engine == Engines::Both {
                tell(&format!("the original engine is left out: {why}"));
            }
            engines.retain(|engine| *engine != Engine::Original);
            None
        }
    };
    let bench = CaseRunner {
        peer,
        dir: args.modelled.study.dir.clone(),
        interrupt,
    };
    let mut runs = Vec::new();
    for name in &args.workloads {
        let workload = PublishedWorkload::new(name, args.scale)?;
        for case in cases(args, &engines, rounds) {
            tell(&format!(
                "{name}, {} engine, blocks of {}, {}, round {} of {rounds}",
                case.engine.name(),
                case.block_size,
                case.kind.name(),
                case.run
            ));
            let recorded = bench.run(&workload, case)?;
            runs.push(RunView::new(
                (&workload, case),
                &recorded,
                (&drive, args.scale),
            )?);
        }
    }
    let data = CannylsRuns { runs };
    let mut report = data.report(args.scale);
    report.fact("Drive", &*drive.title);
    report.fact("Scale of workloads and drive", args.scale.to_string());
    report.fact("Rounds", rounds.to_string());
    Ok((report, data))
}

/// In the order of the runs: disks alternate, so that what the machine does meanwhile hits all
/// alike.
fn cases(args: &CannylsArgs, engines: &[Engine], rounds: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for run in 1..=rounds {
        for engine in engines {
            for block_size in &args.block_size {
                let kinds = experiment::rotate(&StoreKind::ALL, run);
                cases.extend(kinds.map(|kind| Case {
                    engine: *engine,
                    block_size: *block_size,
                    kind: *kind,
                    run,
                }));
            }
        }
    }
    cases
}
