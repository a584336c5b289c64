//! Generated gRPC client and server of lumpscope.v1.
//!
//! The `.proto` files beside this crate are the reference; their comments are the documentation of what is generated
//! here. Fields of type `bytes` are [`bytes::Bytes`].

pub mod frame;
mod json;

/// Version 1 of the interface.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated; the comments come from the .proto files, which leave out what is obvious"
)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/lumpscope.v1.rs"));
}

/// The compiled `.proto` files, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/lumpscope.v1.descriptors.bin"));

/// Metadata key under which every reply and every error carries the id of its request, in decimal.
pub const REQUEST_ID_KEY: &str = "lumpscope-request-id";

impl v1::StoreState {
    /// The state as users read it, e.g. `read-only`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unspecified => "unknown",
            Self::Serving => "serving",
            Self::ReadOnly => "read-only",
            Self::Draining => "draining",
            Self::Unavailable => "unavailable",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
}

/// Two hexadecimal digits a byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Name of a gRPC code as the specification writes it.
#[cfg(feature = "rpc")]
#[must_use]
pub const fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
