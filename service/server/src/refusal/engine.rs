//! What clients are told of the engine's errors.

use std::time::Duration;

use lumpscope_engine::{Error, LumpId};
use tonic::Code;

use super::table::RETRY_AFTER_RESTART;

/// Bytes of a sector in messages, whatever the device uses.
const SECTOR: u64 = 512;

/// Code and reason of an engine error.
pub(super) fn engine_kind(error: &Error) -> (Code, &'static str) {
    match error {
        Error::NotFound { .. } => (Code::NotFound, "UNKNOWN_LUMP"),
        Error::LumpTooLarge { .. } => (Code::OutOfRange, "LUMP_TOO_LARGE"),
        Error::RangeOutside { .. } => (Code::OutOfRange, "RANGE_OUTSIDE"),
        Error::StoreFull { .. } => (Code::ResourceExhausted, "STORE_FULL"),
        Error::JournalFull { .. } => (Code::ResourceExhausted, "JOURNAL_FULL"),
        Error::NoSpace { .. } => (Code::ResourceExhausted, "NO_SPACE"),
        Error::ReversedRange { .. } => (Code::InvalidArgument, "RANGE_REVERSED"),
        Error::LengthMismatch { .. } => (Code::InvalidArgument, "LENGTH_DIFFERS"),
        Error::TooManyIds { .. } => (Code::InvalidArgument, "TOO_MANY_IDS"),
        Error::DeadlineExceeded { .. } => (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        Error::AlreadyExists { .. } => (Code::AlreadyExists, "LUMP_EXISTS"),
        Error::Busy { .. } => (Code::Unavailable, "STORE_BUSY"),
        Error::BuffersExhausted { .. } => (Code::Unavailable, "BUFFERS_EXHAUSTED"),
        Error::Closed => (Code::Unavailable, "STORE_CLOSED"),
        Error::ReadOnly => (Code::FailedPrecondition, "STORE_READ_ONLY"),
        Error::Failed { .. } => (Code::FailedPrecondition, "STORE_FAILED"),
        Error::NotAStore { .. } => (Code::FailedPrecondition, "NOT_A_STORE"),
        Error::InUse { .. } => (Code::FailedPrecondition, "DEVICE_IN_USE"),
        Error::NoRoomForRepair { .. } => (Code::FailedPrecondition, "NO_ROOM_FOR_REPAIR"),
        Error::Unsupported { .. } => (Code::FailedPrecondition, "DEVICE_UNSUPPORTED"),
        Error::Corrupt { .. } => (Code::DataLoss, "STORE_CORRUPT"),
        Error::CorruptJournal { .. } => (Code::DataLoss, "JOURNAL_CORRUPT"),
        Error::ChecksumMismatch { .. } => (Code::DataLoss, "LUMP_CORRUPT"),
        Error::Io { .. } => (Code::Internal, "IO_ERROR"),
        Error::System { .. } => (Code::Internal, "SYSTEM_ERROR"),
    }
}

/// When the engine expects that trying again helps.
pub(super) fn engine_retry(error: &Error) -> Option<Duration> {
    match error {
        Error::Busy { retry_after, .. } | Error::BuffersExhausted { retry_after, .. } => {
            Some(*retry_after)
        }
        Error::Closed => Some(RETRY_AFTER_RESTART),
        Error::NotFound { .. }
        | Error::LumpTooLarge { .. }
        | Error::RangeOutside { .. }
        | Error::StoreFull { .. }
        | Error::JournalFull { .. }
        | Error::NoSpace { .. }
        | Error::ReversedRange { .. }
        | Error::LengthMismatch { .. }
        | Error::DeadlineExceeded { .. }
        | Error::AlreadyExists { .. }
        | Error::TooManyIds { .. }
        | Error::ReadOnly
        | Error::Failed { .. }
        | Error::NotAStore { .. }
        | Error::InUse { .. }
        | Error::NoRoomForRepair { .. }
        | Error::Unsupported { .. }
        | Error::Corrupt { .. }
        | Error::CorruptJournal { .. }
        | Error::ChecksumMismatch { .. }
        | Error::Io { .. }
        | Error::System { .. } => None,
    }
}

/// The lump an engine error is about.
pub(super) fn lump_of(error: &Error) -> Option<LumpId> {
    match error {
        Error::NotFound { id } | Error::RangeOutside { id, .. } | Error::AlreadyExists { id } => {
            Some(*id)
        }
        Error::ChecksumMismatch(damage) => Some(damage.id),
        Error::LumpTooLarge { .. }
        | Error::StoreFull { .. }
        | Error::JournalFull { .. }
        | Error::NoSpace { .. }
        | Error::ReversedRange { .. }
        | Error::LengthMismatch { .. }
        | Error::Busy { .. }
        | Error::BuffersExhausted { .. }
        | Error::DeadlineExceeded { .. }
        | Error::TooManyIds { .. }
        | Error::Closed
        | Error::ReadOnly
        | Error::Failed { .. }
        | Error::NotAStore { .. }
        | Error::InUse { .. }
        | Error::NoRoomForRepair { .. }
        | Error::Unsupported { .. }
        | Error::Corrupt { .. }
        | Error::CorruptJournal { .. }
        | Error::Io { .. }
        | Error::System { .. } => None,
    }
}

/// What the engine cannot know: how the bytes are counted below the file system.
pub(super) fn addendum(error: &Error) -> String {
    match error {
        Error::ChecksumMismatch(damage) => format!(
            " (512-byte sectors {} to {})",
            damage.offset / SECTOR,
            (damage.offset + damage.len)
                .div_ceil(SECTOR)
                .saturating_sub(1)
        ),
        Error::Closed => ": the service is shutting down; try again when it is back".to_owned(),
        Error::NotFound { .. }
        | Error::LumpTooLarge { .. }
        | Error::RangeOutside { .. }
        | Error::StoreFull { .. }
        | Error::JournalFull { .. }
        | Error::NoSpace { .. }
        | Error::ReversedRange { .. }
        | Error::LengthMismatch { .. }
        | Error::Busy { .. }
        | Error::BuffersExhausted { .. }
        | Error::DeadlineExceeded { .. }
        | Error::AlreadyExists { .. }
        | Error::TooManyIds { .. }
        | Error::ReadOnly
        | Error::Failed { .. }
        | Error::NotAStore { .. }
        | Error::InUse { .. }
        | Error::NoRoomForRepair { .. }
        | Error::Unsupported { .. }
        | Error::Corrupt { .. }
        | Error::CorruptJournal { .. }
        | Error::Io { .. }
        | Error::System { .. } => String::new(),
    }
}
