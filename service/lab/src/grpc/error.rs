//! Why the service could not be measured.

use std::path::PathBuf;

use crate::engine::BenchError;
use crate::lab::LabError;

/// Why the service could not be measured. Whatever the measurement had made is gone again.
#[derive(Debug, thiserror::Error)]
pub enum GrpcBenchError {
    /// An option, a signal, a child, or the file of results.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The directory cannot be looked at.
    #[error(transparent)]
    Room(#[from] LabError),
    /// The directory cannot carry a store.
    #[error("--dir {} cannot be used: {why}", path.display())]
    Dir {
        /// As given.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The service or the peer does not run.
    #[error("{who} {what}; it said:\n{log}")]
    Server {
        /// The service or the peer.
        who: &'static str,
        /// What happened.
        what: String,
        /// Its last words.
        log: String,
    },
    /// A call failed that must not.
    #[error("{who}: a {call} failed: {status}")]
    Call {
        /// Who answered.
        who: &'static str,
        /// put, get or what else.
        call: &'static str,
        /// What it answered.
        status: Box<tonic::Status>,
    },
    /// No connection.
    #[error("{who} cannot be connected to: {source}")]
    Connect {
        /// Who was asked.
        who: &'static str,
        /// What the transport said.
        source: tonic::transport::Error,
    },
    /// The service observes although it should not, or the other way round.
    #[error(
        "the service's disk is not observed as asked: `lumpscope doctor` says what is missing \
         (root is needed)"
    )]
    NotObserved,
    /// Something of this process or of the system.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl GrpcBenchError {
    /// For `map_err`.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| GrpcBenchError::System { what, source }
    }

    /// For `map_err`.
    pub(crate) fn call(who: &'static str, call: &'static str) -> impl Fn(tonic::Status) -> Self {
        move |status| GrpcBenchError::Call {
            who,
            call,
            status: Box::new(status),
        }
    }
}
