//! Errors in the bytes of a call.

/// Bytes that are no gRPC message, or no message of this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message that says it is compressed.
    #[error("a message is compressed: only uncompressed (identity) messages are taken")]
    Compressed,
    /// A flag that gRPC does not know.
    #[error("a message begins with the flag {flag}: gRPC knows 0 and 1")]
    Flag {
        /// The first byte of the message.
        flag: u8,
    },
    /// A message longer than [`Limits`](super::Limits) allows.
    #[error("a message has {len} bytes: at most {max} are taken")]
    TooLarge {
        /// Bytes it announces.
        len: u64,
        /// Most bytes of a message.
        max: u64,
    },
    /// A header longer than [`Limits`](super::Limits) allows.
    #[error("a header has {len} bytes: at most {max} are taken")]
    HeaderTooLarge {
        /// Bytes it announces.
        len: u64,
        /// Most bytes of a header.
        max: u64,
    },
    /// A message with more than one header or chunk.
    #[error("a message has more than one part: send one header or one chunk in each")]
    TwoParts,
    /// Bytes that are no protobuf.
    #[error("a message is no protobuf: {0}")]
    Malformed(&'static str),
    /// The stream ended inside a message.
    #[error("the stream ended in the middle of a message")]
    Truncated,
}
