//! Command line of `lumpscope bench run`.

use std::path::PathBuf;

use crate::commands::Printed;
use crate::disks::StoreKind;
use crate::experiment::StudyArgs;
use crate::load::runner::Durability;
use crate::workload::WorkloadArgs;

/// Program that runs the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Runs {
    /// Our engine, in this process.
    Engine,
    /// Our service, through gRPC.
    Grpc,
    /// Our service, through S3: each lump is an object.
    S3,
    /// The original engine in a separate program, as the original benchmark runs it.
    Cannyls,
}

/// Run a workload on a store, time every command, and print it as the published tables do.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "The lab's disks are loop devices that vanish at the end; they need root. A device given with --device \
                  is refused if anything is on it, and given back empty; a file must not be there yet, and is removed. \
                  With --print, each line is \
                  KIND ID SIZE, or delete_range FIRST END, with ids as 32 hexadecimal digits; the first counts the \
                  commands and the bytes that the original benchmark asks for, the second is the SHA-256 of all \
                  lines of commands, whatever is printed of them."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    /// Program that runs the commands
    #[arg(long, value_enum, default_value = "engine")]
    pub(super) target: Runs,
    /// Disk of the lab to run on
    #[arg(long, value_enum, default_value = "raw")]
    pub(super) store: StoreKind,
    /// Run on this block device, or in this file, instead of a lab's disk
    #[arg(long, value_name = "DEVICE|FILE", conflicts_with_all = ["store", "dir"])]
    pub(super) device: Option<PathBuf>,
    /// Run on this drive, emulated, in real time; `lumpscope platter drives` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["device", "dir"])]
    pub(super) drive: Option<String>,
    /// Bytes of a block of the store: a multiple of 512
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub(super) block_size: u16,
    /// Failure that an acknowledged put or delete survives: a power cut (synced), or the death of
    /// the process (journaled). The original engine knows neither, and runs as the original
    /// benchmark did
    #[arg(long, value_name = "synced|journaled", value_parser = durability, default_value = "synced")]
    pub(super) durability: Durability,
    /// Requests in flight; commands on one lump keep their order
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) depth: usize,
    /// Compare every byte of every get, then close and reopen the store and compare all that lives,
    /// and that nothing else lives
    #[arg(long)]
    pub(super) verify: bool,
    /// Program that runs the original engine [default: lumpscope-cannyls-peer beside this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(super) cannyls_peer: Option<PathBuf>,
    /// Only print the commands of the workload
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) print: Option<Printed>,
    /// With --print commands: only the first N
    #[arg(long, value_name = "N", requires = "print")]
    pub(super) limit: Option<usize>,
    #[command(flatten)]
    pub(super) study: StudyArgs,
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "synced" => Ok(Durability::Synced),
        "journaled" => Ok(Durability::Journaled),
        _ => Err("it is synced or journaled".to_owned()),
    }
}
