//! `lumpscope copy` and `lumpscope grow`: stores that nobody uses, moved and made larger.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_engine::copy::{self, CopyOptions, CopyReport, Step};
use lumpscope_engine::grow::{self, GrowOptions};
use lumpscope_units::{Size, human};
use serde_json::{Value, json};

use crate::error::Exit;
use crate::format::PreallocArg;
use crate::output::{self, print, print_json};
use crate::progress::templated as bar;

/// `lumpscope copy`.
#[derive(Args)]
#[command(
    after_help = "Run it again after an interruption: it resumes. Exit code 4: the copy is complete and \
                  verified, except for the lumps listed, which cannot be read. 1: there is no copy yet."
)]
pub(super) struct CopyArgs {
    /// Block device or file with a store that is not being served; only read
    from: PathBuf,
    /// Block device, or file that is made
    to: PathBuf,
    /// Bytes the copy may use, as 64G; the whole device when absent, for a new file as the source
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Block size of the copy in bytes; that of the source when absent
    #[arg(long, value_name = "BYTES")]
    block_size: Option<Size>,
    /// Share of the copy for the journal; that of the source when absent
    #[arg(long, value_name = "RATIO")]
    journal_ratio: Option<f64>,
    /// Allocation of a file's space
    #[arg(long, value_enum, default_value_t)]
    prealloc: PreallocArg,
    /// Copy what salvage mode would serve of a damaged store
    #[arg(long)]
    salvage: bool,
    /// Overwrite whatever the target holds, also a copy that was begun: its contents are lost
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `lumpscope grow`.
#[derive(Args)]
#[command(
    after_help = "Lumps stay where they are. The journal keeps its size, which limits the number of \
                  lumps; `lumpscope copy` to a larger target makes a larger journal."
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Copies a store.
pub(super) fn copy(args: &CopyArgs) -> Result<ExitCode> {
    let block_size = args.block_size.map(|size| size.0);
    let bar = bar("{msg:8} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let progress = |step, done, total| {
        bar.set_message(match step {
            Step::Making => "making",
            Step::Copying => "copying",
            Step::Checking => "checking",
        });
        bar.set_length(total);
        bar.set_position(done);
    };
    let options = CopyOptions {
        capacity: args.capacity.map(|size| size.0),
        block_size: block_size.map(|bytes| u16::try_from(bytes).unwrap_or(u16::MAX)),
        journal_ratio: args.journal_ratio,
        prealloc: args.prealloc.into(),
        force: args.force,
        salvage: args.salvage,
        progress: Some(&progress),
    };
    let done = copy::copy(&args.from, &args.to, &options);
    bar.finish_and_clear();
    let report = done?;
    match args.json {
        true => print_json(&as_json(&report)),
        false => print(&text(&report)),
    }?;
    Ok(Exit::clean(report.copied.unreadable.is_empty()))
}

fn as_json(report: &CopyReport) -> Value {
    let store = |info: &lumpscope_engine::StoreInfo| {
        json!({
            "path": info.path,
            "uuid": info.uuid.to_string(),
            "data_region_bytes": info.data_capacity,
            "journal_bytes": info.journal_capacity,
        })
    };
    let lost = report.copied.unreadable.iter();
    let lost: Vec<Value> = lost
        .map(|lump| json!({"id": lump.id.to_string(), "why": lump.why}))
        .collect();
    json!({
        "source": store(&report.source),
        "target": store(&report.target),
        "resumed": report.resumed,
        "lumps": report.copied.lumps,
        "bytes": report.copied.bytes,
        "already_there": report.copied.there,
        "unverified": report.copied.unverified,
        "checked": report.checked,
        "unreadable": lost,
        "elapsed_seconds": report.elapsed.as_secs_f64(),
    })
}

fn text(report: &CopyReport) -> String {
    let copied = &report.copied;
    let mut text = format!(
        "copied {}, {}, in {:.0} s; verified {} of the copy\n",
        human::counted(copied.lumps, "lump"),
        human::bytes(copied.bytes),
        report.elapsed.as_secs_f64(),
        human::counted(report.checked, "lump"),
    );
    if copied.there > 0 {
        let there = human::count(copied.there);
        text.push_str(&format!("{there} of them had been copied before\n"));
    }
    if copied.unverified > 0 {
        let unverified = human::count(copied.unverified);
        text.push_str(&format!(
            "{unverified} had no checksum: what was on the disk was copied\n"
        ));
    }
    for (name, info) in [("source", &report.source), ("copy", &report.target)] {
        text.push_str(&format!(
            "{name}: {}, {} for lumps, UUID {}\n",
            output::escaped(&info.path.display().to_string()),
            human::bytes(info.data_capacity),
            info.uuid
        ));
    }
    let lost = copied.unreadable.iter();
    text + &lost_text(lost.map(|lump| (lump.id.to_string(), &lump.why)))
}

/// The lumps that could not be read, and why.
pub(super) fn lost_text<'a>(lumps: impl Iterator<Item = (String, &'a String)>) -> String {
    let mut text = String::new();
    let mut count: u64 = 0;
    for (id, why) in lumps {
        count += 1;
        text.push_str(&format!("{id}\n{}", output::indented(why)));
    }
    if count > 0 {
        let lumps = human::counted(count, "lump");
        let are = if count == 1 { "is" } else { "are" };
        text.insert_str(0, &format!("{lumps} {are} missing:\n"));
    }
    text
}

/// Makes a store larger.
pub(super) fn grow(args: &GrowArgs) -> Result<ExitCode> {
    let bar = bar("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let options = GrowOptions {
        capacity: args.capacity.map(|size| size.0),
        prealloc: args.prealloc.into(),
        progress: Some(&progress),
    };
    let done = grow::grow(&args.path, &options);
    bar.finish_and_clear();
    let grown = done?;
    if args.json {
        let json = json!({"before_bytes": grown.before, "after_bytes": grown.after});
        print_json(&json)?;
    } else {
        let (before, after) = (human::bytes(grown.before), human::bytes(grown.after));
        let path = args.path.display().to_string();
        let path = output::escaped(&path);
        print(&format!("{path}: {after} for lumps, {before} before"))?;
    }
    Ok(ExitCode::SUCCESS)
}
