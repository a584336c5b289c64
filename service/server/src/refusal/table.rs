//! Code, reason and advice of every refusal.

use std::collections::HashMap;
use std::time::Duration;

use lumpscope_proto::frame::WireError;
use tonic::Code;

use super::Refusal;
use super::engine::told;

/// When to try again while the service goes down or comes up.
pub(super) const RETRY_AFTER_RESTART: Duration = Duration::from_secs(1);

/// When to try again where others hold what is asked for.
const RETRY_WHEN_FREE: Duration = Duration::from_secs(1);

/// Code, and the reason in capitals that programs can rely on.
type Kind = (Code, &'static str);

impl Refusal {
    fn kind(&self) -> Kind {
        match self {
            Self::IdMissing { .. } => (Code::InvalidArgument, "ID_MISSING"),
            Self::IdLength { .. } | Self::IdText { .. } => (Code::InvalidArgument, "ID_INVALID"),
            Self::HeaderMissing => (Code::InvalidArgument, "HEADER_MISSING"),
            Self::SecondHeader => (Code::InvalidArgument, "SECOND_HEADER"),
            Self::EmptyMessage => (Code::InvalidArgument, "EMPTY_MESSAGE"),
            Self::StreamShort { .. } => (Code::InvalidArgument, "BODY_SHORT"),
            Self::StreamLong { .. } => (Code::InvalidArgument, "BODY_LONG"),
            Self::LengthDiffers { .. } => (Code::InvalidArgument, "LENGTH_DIFFERS"),
            Self::PageSize { .. } => (Code::InvalidArgument, "PAGE_SIZE"),
            Self::PageToken => (Code::InvalidArgument, "PAGE_TOKEN"),
            Self::EnumValue { .. } => (Code::InvalidArgument, "ENUM_VALUE"),
            Self::UnknownWord { .. } => (Code::InvalidArgument, "UNKNOWN_WORD"),
            Self::FieldMissing { .. } => (Code::InvalidArgument, "FIELD_MISSING"),
            Self::UnknownRequest { .. } => (Code::NotFound, "UNKNOWN_REQUEST"),
            Self::TooManyWatches { .. } => (Code::ResourceExhausted, "TOO_MANY_WATCHES"),
            Self::NotReloaded(_) => (Code::FailedPrecondition, "NOT_RELOADED"),
            Self::Denied(_) => (Code::Unauthenticated, "DENIED"),
            Self::RightMissing { .. } => (Code::PermissionDenied, "SCOPE_MISSING"),
            Self::StoreForbidden { .. } => (Code::PermissionDenied, "STORE_FORBIDDEN"),
            Self::ServiceForbidden { .. } => (Code::PermissionDenied, "SERVICE_FORBIDDEN"),
            Self::UnknownStore { .. } => (Code::NotFound, "UNKNOWN_STORE"),
            Self::TooLongForOne { .. } => (Code::OutOfRange, "TOO_LONG_FOR_ONE_MESSAGE"),
            Self::StreamStalled { .. } => (Code::DeadlineExceeded, "CLIENT_SILENT"),
            Self::StreamSlow { .. } => (Code::DeadlineExceeded, "CLIENT_SLOW"),
            Self::MessageTooLarge { .. } => (Code::OutOfRange, "MESSAGE_TOO_LARGE"),
            Self::MessageSlow { .. } => (Code::DeadlineExceeded, "CLIENT_SLOW"),
            Self::NoMemory { .. } => (Code::ResourceExhausted, "NO_MEMORY"),
            Self::ObserverBusy => (Code::ResourceExhausted, "OBSERVER_BUSY"),
            Self::Crowded => (Code::ResourceExhausted, "CROWDED"),
            Self::TimeoutInvalid => (Code::InvalidArgument, "TIMEOUT_INVALID"),
            Self::TimeOver => (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
            Self::ChecksumDiffers { .. } => (Code::Aborted, "CHECKSUM_DIFFERS"),
            Self::StoreDraining { .. } => (Code::Unavailable, "STORE_DRAINING"),
            Self::StoreLeaving { .. } => (Code::Unavailable, "STORE_LEAVING"),
            Self::CutOff => (Code::Unavailable, "CUT_OFF"),
            Self::ShuttingDown => (Code::Unavailable, "SHUTTING_DOWN"),
            Self::StoreNotOpen { .. } => (Code::FailedPrecondition, "STORE_NOT_OPEN"),
            Self::NotNow { .. } => (Code::FailedPrecondition, "NOT_NOW"),
            Self::StoreExists { .. } => (Code::AlreadyExists, "STORE_EXISTS"),
            Self::StoreUnusable { .. } => (Code::InvalidArgument, "STORE_UNUSABLE"),
            Self::WaitTooLong { .. } => (Code::InvalidArgument, "WAIT_TOO_LONG"),
            Self::CutOffOthers { .. } => (Code::DeadlineExceeded, "CUT_OFF_OTHERS"),
            Self::Wire { error } => wire_kind(error),
            Self::Engine { error, .. } => {
                let told = told(error);
                (told.code, told.reason)
            }
        }
    }

    /// The gRPC code of this refusal.
    #[must_use]
    pub fn code(&self) -> Code {
        self.kind().0
    }

    /// The reason of its `google.rpc.ErrorInfo`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.kind().1
    }

    /// The store, lump or field that the reason is about, by name.
    #[must_use]
    pub fn metadata(&self) -> HashMap<String, String> {
        let mut about = HashMap::new();
        if let Some(store) = self.store() {
            about.insert("store".to_owned(), store.to_owned());
        }
        if let Some(field) = self.field() {
            about.insert("field".to_owned(), field.to_owned());
        }
        if let Self::Engine { error, .. } = self
            && let Some(id) = told(error).lump
        {
            about.insert("lump".to_owned(), id.to_string());
        }
        about
    }

    fn store(&self) -> Option<&str> {
        match self {
            Self::UnknownStore { name, .. }
            | Self::StoreDraining { name }
            | Self::StoreLeaving { name }
            | Self::StoreNotOpen { name, .. }
            | Self::StoreExists { name }
            | Self::CutOffOthers { name, .. }
            | Self::StoreForbidden { store: name, .. }
            | Self::Engine { store: name, .. } => Some(name),
            _ => None,
        }
    }

    fn field(&self) -> Option<&'static str> {
        match self {
            Self::IdMissing { field }
            | Self::IdLength { field, .. }
            | Self::IdText { field, .. }
            | Self::EnumValue { field, .. }
            | Self::UnknownWord { field, .. }
            | Self::FieldMissing { field }
            | Self::WaitTooLong { field, .. } => Some(field),
            _ => None,
        }
    }

    /// When trying again can help; `None`: not without a change.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ShuttingDown | Self::StoreDraining { .. } => Some(RETRY_AFTER_RESTART),
            Self::NoMemory { .. } | Self::Crowded | Self::ObserverBusy => Some(RETRY_WHEN_FREE),
            Self::Engine { error, .. } => told(error).retry,
            _ => None,
        }
    }
}

fn wire_kind(error: &WireError) -> Kind {
    match error {
        WireError::Compressed => (Code::Unimplemented, "COMPRESSED"),
        WireError::TooLarge { .. } => (Code::OutOfRange, "MESSAGE_TOO_LARGE"),
        WireError::HeaderTooLarge { .. } => (Code::InvalidArgument, "HEADER_TOO_LARGE"),
        WireError::TwoParts => (Code::InvalidArgument, "TWO_PARTS"),
        WireError::Flag { .. } | WireError::Malformed(_) | WireError::Truncated => {
            (Code::InvalidArgument, "MALFORMED")
        }
    }
}
