//! Why a measurement could not be made or finished.

use std::path::PathBuf;
use std::time::Duration;

use crate::lab::LabError;
use crate::report::ReportError;

/// Why a measurement could not be made or finished. Whatever it had made is gone again.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Stopped by Ctrl-C or another signal.
    #[error("stopped by a signal; everything the measurement had made was removed")]
    Interrupted,
    /// An option makes no sense.
    #[error("{option} must be {allowed}")]
    Argument {
        /// Option.
        option: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// Nothing is to be measured.
    #[error("--only {pattern} fits none of the figures; they are: {known}")]
    NothingChosen {
        /// As given.
        pattern: String,
        /// The groups of figures there are.
        known: String,
    },
    /// The directory cannot hold the file.
    #[error(transparent)]
    Room(#[from] LabError),
    /// The file cannot be made or used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What failed.
        what: &'static str,
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The device carries something, or cannot carry a store.
    #[error(transparent)]
    Format(#[from] lumpscope_engine::guard::FormatError),
    /// The engine failed.
    #[error("the engine failed while it was measured: {0}")]
    Engine(#[from] lumpscope_engine::Error),
    /// What was read is not what was put.
    #[error(
        "{engine}: lump {id} was read back with other bytes than were put; its figures mean nothing"
    )]
    WrongBytes {
        /// Who answered so.
        engine: &'static str,
        /// Number of the lump in its run.
        id: u64,
    },
    /// A peer cannot be run, or says something that is not understood.
    #[error("{program}: {why}")]
    Peer {
        /// Program.
        program: String,
        /// What is wrong, and what it said.
        why: String,
    },
    /// A peer takes far longer than it was told to.
    #[error(
        "{program} was stopped after {limit:?}, many times the length of its round: the disk is \
         busy or does not answer; use fewer --rounds or a shorter --seconds on a quiet machine"
    )]
    TooSlow {
        /// Program.
        program: String,
        /// Time it was given.
        limit: Duration,
    },
    /// The results cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Json {
        /// File.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The signal handlers cannot be installed.
    #[error("cannot handle signals: {0}")]
    Signals(std::io::Error),
}

impl BenchError {
    pub(crate) fn file(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> BenchError {
        let path = path.to_owned();
        move |source| BenchError::File { what, path, source }
    }

    pub(crate) fn peer(program: &str, why: impl Into<String>) -> BenchError {
        BenchError::Peer {
            program: program.to_owned(),
            why: why.into(),
        }
    }
}
