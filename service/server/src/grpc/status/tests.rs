//! Errors as clients see them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lumpscope_engine::format::verify::Damage;
use lumpscope_engine::{Error, IoOp, LumpDamage, LumpId};
use lumpscope_proto::frame::WireError;
use tonic::Code;

use super::*;

fn io() -> Arc<std::io::Error> {
    Arc::new(std::io::Error::from_raw_os_error(5))
}

fn check<const N: usize>(cases: [(Error, Code, &str); N]) {
    for (error, code, word) in cases {
        let store = "raw".to_owned();
        let status = Status::from(Refusal::Engine { store, error });
        assert_eq!(status.code(), code, "{status:?}");
        let words = "store \"raw\": ";
        assert!(status.message().starts_with(words), "{status:?}");
        assert!(status.message().contains(word), "{status:?}");
    }
}

#[test]
fn engine_errors_have_the_codes_that_the_proto_promises() {
    let id = LumpId(1);
    let path = PathBuf::from("/dev/x");
    let reason: Arc<str> = "flush: EIO".into();
    check([
        (Error::NotFound { id }, Code::NotFound, "no lump"),
        (Error::Closed, Code::Unavailable, "try again"),
        (Error::Failed { reason }, Code::FailedPrecondition, "reopen"),
        (
            Error::ReadOnly { reason: "reopen" },
            Code::FailedPrecondition,
            "reopen",
        ),
        (
            Error::InUse {
                path,
                by: lumpscope_engine::guard::User::Locked,
            },
            Code::FailedPrecondition,
            "/dev/x",
        ),
        (
            Error::NoSpace { offset: 1, len: 2 },
            Code::ResourceExhausted,
            "free some",
        ),
    ]);
}

#[test]
fn errors_of_the_disk_have_the_codes_that_the_proto_promises() {
    let id = LumpId(1);
    let why = || "why".to_owned();
    check([
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
            Error::Unreadable {
                id,
                offset: 512,
                len: 4096,
                source: io(),
            },
            Code::DataLoss,
            "byte 512",
        ),
        (
            Error::OutOfService {
                reason: why().into(),
            },
            Code::Unavailable,
            "as soon as",
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
            Error::PlaceRefused {
                offset: 4096,
                len: 8192,
                why: String::new(),
            },
            Code::Unavailable,
            "bytes 4096..12288",
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

fn details(refusal: Refusal) -> (tonic_types::ErrorInfo, Option<Duration>) {
    let details = Status::from(refusal).get_error_details();
    let retry = details.retry_info().and_then(|info| info.retry_delay);
    (details.error_info().unwrap().clone(), retry)
}

#[test]
fn programs_are_told_the_reason_and_when_to_try_again() {
    let engine = |error| Refusal::Engine {
        store: "raw".to_owned(),
        error,
    };
    let (info, retry) = details(engine(Error::NotFound { id: LumpId(255) }));
    assert_eq!(info.domain.as_str(), "lumpscope");
    assert_eq!(info.reason.as_str(), "UNKNOWN_LUMP");
    assert_eq!(info.metadata["store"], "raw");
    assert_eq!(info.metadata["lump"], LumpId(255).to_string());
    assert_eq!(retry, None);
    let retry_after = Duration::from_millis(7);
    let (info, retry) = details(engine(Error::Busy {
        limit: 1,
        retry_after,
    }));
    assert_eq!(info.reason.as_str(), "STORE_BUSY");
    assert_eq!(retry, Some(retry_after));
    let (info, retry) = details(engine(Error::Closed));
    assert_eq!(info.reason, "STORE_CLOSED");
    assert!(retry.is_some());
    assert!(details(Refusal::ShuttingDown).1.is_some());
    let (info, retry) = details(Refusal::IdMissing { field: "start" });
    assert_eq!((info.reason.as_str(), retry), ("ID_MISSING", None));
    assert_eq!(info.metadata["field"], "start");
    let (info, _) = details(Refusal::UnknownStore {
        name: "x".to_owned(),
        known: "raw".to_owned(),
    });
    assert_eq!(info.metadata["store"], "x");
}

#[test]
fn a_large_message_is_told_how_to_be_small() {
    let (len, max) = (9 << 20, 8 << 20);
    let status = Status::from(Refusal::from(WireError::TooLarge { len, max }));
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(status.message().contains("chunks of at most 8388592 bytes"));
    let status = Status::from(Refusal::from(WireError::Compressed));
    assert_eq!(status.code(), Code::Unimplemented);
}
