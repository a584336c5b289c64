//! `lumpscope platter attach`, `detach`, `bad-spots`, `status`, `log`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_lab::disks::BUSY;
use lumpscope_platter::disk::Policy;
use lumpscope_platter::live::{self, BadSpot, LiveOptions};
use lumpscope_units::{Size, human};

use super::shown;
use crate::output::{complain, plain, print, print_as_is};

/// What a request takes on a drive of 7200 rpm, in nanoseconds.
const REQUEST_NS: u64 = 10_000_000;

/// Which disk to emulate.
#[derive(Args)]
#[command(
    after_help = "Needs root, /dev/fuse and loop devices. What is written lives in memory, sparsely, \
                  up to --memory; beyond it writes fail with ENOSPC. Example:\n  \
                  lumpscope platter attach --drive st1000dm003\n  \
                  mkfs.xfs /dev/loopN && mount /dev/loopN /mnt"
)]
pub(crate) struct AttachArgs {
    /// Drive to emulate; `lumpscope platter drives` lists them
    #[arg(long, value_name = "NAME")]
    drive: String,
    /// Size of the disk: the first sectors of the drive [default: the whole drive]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Let the arm cross a smaller disk in the time that it needs for the whole drive
    #[arg(long, requires = "size")]
    whole_stroke: bool,
    /// Run the disk's time this many times as fast, 1 to 5
    #[arg(long, value_name = "FACTOR", default_value_t = 1)]
    scale: u32,
    /// Turn the drive's write cache off
    #[arg(long)]
    write_through: bool,
    /// Let a write over the end of the one before cost a revolution (a hypothesis)
    #[arg(long)]
    overlap: bool,
    /// Memory limit of the disk's data [default: half of what is available now]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Places that fail with EIO, e.g. 64M+64K; `platter bad-spots` changes them later
    #[arg(long, value_name = "OFFSET+LENGTH", value_delimiter = ',', value_parser = bad_spot)]
    bad_spots: Vec<BadSpot>,
}

/// Which places of a disk are to fail.
#[derive(Args)]
pub(crate) struct BadSpotsArgs {
    /// Device, /dev/loopN
    device: PathBuf,
    /// Places that fail with EIO from now on, e.g. 64M+64K [default: none]
    #[arg(value_name = "OFFSET+LENGTH", value_delimiter = ',', value_parser = bad_spot)]
    spots: Vec<BadSpot>,
}

/// For clap: a place of a disk, as 64M+64K.
fn bad_spot(text: &str) -> Result<BadSpot, String> {
    let wrong = || format!("invalid place {text:?}: use OFFSET+LENGTH (e.g. 64M+64K)");
    let (offset, bytes) = text.split_once('+').ok_or_else(wrong)?;
    let parsed = |size: &str| size.parse().map_err(|_| wrong()).map(|Size(bytes)| bytes);
    Ok(BadSpot {
        offset: parsed(offset)?,
        bytes: parsed(bytes)?,
    })
}

/// Which disk to give up.
#[derive(Args)]
pub(crate) struct DetachArgs {
    /// Device, /dev/loopN
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    device: Option<PathBuf>,
    /// All that `attach` has made
    #[arg(long)]
    all: bool,
    /// Take it away under its users, as a pulled plug does: they get errors, also those that hang
    #[arg(long)]
    force: bool,
}

/// How to list.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The disk whose log is printed.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Device, /dev/loopN
    device: PathBuf,
}

/// Arguments from the parent process.
#[derive(Args)]
pub(crate) struct ServeDiskArgs {
    task: String,
}

pub(super) fn attach(args: &AttachArgs, exe: &Path) -> Result<ExitCode> {
    let mut policy = Policy::default();
    if args.write_through {
        policy = policy.write_through();
    }
    if args.overlap {
        policy = policy.with_overlap();
    }
    let options = LiveOptions {
        bytes: args.size.map(|size| size.0),
        whole_stroke: args.whole_stroke,
        scale: args.scale,
        policy,
        memory_bytes: args.memory.map(|size| size.0),
        bad_spots: args.bad_spots.clone(),
        ..LiveOptions::new(&args.drive)
    };
    let device = live::attach(exe, &options)?;
    print_as_is(&device.display().to_string())?;
    let status = live::status_of(&device)?;
    let late_ns = u64::from(status.options.scale) * status.way.delay_ns;
    if human::ratio(late_ns, REQUEST_NS).is_some_and(|share| share > BUSY) {
        complain(&format!(
            "lumpscope: this machine is busy: requests reach the disk {} late, which distorts \
             measurements; `lumpscope platter status` shows how late",
            human::duration_ns(status.way.delay_ns)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// With `--all`, one that cannot be given up does not keep the others.
pub(super) fn detach(args: &DetachArgs) -> Result<ExitCode> {
    if let Some(device) = &args.device {
        live::detach(device, args.force)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for listed in live::list()? {
        if let Err(error) = live::detach(&listed.device, args.force) {
            complain(&format!("lumpscope: {error}"));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

pub(super) fn bad_spots(args: &BadSpotsArgs) -> Result<ExitCode> {
    live::set_bad_spots(&args.device, args.spots.clone())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode> {
    let listed = live::list()?;
    match args.json {
        true => print_as_is(&json(&listed)?),
        false => print(&shown::status(&listed)),
    }?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn log(args: &LogArgs) -> Result<ExitCode> {
    let trace = live::log_of(&args.device)?.trace();
    if trace.missing > 0 {
        complain(&format!(
            "lumpscope: incomplete: the log no longer has the oldest {}",
            human::counted(trace.missing, "request")
        ));
    }
    print_as_is(&json(&trace)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn serve_disk(args: &ServeDiskArgs) -> Result<ExitCode> {
    // What goes wrong is told to the parent, which says it.
    Ok(match live::serve(&args.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    Ok(plain(&serde_json::to_string_pretty(value)?))
}
