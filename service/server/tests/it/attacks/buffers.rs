//! Connections that want large buffers kept alive by few bytes that stay in them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::abuse::wire::{DATA, END_HEADERS, HEADERS, PREFACE, PUT, SETTINGS, put_header};

/// A kind of frame that HTTP/2 does not know, and must pass over.
const UNKNOWN: u8 = 0xfe;
/// Length of such a frame, for which the service needs a large buffer.
const LARGE: usize = 300 << 10;
/// Ends the request.
const END_STREAM: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A string of headers, as it is.
fn string(text: &str) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len()).unwrap()];
    bytes.extend(text.bytes());
    bytes
}

/// The headers of a call. `indexed`: its path is for the table.
fn headers(path: &str, indexed: bool) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, if indexed { 0x44 } else { 0x04 }];
    block.extend(string(path));
    block.push(0x01);
    block.extend(string("localhost"));
    block.extend([0x0f, 0x10]);
    block.extend(string("application/grpc"));
    block.push(0x00);
    block.extend(string("te"));
    block.extend(string("trailers"));
    block
}

/// A connection on which a frame for which the service needs a large buffer goes before each of
/// those of `next`.
pub(super) async fn hide(service: SocketAddr, next: impl Iterator<Item = Vec<u8>>) -> TcpStream {
    let mut stream = TcpStream::connect(service).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let (mut answers, mut out) = stream.split();
    let large = frame(UNKNOWN, 0, 0, &vec![0; LARGE]);
    let sends = async {
        for frame in next {
            // It may end the connection.
            if out.write_all(&large).await.is_err() || out.write_all(&frame).await.is_err() {
                return;
            }
            // Or else both are read at once, into one buffer.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let reads = async {
        let mut bytes = vec![0; 64 << 10];
        while answers.read(&mut bytes).await.is_ok_and(|came| came > 0) {}
        std::future::pending().await
    };
    tokio::select! {
        () = sends => {}
        () = reads => {}
    }
    stream
}

/// Paths for the table of headers, each behind a large frame.
pub(super) fn paths() -> impl Iterator<Item = Vec<u8>> {
    let path = |number: u32| headers(&format!("/{number:03}"), true);
    let flags = END_HEADERS | END_STREAM;
    (0..40).map(move |number| frame(HEADERS, flags, 2 * number + 1, &path(number)))
}

/// Puts that wait for memory, and then a byte of each behind a large frame.
pub(super) fn bytes_of_puts(number: u32) -> impl Iterator<Item = Vec<u8>> {
    let begins = move |number: u32| {
        let stream = 2 * number + 1;
        let mut frames = frame(HEADERS, END_HEADERS, stream, &headers(PUT, false));
        let header = put_header(1 << 90 | u128::from(number), 4 << 20);
        frames.extend(frame(DATA, 0, stream, &header));
        frames
    };
    let all: Vec<u8> = (0..number).flat_map(begins).collect();
    let byte = |number: u32| frame(DATA, 0, 2 * number + 1, &[0]);
    std::iter::once(all).chain((0..number).map(byte))
}
