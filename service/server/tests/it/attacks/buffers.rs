//! Connections that want buffers kept alive by few bytes that stay in them: the transport begins a new
//! one of 8 KiB behind every large frame.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::abuse::wire::{DATA, END_HEADERS, HEADERS, PREFACE, PUT, SETTINGS, put_header};

/// A kind of frame that HTTP/2 does not know, and must pass over.
const UNKNOWN: u8 = 0xfe;
/// Length of such a frame: it fills a buffer of its own.
const LARGE: usize = 16 << 10;
/// Bytes of each put that waits.
const BYTES: u32 = 10;
/// Ends the request.
const END_STREAM: u8 = 1;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
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

/// The headers of a call. `indexed`: its path is for the table. `token`: "Bearer" and a token.
fn headers(path: &str, indexed: bool, token: Option<&str>) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, if indexed { 0x44 } else { 0x04 }];
    block.extend(string(path));
    block.push(0x01);
    block.extend(string("localhost"));
    block.extend([0x0f, 0x10]);
    block.extend(string("application/grpc"));
    block.push(0x00);
    block.extend(string("te"));
    block.extend(string("trailers"));
    if let Some(token) = token {
        // By its place in the table that all have: authorization.
        block.extend([0x0f, 0x08]);
        block.extend(string(token));
    }
    block
}

/// Sends a large frame before each of those of `next`. Returns the connection, which is to be kept.
pub(super) async fn hide<S>(mut stream: S, next: impl Iterator<Item = Vec<u8>>) -> S
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let large = frame(UNKNOWN, 0, 0, &vec![0; LARGE]);
    let (mut answers, mut out) = tokio::io::split(&mut stream);
    let sends = async {
        out.write_all(PREFACE).await?;
        out.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        for frame in next {
            out.write_all(&large).await?;
            out.write_all(&frame).await?;
            out.flush().await?;
            // Or else both are read at once, into one buffer.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::io::Result::Ok(())
    };
    let reads = async {
        let mut bytes = vec![0; 64 << 10];
        while answers.read(&mut bytes).await.is_ok_and(|came| came > 0) {}
        std::future::pending().await
    };
    tokio::select! {
        // An error: the service has ended the connection.
        _ = sends => {}
        () = reads => {}
    }
    stream
}

/// Paths for the table of headers, each behind a large frame.
pub(super) fn paths(number: u32) -> impl Iterator<Item = Vec<u8>> {
    let path = |number: u32| headers(&format!("/{number:03}"), true, None);
    let flags = END_HEADERS | END_STREAM;
    (0..number).map(move |number| frame(HEADERS, flags, 2 * number + 1, &path(number)))
}

/// Puts that wait for memory, and then bytes of each, one behind each large frame.
pub(super) fn bytes_of_puts(number: u32, token: &str) -> impl Iterator<Item = Vec<u8>> {
    let token = format!("Bearer {token}");
    let begins = move |number: u32| {
        let stream = 2 * number + 1;
        let mut frames = frame(
            HEADERS,
            END_HEADERS,
            stream,
            &headers(PUT, false, Some(&token)),
        );
        let header = put_header(1 << 90 | u128::from(number), 4 << 20);
        frames.extend(frame(DATA, 0, stream, &header));
        frames
    };
    let all: Vec<u8> = (0..number).flat_map(begins).collect();
    let byte = |number: u32| frame(DATA, 0, 2 * number + 1, &[0]);
    let bytes = (0..BYTES).flat_map(move |_| (0..number).map(byte));
    std::iter::once(all).chain(bytes)
}
