//! Runs a load on the published `cannyls` crate and prints what it measured as one line of JSON
//! ([`PeerReport`]). A tool for benches and tests: nothing of the product depends on it.
//!
//! How a put of the original comes to its promise:
//!
//! | promise | how |
//! |---|---|
//! | synced | depth 1: `Storage::put`, then `Storage::journal_sync`; deeper: a `Device` over a storage that syncs within each put (`journal_sync_interval(0)`). Not `DeviceRequest::journal_sync`: that replies before it syncs. One fdatasync covers data and record, in no order |
//! | written | the same over a file whose `sync` does nothing: the record is written within each put, and nothing is flushed |
//! | buffered | the crate's defaults: the record stays in memory for up to 4096 puts |

mod device;
mod memory;
mod storage;
mod workload;
mod written;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use cannyls::nvm::FileNvm;
use clap::{Parser, Subcommand};
use lumpscope_lab::engine::{PeerReport, SlowLoad};
use lumpscope_lab::load::{Load, Promise};

use memory::MemoryDisk;
use written::UnsyncedNvm;

/// Runs a load on the published cannyls crate and prints one line of JSON.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: PeerCommand,
}

#[derive(Subcommand)]
enum PeerCommand {
    /// Puts of fresh lumps, then gets of them, on a file or device, which is overwritten
    File(FileArgs),
    /// A workload in the language of the original benchmark, as that ran it; one line of JSON
    /// (`CannylsRun`) with the time of each command
    Workload(workload::WorkloadFileArgs),
    /// Gets on a disk in memory each of whose I/Os takes some time
    Slow(SlowLoad),
}

#[derive(clap::Args)]
struct FileArgs {
    /// File or device to overwrite; a file must be as large as the capacity
    #[arg(long)]
    file: PathBuf,
    /// Bytes of the storage
    #[arg(long)]
    capacity: u64,
    /// Bytes of a block
    #[arg(long, default_value_t = 4096)]
    block_size: u16,
    /// Bytes of a lump
    #[arg(long)]
    size: u64,
    /// Most lumps put
    #[arg(long)]
    count: u64,
    /// Requests in flight; 1 uses the storage directly, more a device
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Failure that an acknowledged put survives
    #[arg(long, value_enum)]
    promise: Promise,
    /// Longest timed part of each operation, in milliseconds
    #[arg(long)]
    milliseconds: u64,
    /// Determines payloads and order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Puts only
    #[arg(long)]
    no_gets: bool,
}

impl FileArgs {
    fn load(&self) -> Load {
        Load {
            size: self.size,
            depth: self.depth,
            count: self.count,
            distinct: self.count,
            time: Duration::from_millis(self.milliseconds),
            promise: self.promise,
            seed: self.seed,
        }
    }
}

fn main() -> Result<()> {
    let json = match Cli::parse().command {
        PeerCommand::File(args) => serde_json::to_string(&on_file(&args)?)?,
        PeerCommand::Slow(load) => serde_json::to_string(&on_slow_disk(&load)?)?,
        PeerCommand::Workload(args) => serde_json::to_string(&workload::run(&args)?)?,
    };
    println!("{json}");
    Ok(())
}

fn on_file(args: &FileArgs) -> Result<PeerReport> {
    storage::format(&args.file, args.capacity, args.block_size)?;
    let file = FileNvm::open(&args.file)
        .with_context(|| format!("cannot open {}", args.file.display()))?;
    let (load, gets) = (args.load(), !args.no_gets);
    match args.promise {
        Promise::Written => run(UnsyncedNvm(file), &load, gets),
        Promise::Synced | Promise::Buffered => run(file, &load, gets),
    }
}

fn run<N>(nvm: N, load: &Load, gets: bool) -> Result<PeerReport>
where
    N: cannyls::nvm::NonVolatileMemory + Send + 'static,
{
    if load.depth > 1 {
        device::run(nvm, load, gets)
    } else {
        storage::run(nvm, load, gets)
    }
}

fn on_slow_disk(slow: &SlowLoad) -> Result<PeerReport> {
    let mut disk = MemoryDisk::new(slow.capacity());
    storage::create(disk.clone(), 4096)?;
    let load = slow.load();
    storage::fill(disk.clone(), &load)?;
    disk.set_latency(slow.latency());
    device::gets_only(disk, &load)
}
