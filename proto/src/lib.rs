//! Generated gRPC client and server of lumpscope.v1.
//!
//! The `.proto` files beside this crate are the reference; their comments are the documentation of what is generated
//! here. Fields of type `bytes` are [`bytes::Bytes`].

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
    tonic::include_proto!("lumpscope.v1");
}

/// The compiled `.proto` files, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/lumpscope.v1.descriptors.bin"));

/// Metadata key under which every reply and every error carries the id of its request, in decimal.
pub const REQUEST_ID_KEY: &str = "lumpscope-request-id";
