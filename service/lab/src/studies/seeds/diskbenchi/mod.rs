//! `lumpscope bench seeds diskbenchi`: why writing a new file on xfs from byte 3584 on is slower
//! than from its begin, as far as that can be seen without the disk it was seen on.
//!
//! docs/xfs-offset.md tells the story.

mod args;
mod findings;
mod page;
mod program;
mod report;
mod trial;

use std::path::Path;
use std::process::ExitCode;

pub use args::DiskbenchiArgs;
pub use program::{POOL_BYTES, Program};

use super::live::Live;
use crate::experiment::{self, Machine};
use crate::process::Interrupt;
use crate::studies::predict;
use program::cannot_write;
use report::Report;
pub(super) use report::range;
use trial::Trial;

/// Runs, prints, and writes what is asked for.
pub(super) fn run(args: &DiskbenchiArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let Some(file) = &args.of {
        // As the published program: nothing but the writes.
        let program = args.program(args.offset.unwrap_or(0));
        println!("{program:#?}");
        program.run(file).map_err(cannot_write(file))?;
        return Ok(ExitCode::SUCCESS);
    }
    experiment::run(&args.output, (Report::text, Report::page), |interrupt| {
        measure(args, exe, interrupt)
    })
}

fn measure(args: &DiskbenchiArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let drive = predict::drive_named(&args.drive)?;
    let machine = Machine::before();
    let mut trials = Vec::new();
    let mut places = Vec::new();
    for kind in args.kinds() {
        places.extend(args.offsets().into_iter().map(|offset| (kind, offset)));
    }
    for run in 1..=args.runs {
        for (kind, offset) in experiment::rotate(&places, run) {
            eprintln!(
                "{} from byte {offset}, run {run} of {}",
                kind.name(),
                args.runs
            );
            let program = args.program(*offset);
            let lab = trial::lab(program, args.dir.clone());
            let lab = match args.live {
                Some(rule) => {
                    let drive = &args.drive;
                    Live { exe, drive, rule }.first_sectors(lab)
                }
                None => lab,
            };
            trials.push(Trial::new(*kind, program, run, &lab, interrupt)?);
        }
    }
    Report::new(args, machine, drive, trials)
}
