//! `lumpscope grow`: a store that nobody uses, made larger.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_engine::Machine;
use lumpscope_engine::grow::{self, GrowOptions};
use lumpscope_units::{Size, human};
use serde_json::json;

use crate::client::OutputFormat;
use crate::format::PreallocArg;
use crate::output::escaped;
use crate::progress::templated as bar;

/// `lumpscope grow`.
#[derive(Args)]
#[command(
    after_help = "Lumps stay where they are. The journal keeps its size, which limits the number of \
                  lumps; `lumpscope evacuate` to a new store gets a larger journal."
)]
pub(super) struct GrowArgs {
    /// Block device or file with a store that is not being served
    path: PathBuf,
    /// Size of the store, e.g. 128G; required for a file [default: the whole device]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Allocation of a file's new space
    #[arg(long, value_enum, default_value_t)]
    prealloc: PreallocArg,
    #[command(flatten)]
    form: OutputFormat,
}

/// Makes a store larger.
pub(super) fn grow(args: &GrowArgs) -> Result<ExitCode> {
    let bar = bar("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let machine = Machine::this();
    let options = GrowOptions {
        capacity: args.capacity.map(|size| size.0),
        prealloc: args.prealloc.into(),
        machine: Some(&machine),
        progress: Some(&progress),
    };
    let done = grow::grow(&args.path, &options);
    bar.finish_and_clear();
    let grown = done?;
    args.form.say(
        || json!({"before_bytes": grown.before, "after_bytes": grown.after}),
        || {
            let (before, after) = (human::bytes(grown.before), human::bytes(grown.after));
            let path = args.path.display().to_string();
            format!("{}: {after} for lumps, {before} before", escaped(&path))
        },
    )?;
    Ok(ExitCode::SUCCESS)
}
