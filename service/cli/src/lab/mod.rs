//! The laboratory's commands: emulated disks, generated load, comparisons and benchmarks. Compiled
//! with the feature `lab`, which is on by default; the service needs none of it.

mod bench;
mod load;
mod platter;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::client::ConnectionArgs;
use crate::error::system;

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// Show on one screen what Lumpscope is for, measured here
    Demo(Box<lumpscope_lab::peers::demo::DemoArgs>),
    /// Run one workload against a raw, an ext4 and an xfs store and compare them
    Compare(Box<lumpscope_lab::compare::CompareArgs>),
    /// Serve stores (raw, ext4, xfs) on loop devices that vanish at the end
    Lab(Box<lumpscope_lab::lab_service::LabArgs>),
    /// Show the disk requests of any program, by file and by kind
    Watch(Box<lumpscope_lab::watch::WatchArgs>),
    /// Put, get and delete lumps until Ctrl-C, to give a service some load
    Load(load::LoadArgs),
    /// Modelled hard disk: replay recordings, or attach it as a block device
    #[command(subcommand)]
    Platter(platter::PlatterCommand),
    /// Measure speed
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

pub(crate) fn run(connection: ConnectionArgs, command: LabCommand) -> Result<ExitCode> {
    match command {
        LabCommand::Demo(args) => in_one_line(lumpscope_lab::peers::demo::run(&args, &program()?)),
        LabCommand::Compare(args) => in_one_line(lumpscope_lab::compare::run(&args, program()?)),
        LabCommand::Lab(args) => in_one_line(lumpscope_lab::lab_service::run(&args, &program()?)),
        LabCommand::Watch(args) => in_one_line(lumpscope_lab::watch::run(&args)),
        LabCommand::Load(args) => crate::block_on_live(load::run(connection, args)),
        LabCommand::Platter(command) => platter::run(command),
        LabCommand::Bench(command) => in_one_line(bench::run(command)),
    }
}

/// This program's own file, for commands that start it again as a service, a peer or a disk.
fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(system("find this program's own file"))
}

/// The errors of the laboratory are chains of causes.
fn in_one_line(result: Result<ExitCode>) -> Result<ExitCode> {
    result.map_err(|error| anyhow::Error::msg(lumpscope_lab::message(&error)))
}
