//! `lumpscope platter`: the modelled disk.

mod drives;
mod replay;

use std::process::ExitCode;

use clap::Subcommand;
use lumpscope_platter::drive::{self, DRIVES, Drive};

use crate::error::ServerError;

/// What can be done with it.
#[derive(Subcommand)]
pub(super) enum PlatterCommand {
    /// List the drives that are modelled, or one with the source of every number
    Drives(drives::DrivesArgs),
    /// Say how long the block requests of a recording would have taken on other disks
    Replay(replay::ReplayArgs),
}

pub(super) fn run(command: PlatterCommand) -> Result<ExitCode, ServerError> {
    match command {
        PlatterCommand::Drives(args) => drives::run(&args),
        PlatterCommand::Replay(args) => replay::run(&args),
    }
}

/// For clap: a drive by its name.
pub(super) fn named_drive(name: &str) -> Result<Drive, String> {
    drive::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = DRIVES.iter().map(|drive| drive.name.as_ref()).collect();
        format!("there are {}", names.join(", "))
    })
}
