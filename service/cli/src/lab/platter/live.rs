//! `lumpscope platter attach`, `detach` and `status`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_lab::disks::BUSY;
use lumpscope_platter::disk::Policy;
use lumpscope_platter::live::{self, BadSpot, LiveOptions};
use lumpscope_units::{Size, human};

use super::shown;
use crate::error::Exit;
use crate::output::{complain, escaped_json, print, print_as_is};

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
    /// Places that fail with EIO, e.g. 64M+64K; `platter status` changes them later
    #[arg(long, value_name = "OFFSET+LENGTH", value_delimiter = ',', value_parser = bad_spot)]
    bad_spots: Vec<BadSpot>,
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

/// How to list, and what to change.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Only this one, /dev/loopN
    device: Option<PathBuf>,
    /// Places that fail with EIO from now on, e.g. 64M+64K; without a value: none
    #[arg(long, value_name = "OFFSET+LENGTH", value_delimiter = ',', value_parser = bad_spot,
          num_args = 0..=1, requires = "device")]
    bad_spots: Option<Vec<BadSpot>>,
    /// Print its requests instead, as a trace in JSON
    #[arg(long, requires = "device")]
    log: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
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
    if let Err(unknown) = print_as_is(&device.display().to_string()) {
        // Nobody could ever give up what nobody knows of.
        live::detach(&device, true)?;
        return Err(unknown);
    }
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
    let mut clean = true;
    for listed in live::list()? {
        if let Err(error) = live::detach(&listed.device, args.force) {
            complain(&format!("lumpscope: {error}"));
            clean = false;
        }
    }
    Ok(Exit::clean(clean))
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode> {
    if let (Some(device), Some(spots)) = (&args.device, &args.bad_spots) {
        live::set_bad_spots(device, spots.clone())?;
    }
    if let (Some(device), true) = (&args.device, args.log) {
        return log(device);
    }
    let mut listed = live::list()?;
    if let Some(device) = &args.device {
        // One that is not there has its error.
        live::status_of(device)?;
        listed.retain(|disk| disk.device == *device);
    }
    match args.json {
        true => print_as_is(&json(&listed)?),
        false => print(&shown::status(&listed)),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn log(device: &Path) -> Result<ExitCode> {
    let trace = live::log_of(device)?.trace();
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
    Ok(escaped_json(&serde_json::to_string_pretty(value)?))
}
