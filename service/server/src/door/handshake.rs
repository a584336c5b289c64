//! Handshakes of a connection before it is served: TLS where configured, then the preface of
//! HTTP/2.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;

use super::io::{Socket, Stream};
use super::tls;

/// Beginning of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Protocol of a connection, above TLS where configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC: HTTP/2 from the first byte.
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
    /// Something else than HTTP/2 came.
    #[error("it does not begin with the preface of HTTP/2")]
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

/// Takes a connection through its handshakes. Returns its stream and the bytes that were read from
/// it already. Has no limit of time of its own.
pub(super) async fn let_in(
    socket: Socket,
    tls: Option<Arc<ServerConfig>>,
    protocol: Protocol,
) -> Result<(Stream, &'static [u8]), Refused> {
    let mut stream = match tls {
        None => Either::Left(socket),
        Some(config) => {
            let connection = socket.connection().clone();
            let accept = TlsAcceptor::from(config).accept(socket);
            let stream = accept.await.map_err(refused)?;
            if let Some(shown) = stream.get_ref().1.peer_certificates() {
                connection.identify(shown.first().map(tls::names).unwrap_or_default());
            }
            Either::Right(Box::new(stream))
        }
    };
    let first: &[u8] = match protocol {
        Protocol::Grpc => preface(&mut stream).await?,
        Protocol::Http => &[],
    };
    Ok((stream, first))
}

/// Reads the preface; gives up at the first byte that is no part of it.
async fn preface(stream: &mut Stream) -> Result<&'static [u8], Refused> {
    let mut seen = [0; PREFACE.len()];
    let mut len = 0;
    while len < PREFACE.len() {
        let more = stream.read(&mut seen[len..]).await.map_err(Refused::Gone)?;
        if more == 0 {
            return Err(Refused::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        len += more;
        if seen[..len] != PREFACE[..len] {
            return Err(Refused::Preface);
        }
    }
    Ok(PREFACE)
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
