//! Bytes between files or pipes and the service.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Result;
use indicatif::ProgressBar;
use lumpscope_client::{Body, BoxRead, v1};
use lumpscope_engine::guard::{check_new_file, check_output};
use tempfile::NamedTempFile;
use tokio::io::AsyncWrite;
use tokio_util::io::InspectReader;

use crate::error::file as file_error;
use crate::{output, progress};

/// Files up to this size are read before they are sent, so that their checksum goes in front of them.
const READ_FIRST: u64 = 8 << 20;

fn is_pipe(path: &Path) -> bool {
    path == Path::new("-")
}

/// The body of a put, as far as it is known without the service.
pub(crate) enum Start {
    /// All of it, or a large file, which is read as it is sent; the progress of sending it.
    Complete(Body, ProgressBar),
    /// More than [`READ_FIRST`] bytes of something whose length is unknown.
    Endless(Vec<u8>, Box<dyn Read + Send>),
}

/// Opens the body of a put. A pipe is read to its end, because a put announces its length.
pub(crate) fn start(path: Option<&Path>) -> Result<Start> {
    let path = path.filter(|path| !is_pipe(path));
    let from: Box<dyn Read + Send> = match path {
        None => Box::new(io::stdin()),
        Some(path) => {
            let failed = file_error("read", path);
            let file = File::open(path).map_err(failed)?;
            let meta = file.metadata().map_err(failed)?;
            if meta.is_file() && meta.len() > READ_FIRST {
                let (body, bar) = large_file(path, meta.len());
                return Ok(Start::Complete(body, bar));
            }
            Box::new(file)
        }
    };
    let (bytes, rest) = read(Vec::new(), from, READ_FIRST + 1, path)?;
    Ok(match length(&bytes) > READ_FIRST {
        true => Start::Endless(bytes, rest),
        false => Start::Complete(bytes.into(), ProgressBar::hidden()),
    })
}

impl Start {
    /// Reads the rest, but no more than one byte beyond the `largest` lump: the service refuses that
    /// body as it refuses a file that is too large.
    pub(crate) fn complete(self, path: Option<&Path>, largest: u64) -> Result<(Body, ProgressBar)> {
        match self {
            Self::Complete(body, bar) => Ok((body, bar)),
            Self::Endless(bytes, rest) => {
                let (bytes, _) = read(bytes, rest, largest.saturating_add(1), path)?;
                Ok((bytes.into(), ProgressBar::hidden()))
            }
        }
    }
}

type Reading = (Vec<u8>, Box<dyn Read + Send>);

/// Appends what there is, up to `most` bytes in all.
fn read(
    mut bytes: Vec<u8>,
    mut from: Box<dyn Read + Send>,
    most: u64,
    path: Option<&Path>,
) -> Result<Reading> {
    let path = path.filter(|path| !is_pipe(path));
    let more = most.saturating_sub(length(&bytes));
    (&mut from)
        .take(more)
        .read_to_end(&mut bytes)
        .map_err(file_error(
            "read",
            path.unwrap_or(Path::new("standard input")),
        ))?;
    Ok((bytes, from))
}

/// A file that is read as it is sent, again for each try.
fn large_file(path: &Path, len: u64) -> (Body, ProgressBar) {
    let bar = progress::bar(len);
    let (path, shown) = (path.to_owned(), bar.clone());
    let body = Body::opened(len, move || {
        shown.set_position(0);
        let shown = shown.clone();
        let file = tokio::fs::File::from_std(File::open(&path)?);
        let file = InspectReader::new(file, move |bytes: &[u8]| shown.inc(length(bytes)));
        Ok(Box::pin(file) as BoxRead)
    });
    (body, bar)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Where a get's bytes go. A file appears when all has come and was checked: a get that fails leaves what was there.
pub(crate) struct GetTarget {
    path: Option<PathBuf>,
    to: Option<To>,
}

enum To {
    /// Standard output, or a pipe or terminal that has a name.
    Stream(Box<dyn Write + Send>),
    /// A file that will take the name at the end.
    File(NamedTempFile),
}

impl GetTarget {
    pub(crate) fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.filter(|path| !is_pipe(path)).map(Path::to_owned),
            to: None,
        }
    }

    fn open(&mut self) -> io::Result<&mut dyn Write> {
        let to = match self.to.take() {
            Some(to) => to,
            None => match &self.path {
                None => To::Stream(Box::new(output::stdout())),
                Some(path) if path.exists() && !path.is_file() => {
                    check_output(path).map_err(io::Error::other)?;
                    To::Stream(Box::new(File::options().write(true).open(path)?))
                }
                Some(path) => {
                    check_new_file(path).map_err(io::Error::other)?;
                    To::File(temporary(path)?)
                }
            },
        };
        Ok(match self.to.insert(to) {
            To::Stream(stream) => stream,
            To::File(file) => file,
        })
    }

    /// Gives the file its name, if all went well. `None`: the reader has closed the pipe.
    pub(crate) fn finish(
        mut self,
        done: Result<v1::GetHeader, lumpscope_client::Error>,
    ) -> Result<Option<v1::GetHeader>> {
        let path = self.path.clone();
        let failed = |error| match &path {
            Some(path) => Err(file_error("write", path)(error)),
            None => output::closed(error).map(|()| None),
        };
        let header = match done {
            Ok(header) => header,
            Err(lumpscope_client::Error::WriteBody(error)) => return failed(error),
            Err(other) => return Err(other.into()),
        };
        // Nothing was written yet of an empty lump.
        if let Err(error) = self.open().and_then(Write::flush) {
            return failed(error);
        }
        if let (Some(To::File(file)), Some(path)) = (self.to, &path)
            && let Err(error) = file.persist(path)
        {
            return failed(error.error);
        }
        Ok(Some(header))
    }
}

impl AsyncWrite for GetTarget {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.open().and_then(|to| to.write(bytes)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A new file in the folder of another, with the permissions that a new file gets. It goes when it is dropped.
pub(crate) fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".lumpscope-")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
}
