//! `lumpscope platter`: the modelled disk, by itself and under the kernel.

mod drives;
mod live;
mod replay;
mod shown;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use lumpscope_platter::drive::{self, DRIVES, Drive};

/// What can be done with it.
#[derive(Subcommand)]
pub(crate) enum PlatterCommand {
    /// List the drives that are modelled, or one with the source of every number
    Drives(drives::DrivesArgs),
    /// Say how long the block requests of a recording would have taken on other disks
    Replay(replay::ReplayArgs),
    /// Make an emulated disk that stays until `detach`, and print its device
    Attach(live::AttachArgs),
    /// Give an emulated disk up; what is on it is gone
    Detach(live::DetachArgs),
    /// List emulated disks: what they have done, how late they answer, who uses them
    Status(live::StatusArgs),
    /// Print what an emulated disk was asked for, as a trace in JSON
    Log(live::LogArgs),
    /// Measure how well emulated disks of this machine keep to their model
    Check(lumpscope_lab::fidelity::FidelityArgs),
    /// Be an emulated disk
    #[command(hide = true)]
    ServeDisk(live::ServeDiskArgs),
}

pub(super) fn run(command: PlatterCommand, exe: &Path) -> Result<ExitCode> {
    match command {
        PlatterCommand::Drives(args) => drives::run(&args),
        PlatterCommand::Replay(args) => replay::run(&args),
        PlatterCommand::Attach(args) => live::attach(&args, exe),
        PlatterCommand::Detach(args) => live::detach(&args),
        PlatterCommand::Status(args) => live::status(&args),
        PlatterCommand::Log(args) => live::log(&args),
        PlatterCommand::Check(args) => super::in_one_line(lumpscope_lab::fidelity::run(&args, exe)),
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
