//! Errors of calls.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lumpscope_proto::{REQUEST_ID_KEY, code_name};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::id::LumpId;

/// Failure of a call. Each message is one line: the cause, the place, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the service makes no sense.
    #[error("invalid server {server:?}: {why}")]
    Server {
        /// The address as given.
        server: String,
        /// Reason.
        why: String,
    },
    /// A file of the connection's settings cannot be read.
    #[error("cannot read the {what} {}: {source}", path.display())]
    File {
        /// Purpose of the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The text is no token. It is not shown.
    #[error("the token is empty, or has characters that are invalid in a header")]
    Token,
    /// The service cannot be reached. Nothing was sent.
    #[error("cannot reach the service at {server}: {why}; is `lumpscope serve` running there?")]
    Connect {
        /// The address.
        server: String,
        /// Reason, of the last try.
        why: String,
    },
    /// The service refused the call.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The connection broke, in each try. It is unknown whether a change was carried out; the call can be made
    /// again.
    #[error("the connection to the service broke: {why}")]
    Lost {
        /// Reason, of the last try.
        why: String,
    },
    /// The time of the call was over before the service answered. A change may still be carried out.
    #[error("no answer within {} ms", after.as_millis())]
    TimeOver {
        /// The time limit.
        after: Duration,
    },
    /// The answer to a change that must not be made twice was lost: it was carried out or not.
    #[error("unknown whether {what} was carried out, and unsafe to repeat: {why}; check the store")]
    Ambiguous {
        /// Description of the change.
        what: String,
        /// Reason for the missing answer.
        why: String,
    },
    /// The bytes received differ from the bytes sent.
    #[error(
        "lump {id}: bytes changed in transit (checksum {sent:08x} when sent, {came:08x} when received)"
    )]
    ChecksumMismatch {
        /// The lump. After a put, the stored lump is wrong: put it again.
        id: LumpId,
        /// CRC-32C of the bytes sent.
        sent: u32,
        /// CRC-32C of the bytes received.
        came: u32,
    },
    /// More or fewer bytes came than were announced.
    #[error("lump {id}: expected {announced} bytes, received {got}")]
    LengthMismatch {
        /// The lump.
        id: LumpId,
        /// Bytes announced.
        announced: u64,
        /// Bytes that came; more may have followed.
        got: u64,
    },
    /// The body of a put cannot be read.
    #[error("cannot read the body: {0}")]
    ReadBody(#[source] io::Error),
    /// The received bytes cannot be written.
    #[error("cannot write the received bytes: {0}")]
    WriteBody(#[source] io::Error),
    /// The service violates the protocol.
    #[error("invalid answer of the service: {0}")]
    Protocol(&'static str),
}

impl Error {
    /// The refusal, when the service refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The code with which the service refused.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.refusal().map(|refusal| refusal.code)
    }
}

/// A refusal by the service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({}{})", code_name(*code), request_id.map(|id| format!(", request {id}")).unwrap_or_default())]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// Message of the service.
    pub message: String,
    /// The reason on which programs can rely, e.g. `STORE_FULL`; empty when none came.
    pub reason: String,
    /// Name of the store; empty when none came.
    pub store: String,
    /// Id of the request in the service's log and metrics.
    pub request_id: Option<u64>,
    /// Time after which a retry can help.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let id = status.metadata().get(REQUEST_ID_KEY);
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
            store: info
                .and_then(|info| info.metadata.get("store").cloned())
                .unwrap_or_default(),
            request_id: id
                .and_then(|id| id.to_str().ok())
                .and_then(|id| id.parse().ok()),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
        }
    }
}
