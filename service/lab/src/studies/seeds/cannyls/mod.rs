//! `lumpscope bench seeds cannyls`: the published comparison of minfs, ext4 and xfs, repeated with
//! the original engine and with ours, with the reason for each ratio.

mod args;
mod case;
mod explained;
mod findings;
mod page;
mod published_workload;
mod report;
mod vary;

use std::path::Path;
use std::process::ExitCode;

use crate::failure::peer_failed;

pub use args::{CannylsArgs, Engines};

use super::live::Live;
use crate::disks::StoreKind;
use crate::experiment::{self, Machine};
use crate::process::Interrupt;
use crate::studies::engine::{PEER_PROGRAM, Peer};
use crate::studies::predict;
use args::Engine;
use case::{Bench, Case};
use published_workload::PublishedWorkload;
use report::{Predictor, Report, RunView};

/// Runs, prints the penalties of the file systems beside their cause, and writes what is asked for.
pub(in crate::studies) fn explain(args: &CannylsArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    args.check()?;
    let shown = (Report::explained, Report::page);
    experiment::run(&args.output, shown, |interrupt| {
        measure(args, exe, interrupt)
    })
}

/// Runs, prints, and writes what is asked for.
pub(super) fn run(args: &CannylsArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    args.check()?;
    experiment::run(&args.output, (Report::text, Report::page), |interrupt| {
        measure(args, exe, interrupt)
    })
}

fn measure(args: &CannylsArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let drive = predict::drive_named(&args.drive)?;
    let machine = Machine::before();
    let mut engines = args.engines();
    let peer = match Peer::find(args.cannyls_peer.as_deref()) {
        Ok(peer) => Some(peer),
        Err(why) if args.engine == Engines::Original => {
            return Err(peer_failed(PEER_PROGRAM, why));
        }
        Err(why) => {
            if args.engine == Engines::Both {
                eprintln!("the original engine is left out: {why}");
            }
            engines.retain(|engine| *engine != Engine::Original);
            None
        }
    };
    let bench = Bench {
        peer,
        dir: args.dir.clone(),
        live: args.live.map(|rule| {
            let drive_name = &args.drive;
            let live = Live {
                exe,
                drive: drive_name,
                rule,
            };
            (live, &drive, args.scale)
        }),
        interrupt,
    };
    let mut report = Report::new(args, machine, &drive);
    for name in &args.workloads {
        let workload = PublishedWorkload::new(name, args.scale)?;
        for case in cases(args, &engines) {
            eprintln!(
                "{name}, {} engine, blocks of {}, {}, run {} of {}",
                case.engine.name(),
                case.block_size,
                case.kind.name(),
                case.run,
                args.runs
            );
            let done = bench.run(&workload, case)?;
            let predictor = Predictor {
                drive: &drive,
                scale: args.scale,
            };
            let view = RunView::new(&done, &predictor)?;
            report.add(view, done);
        }
    }
    report.finish();
    Ok(report)
}

/// In the order of the runs: disks alternate, so that what the machine does meanwhile hits all
/// alike.
fn cases(args: &CannylsArgs, engines: &[Engine]) -> Vec<Case> {
    let mut cases = Vec::new();
    for run in 1..=args.runs {
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
