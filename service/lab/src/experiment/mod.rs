//! The frame of an experiment: the machine it ran on, its tables and its report, the way it ends.

mod figure;
pub mod report;
mod rounds;
pub(crate) mod text;

pub(crate) use figure::{Figure, Measure, verdict};
pub(crate) use rounds::{alternate, rotate};

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use crate::failure::{Interrupted, cannot, cannot_do};
use crate::process::Interrupt;
use report::Page;

/// Exit code after a signal, as shells give it.
const INTERRUPTED: u8 = 130;

/// The machine, and how busy others kept it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Version of this program.
    pub(crate) lumpscope: &'static str,
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    /// Processes that were runnable on average of the last minute, before and after.
    load_average: (Option<f64>, Option<f64>),
}

impl Machine {
    /// As it is before the measurement.
    pub(crate) fn before() -> Machine {
        Machine {
            lumpscope: env!("CARGO_PKG_VERSION"),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            load_average: (load_average(), None),
        }
    }

    /// How busy others kept it.
    pub(crate) fn load(&self) -> String {
        let load = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.2}"));
        let (before, after) = self.load_average;
        format!("{} before and {} after", load(before), load(after))
    }

    /// Adds the state of the machine after it.
    pub(crate) fn and_after(mut self) -> Machine {
        self.load_average.1 = load_average();
        self
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpus, kernel) = (self.cpus, &self.kernel);
        write!(
            f,
            "{cpus} CPUs, Linux {kernel}, load average {}",
            self.load()
        )
    }
}

/// Processes runnable on average of the last minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The result for programs: on standard output, or in a file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DataArgs {
    /// Print everything measured as one JSON document, and no text
    #[arg(long)]
    pub json: bool,
    /// Write everything measured to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl DataArgs {
    /// Looks before something is measured for long whether the file can be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Some(path) = &self.output else {
            return Ok(());
        };
        let options = OpenOptions::new().append(true).open(path);
        match options.map(drop) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| *folder != Path::new(""));
                let folder = folder.unwrap_or(Path::new("."));
                anyhow::ensure!(
                    folder.is_dir(),
                    "cannot write {}: {} is no directory; make it, or name another file with --output",
                    path.display(),
                    folder.display()
                );
                Ok(())
            }
            opened => opened.map_err(cannot("write", path)),
        }
    }

    /// Prints the result to `out` as text, or with `--json` as JSON, and writes it to the file.
    pub(crate) fn deliver(
        &self,
        report: &impl Serialize,
        text: impl FnOnce() -> String,
        mut out: impl Write,
    ) -> anyhow::Result<()> {
        let document = if self.json || self.output.is_some() {
            serde_json::to_string_pretty(report).map_err(cannot_do("write JSON"))? + "\n"
        } else {
            String::new()
        };
        // The file first: a closed pipe must not cost a result that took long to measure.
        if let Some(path) = &self.output {
            std::fs::write(path, &document).map_err(cannot("write", path))?;
        }
        let shown = match self.json {
            true => document,
            false => text(),
        };
        match out.write_all(shown.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.context("standard output"),
        }
    }
}

/// Forms and places of a result.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub data: DataArgs,
    /// Write a report to this file, as self-contained HTML. Replaces an older report, and no other
    /// file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl OutputArgs {
    /// Refuses before anything is measured a file that could not be written later.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.data.check()?;
        self.report.as_deref().map_or(Ok(()), report::check)
    }

    /// Prints the result, and writes it to the files that were asked for.
    pub(crate) fn deliver<R: Serialize>(
        &self,
        report: &R,
        text: impl FnOnce(&R) -> String,
        page: impl FnOnce(&R) -> Page,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.report {
            page(report).write(path)?;
        }
        self.data.deliver(report, || text(report), io::stdout())
    }
}

/// Runs a study and delivers its result. A file that could not be written later is refused before
/// anything is measured.
///
/// Installs signal handlers. The exit code is 130 when a signal stopped the measurement; a goal that
/// is missed is a result, not a failure.
pub(crate) fn run<R: Serialize>(
    output: &OutputArgs,
    (text, page): (impl FnOnce(&R) -> String, impl FnOnce(&R) -> Page),
    measure: impl FnOnce(&Interrupt) -> anyhow::Result<R>,
) -> anyhow::Result<ExitCode> {
    output.check()?;
    let interrupt = Interrupt::install()?;
    match measure(&interrupt) {
        Ok(report) => {
            let text = |report: &R| lumpscope_units::columns::fitted(&text(report));
            output.deliver(&report, text, page)?;
            Ok(ExitCode::SUCCESS)
        }
        // Ctrl-C reaches the children as well: whatever failed, this is why.
        Err(_) if interrupt.check().is_err() => {
            eprintln!("lumpscope: {Interrupted}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
    }
}
