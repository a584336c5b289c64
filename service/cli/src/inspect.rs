//! `lumpscope inspect` and `lumpscope check`: what a store that nobody uses holds, and what is
//! wrong with it. Neither ever writes.

mod text;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{LumpId, salvage};
use lumpscope_units::columns::fitted;
use serde::Serialize;

use super::output::{complain, print, print_as_is};

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
pub(super) fn inspect(args: &InspectArgs) -> ExitCode {
    if args.salvage {
        return match salvage::examine(&args.path) {
            Ok(report) => {
                show(args.json, &report, text::salvage);
                exit_code(report.is_clean())
            }
            Err(error) => not_checked(&error),
        };
    }
    let inspector = match Inspector::open(&args.path) {
        Ok(inspector) => inspector,
        Err(error) => return not_checked(&error),
    };
    let report = inspector.report();
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.lumps {
        list(
            inspector.lumps(args.from).take(limit),
            args.json,
            text::lump,
        );
    } else if args.records {
        let mut lines = Lines::new(args.json);
        let mut left = limit;
        inspector.records(|record| {
            left = left.saturating_sub(1);
            lines.add(&record, text::record) && left > 0
        });
    } else if args.json {
        print_json(report);
    } else {
        print(&text::summary(report));
    }
    if args.lumps || args.records {
        for finding in &report.findings.list {
            complain(&format!("lumpscope: {finding}"));
        }
    }
    exit_code(report.findings.total == 0)
}

/// Reads every lump.
pub(super) fn check(args: &CheckArgs) -> ExitCode {
    if args.salvage {
        return check_salvage(args);
    }
    let inspector = match Inspector::open(&args.path) {
        Ok(inspector) => inspector,
        Err(error) => return not_checked(&error),
    };
    let bar = bar("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let report = inspector.check(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    show(args.json, &report, text::checked);
    exit_code(report.clean)
}

fn check_salvage(args: &CheckArgs) -> ExitCode {
    let bar = bar("{wide_bar} {pos}/{len} lumps {eta}");
    let checked = salvage::check(&args.path, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    match checked {
        Ok(check) => {
            show(args.json, &check, text::salvage_checked);
            exit_code(check.salvage.is_clean() && check.damaged_lumps == 0)
        }
        Err(error) => not_checked(&error),
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

fn show<T: Serialize>(json: bool, report: &T, text: impl Fn(&T) -> String) {
    if json {
        print_json(report);
    } else {
        print(&text(report));
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

fn print_json(report: &impl Serialize) {
    match serde_json::to_string_pretty(report) {
        Ok(json) => print_as_is(&json),
        // Reports have string keys only, which is all that can be wrong.
        Err(error) => complain(&format!("lumpscope: {error}")),
    }
}

/// Lines on standard output, written as they come.
struct Lines {
    out: io::BufWriter<io::StdoutLock<'static>>,
    json: bool,
}

impl Lines {
    fn new(json: bool) -> Self {
        Self {
            out: io::BufWriter::new(io::stdout().lock()),
            json,
        }
    }

    /// False: nobody reads any more.
    fn add<T: Serialize>(&mut self, item: &T, text: impl Fn(&T) -> String) -> bool {
        let written = if self.json {
            serde_json::to_writer(&mut self.out, item)
                .map_err(io::Error::from)
                .and_then(|()| self.out.write_all(b"\n"))
        } else {
            write!(self.out, "{}", fitted(&text(item)))
        };
        written.is_ok()
    }
}

fn list<T: Serialize>(items: impl Iterator<Item = T>, json: bool, text: impl Fn(&T) -> String) {
    let mut lines = Lines::new(json);
    for item in items {
        if !lines.add(&item, &text) {
            return;
        }
    }
}
