//! `lumpscope bench seeds`: the published tables that this project began with, repeated, and laid
//! beside what was published.
//!
//! | command | table |
//! |---|---|
//! | [`cannyls`] | four workloads of the original engine on minfs, ext4 and xfs |
//! | [`diskbenchi`] | the riddle of xfs, writes from byte 3584 on |
//! | [`fileserver`] | what observing a file server costs |
//!
//! The disk of the tables is not here: times come from the emulated one, by replay of what the real
//! kernel asked a fast loop disk for, or live. Requests, and so the reasons, are the kernel's own.

pub mod cannyls;
pub mod diskbenchi;
mod error;
pub mod fileserver;
mod live;
mod pictures;
mod place;
mod predict;
mod published;
mod text;

use std::path::Path;
use std::process::ExitCode;

pub use error::SeedsError;

use crate::grpc::Transport;
use crate::lab::StoreKind;

/// The drive of the tables: see its data sheet for what is known of it and what is not.
pub(crate) const DRIVE: &str = "st1000dm003-tables";

/// Which table.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum SeedsCommand {
    /// Four workloads on a raw disk, ext4 and xfs, beside the published ratios, with the reason
    Cannyls(Box<cannyls::CannylsArgs>),
    /// Direct writes to a new file from its begin and from byte 3584, beside the published times
    Diskbenchi(Box<diskbenchi::DiskbenchiArgs>),
    /// What the probes cost a file server, beside the published cost
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
pub fn run(
    command: &SeedsCommand,
    exe: &Path,
    transport: Transport,
) -> Result<ExitCode, SeedsError> {
    match command {
        SeedsCommand::Cannyls(args) => cannyls::run(args, exe),
        SeedsCommand::Diskbenchi(args) => diskbenchi::run(args, exe),
        SeedsCommand::Fileserver(args) => fileserver::run(args, exe, transport),
    }
}

/// `4096`, `512K`, `2M`, `1G` or `1T`, in powers of 1024.
fn bytes_of(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: write a whole number, or one with K, M, G or T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or("") {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
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
    fn sizes_are_powers_of_1024() {
        assert_eq!(bytes_of("2M"), Ok(2 << 20));
        assert_eq!(bytes_of("3584"), Ok(3584));
        assert_eq!(bytes_of("1T"), Ok(1 << 40));
        for text in ["", "M", "2 M", "-1", "2MB", "99999999999T"] {
            assert!(bytes_of(text).is_err(), "{text}");
        }
        assert!(file_system_of("btrfs").is_err());
    }
}
