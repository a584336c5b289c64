//! HTTP/2 and gRPC written by hand, and the h2 crate for what has to be well formed.

use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use lumpscope_proto::v1;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::harness::PATIENCE;
use crate::common;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const PUT: &str = "/lumpscope.v1.LumpStore/Put";
pub(crate) const GET: &str = "/lumpscope.v1.LumpStore/Get";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_HEADERS: u8 = 4;

/// A message with gRPC's prefix.
pub(crate) fn message(part: &v1::PutRequest) -> Bytes {
    prefixed(0, &part.encode_to_vec())
}

pub(crate) fn prefixed(flag: u8, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(flag);
    out.put_u32(u32::try_from(bytes.len()).unwrap());
    out.put_slice(bytes);
    out.freeze()
}

/// The header of a put, as a message.
pub(crate) fn put_header(id: u128, length: u64) -> Bytes {
    message(&common::first(common::header("s", id, length)))
}

/// The stream of a whole put in chunks of at most `chunk` bytes.
pub(crate) fn put_stream(id: u128, body: &Bytes, chunk: usize) -> Bytes {
    let mut out = BytesMut::from(&put_header(id, body.len() as u64)[..]);
    for part in body.chunks(chunk) {
        out.put_slice(&message(&common::chunk(part.to_vec())));
    }
    out.freeze()
}

/// A connection of the h2 crate. `window`: bytes the service may send ahead on a stream.
pub(crate) async fn connect(address: SocketAddr, window: u32) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(address).await.unwrap();
    let (send, connection) = h2::client::Builder::new()
        .initial_window_size(window)
        .handshake(socket)
        .await
        .unwrap();
    tokio::spawn(async move {
        // It ends as the test or the service wants.
        let _ = connection.await;
    });
    send
}

pub(crate) fn request(path: &str) -> http::Request<()> {
    http::Request::post(format!("http://lumpscope{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// Begins a call; the stream is for its body.
pub(crate) async fn begin(
    client: &SendRequest<Bytes>,
    path: &str,
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    let mut ready = client.clone().ready().await?;
    ready.send_request(request(path), false)
}

/// Sends bytes as the window allows, up to the end or a reset.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = timeout(
            PATIENCE,
            std::future::poll_fn(|cx| stream.poll_capacity(cx)),
        )
        .await;
        let Some(Ok(room)) = room.expect("the window opens or the stream ends") else {
            return;
        };
        let part = bytes.split_to(room.min(bytes.len()));
        if stream.send_data(part, false).is_err() {
            return;
        }
    }
    if end {
        // The service may have ended the stream meanwhile.
        let _ = stream.send_data(Bytes::new(), true);
    }
}

/// How a call ended.
#[expect(dead_code, reason = "what a failing test shows")]
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// With this gRPC code.
    Code(i32),
    /// With an HTTP status that is no 200.
    Http(u16),
    /// Its stream was reset, or its connection closed.
    Reset(Option<Reason>),
    /// Its reply began, and its client left.
    Left,
}

impl CallEnd {
    /// True: refused in one of the ways there are.
    pub(crate) fn refused(&self) -> bool {
        !matches!(self, Self::Code(0))
    }

    pub(crate) fn is_code(&self, code: tonic::Code) -> bool {
        matches!(self, Self::Code(found) if *found == i32::from(code))
    }
}

fn reset(error: &h2::Error) -> CallEnd {
    CallEnd::Reset(error.reason())
}

fn code(headers: &http::HeaderMap) -> Option<CallEnd> {
    let value = headers.get("grpc-status")?;
    Some(CallEnd::Code(value.to_str().ok()?.parse().ok()?))
}

/// Waits until a reply begins; `Err`: it ended with that.
async fn beginning_of(reply: ResponseFuture) -> Result<http::Response<RecvStream>, CallEnd> {
    let response = reply.await.map_err(|error| reset(&error))?;
    if response.status() != 200 {
        return Err(CallEnd::Http(response.status().as_u16()));
    }
    match code(response.headers()) {
        Some(ended) => Err(ended),
        None => Ok(response),
    }
}

/// Reads a reply to its end.
pub(crate) async fn end_of(reply: ResponseFuture) -> CallEnd {
    let all = async {
        let mut body = match beginning_of(reply).await {
            Ok(response) => response.into_body(),
            Err(ended) => return ended,
        };
        while let Some(data) = body.data().await {
            match data {
                Ok(data) => drop(body.flow_control().release_capacity(data.len())),
                Err(error) => return reset(&error),
            }
        }
        match body.trailers().await {
            Ok(trailers) => trailers
                .as_ref()
                .and_then(code)
                .expect("a reply ends with grpc-status"),
            Err(error) => reset(&error),
        }
    };
    timeout(PATIENCE, all).await.expect("every call ends")
}

/// Reads a reply until it begins, and then leaves: what has no end of its own is ended by its client.
async fn until_it_begins(reply: ResponseFuture) -> CallEnd {
    match timeout(PATIENCE, beginning_of(reply)).await {
        Ok(Ok(_left)) => CallEnd::Left,
        Ok(Err(ended)) => ended,
        Err(_) => panic!("every call is answered"),
    }
}

/// A call with these bytes as its body, of whose reply `until` reads what it wants.
async fn call_until<F: Future<Output = CallEnd>>(
    client: &SendRequest<Bytes>,
    path: &str,
    body: Bytes,
    until: impl FnOnce(ResponseFuture) -> F,
) -> CallEnd {
    match begin(client, path).await {
        Ok((reply, mut stream)) => {
            let (ended, ()) = tokio::join!(until(reply), send(&mut stream, body, true));
            ended
        }
        Err(error) => reset(&error),
    }
}

/// A whole call with these bytes as its body.
pub(crate) async fn call(client: &SendRequest<Bytes>, path: &str, body: Bytes) -> CallEnd {
    call_until(client, path, body, end_of).await
}

/// Makes a call that goes on until its client leaves, and leaves.
pub(crate) async fn call_and_leave(
    client: &SendRequest<Bytes>,
    path: &str,
    body: Bytes,
) -> CallEnd {
    call_until(client, path, body, until_it_begins).await
}

/// A frame with any content.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = vec![len[1], len[2], len[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// The headers of a call, literally: no table, no Huffman code.
pub(crate) fn literal_headers(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "lumpscope"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut out = Vec::new();
    for (name, value) in usual.iter().chain(more) {
        out.push(0);
        for text in [name, value] {
            hpack_length(&mut out, text.len());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// An integer with a prefix of 7 bits.
pub(crate) fn hpack_length(out: &mut Vec<u8>, len: usize) {
    let byte = |value: usize| u8::try_from(value).unwrap();
    if len < 127 {
        out.push(byte(len));
        return;
    }
    out.push(127);
    let mut rest = len - 127;
    while rest >= 128 {
        out.push(byte(rest % 128 + 128));
        rest /= 128;
    }
    out.push(byte(rest));
}

/// A connection with its preface and settings sent.
pub(crate) async fn raw(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(PREFACE).await.unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    socket
}

/// Writes, unless the other side has closed or does not read for a while. True: all was taken.
pub(crate) async fn offer(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    let write = timeout(std::time::Duration::from_secs(2), socket.write_all(bytes));
    matches!(write.await, Ok(Ok(())))
}

/// Everything the service sends until it closes, as (type, stream, payload).
pub(crate) async fn until_closed(socket: &mut TcpStream) -> Vec<(u8, u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut bytes))
        .await
        .expect("the service closes the connection");
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while let Some((head, tail)) = rest.split_at_checked(9) {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        let Some((payload, tail)) = tail.split_at_checked(usize::try_from(len).unwrap()) else {
            break;
        };
        frames.push((head[3], stream, payload.to_vec()));
        rest = tail;
    }
    frames
}
