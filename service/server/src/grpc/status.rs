//! The one table from what can go wrong to gRPC codes and messages.
//!
//! No wildcards: a new error of the engine does not compile until somebody has decided here what
//! a client is told.

use std::time::Duration;

use lumpscope_engine::Error;
use tonic::{Code, Status};

use crate::door::Denied;
use crate::error::ServerError;

/// Bytes of a sector in messages, whatever the device uses.
const SECTOR: u64 = 512;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A `LumpId` without any of its forms, or no `LumpId` at all.
    #[error("field {field} is missing: set its `raw` (16 bytes) or its `text` (hexadecimal)")]
    IdMissing {
        /// Which field.
        field: &'static str,
    },
    /// `raw` of the wrong length.
    #[error("field {field}: `raw` has {got} bytes: send exactly 16, most significant first")]
    IdLength {
        /// Which field.
        field: &'static str,
        /// Bytes that came.
        got: usize,
    },
    /// `text` that is no hexadecimal number.
    #[error("field {field}: `text` is {got:?}: send 1 to 32 hexadecimal digits")]
    IdText {
        /// Which field.
        field: &'static str,
        /// What came.
        got: String,
    },
    /// No such store.
    #[error("there is no store {name:?}: this service has {known}")]
    UnknownStore {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A caller who is not known.
    #[error("{0}")]
    Denied(#[from] Denied),
    /// A caller who is known and lacks a scope.
    #[error(
        "{caller:?} may not call {method}: it lacks the scope {scope:?}; add it in the file of \
         tokens, or use another token"
    )]
    ScopeMissing {
        /// Name of the token or certificate.
        caller: String,
        /// The scope.
        scope: &'static str,
        /// The method.
        method: &'static str,
    },
    /// A caller who may use other stores.
    #[error(
        "{caller:?} may not use store {store:?}: add it to its stores in the file of tokens, or use \
         another token"
    )]
    StoreForbidden {
        /// Name of the token or certificate.
        caller: String,
        /// What was asked for.
        store: String,
    },
    /// A caller who may use some stores, for what concerns all.
    #[error(
        "{caller:?} may use some stores only, and this concerns the whole service: use a token \
         without a list of stores"
    )]
    ServiceForbidden {
        /// Name of the token or certificate.
        caller: String,
    },
    /// New certificates or tokens that cannot be used.
    #[error("not reloaded, the old ones stay in force: {0}")]
    NotReloaded(Box<ServerError>),
    /// The first message of a put is no header.
    #[error("the first message of a put must be its header: send store, id and length first")]
    HeaderMissing,
    /// A second header inside a put.
    #[error("a put has one header: send only chunks after it, and a new call for the next lump")]
    SecondHeader,
    /// A message of a put that is neither header nor chunk.
    #[error("a message of the put is empty: set `header` in the first and `chunk` in the others")]
    EmptyMessage,
    /// The stream ended early.
    #[error(
        "the stream ended after {got} of {announced} bytes: nothing was stored; send all bytes, \
         or announce the length that comes"
    )]
    StreamShort {
        /// Length in the header.
        announced: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The stream goes on after its announced length.
    #[error(
        "the stream has more than the {announced} bytes announced: nothing was stored; announce \
         the length that comes"
    )]
    StreamLong {
        /// Length in the header.
        announced: u64,
    },
    /// The client fell silent inside a put.
    #[error(
        "nothing came for {} s after {got} of {announced} bytes: nothing was stored; put again",
        silence.as_secs()
    )]
    StreamStalled {
        /// Length in the header.
        announced: u64,
        /// Bytes that came.
        got: u64,
        /// How long nothing came.
        silence: Duration,
    },
    /// A byte range that begins behind the lump's end.
    #[error("the range starts at byte {offset} but the lump has {length} bytes: start inside it")]
    RangeStart {
        /// Where the range starts.
        offset: u64,
        /// Bytes of the lump.
        length: u64,
    },
    /// A page size out of bounds.
    #[error("page_size is {got}: ask for 1 to {max} ids, or 0 for {default}")]
    PageSize {
        /// What came.
        got: u32,
        /// Largest page.
        max: u32,
        /// Page when 0 is asked for.
        default: u32,
    },
    /// A page token this service did not make, or made for another range.
    #[error(
        "page_token is not one this service returned for this range: send next_page_token of the \
         page before unchanged, or nothing for the first page"
    )]
    PageToken,
    /// A value of an enum that this version does not know.
    #[error("field {field} has the value {got}, which this version does not know: see the .proto")]
    EnumValue {
        /// Which field.
        field: &'static str,
        /// What came.
        got: i32,
    },
    /// The store takes no new requests for now.
    #[error("store {name:?} is draining and takes no new requests: try again when it is resumed")]
    StoreDraining {
        /// Name of the store.
        name: String,
    },
    /// The store is being taken out.
    #[error("store {name:?} is being taken out and takes no new requests")]
    StoreLeaving {
        /// Name of the store.
        name: String,
    },
    /// The store is known and is not open.
    #[error(
        "store {name:?} is not served: {why}; Admin.AddStore with its name and path tries again"
    )]
    StoreNotOpen {
        /// Name of the store.
        name: String,
        /// Why it could not be opened.
        why: String,
    },
    /// A store of this name works.
    #[error("there is a store {name:?} already: choose another name, or take it out first")]
    StoreExists {
        /// The name.
        name: String,
    },
    /// A name or path that no store can be opened with.
    #[error("{why}")]
    StoreUnusable {
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// Something that cannot be done in the state things are in.
    #[error("{why}")]
    NotNow {
        /// Why not.
        why: String,
    },
    /// A time to wait that is out of bounds.
    #[error("field {field} is {got} ms: ask for 1 to {max} ms, or 0 for the service's own")]
    WaitTooLong {
        /// Which field.
        field: &'static str,
        /// What came.
        got: u32,
        /// Longest.
        max: u32,
    },
    /// Requests were under way longer than the caller wanted to wait for them.
    #[error(
        "store {name:?} was taken out, but requests were still under way after {} ms: they were \
         cut off", waited.as_millis()
    )]
    CutOffOthers {
        /// Name of the store.
        name: String,
        /// How long they were waited for.
        waited: Duration,
    },
    /// This request was under way too long after its store, or the service, began to stop.
    #[error(
        "cut off: the store is being taken out or the service stops, and the time for requests \
         under way is over; whether a change was made is not known"
    )]
    CutOff,
    /// The service is going down.
    #[error("the service is shutting down: try again when it is back")]
    ShuttingDown,
    /// What the engine said.
    #[error("store {store:?}: {error}{}", addendum(error))]
    Engine {
        /// Name of the store.
        store: String,
        /// The error.
        error: Error,
    },
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), refusal.to_string())
    }
}

impl Refusal {
    /// The gRPC code of this refusal.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::IdMissing { .. }
            | Self::IdLength { .. }
            | Self::IdText { .. }
            | Self::HeaderMissing
            | Self::SecondHeader
            | Self::EmptyMessage
            | Self::StreamShort { .. }
            | Self::StreamLong { .. }
            | Self::PageSize { .. }
            | Self::PageToken
            | Self::EnumValue { .. }
            | Self::StoreUnusable { .. }
            | Self::WaitTooLong { .. } => Code::InvalidArgument,
            Self::NotReloaded(_) => Code::FailedPrecondition,
            Self::Denied(_) => Code::Unauthenticated,
            Self::ScopeMissing { .. }
            | Self::StoreForbidden { .. }
            | Self::ServiceForbidden { .. } => Code::PermissionDenied,
            Self::UnknownStore { .. } => Code::NotFound,
            Self::RangeStart { .. } => Code::OutOfRange,
            Self::StreamStalled { .. } | Self::CutOffOthers { .. } => Code::DeadlineExceeded,
            Self::StoreExists { .. } => Code::AlreadyExists,
            Self::StoreNotOpen { .. } | Self::NotNow { .. } => Code::FailedPrecondition,
            Self::ShuttingDown
            | Self::StoreDraining { .. }
            | Self::StoreLeaving { .. }
            | Self::CutOff => Code::Unavailable,
            Self::Engine { error, .. } => engine_code(error),
        }
    }
}

/// The gRPC code of an engine error.
#[must_use]
pub fn engine_code(error: &Error) -> Code {
    match error {
        Error::NotFound { .. } => Code::NotFound,
        Error::LumpTooLarge { .. } | Error::RangeOutside { .. } => Code::OutOfRange,
        Error::StoreFull { .. } | Error::JournalFull { .. } | Error::NoSpace { .. } => {
            Code::ResourceExhausted
        }
        Error::ReversedRange { .. } | Error::LengthMismatch { .. } | Error::TooManyIds { .. } => {
            Code::InvalidArgument
        }
        Error::DeadlineExceeded { .. } => Code::DeadlineExceeded,
        Error::AlreadyExists { .. } => Code::AlreadyExists,
        Error::Busy { .. } | Error::BuffersExhausted { .. } | Error::Closed => Code::Unavailable,
        Error::ReadOnly
        | Error::Failed { .. }
        | Error::NotAStore { .. }
        | Error::InUse { .. }
        | Error::NoRoomForRepair { .. }
        | Error::Unsupported { .. } => Code::FailedPrecondition,
        Error::Corrupt { .. } | Error::CorruptJournal { .. } | Error::ChecksumMismatch { .. } => {
            Code::DataLoss
        }
        Error::Io { .. } | Error::System { .. } => Code::Internal,
    }
}

/// What the engine cannot know: how the bytes are counted below the file system.
fn addendum(error: &Error) -> String {
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use lumpscope_engine::format::verify::Damage;
    use lumpscope_engine::{IoOp, LumpDamage, LumpId};

    use super::*;

    fn io() -> Arc<std::io::Error> {
        Arc::new(std::io::Error::from_raw_os_error(5))
    }

    fn check<const N: usize>(cases: [(Error, Code, &str); N]) {
        for (error, code, word) in cases {
            let store = "raw".to_owned();
            let status = Status::from(Refusal::Engine { store, error });
            assert_eq!(status.code(), code, "{status:?}");
            assert!(
                status.message().starts_with("store \"raw\": "),
                "{status:?}"
            );
            assert!(status.message().contains(word), "{status:?}");
        }
    }

    #[test]
    fn engine_errors_have_the_codes_that_the_proto_promises() {
        let id = LumpId(1);
        let path = PathBuf::from("/dev/x");
        let why = || "why".to_owned();
        let reason: Arc<str> = "flush: EIO".into();
        check([
            (Error::NotFound { id }, Code::NotFound, "no lump"),
            (Error::Closed, Code::Unavailable, "try again"),
            (Error::Failed { reason }, Code::FailedPrecondition, "reopen"),
            (Error::ReadOnly, Code::FailedPrecondition, "reopen"),
            (
                Error::CorruptJournal {
                    ring_position: 5,
                    why: why(),
                },
                Code::DataLoss,
                "position 5",
            ),
            (
                Error::ChecksumMismatch(Box::new(LumpDamage {
                    id,
                    portion: None,
                    damage: Damage::TrailerMissing,
                    offset: 8192,
                    len: 4096,
                })),
                Code::DataLoss,
                "sectors 16 to 23",
            ),
            (Error::InUse { path }, Code::FailedPrecondition, "/dev/x"),
            (
                Error::Io {
                    op: IoOp::Read,
                    offset: 512,
                    len: 4096,
                    source: io(),
                },
                Code::Internal,
                "byte 512",
            ),
            (
                Error::NoSpace { offset: 1, len: 2 },
                Code::ResourceExhausted,
                "free some",
            ),
        ]);
    }

    #[test]
    fn refusals_of_a_busy_engine_say_what_to_do() {
        let id = LumpId(1);
        check([
            (
                Error::Busy {
                    limit: 9,
                    retry_after: Duration::from_millis(7),
                },
                Code::Unavailable,
                "try again in 7 ms",
            ),
            (
                Error::BuffersExhausted {
                    needed: 4096,
                    used: 8192,
                    budget: 8192,
                    retry_after: Duration::from_millis(7),
                },
                Code::Unavailable,
                "try again in 7 ms",
            ),
            (
                Error::DeadlineExceeded { late_ns: 9_000 },
                Code::DeadlineExceeded,
                "9 us",
            ),
            (
                Error::AlreadyExists { id },
                Code::AlreadyExists,
                "nothing was stored",
            ),
            (
                Error::TooManyIds { got: 9, max: 8 },
                Code::InvalidArgument,
                "at most 8",
            ),
        ]);
    }
}
