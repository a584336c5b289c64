//! Why it could not be measured.

use std::io;
use std::path::PathBuf;

use lumpscope_observer::TapError;
use lumpscope_platter::disk::RequestError;
use lumpscope_platter::live::LiveError;
use lumpscope_platter::replay::ReplayError;

use crate::engine::BenchError;

/// Why it could not be measured how well an emulated disk keeps to its model. Whatever had been
/// made is gone.
#[derive(Debug, thiserror::Error)]
pub enum FidelityError {
    /// An option, a signal, or the file of results.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// There is no such pattern.
    #[error("there is no pattern {name:?}; there are: {known}")]
    NoPattern {
        /// As given.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The disk cannot be emulated.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Its requests cannot be recorded.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The emulated disk does not do what it is asked for.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The model cannot serve a request.
    #[error("the model cannot serve what the live disk served: {0}")]
    Model(#[from] RequestError),
    /// The record of the live disk cannot be replayed.
    #[error("what was recorded of the live disk cannot be replayed: {0}")]
    Replay(#[from] ReplayError),
    /// The probes did not see the disk.
    #[error("the probes recorded nothing of {}", path.display())]
    NotSeen {
        /// The disk.
        path: PathBuf,
    },
}

impl FidelityError {
    /// For `map_err`.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> FidelityError {
        let path = path.into();
        move |source| FidelityError::Io { what, path, source }
    }
}
