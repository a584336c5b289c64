//! The frame of an experiment: the machine it ran on, its tables and its report, the way it ends.

mod figure;
pub mod report;
mod rounds;
pub(crate) mod text;

pub(crate) use figure::{Figure, Measure, verdict};
pub(crate) use rounds::{alternate, rotate};

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::{Interrupted, cannot};
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

/// Writes a result for programs.
fn write_json(path: &Path, report: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report).map_err(cannot("write", path))?;
    std::fs::write(path, json + "\n").map_err(cannot("write", path))
}

/// Files that a result goes to, beside standard output.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Write everything measured to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report to this file, as self-contained HTML. Replaces an older report, and no other
    /// file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs a study, prints its result as text, and writes it for programs and as a page. A file that
/// could not be written later is refused before anything is measured.
///
/// Installs signal handlers. The exit code is 130 when a signal stopped the measurement; a goal that
/// is missed is a result, not a failure.
pub(crate) fn run<R: Serialize>(
    output: &OutputArgs,
    (text, page): (impl FnOnce(&R) -> String, impl FnOnce(&R) -> Page),
    measure: impl FnOnce(&Interrupt) -> anyhow::Result<R>,
) -> anyhow::Result<ExitCode> {
    output.report.as_deref().map(report::check).transpose()?;
    let interrupt = Interrupt::install()?;
    match measure(&interrupt) {
        Ok(report) => {
            print!("{}", lumpscope_units::columns::fitted(&text(&report)));
            if let Some(path) = &output.json {
                write_json(path, &report)?;
            }
            if let Some(path) = &output.report {
                page(&report).write(path)?;
            }
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
