//! Messages as they are on the wire, for service and client, whose bodies do not go through tonic's codec: it copies each
//! message into a buffer of its own.

mod decode;
mod error;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::v1;
pub use decode::{Decoder, Event, Limits};
pub use error::WireError;

/// Bytes in front of every gRPC message: a flag and the length.
pub const PREFIX_LEN: usize = 5;

/// Field of the header in a request of Put and PutMany and in a reply of Get.
const HEADER: u32 = 1;
/// Field of the chunk in a request of Put and PutMany and in a reply of Get.
const CHUNK: u32 = 2;
/// Field of the body in a reply of GetSmall.
const SMALL_BODY: u32 = 2;
/// Field of the chunk in a reply of GetMany.
const MANY_CHUNK: u32 = 3;

/// One message with its prefix.
pub fn message(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
    put_prefix(&mut out, len);
    out.put(&message.encode_to_vec()[..]);
    out.freeze()
}

/// A request of Put or PutMany, or a reply of Get, with a header that is encoded: what comes in front of it, and the
/// header itself.
#[must_use]
pub fn header(header: Bytes) -> [Bytes; 2] {
    [head(&(), HEADER, header.len()), header]
}

/// A request of Put or PutMany, or a reply of Get, with `chunk`: what comes in front of it, and the chunk itself.
#[must_use]
pub fn chunk(chunk: Bytes) -> [Bytes; 2] {
    [head(&(), CHUNK, chunk.len()), chunk]
}

/// A reply of GetMany with `chunk`: what comes in front of it, and the chunk itself.
#[must_use]
pub fn many_chunk(index: u64, chunk: Bytes) -> [Bytes; 2] {
    let before = v1::GetManyResponse { index, part: None };
    [head(&before, MANY_CHUNK, chunk.len()), chunk]
}

/// The bytes in front of the `body` bytes of a GetSmall.
#[must_use]
pub fn small_head(header: v1::GetHeader, body: usize) -> Bytes {
    let before = v1::GetSmallResponse {
        header: Some(header),
        body: Bytes::new(),
    };
    // A field that has its default is not written.
    if body == 0 {
        message(&before)
    } else {
        head(&before, SMALL_BODY, body)
    }
}

/// The bytes in front of the `body` bytes of the last field of a message, whose other fields are those of `before`.
fn head(before: &impl Message, field: u32, body: usize) -> Bytes {
    let body_len = body as u64;
    let len = before.encoded_len() + key_len(field) + encoded_len_varint(body_len);
    let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
    put_prefix(&mut out, len + body);
    out.put(&before.encode_to_vec()[..]);
    encode_key(field, WireType::LengthDelimited, &mut out);
    encode_varint(body_len, &mut out);
    out.freeze()
}

fn put_prefix(out: &mut BytesMut, len: usize) {
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_prost_would_write() {
        for (index, len) in [(0, 1), (1, 127), (300, 128), (u64::MAX, 20_000)] {
            let bytes = Bytes::from(vec![5; len]);
            let frames = chunk(bytes.clone());
            assert_eq!(frames[1].as_ptr(), bytes.as_ptr(), "copied");
            let whole = frames.concat();
            let (first, name) = header_of(len);
            assert_eq!(header(name).concat(), first);
            let get = v1::get_response::Part::Chunk(bytes.clone());
            assert_eq!(whole, message(&v1::GetResponse { part: Some(get) }));
            let put = v1::put_request::Part::Chunk(bytes.clone());
            assert_eq!(whole, message(&v1::PutRequest { part: Some(put) }));
            let put = v1::put_many_request::Part::Chunk(bytes.clone());
            assert_eq!(whole, message(&v1::PutManyRequest { part: Some(put) }));
            let many = v1::GetManyResponse {
                index,
                part: Some(v1::get_many_response::Part::Chunk(bytes.clone())),
            };
            assert_eq!(many_chunk(index, bytes).concat(), message(&many));
        }
    }

    /// A request with a header of that many bytes and a few, and the header.
    fn header_of(len: usize) -> (Bytes, Bytes) {
        let header = v1::PutHeader {
            store: "s".repeat(len),
            ..v1::PutHeader::default()
        };
        let encoded = header.encode_to_vec().into();
        let part = v1::put_request::Part::Header(header);
        (message(&v1::PutRequest { part: Some(part) }), encoded)
    }

    #[test]
    fn a_small_lump_is_what_prost_would_write() {
        for len in [0, 1, 127, 128, 70_000] {
            let (header, body) = (v1::GetHeader::default(), Bytes::from(vec![5; len]));
            let whole = message(&v1::GetSmallResponse {
                header: Some(header),
                body: body.clone(),
            });
            assert_eq!([small_head(header, len), body].concat(), whole, "{len}");
        }
    }
}
