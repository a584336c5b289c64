//! Reading one lump.

use std::sync::mpsc;

use bytes::{Bytes, BytesMut};
use lumpscope_proto::v1;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tonic::Streaming;

use crate::call::{Attempt, AttemptFailure, Client, Repeat, call};
use crate::error::Error;
use crate::id::LumpId;
use crate::put::same;
use crate::sum::Sum;

/// Most memory reserved because of a header; more only when the bytes have come.
const LARGEST_AHEAD: u64 = 64 << 20;
/// Bytes of a piece that need not be copied.
const LARGE: usize = 64 << 10;

/// A lump, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lump {
    /// The service's description of the lump.
    pub header: v1::GetHeader,
    /// The bytes: as many as announced, and with the announced checksum where there is one.
    pub bytes: Bytes,
}

impl Client {
    /// Reads a lump, whole or a byte range, into memory.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; [`Error::ChecksumMismatch`], [`Error::LengthMismatch`]; those
    /// of a connection.
    pub async fn get(
        &self,
        store: &str,
        id: LumpId,
        range: Option<v1::ByteRange>,
    ) -> Result<Lump, Error> {
        let message = request(store, id, range);
        call!(self, Repeat::Always, "the get", |attempt| {
            let (header, mut chunks) = self.open(attempt, message.clone()).await?;
            let mut check = Check::new(id, &header);
            let mut bytes = Gathered::default();
            while let Some(piece) = chunks.next().await? {
                check.add(&piece)?;
                bytes.add(piece, header.length);
            }
            check.finish()?;
            let bytes = bytes.finish();
            Ok(Lump { header, bytes })
        })
    }

    /// Reads a lump, whole or a byte range, and writes it as it comes. Repeated only while nothing was written.
    ///
    /// # Errors
    /// As for [`Client::get`], and [`Error::WriteBody`]. Discard the written bytes then: their end is missing, or they
    /// are not verified.
    pub async fn get_into(
        &self,
        store: &str,
        id: LumpId,
        range: Option<v1::ByteRange>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<v1::GetHeader, Error> {
        let message = request(store, id, range);
        call!(self, Repeat::Always, "the get", |attempt| {
            let (header, mut chunks) = self.open(attempt, message.clone()).await?;
            let mut check = Check::new(id, &header);
            let mut written = false;
            while let Some(piece) = chunks
                .next()
                .await
                .map_err(|failure| if written { failure.last() } else { failure })?
            {
                check.add(&piece)?;
                written = true;
                writer.write_all(&piece).await.map_err(Error::WriteBody)?;
            }
            check.finish()?;
            writer.flush().await.map_err(Error::WriteBody)?;
            Ok(header)
        })
    }

    /// The header of a get of the whole lump, with its checksum, when all of its bytes have come and fit it. They are
    /// not kept.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn peek(&self, store: &str, id: LumpId) -> Result<v1::GetHeader, Error> {
        self.get_into(store, id, None, &mut tokio::io::sink()).await
    }

    /// Reads a lump, or a range, of at most [`crate::SMALL`] bytes by one message.
    ///
    /// # Errors
    /// As for [`Client::get`]; OUT_OF_RANGE when it is longer.
    pub async fn get_small(
        &self,
        store: &str,
        id: LumpId,
        range: Option<v1::ByteRange>,
    ) -> Result<Lump, Error> {
        let message = v1::GetSmallRequest {
            get: Some(request(store, id, range)),
        };
        call!(self, Repeat::Always, "the get", |attempt| {
            let request = attempt.request(message.clone());
            let reply = self.lump_store().get_small(request).await?.into_inner();
            let header = reply.header.ok_or(NO_HEADER)?;
            let mut check = Check::new(id, &header);
            check.add(&reply.body)?;
            check.finish()?;
            let bytes = reply.body;
            Ok(Lump { header, bytes })
        })
    }

    async fn open(
        &self,
        attempt: &Attempt,
        message: v1::GetRequest,
    ) -> Result<(v1::GetHeader, Chunks), AttemptFailure> {
        let (mut service, pieces) = self.taking();
        let reply = service.get(attempt.request(message)).await?;
        let mut stream = reply.into_inner();
        match stream.message().await?.and_then(|message| message.part) {
            Some(v1::get_response::Part::Header(header)) => Ok((header, Chunks { stream, pieces })),
            _ => Err(NO_HEADER.into()),
        }
    }
}

const NO_HEADER: Error = Error::Protocol("a get that does not begin with a header");

fn request(store: &str, id: LumpId, range: Option<v1::ByteRange>) -> v1::GetRequest {
    v1::GetRequest {
        store: store.to_owned(),
        id: Some(id.into()),
        range,
        options: None,
    }
}

/// The chunks behind the header of a get.
struct Chunks {
    stream: Streaming<v1::GetResponse>,
    pieces: mpsc::Receiver<Bytes>,
}

impl Chunks {
    /// The next piece of a chunk.
    async fn next(&mut self) -> Result<Option<Bytes>, AttemptFailure> {
        let Some(message) = self.stream.message().await? else {
            return Ok(None);
        };
        match message.part {
            Some(v1::get_response::Part::Chunk(_)) => {
                Ok(Some(self.pieces.try_recv().unwrap_or_default()))
            }
            _ => Err(
                Error::Protocol("a get with something else than chunks after its header").into(),
            ),
        }
    }
}

/// Length and checksum of the bytes received.
pub(crate) struct Check {
    id: LumpId,
    announced: u64,
    got: u64,
    expected: Option<u32>,
    sum: Sum,
}

impl Check {
    pub(crate) fn new(id: LumpId, header: &v1::GetHeader) -> Self {
        Self {
            id,
            announced: header.length,
            got: 0,
            expected: header.crc32c,
            sum: Sum::default(),
        }
    }

    pub(crate) fn add(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.got += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if self.got > self.announced {
            return Err(self.length());
        }
        if self.expected.is_some() {
            self.sum.add(chunk);
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.got != self.announced {
            return Err(self.length());
        }
        self.expected
            .map_or(Ok(()), |sent| same(self.id, sent, self.sum.crc32c()))
    }

    fn length(&self) -> Error {
        Error::LengthMismatch {
            id: self.id,
            announced: self.announced,
            got: self.got,
        }
    }
}

/// Pieces put together. One that is the whole lump is not copied, unless it is small: it may lie in a much larger buffer
/// of the connection.
#[derive(Default)]
pub(crate) struct Gathered {
    whole: Bytes,
    pieces: BytesMut,
}

impl Gathered {
    pub(crate) fn add(&mut self, piece: Bytes, announced: u64) {
        if piece.len() >= LARGE && piece.len() as u64 == announced {
            self.whole = piece;
            return;
        }
        if self.pieces.is_empty() {
            let ahead = announced.min(LARGEST_AHEAD);
            self.pieces.reserve(usize::try_from(ahead).unwrap_or(0));
        }
        self.pieces.extend_from_slice(&piece);
    }

    pub(crate) fn finish(self) -> Bytes {
        if self.pieces.is_empty() {
            self.whole
        } else {
            self.pieces.freeze()
        }
    }
}
