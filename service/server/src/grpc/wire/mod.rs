//! The wire of the calls that carry bodies, read and written without tonic's codec.
//!
//! tonic gathers each message in a buffer of its own before it is decoded, and encodes each reply
//! into another. Here a body goes from the buffers of HTTP/2 straight into the buffer the disk
//! reads from ([`Decoder`](lumpscope_proto::frame::Decoder)), and from the buffer the disk wrote to
//! straight to the socket ([`Messages`]).

mod encode;
mod unary;

pub(super) use encode::Messages;
pub(super) use unary::{FIELDS, read_message};
