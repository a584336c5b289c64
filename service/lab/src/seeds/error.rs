//! Why a published table could not be repeated.

use std::io;
use std::path::PathBuf;

use lumpscope_observer::TapError;

use crate::engine::BenchError;
use crate::grpc::GrpcBenchError;
use crate::lab::LabError;

/// Why a published table could not be repeated. Whatever had been made for it is gone again.
#[derive(Debug, thiserror::Error)]
pub enum SeedsError {
    /// An option, a signal, a child, or the file of results.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The file server.
    #[error(transparent)]
    Grpc(#[from] GrpcBenchError),
    /// The disks cannot be made.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Their requests cannot be recorded.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A file cannot be written as asked.
    #[error("cannot {what} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What failed.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No such drive.
    #[error("there is no drive {name}; known are: {known}")]
    NoDrive {
        /// As given.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A recorded trace cannot be replayed.
    #[error("the recorded requests cannot be replayed: {0}")]
    Replay(#[from] lumpscope_platter::replay::ReplayError),
    /// The workload.
    #[error(transparent)]
    Workload(#[from] crate::workload::WorkloadError),
    /// A run of the workload.
    #[error(transparent)]
    Run(#[from] crate::run::WorkloadRunError),
    /// What must be a file of the lab's disk would be a file of this machine's own.
    #[error(
        "{} is not on {}: its file system is not mounted, and nothing was written",
        path.display(), device.display()
    )]
    NotMounted {
        /// The directory.
        path: PathBuf,
        /// The disk.
        device: PathBuf,
    },
}

impl SeedsError {
    /// For `map_err`.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> SeedsError {
        let path = path.into();
        move |source| SeedsError::Io { what, path, source }
    }

    /// An option that makes no sense.
    pub(super) fn argument(option: &'static str, allowed: &'static str) -> SeedsError {
        BenchError::Argument { option, allowed }.into()
    }
}

/// What most often helps.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NOMEM.raw_os_error() => {
            "; huge pages must be set aside first: sysctl vm.nr_hugepages=5"
        }
        Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => {
            "; O_DIRECT wants offset and length aligned to the disk's logical block, and a file \
             system that has it"
        }
        _ => "",
    }
}
