//! `lumpscope bench seeds`: the published tables that this project began with, repeated, and laid
//! beside what was published.
//!
//! | command | table |
//! |---|---|
//! | [`cannyls`] | four workloads of the original engine on minfs, ext4 and xfs |
//! | [`diskbenchi`] | the riddle of xfs, writes from byte 3584 on |
//! | [`fileserver`] | what observing a file server costs |
//!
//! The disk of the tables is not here: times come from its model, by replay of what the real kernel
//! asked a fast loop disk for. Requests, and so the reasons, are the kernel's own.

pub mod cannyls;
pub mod diskbenchi;
pub mod fileserver;
mod place;
mod published;

use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::disks::StoreKind;
use crate::experiment::StudyArgs;
use crate::studies::grpc::Transport;

/// The drive of the tables: see its data sheet for what is known of it and what is not.
pub(crate) const DRIVE: &str = "st1000dm003-tables";

/// A published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SeedTable {
    /// Four workloads on a raw disk, ext4 and xfs, beside the published ratios, with the reason
    Cannyls,
    /// Direct writes to a new file from its begin and from byte 3584, beside the published times
    Diskbenchi,
    /// Cost of the probes for a file server, beside the published cost
    Fileserver,
}

/// `lumpscope bench seeds`.
#[derive(Debug, Clone)]
pub struct SeedsArgs(Box<SeedsOptions>);

impl std::ops::Deref for SeedsArgs {
    type Target = SeedsOptions;

    fn deref(&self) -> &SeedsOptions {
        &self.0
    }
}

/// The options of all tables.
#[derive(Debug, Clone, clap::Args)]
pub struct SeedsOptions {
    /// Table to repeat
    #[arg(value_enum)]
    table: SeedTable,
    /// Rounds; with fewer than 3 no time is said to agree or not [default: 3; of fileserver 10]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Drive that the times are predicted for; `lumpscope platter drives` lists them
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    model: String,
    #[command(flatten)]
    study: StudyArgs,
    #[command(flatten)]
    cannyls: cannyls::CannylsArgs,
    #[command(flatten)]
    diskbenchi: diskbenchi::DiskbenchiArgs,
    #[command(flatten)]
    fileserver: fileserver::FileserverArgs,
}

impl SeedsOptions {
    fn rounds(&self) -> usize {
        let usual = if self.table == SeedTable::Fileserver {
            10
        } else {
            3
        };
        self.rounds.unwrap_or(usual)
    }
}

impl Args for SeedsArgs {
    fn augment_args(command: Command) -> Command {
        SeedsOptions::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SeedsOptions::augment_args_for_update(command)
    }
}

impl FromArgMatches for SeedsArgs {
    /// Refuses an option of another table.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = SeedsOptions::from_arg_matches(matches)?;
        type Augment = fn(Command) -> Command;
        let augment: [(SeedTable, Augment); 3] = [
            (SeedTable::Cannyls, cannyls::CannylsArgs::augment_args),
            (
                SeedTable::Diskbenchi,
                diskbenchi::DiskbenchiArgs::augment_args,
            ),
            (
                SeedTable::Fileserver,
                fileserver::FileserverArgs::augment_args,
            ),
        ];
        for (_, augment) in augment.iter().filter(|(table, _)| *table != options.table) {
            let of_table = augment(Command::new(""));
            let given = |arg: &&Arg| {
                let source = matches.value_source(arg.get_id().as_str());
                source == Some(ValueSource::CommandLine)
            };
            if let Some(option) = of_table.get_arguments().find(given) {
                let why = format!("{option} is an option of another table\n");
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
            }
        }
        Ok(Self(Box::new(options)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Repeats a table and prints it. `exe` is the program that understands `serve`, `transport` what
/// it does without flags.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a table that does not agree is a result, not a failure.
///
/// # Errors
/// Everything that keeps the table from being repeated. The message says what to do.
pub fn run(args: &SeedsArgs, exe: &Path, transport: Transport) -> anyhow::Result<ExitCode> {
    match args.table {
        SeedTable::Cannyls => cannyls::run(args),
        SeedTable::Diskbenchi => diskbenchi::run(args),
        SeedTable::Fileserver => fileserver::run(args, exe, transport),
    }
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
