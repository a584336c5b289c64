//! The wire of the calls that carry bodies, read and written without tonic's codec.
//!
//! tonic gathers each message in a buffer of its own before it is decoded, and encodes each reply
//! into another. Here a body goes from the buffers of HTTP/2 straight into the buffer the disk
//! reads from ([`Decoder`]), and from the buffer the disk wrote to straight to the socket
//! ([`Messages`]).

mod decode;
mod encode;
mod unary;

pub use crate::refusal::WireError;
pub use decode::{Decoder, Event, Limits};
pub(super) use encode::Messages;
pub use lumpscope_proto::frame::PREFIX_LEN;
pub(super) use unary::read_message;
