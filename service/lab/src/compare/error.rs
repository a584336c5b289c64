//! Why a comparison could not be made or finished.

use std::path::PathBuf;
use std::time::Duration;

use crate::lab::LabError;
use crate::report::ReportError;
use crate::runner::RunError;
use crate::tracer::TracerError;
use crate::workload::WorkloadError;

/// Why a comparison could not be made or finished. Whatever it had made is gone again.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Stopped by Ctrl-C or another signal.
    #[error("stopped by a signal; everything the comparison had made was removed")]
    Interrupted,
    /// There is no such workload, or something is wrong with it.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A number on the command line makes no sense.
    #[error("{option} must be {allowed}")]
    Argument {
        /// Option.
        option: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// The tracer that was asked for cannot count.
    #[error(transparent)]
    Tracer(#[from] TracerError),
    /// The tracer has nothing to be compared with.
    #[error("{store}: its disk is not observed ({why}): leave --bpftrace out")]
    NothingToCompare {
        /// Store.
        store: &'static str,
        /// Why it is not observed.
        why: String,
    },
    /// The images could not be made.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A directory given by the user is not what it was given as.
    #[error("{option} {}: {found}, and not on a mounted {wanted}", dir.display())]
    WrongFileSystem {
        /// Option.
        option: &'static str,
        /// Directory.
        dir: PathBuf,
        /// What it is on.
        found: String,
        /// What it must be on.
        wanted: &'static str,
    },
    /// A file system given by the user is too full.
    #[error("{} has {free_mib} MiB free, and the store will take {needed_mib} MiB", dir.display())]
    NoRoom {
        /// Directory.
        dir: PathBuf,
        /// Free, in MiB.
        free_mib: u64,
        /// Needed, in MiB.
        needed_mib: u64,
    },
    /// `lumpscope format` refused or failed.
    #[error(
        "cannot format the {store} store at {}: {reason}. (A comparison never overwrites anything: \
         empty the disk yourself if nothing on it is needed)",
        path.display()
    )]
    Format {
        /// Store.
        store: &'static str,
        /// Device or file.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The service did not start.
    #[error("the service {what}. Its last words:\n{log}")]
    Service {
        /// What happened.
        what: String,
        /// Last lines it logged.
        log: String,
    },
    /// A command of the workload failed.
    #[error("{store}: {error}. The service's last words:\n{log}")]
    Run {
        /// Store.
        store: &'static str,
        /// Which command and why.
        error: RunError,
        /// Last lines the service logged.
        log: String,
    },
    /// The service did not report what the disk did.
    #[error("{store}: cannot fetch the report: {} ({:?})", status.message(), status.code())]
    Report {
        /// Store.
        store: &'static str,
        /// What the service said.
        status: Box<tonic::Status>,
    },
    /// The report for people cannot be written.
    #[error(transparent)]
    Page(#[from] ReportError),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl CompareError {
    /// For `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> CompareError {
        let what = what.into();
        move |source| CompareError::Io { what, source }
    }
}

/// How long the service may take until it serves: it replays three fresh stores and loads probes.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(60);
