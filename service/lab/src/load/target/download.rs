//! One connection by which objects are read, as cheaply as a client can do it.
//!
//! Client and server share the processors, so what the client wastes is taken from every server
//! that is measured, and most from the fastest. A body is received into memory that is there
//! already: no copy but the kernel's, no fresh pages, no clearing. The same for every server.
//!
//! It asks for objects and understands what servers answer to that: a head, and as many bytes as
//! it announces. Anything else is an error.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use httparse::{EMPTY_HEADER, Response, Status};

use super::memory::Home;

/// Most bytes of the head of an answer.
const MAX_HEAD: usize = 16 * 1024;
/// Most lines of it.
const MAX_HEADERS: usize = 64;
/// Largest body that is read, in bytes: the largest lump.
const MAX_BODY: u64 = 256 << 20;

/// Why there is no object.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the answer is no HTTP: {0}")]
    Malformed(#[from] httparse::Error),
    #[error("the head of the answer has more than {MAX_HEAD} bytes")]
    LongHead,
    #[error("status {status}: {said}")]
    Status { status: u16, said: String },
    #[error("the answer does not announce one length of at most {MAX_BODY} bytes")]
    Length,
    #[error("more bytes came than were announced")]
    Surplus,
    #[error("the connection ended in the head of an answer")]
    Ended,
}

/// One client's connection to one server; made when it is first used, and again after a failure.
pub(super) struct Download {
    address: String,
    patience: Duration,
    stream: Option<TcpStream>,
    body: Home,
}

/// Head of an answer, and its length in bytes.
struct Head {
    bytes: usize,
    body: usize,
    last: bool,
}

impl Download {
    /// `address`: `HOST:PORT`; `patience`: how long the server may send nothing.
    pub(super) fn new(address: String, patience: Duration) -> Download {
        Download {
            address,
            patience,
            stream: None,
            body: Home::default(),
        }
    }

    /// Gets what `target`, path and signed query, names. Returns when all of it is here.
    ///
    /// # Errors
    /// Also any status but 200. The next call then makes a new connection.
    pub(super) fn get(&mut self, target: &str) -> Result<Bytes, Error> {
        let request = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        let (mut stream, used) = match self.stream.take() {
            Some(stream) => (stream, true),
            None => (self.connect()?, false),
        };
        let mut head = [0; MAX_HEAD];
        let begun = match begin(&mut stream, request.as_bytes(), &mut head) {
            // A server may end a connection that has been idle: no answer has been lost.
            Err(Error::Io(_)) | Ok(0) if used => {
                stream = self.connect()?;
                begin(&mut stream, request.as_bytes(), &mut head)
            }
            other => other,
        };
        let (body, last) = self.receive(&mut stream, &mut head, begun?)?;
        self.stream = (!last).then_some(stream);
        Ok(body)
    }

    fn connect(&self) -> Result<TcpStream, Error> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        Ok(stream)
    }

    /// Receives an answer of which `got` bytes are in `head`. True: it was the connection's last.
    fn receive(
        &self,
        stream: &mut TcpStream,
        head: &mut [u8],
        mut got: usize,
    ) -> Result<(Bytes, bool), Error> {
        let found = loop {
            if let Some(found) = parse(head.get(..got).unwrap_or_default())? {
                break found;
            }
            got += match head.get_mut(got..) {
                Some(rest) if !rest.is_empty() => match stream.read(rest)? {
                    0 => return Err(Error::Ended),
                    more => more,
                },
                _ => return Err(Error::LongHead),
            };
        };
        let first = head.get(found.bytes..got).unwrap_or_default();
        let mut body = self.body.body(found.body);
        let (here, rest) = body
            .room()
            .split_at_mut_checked(first.len())
            .ok_or(Error::Surplus)?;
        here.copy_from_slice(first);
        stream.read_exact(rest)?;
        Ok((Bytes::from_owner(body), found.last))
    }
}

/// Asks, and waits for the first bytes of the answer.
fn begin(stream: &mut TcpStream, request: &[u8], head: &mut [u8]) -> Result<usize, Error> {
    stream.write_all(request)?;
    Ok(stream.read(head)?)
}

/// `None`: there is more of the head to come.
fn parse(head: &[u8]) -> Result<Option<Head>, Error> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut response = Response::new(&mut headers);
    let Status::Complete(bytes) = response.parse(head)? else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    if status != 200 {
        let said = head.get(bytes..).unwrap_or_default();
        let said = String::from_utf8_lossy(said).into_owned();
        return Err(Error::Status { status, said });
    }
    let of = |name: &'static str| {
        let headers = response.headers.iter();
        let named = headers.filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| str::from_utf8(header.value).unwrap_or_default().trim())
    };
    let chunked = of("transfer-encoding").next().is_some();
    let lengths: Vec<u64> = of("content-length")
        .map(|value| value.parse().unwrap_or(u64::MAX))
        .collect();
    let body = match lengths.as_slice() {
        [length] if *length <= MAX_BODY && !chunked => usize::try_from(*length).ok(),
        _ => None,
    };
    Ok(Some(Head {
        bytes,
        body: body.ok_or(Error::Length)?,
        last: of("connection").any(|value| value.eq_ignore_ascii_case("close")),
    }))
}

#[cfg(test)]
mod tests;
