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

use crate::disks::StoreKind;
use crate::studies::grpc::Transport;

/// The drive of the tables: see its data sheet for what is known of it and what is not.
pub(crate) const DRIVE: &str = "st1000dm003-tables";

/// Which table.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum SeedsCommand {
    /// Four workloads on a raw disk, ext4 and xfs, beside the published ratios, with the reason
    Cannyls(Box<cannyls::CannylsArgs>),
    /// Direct writes to a new file from its begin and from byte 3584, beside the published times
    Diskbenchi(Box<diskbenchi::DiskbenchiArgs>),
    /// Cost of the probes for a file server, beside the published cost
    Fileserver(Box<fileserver::FileserverArgs>),
}

/// Repeats a table and prints it. `exe` is the program that understands `serve`, `transport` what
/// it does without flags.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a table that does not agree is a result, not a failure.
///
/// # Errors
/// Everything that keeps the table from being repeated. The message says what to do.
pub fn run(command: &SeedsCommand, exe: &Path, transport: Transport) -> anyhow::Result<ExitCode> {
    match command {
        SeedsCommand::Cannyls(args) => cannyls::run(args),
        SeedsCommand::Diskbenchi(args) => diskbenchi::run(args),
        SeedsCommand::Fileserver(args) => fileserver::run(args, exe, transport),
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
