//! Command line of `lumpscope bench seeds diskbenchi`.

use std::path::PathBuf;

use super::program::{MAX_BLOCK, POOL_BYTES, Program, STEP};
use crate::disks::StoreKind;
use crate::experiment::OutputArgs;
use crate::failure::argument;
use crate::studies::predict::Rule;
use crate::studies::seeds::DRIVE;
use crate::studies::seeds::file_system_of;

/// Where the published writes began: 512 bytes before the end of the first 4 KiB.
pub(super) const ODD_OFFSET: u64 = 3584;

/// Write one buffer again and again to a new file, from its begin and from byte 3584, and show what
/// the file systems make of it and how long a disk would take.
///
/// With --of it is the published program and nothing else: no fsync, no statistics.
#[derive(Clone, Debug, clap::Args)]
pub struct DiskbenchiArgs {
    /// Bytes of one write, a multiple of 4096
    #[arg(long, default_value = "2M", value_parser = lumpscope_units::size_within(0, u64::MAX), value_name = "BYTES")]
    pub bs: u64,
    /// Writes [default: 1000]. Half of them, three quarters and all stand for the published 2000,
    /// 3000 and 4000
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub count: u64,
    /// Write to this file and do nothing else; `time` tells how long
    #[arg(long, value_name = "PATH")]
    pub of: Option<PathBuf>,
    /// First byte [default: both 0 and 3584, with --of 0]
    #[arg(long, value_parser = lumpscope_units::size_within(0, u64::MAX), value_name = "BYTES")]
    pub offset: Option<u64>,
    /// Write from a buffer of huge pages, of which 5 must have been set aside (vm.nr_hugepages)
    #[arg(long)]
    pub hugepool: bool,
    /// Only this file system: xfs or ext4 [default: both]
    #[arg(long, value_parser = file_system_of, value_name = "KIND", conflicts_with = "of")]
    pub fs: Option<StoreKind>,
    /// Runs of each, alternating; of fewer than 3 no time is said to agree or not
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub runs: usize,
    /// Directory for the images of the disks [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Drive that the times are predicted for: see `lumpscope platter drives`
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    pub drive: String,
    /// Run on the emulated drive itself, in real time, with firmware that is supposed to follow this
    /// rule, and print what was measured beside what is predicted. Takes as long as the drive would,
    /// and wants a quiet machine
    #[arg(long, value_enum, value_name = "RULE", num_args = 0..=1, require_equals = true,
          default_missing_value = "ideal", conflicts_with = "of")]
    pub(in crate::studies::seeds) live: Option<Rule>,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub output: OutputArgs,
}

impl DiskbenchiArgs {
    /// The writes from one offset.
    pub(super) fn program(&self, offset: u64) -> Program {
        Program {
            block: self.bs,
            count: self.count,
            offset,
            hugepool: self.hugepool,
        }
    }

    pub(super) fn offsets(&self) -> Vec<u64> {
        self.offset.map_or(vec![0, ODD_OFFSET], |one| vec![one])
    }

    pub(super) fn kinds(&self) -> Vec<StoreKind> {
        let all = || vec![StoreKind::Xfs, StoreKind::Ext4];
        self.fs.map_or_else(all, |one| vec![one])
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.bs == 0 || self.bs > MAX_BLOCK || !self.bs.is_multiple_of(STEP) {
            return Err(argument("--bs", "a multiple of 4096, up to 1G"));
        }
        if self.hugepool && self.bs > POOL_BYTES {
            return Err(argument("--bs", "at most 10M with --hugepool"));
        }
        if !(1..=1_000_000).contains(&self.count) {
            return Err(argument("--count", "1 to 1000000"));
        }
        if !(1..=100).contains(&self.runs) {
            return Err(argument("--runs", "1 to 100"));
        }
        if !self.offset.unwrap_or(0).is_multiple_of(512) {
            return Err(argument("--offset", "a multiple of 512"));
        }
        Ok(())
    }
}
