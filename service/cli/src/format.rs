//! `lumpscope format`: the only command that makes a store, and the only one that can destroy
//! what was on a device.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use lumpscope_engine::Machine;
use lumpscope_engine::create::{self, CreateOptions, Prealloc};
use lumpscope_units::Size;

use super::output::{escaped, print};
use super::progress::templated as bar;

/// `lumpscope format`.
#[derive(Args)]
pub(super) struct FormatArgs {
    /// Block device, or a file to create
    path: PathBuf,
    /// Size of the store, e.g. 64M or 1G [default: the whole device]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Block size of the store in bytes: a multiple of 512 up to 65024
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    block_size: Size,
    /// Share of the store for the journal
    #[arg(long, value_name = "RATIO", default_value_t = 0.01)]
    journal_ratio: f64,
    /// Allocation of a file's space
    #[arg(long, value_enum, default_value_t)]
    prealloc: PreallocArg,
    /// Reserve no space on a block device for checkpoints of the index (at most 0.4 %): every start
    /// replays the whole journal
    #[arg(long)]
    no_checkpoint: bool,
    /// Name of the store, written into it: `serve` refuses it under another name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Format even a place that a reboot loses (tmpfs, ramfs, zram, a ramdisk) or that ends with a
    /// container (overlay)
    #[arg(long)]
    volatile: bool,
    /// Format even if the target is not empty: its contents are lost
    #[arg(long)]
    force: bool,
}

/// Allocation of a file's space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum PreallocArg {
    /// Write zeros: slow once, and no put ever waits for the file system to allocate
    #[default]
    Zero,
    /// Reserve without writing: quick, but the first write to each place costs a metadata write
    Fallocate,
    /// Reserve nothing: the file system may run out of space later
    Sparse,
}

impl From<PreallocArg> for Prealloc {
    fn from(arg: PreallocArg) -> Self {
        match arg {
            PreallocArg::Zero => Self::Zero,
            PreallocArg::Fallocate => Self::Fallocate,
            PreallocArg::Sparse => Self::Sparse,
        }
    }
}

pub(super) fn run(args: &FormatArgs) -> Result<ExitCode> {
    let block_size = u16::try_from(args.block_size.0).map_err(|_| {
        anyhow!(
            "--block-size: {} is out of range (512 to 65024)",
            args.block_size
        )
    })?;
    let bar = bar("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let machine = Machine::this();
    let options = CreateOptions {
        capacity: args.capacity.map(|size| size.0),
        block_size,
        journal_ratio: args.journal_ratio,
        prealloc: args.prealloc.into(),
        checkpoint_area: !args.no_checkpoint,
        name: args.name.as_deref(),
        force: args.force,
        machine: Some(&machine),
        volatile: args.volatile,
        progress: Some(&progress),
    };
    let made = create::format(&args.path, &options);
    bar.finish_and_clear();
    print(&summary(&made?))?;
    Ok(ExitCode::SUCCESS)
}

fn summary(report: &create::FormatReport) -> String {
    let mut text = String::new();
    for erased in &report.erased {
        text.push_str(&format!("erased: {}\n", escaped(&erased.to_string())));
    }
    text.push_str(&format!(
        "{}: {} store {}, {} bytes in blocks of {}, journal {} bytes, largest lump {} bytes",
        escaped(&report.path.display().to_string()),
        report.layout.name(),
        report.uuid,
        report.geometry.data_len().0,
        report.geometry.block_size().bytes(),
        report.geometry.journal_len().0,
        report.max_lump_bytes,
    ));
    if let Some(medium) = report.volatile {
        text.push_str(&format!("\nNOT DURABLE: it is {medium}"));
    }
    text
}
