//! Address of the service, identity of the client, and limits of time.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};

use crate::error::Error;

/// No file of the settings is larger, as for the service.
const MAX_FILE: u64 = 4 << 20;

/// Reads a file of the connection's settings, which may be a pipe.
pub(crate) fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .and_then(|len| match u64::try_from(len) {
            Ok(len) if len <= MAX_FILE => Ok(bytes),
            _ => Err(io::Error::other(
                "it is larger than 4M; is it the right file?",
            )),
        });
    read.map_err(|source| Error::File {
        what,
        path: path.to_owned(),
        source,
    })
}

/// How to reach a service.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
    pub server: String,
    /// For `https://`: trusted CA and client identity.
    pub tls: Tls,
    /// Sent with each call.
    pub token: Option<Token>,
    /// True: the token may travel unencrypted to another machine.
    pub token_in_clear: bool,
    /// Time limit of a call with all its repetitions; `None`: no limit. Default: 60 s.
    pub timeout: Option<Duration>,
    /// Time limit of one try to connect. Default: 5 s.
    pub connect_timeout: Duration,
    /// Repetition of failed calls.
    pub retry: Retry,
    /// Bytes the service may send ahead, on one call and on one connection. Default: 16 MiB.
    pub window: u32,
    /// Largest HTTP/2 frame accepted, 16 KiB to 16 MiB - 1. Default: 1 MiB.
    pub frame: u32,
    /// Most connections, at least 1. There is one, and one more is made beside the calls when each has
    /// two calls in flight or more; a call goes to the least busy one. Default: 4.
    pub connections: usize,
}

impl Options {
    /// The defaults for a service at `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            tls: Tls::default(),
            token: None,
            token_in_clear: false,
            timeout: Some(Duration::from_secs(60)),
            connect_timeout: Duration::from_secs(5),
            retry: Retry::default(),
            window: 16 << 20,
            frame: 1 << 20,
            connections: 4,
        }
    }
}

/// Certificates for `https://`.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// PEM file of the certificates that sign the service's. Needed for `https://`: no other certificates are trusted.
    /// For a service with a public certificate, name the system's file.
    pub ca: Option<PathBuf>,
    /// PEM files of the client's certificate and its private key, for a service that asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name that the service's certificate must bear; `None`: the host of [`Options::server`].
    pub name: Option<String>,
}

/// Repetition of failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Repetitions after the first try; 0: none. Default: 4.
    pub times: usize,
    /// Wait before the first repetition; doubled for each further one, plus a random time up to that length, so that
    /// clients do not come back all at once. Default: 100 ms.
    pub first_wait: Duration,
    /// Longest of these waits, before the random time. Default: 5 s.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            times: 4,
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(5),
        }
    }
}

impl Retry {
    /// Every call is tried once.
    #[must_use]
    pub fn never() -> Self {
        Self {
            times: 0,
            ..Self::default()
        }
    }
}

/// A bearer token. Its text is never printed.
#[derive(Clone)]
pub struct Token(MetadataValue<Ascii>);

impl Token {
    /// Takes the text of a token.
    ///
    /// # Errors
    /// [`Error::Token`] when it is empty or has blanks or characters that cannot be sent.
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Token);
        }
        let mut value =
            MetadataValue::try_from(format!("Bearer {text}")).map_err(|_| Error::Token)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Reads a token from a file; surrounding blanks and line ends are dropped.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, [`Error::Token`] as for [`Token::new`].
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let bytes = read("token", path)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::Token)?;
        Self::new(text.trim())
    }

    pub(crate) fn value(&self) -> MetadataValue<Ascii> {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_never_shown() {
        let mut options = Options::new("unix:/run/x");
        options.token = Some(Token::new("s3cret").unwrap());
        let shown = format!("{options:?} {:?}", options.token.as_ref().unwrap().value());
        assert!(!shown.contains("s3cret"), "{shown}");
        for bad in ["", "a b", "a\nb", "é"] {
            assert!(matches!(Token::new(bad), Err(Error::Token)), "{bad:?}");
        }
    }
}
