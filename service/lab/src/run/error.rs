//! Why a workload could not be run.

use std::path::PathBuf;

use crate::engine::BenchError;
use crate::grpc::GrpcBenchError;
use crate::lab::LabError;
use crate::runner::RunError;
use crate::workload::WorkloadError;

/// Why a workload could not be run to its end. Whatever had been made for it is gone again.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadRunError {
    /// There is no such workload, or something is wrong with it.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// An option, a signal, a child, a device, or the file of results.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The service does not run.
    #[error(transparent)]
    Service(#[from] GrpcBenchError),
    /// The lab could not be made.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A command failed, or its answer was wrong.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The engine cannot make or open the store.
    #[error("{}: {source}", path.display())]
    Store {
        /// Device or file.
        path: PathBuf,
        /// What the engine said.
        source: Box<lumpscope_engine::Error>,
    },
    /// There is something that may be somebody's.
    #[error("{} is there already: give the name of a file that is not, or remove it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Two options that do not go together.
    #[error("{0}")]
    Options(&'static str),
    /// The original engine's results do not fit the workload.
    #[error("{program}: {why}")]
    Peer {
        /// The program.
        program: String,
        /// What is wrong.
        why: String,
    },
}

impl WorkloadRunError {
    /// For `map_err`.
    pub(crate) fn file(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> WorkloadRunError {
        let failed = BenchError::file(what, path);
        move |source| failed(source).into()
    }
}
