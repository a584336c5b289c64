//! `lumpscope bench seeds diskbenchi`: why writing a new file on xfs from byte 3584 on is slower
//! than from its begin, as far as that can be seen without the disk it was seen on.
//!
//! docs/xfs-offset.md tells the story.

mod program;
mod report;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;

pub use program::Program;

use super::{DRIVE, file_system_of};
use crate::disks::StoreKind;
use crate::experiment::report::Report;
use crate::experiment::{self, OutputArgs};
use crate::failure::{argument, within};
use crate::process::Interrupt;
use crate::studies::predict;
use program::{MAX_BLOCK, STEP, cannot_write};
use report::Data;
use trial::Trial;

/// Where the published writes began: 512 bytes before the end of the first 4 KiB.
const ODD_OFFSET: u64 = 3584;

/// Write one buffer again and again to a new file, from its begin and from byte 3584, and show what
/// the file systems make of it and how long a disk would take.
///
/// With --of it is the published program and nothing else: no fsync, no statistics.
#[derive(Clone, Debug, clap::Args)]
pub struct DiskbenchiArgs {
    /// Size of one write, a multiple of 4096
    #[arg(long, default_value = "2M", value_parser = lumpscope_units::size_within(STEP, MAX_BLOCK), value_name = "SIZE")]
    size: u64,
    /// Writes. Half of them, three quarters and all stand for the published 2000, 3000 and 4000
    #[arg(long, default_value_t = 1000, value_name = "N")]
    count: u64,
    /// Write to this file and do nothing else; `time` tells how long
    #[arg(long, value_name = "PATH")]
    of: Option<PathBuf>,
    /// With --of: first byte
    #[arg(long, default_value = "0", value_parser = lumpscope_units::size_within(0, u64::MAX), value_name = "BYTES")]
    offset: u64,
    /// Only this file system: xfs or ext4 [default: both]
    #[arg(long, value_parser = file_system_of, value_name = "KIND", conflicts_with = "of")]
    store: Option<StoreKind>,
    /// Rounds; with fewer than 3 no time is said to agree or not
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Directory for the images of the disks [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Drive that the times are predicted for: see `lumpscope platter drives`
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    model: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl DiskbenchiArgs {
    /// The writes from one offset.
    fn program(&self, offset: u64) -> Program {
        Program {
            block: self.size,
            count: self.count,
            offset,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        if !self.size.is_multiple_of(STEP) {
            return Err(argument("--size", "a multiple of 4096"));
        }
        within("--count", self.count, 1..=1_000_000)?;
        within("--rounds", self.rounds, 1..=100)?;
        if !self.offset.is_multiple_of(512) {
            return Err(argument("--offset", "a multiple of 512"));
        }
        Ok(())
    }
}

/// Runs, prints, and writes what is asked for.
pub(super) fn run(args: &DiskbenchiArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let Some(file) = &args.of {
        // As the published program: nothing but the writes.
        let program = args.program(args.offset);
        println!("{program:#?}");
        program.run(file).map_err(cannot_write(file))?;
        return Ok(ExitCode::SUCCESS);
    }
    experiment::run(&args.output, |interrupt| measure(args, interrupt))
}

fn measure(args: &DiskbenchiArgs, interrupt: &Interrupt) -> anyhow::Result<(Report, Data)> {
    let drive = predict::drive_named(&args.model)?;
    let both = || vec![StoreKind::Xfs, StoreKind::Ext4];
    let kinds = args.store.map_or_else(both, |one| vec![one]);
    let of = |kind: &StoreKind| [0, ODD_OFFSET].map(|offset| (*kind, offset));
    let places: Vec<(StoreKind, u64)> = kinds.iter().flat_map(of).collect();
    let mut trials = Vec::new();
    for run in 1..=args.rounds {
        for (kind, offset) in experiment::rotate(&places, run) {
            let rounds = args.rounds;
            eprintln!(
                "{} from byte {offset}, round {run} of {rounds}",
                kind.name()
            );
            let program = args.program(*offset);
            let lab = trial::lab(program, args.dir.clone());
            trials.push(Trial::new(*kind, program, run, &lab, interrupt)?);
        }
    }
    let mut report = report::report(&kinds, &trials, &drive)?;
    report.fact("Drive", &*drive.title);
    let (rounds, count, size) = (args.rounds, args.count, args.size);
    report.fact(
        "Runs",
        format!("{rounds} of each, {count} writes of {size} bytes"),
    );
    Ok((report, Data::of(&trials)))
}
