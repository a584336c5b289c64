//! Writes replies whose bodies are slices of the buffer the disk wrote to.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_proto::v1;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tokio_stream::Stream;
use tonic::Status;
use tonic::codegen::http::{HeaderMap, HeaderValue};

use super::PREFIX_LEN;
use crate::refusal::Refusal;

/// Field of the chunk in a reply of Get.
const GET_CHUNK: u32 = 2;
/// Field of the body in a reply of GetSmall.
const SMALL_BODY: u32 = 2;
/// Field of the index in a reply of GetMany.
const MANY_INDEX: u32 = 1;
/// Field of the chunk in a reply of GetMany.
const MANY_CHUNK: u32 = 3;

/// One message with its prefix.
pub(in crate::grpc) fn message_frame(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
    put_prefix(&mut out, len);
    out.put(&message.encode_to_vec()[..]);
    out.freeze()
}

/// A message of Get with `chunk`: what comes in front of it, and the chunk itself.
pub(in crate::grpc) fn chunk_frames(chunk: Bytes) -> [Bytes; 2] {
    [chunk_head(None, GET_CHUNK, chunk.len()), chunk]
}

/// What comes in front of the `body` bytes of a GetSmall.
pub(in crate::grpc) fn small_head(header: v1::GetHeader, body: usize) -> Bytes {
    let before = v1::GetSmallResponse {
        header: Some(header),
        body: Bytes::new(),
    };
    let before = before.encode_to_vec();
    let body_len = body as u64;
    // A field that has its default is not written.
    let key = if body == 0 {
        0
    } else {
        key_len(SMALL_BODY) + encoded_len_varint(body_len)
    };
    let mut out = BytesMut::with_capacity(PREFIX_LEN + before.len() + key);
    put_prefix(&mut out, before.len() + key + body);
    out.put(&before[..]);
    if body > 0 {
        encode_key(SMALL_BODY, WireType::LengthDelimited, &mut out);
        encode_varint(body_len, &mut out);
    }
    out.freeze()
}

/// Frames of a GetMany.
pub(in crate::grpc) fn get_many_frames(index: u64, chunk: Bytes) -> [Bytes; 2] {
    [chunk_head(Some(index), MANY_CHUNK, chunk.len()), chunk]
}

fn put_prefix(out: &mut BytesMut, len: usize) {
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
}

fn chunk_head(index: Option<u64>, field: u32, chunk: usize) -> Bytes {
    // A field that has its default is not written.
    let index = index.filter(|index| *index > 0);
    let index_len = index.map_or(0, |at| key_len(MANY_INDEX) + encoded_len_varint(at));
    let chunk_len = chunk as u64;
    let head_len = index_len + key_len(field) + encoded_len_varint(chunk_len);
    let mut out = BytesMut::with_capacity(PREFIX_LEN + head_len);
    put_prefix(&mut out, head_len + chunk);
    if let Some(at) = index {
        encode_key(MANY_INDEX, WireType::Varint, &mut out);
        encode_varint(at, &mut out);
    }
    encode_key(field, WireType::LengthDelimited, &mut out);
    encode_varint(chunk_len, &mut out);
    out.freeze()
}

/// The body of a reply: frames as they are, then the status as trailers. An error ends it, and so
/// does the deadline.
pub(in crate::grpc) struct Messages<S> {
    frames: Option<S>,
    deadline_ns: Option<u64>,
}

impl<S> Messages<S> {
    /// A body of `frames`, none of which is sent after `deadline_ns` of the monotonic clock.
    pub(in crate::grpc) fn new(frames: S, deadline_ns: Option<u64>) -> Self {
        Self {
            frames: Some(frames),
            deadline_ns,
        }
    }

    fn is_late(&self) -> bool {
        self.deadline_ns.is_some_and(|end| monotonic_ns() > end)
    }
}

impl<S> Body for Messages<S>
where
    S: Stream<Item = Result<Bytes, Status>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let late = self.is_late();
        let Some(frames) = &mut self.frames else {
            return Poll::Ready(None);
        };
        let end = if late {
            Err(Refusal::TimeOver.into())
        } else {
            match ready!(Pin::new(frames).poll_next(context)) {
                Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Err(status)) => Err(status),
                None => Ok(()),
            }
        };
        self.frames = None;
        Poll::Ready(Some(trailers(end).map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_none()
    }
}

fn trailers(end: Result<(), Status>) -> Result<HeaderMap, Status> {
    let mut trailers = HeaderMap::new();
    match end {
        Ok(()) => {
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        }
        Err(status) => status.add_header(&mut trailers)?,
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_prost_would_write() {
        for (index, len) in [(0, 1), (1, 127), (300, 128), (u64::MAX, 20_000)] {
            let chunk = Bytes::from(vec![5; len]);
            let get = v1::GetResponse {
                part: Some(v1::get_response::Part::Chunk(chunk.clone())),
            };
            let frames = chunk_frames(chunk.clone());
            assert_eq!(frames.concat(), message_frame(&get));
            assert_eq!(frames[1].as_ptr(), chunk.as_ptr(), "copied");
            let many = v1::GetManyResponse {
                index,
                part: Some(v1::get_many_response::Part::Chunk(chunk.clone())),
            };
            let frames = get_many_frames(index, chunk);
            assert_eq!(frames.concat(), message_frame(&many));
        }
    }
    #[test]
    fn a_small_lump_is_what_prost_would_write() {
        for len in [0, 1, 127, 128, 70_000] {
            let (header, body) = (v1::GetHeader::default(), Bytes::from(vec![5; len]));
            let whole = message_frame(&v1::GetSmallResponse {
                header: Some(header),
                body: body.clone(),
            });
            assert_eq!([small_head(header, len), body].concat(), whole, "{len}");
        }
    }
}
