//! The bytes of a put: in memory, or read as they are sent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use crc_fast::crc32_iscsi;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_stream::Stream;

use crate::CHUNK;
use crate::sum::Sum;

/// Reader of a body.
pub type BoxRead = Pin<Box<dyn AsyncRead + Send>>;

type Open = Box<dyn FnMut() -> io::Result<BoxRead> + Send>;

/// The body of a put.
pub struct Body(BodySource);

enum BodySource {
    Bytes(Bytes),
    Opened { length: u64, open: Open, once: bool },
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Self {
        Self(BodySource::Bytes(bytes.into()))
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Body({} bytes)", self.length())
    }
}

impl Body {
    /// Exactly `length` bytes of a reader. It can be read only once, so that the put is not repeated once it has begun
    /// to send.
    pub fn reader(reader: impl AsyncRead + Send + 'static, length: u64) -> Self {
        let mut once: Option<BoxRead> = Some(Box::pin(reader));
        let open = move || {
            once.take()
                .ok_or_else(|| io::Error::other("it can be read only once"))
        };
        Self(BodySource::Opened {
            length,
            open: Box::new(open),
            once: true,
        })
    }

    /// Exactly `length` bytes of a reader that `open` makes anew for each try.
    pub fn opened(length: u64, open: impl FnMut() -> io::Result<BoxRead> + Send + 'static) -> Self {
        Self(BodySource::Opened {
            length,
            open: Box::new(open),
            once: false,
        })
    }

    /// True when the body can be sent a second time.
    pub(crate) fn lasts(&self) -> bool {
        !matches!(self.0, BodySource::Opened { once: true, .. })
    }

    /// Number of bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match &self.0 {
            BodySource::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            BodySource::Opened { length, .. } => *length,
        }
    }

    /// CRC-32C, if known before the body is sent.
    pub(crate) fn crc32c(&self) -> Option<u32> {
        match &self.0 {
            BodySource::Bytes(bytes) => Some(crc32_iscsi(bytes)),
            BodySource::Opened { .. } => None,
        }
    }

    /// The chunks for one try, and the facts known once they are sent.
    pub(crate) fn chunks(&mut self) -> io::Result<(Chunks, Sent)> {
        let sent = Sent::default();
        let from = match &mut self.0 {
            BodySource::Bytes(bytes) => Feed::Bytes(bytes.clone()),
            BodySource::Opened { length, open, .. } => Feed::Reader {
                reader: open()?,
                left: *length,
                chunk: BytesMut::new(),
                filled: 0,
                sent: sent.clone(),
            },
        };
        Ok((Chunks(from), sent))
    }
}

/// Checksum and error of a body, known once it was read.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<SentState>>);

#[derive(Default)]
struct SentState {
    sum: Sum,
    failed: Option<io::Error>,
}

impl Sent {
    fn with<T>(&self, act: impl FnOnce(&mut SentState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// CRC-32C of the bytes read.
    pub(crate) fn crc32c(&self) -> u32 {
        self.with(|state| state.sum.crc32c())
    }

    /// The read error, if any. The stream then ended early, and the service stores nothing.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.with(|state| state.failed.take())
    }
}

/// The chunks of a body.
pub(crate) struct Chunks(Feed);

enum Feed {
    Bytes(Bytes),
    Reader {
        reader: BoxRead,
        left: u64,
        chunk: BytesMut,
        filled: usize,
        sent: Sent,
    },
}

impl Stream for Chunks {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.0 {
            Feed::Bytes(rest) => {
                let next = rest.split_to(rest.len().min(CHUNK));
                Poll::Ready((!next.is_empty()).then_some(next))
            }
            Feed::Reader {
                reader,
                left,
                chunk,
                filled,
                sent,
            } => {
                let read = ready!(poll_fill(reader, *left, chunk, filled, cx));
                if let Err(error) = read {
                    sent.with(|state| state.failed = Some(error));
                    return Poll::Ready(None);
                }
                let next = std::mem::take(chunk).freeze();
                *filled = 0;
                *left -= u64::try_from(next.len()).unwrap_or(*left);
                sent.with(|state| state.sum.add(&next));
                Poll::Ready((!next.is_empty()).then_some(next))
            }
        }
    }
}

/// Fills a chunk, which keeps its bytes while the reader is not ready.
fn poll_fill(
    reader: &mut BoxRead,
    left: u64,
    chunk: &mut BytesMut,
    filled: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if chunk.is_empty() {
        let length = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        *chunk = BytesMut::zeroed(length);
    }
    while *filled < chunk.len() {
        let mut room = ReadBuf::new(&mut chunk[*filled..]);
        ready!(reader.as_mut().poll_read(cx, &mut room))?;
        let got = room.filled().len();
        if got == 0 {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it ended before the length that was announced",
            )));
        }
        *filled += got;
    }
    Poll::Ready(Ok(()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tokio_stream::StreamExt as _;

    use super::*;

    async fn all(body: &mut Body) -> (Vec<u8>, Sent) {
        let (mut chunks, sent) = body.chunks().unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.next().await {
            assert!(!chunk.is_empty() && chunk.len() <= CHUNK);
            bytes.extend_from_slice(&chunk);
        }
        (bytes, sent)
    }

    #[tokio::test]
    async fn a_reader_gives_exactly_its_length_and_its_checksum() {
        for length in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1] {
            let content: Vec<u8> = (0..=250).cycle().take(length + 9).collect();
            let mut body = Body::reader(io::Cursor::new(content.clone()), length as u64);
            let (bytes, sent) = all(&mut body).await;
            assert!(bytes == content[..length], "{length}");
            assert!(sent.failure().is_none());
            assert_eq!(sent.crc32c(), crc32_iscsi(&bytes));
            assert!(body.chunks().is_err(), "a second time");
            let mut body = Body::from(content);
            assert_eq!(body.crc32c(), Some(crc32_iscsi(&all(&mut body).await.0)));
        }
    }

    #[tokio::test]
    async fn a_reader_that_ends_early_is_noticed() {
        let mut body = Body::reader(io::Cursor::new(b"abc"), 4);
        let (bytes, sent) = all(&mut body).await;
        assert!(bytes.is_empty());
        let failure = sent.failure().unwrap();
        assert_eq!(failure.kind(), io::ErrorKind::UnexpectedEof);
    }
}
