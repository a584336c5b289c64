//! Code, reason and advice for every error of the engine.

use std::time::Duration;

use lumpscope_engine::{Error, LumpId};
use tonic::Code;

use super::table::RETRY_AFTER_RESTART;

/// Bytes of a sector in messages, whatever the device uses.
const SECTOR: u64 = 512;

/// When to try again what gets another place then.
const RETRY_ELSEWHERE: Duration = Duration::from_millis(10);

/// An engine error as clients see it.
pub(super) struct ClientError {
    pub(super) code: Code,
    /// In capitals, for programs.
    pub(super) reason: &'static str,
    /// Time after which trying again can help; `None`: not without a change.
    pub(super) retry: Option<Duration>,
    /// The lump it is about.
    pub(super) lump: Option<LumpId>,
    /// Follows the engine's message: facts that the engine does not know.
    pub(super) note: String,
}

impl ClientError {
    fn new(code: Code, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            retry: None,
            lump: None,
            note: String::new(),
        }
    }

    fn of(self, id: LumpId) -> Self {
        Self {
            lump: Some(id),
            ..self
        }
    }

    fn after(self, retry: Duration) -> Self {
        Self {
            retry: Some(retry),
            ..self
        }
    }

    fn note(self, note: String) -> Self {
        Self { note, ..self }
    }
}

/// The one match over the engine's errors.
pub(super) fn told(error: &Error) -> ClientError {
    match error {
        Error::NotFound { id } => ClientError::new(Code::NotFound, "UNKNOWN_LUMP").of(*id),
        Error::LumpTooLarge { .. } => ClientError::new(Code::OutOfRange, "LUMP_TOO_LARGE"),
        Error::RangeOutside { id, .. } => {
            ClientError::new(Code::OutOfRange, "RANGE_OUTSIDE").of(*id)
        }
        Error::StoreFull { .. } => ClientError::new(Code::ResourceExhausted, "STORE_FULL"),
        Error::JournalFull { .. } => ClientError::new(Code::ResourceExhausted, "JOURNAL_FULL"),
        Error::NoSpace { .. } => ClientError::new(Code::ResourceExhausted, "NO_SPACE"),
        Error::ReversedRange { .. } => ClientError::new(Code::InvalidArgument, "RANGE_REVERSED"),
        Error::LengthMismatch { .. } => ClientError::new(Code::InvalidArgument, "LENGTH_DIFFERS"),
        Error::TooManyIds { .. } => ClientError::new(Code::InvalidArgument, "TOO_MANY_IDS"),
        Error::DeadlineExceeded { .. } => {
            ClientError::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED")
        }
        Error::AlreadyExists { id } => ClientError::new(Code::AlreadyExists, "LUMP_EXISTS").of(*id),
        Error::Busy { retry_after, .. } => {
            ClientError::new(Code::Unavailable, "STORE_BUSY").after(*retry_after)
        }
        Error::BuffersExhausted { retry_after, .. } => {
            ClientError::new(Code::Unavailable, "BUFFERS_EXHAUSTED").after(*retry_after)
        }
        Error::Closed => ClientError::new(Code::Unavailable, "STORE_CLOSED")
            .after(RETRY_AFTER_RESTART)
            .note(": the service is shutting down; try again when it is back".to_owned()),
        Error::PlaceRefused { .. } => {
            ClientError::new(Code::Unavailable, "PLACE_REFUSED").after(RETRY_ELSEWHERE)
        }
        Error::ReadOnly { .. } => ClientError::new(Code::FailedPrecondition, "STORE_READ_ONLY"),
        Error::Failed { .. } => ClientError::new(Code::FailedPrecondition, "STORE_FAILED"),
        Error::OutOfService { .. } => {
            ClientError::new(Code::Unavailable, "STORE_OUT_OF_SERVICE").after(RETRY_AFTER_RESTART)
        }
        Error::NotAStore { .. } => ClientError::new(Code::FailedPrecondition, "NOT_A_STORE"),
        Error::WrongImage { .. } => ClientError::new(Code::FailedPrecondition, "WRONG_IMAGE"),
        Error::Claimed { .. } => ClientError::new(Code::FailedPrecondition, "STORE_CLAIMED"),
        Error::InUse { .. } => ClientError::new(Code::FailedPrecondition, "DEVICE_IN_USE"),
        Error::NoRoomForRepair { .. } => {
            ClientError::new(Code::FailedPrecondition, "NO_ROOM_FOR_REPAIR")
        }
        Error::Unsupported { .. } => {
            ClientError::new(Code::FailedPrecondition, "DEVICE_UNSUPPORTED")
        }
        Error::Corrupt { .. } => ClientError::new(Code::DataLoss, "STORE_CORRUPT"),
        Error::CorruptJournal { .. } => ClientError::new(Code::DataLoss, "JOURNAL_CORRUPT"),
        Error::ChecksumMismatch(damage) => ClientError::new(Code::DataLoss, "LUMP_CORRUPT")
            .of(damage.id)
            .note(format!(
                " (512-byte sectors {} to {})",
                damage.offset / SECTOR,
                (damage.offset + damage.len)
                    .div_ceil(SECTOR)
                    .saturating_sub(1)
            )),
        Error::Unreadable { id, .. } => ClientError::new(Code::DataLoss, "LUMP_UNREADABLE").of(*id),
        Error::Io { .. } => ClientError::new(Code::Internal, "IO_ERROR"),
        Error::System { .. } => ClientError::new(Code::Internal, "SYSTEM_ERROR"),
    }
}
