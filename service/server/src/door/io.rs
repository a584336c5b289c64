//! The bytes of a connection: a socket that can be closed from outside and whose writes may not
//! stall, below TLS or without it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::authority::Authority;
use super::connection::Connection;
use super::handshake::First;

/// A socket as the kernel gave it.
pub(super) type Raw = Either<TcpStream, UnixStream>;

/// A socket that ends when its [`Connection`] is closed, or when the other end takes no byte of
/// what is being written for too long.
#[derive(Debug)]
pub(super) struct Socket {
    raw: Raw,
    connection: Connection,
    /// Wake a pending read and a pending write when the connection is closed.
    closed: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    stall: Stall,
}

impl Socket {
    /// `stall`: how long a write may wait for the other end to take anything.
    pub(super) fn new(raw: Raw, connection: Connection, stall: Duration) -> Self {
        Self {
            raw,
            closed: [(); 2].map(|()| Box::pin(connection.closed())),
            connection,
            stall: Stall {
                limit: stall,
                timer: Box::pin(tokio::time::sleep(stall)),
                waits: false,
            },
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn open(&self) -> io::Result<()> {
        if self.connection.is_closed() {
            return Err(closed());
        }
        Ok(())
    }

    /// Result of a write; starts a watch while it waits.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stall.waits = false;
            return polled;
        }
        let [_, write] = &mut self.closed;
        if write.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(closed()));
        }
        ready!(self.stall.poll(context));
        self.connection
            .close("the other end did not take what was sent to it");
        Poll::Ready(Err(closed()))
    }
}

/// A write that waits, and how long it may.
#[derive(Debug)]
struct Stall {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    waits: bool,
}

impl Stall {
    /// Ready when the write has waited for too long.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.waits {
            self.waits = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        self.timer.as_mut().poll(context)
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed by the service")
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.open()?;
        let polled = Pin::new(&mut self.raw).poll_read(context, buffer);
        let [read, _] = &mut self.closed;
        if polled.is_pending() && read.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(closed()));
        }
        polled
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.open()?;
        let polled = Pin::new(&mut self.raw).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open()?;
        let polled = Pin::new(&mut self.raw).poll_write_vectored(context, slices);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open()?;
        // A socket has nothing of its own to flush: this never waits and says nothing of progress.
        Pin::new(&mut self.raw).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.raw).poll_shutdown(context)
    }
}

/// Without TLS, or with it.
pub(super) type MaybeTls = Either<Socket, Box<TlsStream<Socket>>>;

/// A connection that has been let in: its stream, with the bytes before it that were looked at.
#[derive(Debug)]
pub struct Admitted {
    stream: MaybeTls,
    first: First,
    /// Of the calls over the UNIX socket; `None`: elsewhere, and with HTTP/1.1.
    authority: Option<Authority>,
    /// Tells, by being dropped, that the transport has let go of the connection.
    _ends: oneshot::Sender<()>,
}

impl Admitted {
    /// `first` is read before what is still in `stream`. The receiver ends with the connection.
    pub(super) fn new(stream: MaybeTls, first: First) -> (Self, oneshot::Receiver<()>) {
        let (ends, ended) = oneshot::channel();
        let mut admitted = Self {
            stream,
            first,
            authority: None,
            _ends: ends,
        };
        let is_named = admitted.is_http1() || !admitted.connect_info().is_unix();
        admitted.authority = (!is_named).then(Authority::default);
        (admitted, ended)
    }

    /// True: the client speaks HTTP/1.1. False: HTTP/2.
    #[must_use]
    pub fn is_http1(&self) -> bool {
        self.first.http1
    }
}

impl Connected for Admitted {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        let socket = match &self.stream {
            Either::Left(plain) => plain,
            Either::Right(tls) => tls.get_ref().0,
        };
        socket.connection().clone()
    }
}

impl AsyncRead for Admitted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.bytes.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            if let Some(authority) = &mut self.authority {
                authority.clean(&mut buffer.filled_mut()[before..]);
            }
            return Poll::Ready(Ok(()));
        }
        let first = self.first.bytes;
        let (now, later) = first.split_at(first.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.first.bytes = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::door::Peer;

    /// A socket of ours and its other end.
    fn pair(stall: Duration) -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = Peer::Unix {
            pid: None,
            uid: None,
        };
        let connection = Connection::new(peer);
        (Socket::new(Either::Right(ours), connection, stall), theirs)
    }

    #[tokio::test]
    async fn a_write_that_nobody_takes_ends_the_connection() {
        let (mut socket, _theirs) = pair(Duration::from_millis(100));
        let error = socket.write_all(&vec![0; 16 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert!(socket.connection().is_closed());
    }

    #[tokio::test]
    async fn a_slow_reader_is_no_stall() {
        let (mut socket, mut theirs) = pair(Duration::from_secs(30));
        let reads = tokio::spawn(async move {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).await.unwrap();
            bytes.len()
        });
        socket.write_all(&vec![0; 16 << 20]).await.unwrap();
        socket.shutdown().await.unwrap();
        assert_eq!(reads.await.unwrap(), 16 << 20);
    }

    #[tokio::test]
    async fn closing_ends_a_read_that_waits() {
        let (mut socket, _theirs) = pair(Duration::from_secs(30));
        let connection = socket.connection().clone();
        let reads = tokio::spawn(async move { socket.read_u8().await });
        tokio::task::yield_now().await;
        connection.close("a test");
        let error = reads.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
