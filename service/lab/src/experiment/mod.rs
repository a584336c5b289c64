//! The frame of all studies. A study declares its options, measures, and returns a [`report::Report`]
//! of figures with the runs behind them; text, JSON and HTML are derived from it here.

pub mod report;
mod rounds;
pub(crate) mod text;

pub(crate) use rounds::{alternate, rotate};

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use lumpscope_engine::guard::check_output;
use serde::Serialize;

use crate::disks::default_dir;
use crate::failure::{Interrupted, cannot, cannot_do};
use crate::process::Interrupt;
use lumpscope_units::{escape::escaped_json, tell};
use report::Report;

/// Exit code after a signal, as shells give it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The result for programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JsonArgs {
    /// Print the result as one JSON document, and no text
    #[arg(long)]
    json: bool,
    /// Write the result as one JSON document to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl JsonArgs {
    /// Refuses before anything is measured a file that could not be written later.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Some(path) = &self.output else {
            return Ok(());
        };
        check_output(path)?;
        match OpenOptions::new().append(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| *folder != Path::new(""));
                let folder = folder.unwrap_or(Path::new("."));
                anyhow::ensure!(
                    folder.is_dir(),
                    "cannot write {}: {} is not a directory; create it, or choose another file",
                    path.display(),
                    folder.display()
                );
                Ok(())
            }
            opened => opened.map(drop).map_err(cannot("write", path)),
        }
    }

    /// Prints the result to `out` as text or JSON, and writes the JSON to its file.
    pub(crate) fn deliver(
        &self,
        result: &impl Serialize,
        text: impl FnOnce() -> String,
        out: impl Write,
    ) -> anyhow::Result<()> {
        let json = || {
            let json = serde_json::to_string_pretty(result).map_err(cannot_do("write JSON"))?;
            anyhow::Ok(escaped_json(&json))
        };
        // The file first: a closed pipe must not cost a result that took long to measure.
        if let Some(path) = &self.output {
            std::fs::write(path, json()? + "\n").map_err(cannot("write", path))?;
        }
        let shown = match self.json {
            true => json()? + "\n",
            false => text(),
        };
        write_to(out, |out| out.write_all(shown.as_bytes()))
    }
}

/// Writes all of it; a reader that has seen enough and closes the pipe is no error.
pub(crate) fn write_to<W: Write>(
    mut out: W,
    write: impl FnOnce(&mut W) -> io::Result<()>,
) -> anyhow::Result<()> {
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Forms and places of a result.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    #[command(flatten)]
    json: JsonArgs,
    /// Write a report to this file, as self-contained HTML. Replaces an older report, and no other
    /// file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputArgs {
    /// Refuses before anything is measured a file that could not be written later.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.json.check()?;
        self.html.as_deref().map_or(Ok(()), report::check)
    }

    /// The report is wanted with its charts.
    pub(crate) fn has_charts(&self) -> bool {
        self.html.is_some()
    }

    fn deliver(&self, report: &Report, data: &impl Serialize) -> anyhow::Result<()> {
        if let Some(path) = &self.html {
            report.write(path)?;
        }
        let text = || text::report(report, console::colors_enabled());
        self.json
            .deliver(&report.document(data), text, io::stdout())
    }
}

/// Options that `compare`, `bench run`, `bench seeds`, `bench peers` and the others have in common.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct StudyArgs {
    /// Directory for disk images [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl StudyArgs {
    /// The directory, given or not.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_dir)
    }
}

/// Runs a study and delivers its result: the report, and the data behind it, which the JSON has
/// beside the figures.
///
/// Installs signal handlers. The exit code is 130 when a signal stopped the measurement; a goal that
/// is missed is a result, not a failure.
pub(crate) fn run<D: Serialize>(
    output: &OutputArgs,
    measure: impl FnOnce(&Interrupt) -> anyhow::Result<(Report, D)>,
) -> anyhow::Result<ExitCode> {
    output.check()?;
    let interrupt = Interrupt::install()?;
    let load = report::load_average();
    match measure(&interrupt) {
        Ok((mut report, data)) => {
            report.finish(load);
            output.deliver(&report, &data)?;
            Ok(ExitCode::SUCCESS)
        }
        // Ctrl-C reaches the children as well: whatever failed, this is why.
        Err(_) if interrupt.check().is_err() => {
            tell(&format!("lumpscope: {Interrupted}"));
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
    }
}
