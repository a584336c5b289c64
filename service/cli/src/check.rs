//! `lumpscope check`: what a store that nobody uses holds, and what is wrong with it. It never writes.

mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{Findings, LumpId, salvage};
use serde::Serialize;

use super::error::Exit;
use super::output::{Lines, complain, escaped_json, print, print_as_is};
use super::progress::templated as bar;

/// `lumpscope check`.
#[derive(Args)]
#[command(
    after_help = "Exit code 4: something is wrong with the store. 1: it could not be checked (no store, \
                  in use, or not readable)."
)]
pub(super) struct CheckArgs {
    /// Block device or file with a store that is not being served
    path: PathBuf,
    /// Check header, journal and space only, without reading the lumps
    #[arg(long, conflicts_with_all = ["lumps", "journal"])]
    quick: bool,
    /// List the lumps, one per line, instead
    #[arg(long, conflicts_with = "journal")]
    lumps: bool,
    /// First id to list
    #[arg(long, value_name = "ID", requires = "lumps", default_value = "0")]
    start: LumpId,
    /// List the records of the journal, one per line, instead
    #[arg(long)]
    journal: bool,
    /// Maximum number of lumps or records to list
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show what `serve --salvage` would do with a damaged store, and check the lumps that it would
    /// keep
    #[arg(long, conflicts_with_all = ["lumps", "journal"])]
    salvage: bool,
    /// Print JSON: one object, or one object per line for a list
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode> {
    if args.salvage {
        return check_salvage(args);
    }
    let inspector = Inspector::open(&args.path)?;
    if args.lumps || args.journal {
        list(args, &inspector)?;
        return Ok(told(&inspector.report().findings));
    }
    if args.quick {
        let report = inspector.report();
        show(args.json, report, text::summary)?;
        return Ok(Exit::clean(report.findings.total == 0));
    }
    let bar = bar("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let report = inspector.check(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    show(args.json, &report, text::checked)?;
    Ok(Exit::clean(report.clean))
}

fn list(args: &CheckArgs, inspector: &Inspector) -> Result<()> {
    let mut lines = Lines::new(args.json);
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.lumps {
        for lump in inspector.lumps(args.start).take(limit) {
            if !lines.add(&lump, text::lump)? {
                return Ok(());
            }
        }
    } else if limit > 0 {
        let mut left = limit;
        let mut written = Ok(true);
        inspector.records(|record| {
            left -= 1;
            written = lines.add(&record, text::record);
            matches!(written, Ok(true)) && left > 0
        });
        written?;
    }
    lines.flush().map(drop)
}

/// Says beside a list what is wrong.
fn told(findings: &Findings) -> ExitCode {
    for finding in &findings.list {
        complain(&format!("lumpscope: {finding}"));
    }
    Exit::clean(findings.total == 0)
}

fn check_salvage(args: &CheckArgs) -> Result<ExitCode> {
    if args.quick {
        let report = salvage::examine(&args.path)?;
        show(args.json, &report, text::salvage)?;
        return Ok(Exit::clean(report.is_clean()));
    }
    let bar = bar("{wide_bar} {pos}/{len} lumps {eta}");
    let checked = salvage::check(&args.path, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    let check = checked?;
    show(args.json, &check, text::salvage_checked)?;
    Ok(Exit::clean(
        check.salvage.is_clean() && check.damaged_lumps == 0,
    ))
}

fn show<T: Serialize>(json: bool, report: &T, text: impl Fn(&T) -> String) -> Result<()> {
    match json {
        true => print_as_is(&escaped_json(&serde_json::to_string_pretty(report)?)),
        false => print(&text(report)),
    }
}
