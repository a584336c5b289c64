//! `lumpscope bench seeds diskbenchi`: why writing a new file on xfs from byte 3584 on is slower
//! than from its begin, as far as that can be seen without the disk it was seen on.
//!
//! docs/xfs-offset.md tells the story.

mod program;
mod report;
mod trial;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

pub use program::Program;

use super::ModelledArgs;
use crate::disks::StoreKind;
use crate::experiment;
use crate::experiment::report::Report;
use crate::failure::{argument, within};
use crate::process::Interrupt;
use crate::studies::predict;
use lumpscope_units::tell;
use program::{MAX_BLOCK, STEP, cannot_write};
use report::DiskbenchTrials;
use trial::Trial;

/// Where the published writes began: 512 bytes before the end of the first 4 KiB.
const ODD_OFFSET: u64 = 3584;

/// One buffer, written again and again to a new file, from its begin and from byte 3584: what the file
/// systems make of it, and how long a disk would take.
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
    #[command(flatten)]
    modelled: ModelledArgs,
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
        within("--rounds", self.modelled.rounds, 1..=100)?;
        within("--count", self.count, 1..=1_000_000)?;
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
        experiment::write_to(io::stdout(), |out| writeln!(out, "{program:#?}"))?;
        program.run(file).map_err(cannot_write(file))?;
        return Ok(ExitCode::SUCCESS);
    }
    let output = &args.modelled.study.output;
    experiment::run(output, |interrupt| measure(args, interrupt))
}

fn measure(
    args: &DiskbenchiArgs,
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, DiskbenchTrials)> {
    let rounds = args.modelled.rounds;
    let drive = predict::drive_named(&args.modelled.model)?;
    let both = || vec![StoreKind::Xfs, StoreKind::Ext4];
    let kinds = args.store.map_or_else(both, |one| vec![one]);
    let of = |kind: &StoreKind| [0, ODD_OFFSET].map(|offset| (*kind, offset));
    let places: Vec<(StoreKind, u64)> = kinds.iter().flat_map(of).collect();
    let mut trials = Vec::new();
    for run in 1..=rounds {
        for (kind, offset) in experiment::rotate(&places, run) {
            tell(&format!(
                "{} from byte {offset}, round {run} of {rounds}",
                kind.name()
            ));
            let place = (*kind, args.modelled.study.dir.clone());
            trials.push(Trial::new(place, args.program(*offset), run, interrupt)?);
        }
    }
    let data = DiskbenchTrials::of(&trials);
    let mut report = report::report(&kinds, (&trials, &data), &drive)?;
    report.fact("Drive", &*drive.title);
    let (count, size) = (args.count, args.size);
    report.fact(
        "Runs",
        format!("{rounds} of each, {count} writes of {size} bytes"),
    );
    Ok((report, data))
}

/// `ext4` or `xfs`.
fn file_system_of(text: &str) -> Result<StoreKind, String> {
    match text {
        "ext4" => Ok(StoreKind::Ext4),
        "xfs" => Ok(StoreKind::Xfs),
        _ => Err(format!("{text:?} is neither ext4 nor xfs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ext4_and_xfs_are_known() {
        assert!(file_system_of("btrfs").is_err());
    }
}
