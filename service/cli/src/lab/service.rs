//! `lumpscope lab`: something to look at on a machine without a spare disk.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use lumpscope_lab::disks::StoreKind;
use lumpscope_lab::lab_service::{self, LabServiceOptions};
use lumpscope_units::Size;

/// `lumpscope lab`.
#[derive(Args)]
#[command(
    after_help = "Needs root, mkfs.ext4 and mkfs.xfs. The stores are named raw, ext4 and xfs; all \
                  that was put into them is gone at the end, also after kill -9. Example:\n  \
                  lumpscope lab -- --otlp-endpoint http://127.0.0.1:4317"
)]
pub(crate) struct LabArgs {
    /// Directory for the three disk images [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of each disk, 512M or more; the part that a file system does not need is written once
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: Size,
    /// Emulate this drive below the stores; the disks are then as large as the drive, and --size
    /// only says how large the stores are
    #[arg(long, value_name = "NAME", conflicts_with = "dir")]
    drive: Option<String>,
    /// Make the ext4 without a journal, as the published benchmark did
    #[arg(long)]
    no_ext4_journal: bool,
    /// Make only this store; repeat for more. The raw one needs no mount, and no CAP_SYS_ADMIN
    #[arg(long, value_name = "STORE", value_parser = PossibleValuesParser::new(StoreKind::ALL.map(StoreKind::name)))]
    only: Vec<String>,
    /// Further arguments of `lumpscope serve`
    #[arg(last = true, value_name = "ARGS OF serve")]
    serve: Vec<OsString>,
}

pub(super) fn run(args: LabArgs, exe: &Path) -> Result<ExitCode> {
    let mut kinds = StoreKind::ALL.to_vec();
    kinds.retain(|kind| args.only.is_empty() || args.only.iter().any(|name| name == kind.name()));
    let options = LabServiceOptions {
        dir: args.dir,
        disk_bytes: args.size.0,
        ext4_journal: !args.no_ext4_journal,
        kinds,
        drive: args.drive,
        serve: args.serve,
    };
    lab_service::run(&options, exe)
}
