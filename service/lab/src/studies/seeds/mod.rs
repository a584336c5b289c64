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
mod published;
mod recording;

use std::path::Path;
use std::process::ExitCode;

use crate::experiment::StudyArgs;

/// The drive of the tables: see its data sheet for what is known of it and what is not.
pub(crate) const DRIVE: &str = "st1000dm003-tables";

/// A published table.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum SeedTable {
    /// Four workloads on a raw disk, ext4 and xfs, beside the published ratios, with the reason
    Cannyls(Box<cannyls::CannylsArgs>),
    /// Direct writes to a new file from its begin and from byte 3584, beside the published times
    Diskbenchi(Box<diskbenchi::DiskbenchiArgs>),
    /// Cost of the probes for a file server, beside the published cost
    Fileserver(Box<fileserver::FileserverArgs>),
}

/// Options of the tables whose times come from a model.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelledArgs {
    /// Rounds; with fewer than 3 no time is said to agree or not
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Drive that the times are predicted for; `lumpscope platter drives` lists them
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    model: String,
    #[command(flatten)]
    study: StudyArgs,
}

/// Repeats a table and prints it. `exe` is the program that understands `serve`.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a table that does not agree is a result, not a failure.
///
/// # Errors
/// Everything that keeps the table from being repeated. The message says what to do.
pub fn run(table: &SeedTable, exe: &Path) -> anyhow::Result<ExitCode> {
    match table {
        SeedTable::Cannyls(args) => cannyls::run(args),
        SeedTable::Diskbenchi(args) => diskbenchi::run(args),
        SeedTable::Fileserver(args) => fileserver::run(args, exe),
    }
}
