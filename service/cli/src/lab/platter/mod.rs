//! `lumpscope platter`: the modelled disk, by itself and under the kernel.

mod drives;
mod live;
mod replay;
mod shown;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use lumpscope_platter::drive::{self, DRIVES, Drive};

use super::{in_one_line, program};

/// Commands on modelled disks.
#[derive(Subcommand)]
pub(crate) enum PlatterCommand {
    /// List the modelled drives, or one of them with the source of every number
    Drives(drives::DrivesArgs),
    /// Predict the times of a recording's block requests on other disks
    Replay(replay::ReplayArgs),
    /// Make an emulated disk that stays until `detach`, and print its device
    Attach(live::AttachArgs),
    /// Remove an emulated disk and its contents
    Detach(live::DetachArgs),
    /// List emulated disks: their work, their delays, their users; or make places of one fail
    Status(live::StatusArgs),
    /// Measure how closely emulated disks of this machine follow their model
    Check(lumpscope_lab::fidelity::FidelityArgs),
    /// Be an emulated disk
    #[command(hide = true)]
    ServeDisk(live::ServeDiskArgs),
}

pub(super) fn run(command: PlatterCommand) -> Result<ExitCode> {
    match command {
        PlatterCommand::Drives(args) => drives::run(&args),
        PlatterCommand::Replay(args) => replay::run(&args),
        PlatterCommand::Attach(args) => live::attach(&args, &program()?),
        PlatterCommand::Detach(args) => live::detach(&args),
        PlatterCommand::Status(args) => live::status(&args),
        PlatterCommand::Check(args) => {
            in_one_line(lumpscope_lab::fidelity::run(&args, &program()?))
        }
        PlatterCommand::ServeDisk(args) => live::serve_disk(&args),
    }
}

/// For clap: a drive by its name.
pub(super) fn named_drive(name: &str) -> Result<Drive, String> {
    drive::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = DRIVES.iter().map(|drive| drive.name.as_ref()).collect();
        format!("there are {}", names.join(", "))
    })
}
