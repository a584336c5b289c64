//! Bytes between files or pipes and the messages of the service.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::{Bytes, BytesMut};
use lumpscope_proto::v1;

use crate::error::ServerError;
use crate::grpc::GET_CHUNK;

fn is_pipe(path: Option<&Path>) -> bool {
    path.is_none_or(|path| path == Path::new("-"))
}

/// Where a put's bytes come from.
pub(super) struct Source {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
    length: u64,
}

impl Source {
    /// Opens a file; reads a pipe to its end, because a put announces its length.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, ServerError> {
        if is_pipe(path) {
            let path = PathBuf::from("standard input");
            let mut all = Vec::new();
            io::stdin()
                .read_to_end(&mut all)
                .map_err(|source| file_error("read", &path, source))?;
            let length = u64::try_from(all.len()).unwrap_or(u64::MAX);
            return Ok(Self {
                reader: Box::new(io::Cursor::new(all)),
                path,
                length,
            });
        }
        let path = path.unwrap_or(Path::new("-")).to_owned();
        let file = File::open(&path).map_err(|source| file_error("read", &path, source))?;
        let meta = file
            .metadata()
            .map_err(|source| file_error("read", &path, source))?;
        Ok(Self {
            reader: Box::new(file),
            path,
            length: meta.len(),
        })
    }

    /// Bytes announced.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The messages of a put, and where a failure to read is told: the stream then ends early,
    /// and the service stores nothing.
    pub(super) fn messages(
        self,
        header: v1::PutHeader,
    ) -> (
        impl tokio_stream::Stream<Item = v1::PutRequest> + Send + 'static,
        Receiver<ServerError>,
    ) {
        let (failures, receiver) = channel();
        let header = v1::PutRequest {
            part: Some(v1::put_request::Part::Header(header)),
        };
        let chunks = Chunks {
            source: self,
            failures,
        };
        (
            tokio_stream::iter(std::iter::once(header).chain(chunks)),
            receiver,
        )
    }
}

struct Chunks {
    source: Source,
    failures: Sender<ServerError>,
}

impl Iterator for Chunks {
    type Item = v1::PutRequest;

    fn next(&mut self) -> Option<v1::PutRequest> {
        let mut chunk = BytesMut::zeroed(GET_CHUNK);
        let mut filled = 0;
        while filled < chunk.len() {
            match self.source.reader.read(&mut chunk[filled..]) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let failure = file_error("read", &self.source.path, error);
                    // The receiver outlives the call.
                    let _ = self.failures.send(failure);
                    return None;
                }
            }
        }
        chunk.truncate(filled);
        let chunk: Bytes = chunk.freeze();
        (!chunk.is_empty()).then(|| v1::PutRequest {
            part: Some(v1::put_request::Part::Chunk(chunk)),
        })
    }
}

/// Where a get's bytes go. A file is made with the first byte, or at the end of an empty lump: a
/// refused get leaves what was there.
pub(super) struct Target {
    path: Option<PathBuf>,
    writer: Option<Box<dyn Write>>,
}

impl Target {
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.filter(|path| !is_pipe(Some(path))).map(Path::to_owned),
            writer: None,
        }
    }

    fn writer(&mut self) -> Result<&mut Box<dyn Write>, ServerError> {
        if self.writer.is_none() {
            self.writer = Some(match &self.path {
                None => Box::new(io::stdout()),
                Some(path) => Box::new(
                    File::create(path).map_err(|source| file_error("write", path, source))?,
                ),
            });
        }
        Ok(self.writer.as_mut().expect("it was made above"))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let name = self.name();
        self.writer()?
            .write_all(bytes)
            .map_err(|source| file_error("write", &name, source))
    }

    pub(super) fn finish(mut self) -> Result<(), ServerError> {
        let name = self.name();
        self.writer()?
            .flush()
            .map_err(|source| file_error("write", &name, source))
    }

    fn name(&self) -> PathBuf {
        self.path
            .clone()
            .unwrap_or_else(|| PathBuf::from("standard output"))
    }
}

fn file_error(what: &'static str, path: &Path, source: io::Error) -> ServerError {
    ServerError::File {
        what,
        path: path.to_owned(),
        source,
    }
}
