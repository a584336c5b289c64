//! Handshakes of a connection before it is served: TLS where configured, then its first bytes, which
//! tell gRPC from gRPC-Web.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;

use super::io::{MaybeTls, Socket};
use super::tls::ClientCertificate;

/// Beginning of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Beginning of every call of gRPC-Web over HTTP/1.1.
const POST: &[u8; 5] = b"POST ";

/// Protocol of a connection, above TLS where configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC: HTTP/2 from the first byte, or gRPC-Web: HTTP/1.1 that begins with POST.
    Grpc,
    /// HTTP/1.1.
    Http,
}

/// Why a connection is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// TLS could not be agreed on.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The client's certificate is missing or no good.
    #[error("client certificate: {0}")]
    Certificate(io::Error),
    /// Neither gRPC nor gRPC-Web came.
    #[error("it begins neither with the preface of HTTP/2 nor with POST")]
    Preface,
    /// It ended before it had begun.
    #[error("it ended within its handshakes: {0}")]
    Gone(io::Error),
    /// Its address has too many connections.
    #[error("its address has too many connections open")]
    Address,
    /// It took too long.
    #[error("its handshakes took longer than handshake-timeout")]
    TooSlow,
}

impl Refused {
    /// The word in metrics.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Tls(_) => "tls",
            Self::Certificate(_) => "certificate",
            Self::Preface => "preface",
            Self::Gone(_) => "gone",
            Self::Address => "address",
            Self::TooSlow => "timeout",
        }
    }
}

/// The first bytes of a connection, which were read from it already.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) bytes: &'static [u8],
    /// True: HTTP/1.1 follows. False: HTTP/2.
    pub(super) http1: bool,
}

/// Takes a connection through its handshakes. Has no limit of time of its own.
pub(super) async fn let_in(
    socket: Socket,
    tls: Option<Arc<ServerConfig>>,
    protocol: Protocol,
) -> Result<(MaybeTls, First), Refused> {
    let mut stream = match tls {
        None => Either::Left(socket),
        Some(config) => {
            let connection = socket.connection().clone();
            let accept = TlsAcceptor::from(config).accept(socket);
            let stream = accept.await.map_err(refused)?;
            if let Some(shown) = stream.get_ref().1.peer_certificates() {
                connection.identify(ClientCertificate::new(shown));
            }
            Either::Right(Box::new(stream))
        }
    };
    let first = match protocol {
        Protocol::Grpc => first(&mut stream).await?,
        Protocol::Http => First {
            bytes: &[],
            http1: true,
        },
    };
    Ok((stream, first))
}

/// Reads the preface of HTTP/2, or the method of gRPC-Web; gives up at the first byte that is no
/// part of either. Nothing behind them is read.
async fn first(stream: &mut MaybeTls) -> Result<First, Refused> {
    let mut seen = [0; PREFACE.len()];
    let mut len = 0;
    let mut wanted: &'static [u8] = PREFACE;
    while len < wanted.len() {
        // Until they differ, the shorter one is all that may be taken.
        let most = if len < 2 { POST.len() } else { wanted.len() };
        let more = stream.read(&mut seen[len..most]).await;
        let more = more.map_err(Refused::Gone)?;
        if more == 0 {
            return Err(Refused::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        len += more;
        if !wanted.starts_with(&seen[..len]) {
            if !POST.starts_with(&seen[..len]) {
                return Err(Refused::Preface);
            }
            wanted = POST;
        }
    }
    Ok(First {
        bytes: wanted,
        http1: wanted == POST,
    })
}

/// Tells what is wrong with the client's certificate from everything else that may go wrong.
fn refused(error: io::Error) -> Refused {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Refused::Certificate(error)
        }
        Some(_) => Refused::Tls(error),
        None => Refused::Gone(error),
    }
}
