//! `lumpscope inspect` and `lumpscope check`: what a store that nobody uses holds, and what is
//! wrong with it. Neither ever writes.

mod text;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{LumpId, salvage};
use serde::Serialize;

use super::output::{Lines, complain, plain, print, print_as_is};

/// Exit code: something is wrong with the store.
const PROBLEMS: u8 = 1;
/// Exit code: nothing can be said about it.
const NOT_CHECKED: u8 = 2;

/// `lumpscope inspect`.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 nothing wrong, 1 something is wrong with the store, 2 it \
                        could not be looked at (no store, in use, not readable)."
)]
pub(super) struct InspectArgs {
    /// Block device or file with a store that is not being served
    path: PathBuf,
    /// List the lumps, one a line, instead of the summary
    #[arg(long)]
    lumps: bool,
    /// First id to list
    #[arg(long, value_name = "ID", requires = "lumps", default_value = "0")]
    from: LumpId,
    /// Most lumps or records to list
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// List the journal's records, one a line, instead of the summary
    #[arg(long, conflicts_with = "lumps")]
    records: bool,
    /// Show instead what salvage mode would do with a damaged store; nothing is written
    #[arg(long, conflicts_with_all = ["lumps", "records"])]
    salvage: bool,
    /// Print JSON: one object, or one object a line for a list
    #[arg(long)]
    json: bool,
}

/// `lumpscope check`.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 everything is in order, 1 something is wrong with the \
                        store, 2 it could not be checked (no store, in use, not readable)."
)]
pub(super) struct CheckArgs {
    /// Block device or file with a store that is not being served
    path: PathBuf,
    /// Verify the lumps that salvage mode would serve, and show what it would do; nothing is
    /// written
    #[arg(long)]
    salvage: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows what a store holds.
pub(super) fn inspect(args: &InspectArgs) -> Result<ExitCode> {
    if args.salvage {
        return match salvage::examine(&args.path) {
            Ok(report) => {
                show(args.json, &report, text::salvage)?;
                Ok(exit_code(report.is_clean()))
            }
            Err(error) => Ok(not_checked(&error)),
        };
    }
    let inspector = match Inspector::open(&args.path) {
        Ok(inspector) => inspector,
        Err(error) => return Ok(not_checked(&error)),
    };
    let report = inspector.report();
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.lumps {
        list(
            inspector.lumps(args.from).take(limit),
            args.json,
            text::lump,
        )?;
    } else if args.records {
        let mut lines = Lines::new(args.json);
        let mut left = limit;
        let mut written = Ok(true);
        inspector.records(|record| {
            left = left.saturating_sub(1);
            written = lines.add(&record, text::record);
            matches!(written, Ok(true)) && left > 0
        });
        written?;
        lines.flush()?;
    } else if args.json {
        print_json(report)?;
    } else {
        print(&text::summary(report))?;
    }
    if args.lumps || args.records {
        for finding in &report.findings.list {
            complain(&format!("lumpscope: {finding}"));
        }
    }
    Ok(exit_code(report.findings.total == 0))
}

/// Reads every lump.
pub(super) fn check(args: &CheckArgs) -> Result<ExitCode> {
    if args.salvage {
        return check_salvage(args);
    }
    let inspector = match Inspector::open(&args.path) {
        Ok(inspector) => inspector,
        Err(error) => return Ok(not_checked(&error)),
    };
    let bar = bar("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let report = inspector.check(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    show(args.json, &report, text::checked)?;
    Ok(exit_code(report.clean))
}

fn check_salvage(args: &CheckArgs) -> Result<ExitCode> {
    let bar = bar("{wide_bar} {pos}/{len} lumps {eta}");
    let checked = salvage::check(&args.path, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    match checked {
        Ok(check) => {
            show(args.json, &check, text::salvage_checked)?;
            let clean = check.salvage.is_clean() && check.damaged_lumps == 0;
            Ok(exit_code(clean))
        }
        Err(error) => Ok(not_checked(&error)),
    }
}

/// A bar on the terminal, if standard error is one.
pub(super) fn bar(template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::no_length().with_style(style)
}

fn show<T: Serialize>(json: bool, report: &T, text: impl Fn(&T) -> String) -> Result<()> {
    match json {
        true => print_json(report),
        false => print(&text(report)),
    }
}

fn exit_code(clean: bool) -> ExitCode {
    if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(PROBLEMS)
    }
}

fn not_checked(error: &lumpscope_engine::Error) -> ExitCode {
    complain(&format!("lumpscope: {error}"));
    ExitCode::from(NOT_CHECKED)
}

fn print_json(report: &impl Serialize) -> Result<()> {
    print_as_is(&plain(&serde_json::to_string_pretty(report)?))
}

fn list<T: Serialize>(
    items: impl Iterator<Item = T>,
    json: bool,
    text: impl Fn(&T) -> String,
) -> Result<()> {
    let mut lines = Lines::new(json);
    for item in items {
        if !lines.add(&item, &text)? {
            return Ok(());
        }
    }
    lines.flush().map(drop)
}
