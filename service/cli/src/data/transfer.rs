//! Bytes between files or pipes and the service.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Result;
use indicatif::ProgressBar;
use lumpscope_client::{Body, BoxRead, v1};
use lumpscope_engine::guard::check_new_file;
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

/// The body of a put, and the progress of sending it. A pipe is read to its end, because a put announces its length.
pub(crate) fn body(path: Option<&Path>) -> Result<(Body, ProgressBar)> {
    let Some(path) = path.filter(|path| !is_pipe(path)) else {
        let mut all = Vec::new();
        io::stdin()
            .read_to_end(&mut all)
            .map_err(file_error("read", Path::new("standard input")))?;
        return Ok((all.into(), ProgressBar::hidden()));
    };
    let failed = file_error("read", path);
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() || meta.len() <= READ_FIRST {
        let mut all = Vec::new();
        (&file).read_to_end(&mut all).map_err(failed)?;
        return Ok((all.into(), ProgressBar::hidden()));
    }
    let bar = progress::bar(meta.len());
    let (path, shown) = (path.to_owned(), bar.clone());
    let body = Body::opened(meta.len(), move || {
        shown.set_position(0);
        let shown = shown.clone();
        let file = tokio::fs::File::from_std(File::open(&path)?);
        let file = InspectReader::new(file, move |bytes: &[u8]| shown.inc(length(bytes)));
        Ok(Box::pin(file) as BoxRead)
    });
    Ok((body, bar))
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
    /// Standard output, or a pipe or device that has a name.
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
