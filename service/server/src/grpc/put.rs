//! Receiving a lump: the body goes from the buffers of HTTP/2 into the engine's aligned buffer,
//! which is the only copy, checksummed on the way. A large one is written while it comes, where that
//! pays; no lump is put before the stream has ended as announced.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lumpscope_engine::{Error, LumpBuf, LumpId, Placement, PutOptions};
use lumpscope_proto::frame::{Decoder, Event, Limits, WireError};
use lumpscope_proto::v1;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

use super::convert;
use super::intake::data;
use super::lump_store::LumpStoreService;
use crate::refusal::Refusal;
use crate::request::{Budget, Reserved, Scope, is_slow};
use crate::stores::NamedStore;
use crate::usdt::LumpOp;

/// Most bytes of an encoded header: many times what its fields can use.
const MAX_HEADER: u64 = 16 << 10;
/// Longest time between two looks for memory when a store has none for what the service let in.
const MEMORY_RETRY: Duration = Duration::from_millis(100);

/// Serves one put.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn put(
    service: &LumpStoreService,
    scope: &Scope,
    body: Body,
) -> Result<v1::PutResponse, Status> {
    let mut incoming = Incoming::new(service, body);
    let Some(Event::Header(header)) = incoming.next().await? else {
        return Err(Refusal::HeaderMissing.into());
    };
    let wanted = Wanted::of(service, scope, decode_header(header)?)?;
    let mut room = wanted.room(service, scope).await?;
    incoming.begin(wanted.length);
    while let Some(event) = incoming.next().await? {
        match event {
            Event::Chunk(bytes) => incoming.fill(&wanted, &mut room, &bytes).await?,
            Event::Header(_) => return Err(Refusal::SecondHeader.into()),
            Event::End { part: true } => {}
            Event::End { part: false } => return Err(Refusal::EmptyMessage.into()),
        }
    }
    if incoming.missing() > 0 {
        return Err(incoming.short().into());
    }
    Ok(wanted.store(scope, room).await?)
}

/// The header of a lump.
///
/// # Errors
/// [`WireError::Malformed`].
pub(super) fn decode_header(encoded: Bytes) -> Result<v1::PutHeader, Refusal> {
    v1::PutHeader::decode(encoded)
        .map_err(|_| WireError::Malformed("the fields of a header cannot be read").into())
}

/// A put's header, understood.
pub(super) struct Wanted {
    named: Arc<NamedStore>,
    id: LumpId,
    pub(super) length: u64,
    options: PutOptions,
    crc32c: Option<u32>,
}

impl Wanted {
    /// Understands a header; the scope learns what it asks for.
    ///
    /// # Errors
    /// The request is malformed, or its store refuses it.
    pub(super) fn of(
        service: &LumpStoreService,
        scope: &Scope,
        header: v1::PutHeader,
    ) -> Result<Self, Refusal> {
        scope.wait_as(header.options.as_ref());
        let wanted = Self {
            named: service.store(scope, &header.store)?,
            id: convert::lump_id("id", header.id.as_ref())?,
            length: header.length,
            options: PutOptions {
                placement: convert::placement(header.placement)?,
                durability: convert::durability(header.durability, service.durability)?,
                condition: convert::condition(header.condition)?,
            },
            crc32c: header.crc32c,
        };
        scope.lump(wanted.id, LumpOp::Put);
        let (len, max) = (header.length, wanted.named.store.info().max_lump_bytes);
        if len > max {
            return Err(wanted.named.refusal(Error::LumpTooLarge { len, max }));
        }
        Ok(wanted)
    }

    /// Waits for memory. What the service lets in, the store has room for (the configuration sees
    /// to that), unless one of them is larger than its whole budget: then it waits here too.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) async fn room(
        &self,
        service: &LumpStoreService,
        scope: &Scope,
    ) -> Result<BodyBuffer, Refusal> {
        let store = &self.named.store;
        let embedded = self.options.placement == Some(Placement::Embedded);
        let passes = !embedded && store.passes(self.length);
        let bytes = if passes {
            Ok(store.pieces_memory())
        } else {
            store.lump_memory(self.length)
        };
        let bytes = bytes.map_err(|error| self.named.refusal(error))?;
        let memory = service.put_memory.begin(scope.payer(), bytes).await;
        if !passes && !memory.is_whole() {
            let buf = store.lump_buf_untouched(self.length);
            let buf = buf.map_err(|error| self.named.refusal(error))?;
            return Ok(BodyBuffer { memory, buf });
        }
        loop {
            let buf = if passes {
                let lump = (self.id, self.length);
                store.lump_buf_in_pieces(scope.waits(), lump, self.options.condition)
            } else {
                store.lump_buf(self.length)
            };
            match buf {
                Ok(buf) => return Ok(BodyBuffer { memory, buf }),
                Err(Error::BuffersExhausted { retry_after, .. }) => {
                    tokio::time::sleep(retry_after.min(MEMORY_RETRY)).await;
                }
                Err(error) => return Err(self.named.refusal(error)),
            }
        }
    }

    /// Stores a body that is complete.
    ///
    /// # Errors
    /// [`Refusal::ChecksumDiffers`], or what the engine says.
    pub(super) async fn store(
        &self,
        scope: &Scope,
        BodyBuffer { memory, buf }: BodyBuffer,
    ) -> Result<v1::PutResponse, Refusal> {
        if let Some((times, waited_ns)) = buf.piece_times() {
            scope.waited(times, waited_ns);
        }
        let got = buf.crc32c().unwrap_or_default();
        if let Some(announced) = self.crc32c.filter(|announced| *announced != got) {
            return Err(Refusal::ChecksumDiffers { announced, got });
        }
        scope.add_bytes(self.length);
        let outcome = scope
            .ask(&self.named, memory, |store, ctx, on_done| {
                store.submit_put_with(ctx, self.id, buf, self.options, on_done)
            })
            .await?;
        Ok(v1::PutResponse {
            request_id: scope.id(),
            created: outcome.created,
            durability: convert::durability_reply(outcome.durability),
            crc32c: got,
            placement: convert::placement_reply(outcome.placement),
        })
    }
}

/// Memory for a body, and the buffer that it is received into.
pub(super) struct BodyBuffer {
    memory: Reserved,
    buf: LumpBuf,
}

impl BodyBuffer {
    /// Takes in all of the body.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) async fn take(&mut self, wanted: &Wanted, body: &[u8]) -> Result<(), Refusal> {
        self.memory.cover(u64::MAX).await;
        let written = self.buf.write(body).await;
        written.map_err(|error| wanted.named.refusal(error))
    }
}

/// The stream of a put, message by message.
pub(super) struct Incoming {
    body: Body,
    decoder: Decoder,
    input: Bytes,
    /// Longest time without a byte, and when bytes came last, or the service began to read.
    patience: Duration,
    last: Instant,
    min_rate: u64,
    memory: Budget,
    /// The body that comes in: announced, come, and since when.
    announced: u64,
    got: u64,
    began: Instant,
}

impl Incoming {
    pub(super) fn new(service: &LumpStoreService, body: Body) -> Self {
        let limits = Limits {
            message: service.max_message as u64,
            header: MAX_HEADER,
        };
        Self {
            body,
            decoder: Decoder::new(limits),
            input: Bytes::new(),
            patience: service.body_timeout,
            last: Instant::now(),
            min_rate: service.min_rate,
            memory: service.put_memory.clone(),
            announced: 0,
            got: 0,
            began: Instant::now(),
        }
    }

    /// The next event; `None`: the stream has ended in order. May be dropped and called again.
    ///
    /// # Errors
    /// Bytes that cannot be read, silence, a client that went away.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Status> {
        loop {
            let event = self.decoder.next(&mut self.input).map_err(Refusal::from)?;
            if event.is_some() {
                return Ok(event);
            }
            let until = self.last + self.patience;
            let came = tokio::time::timeout_at(until, data(&mut self.body)).await;
            let stalled = |_| Refusal::StreamStalled {
                announced: self.announced,
                got: self.got,
                silence: self.patience,
            };
            let Some(bytes) = came.map_err(stalled)?? else {
                self.decoder.finish().map_err(Refusal::from)?;
                return Ok(None);
            };
            self.last = Instant::now();
            self.input = bytes;
        }
    }

    /// A body of `announced` bytes is expected from now on.
    pub(super) fn begin(&mut self, announced: u64) {
        self.last = Instant::now();
        (self.announced, self.got) = (announced, 0);
        self.began = Instant::now();
    }

    /// Bytes of the body still to come.
    pub(super) fn missing(&self) -> u64 {
        self.announced - self.got
    }

    /// Takes in a part of the body, when there is memory for it, and for what is written meanwhile
    /// when the disk has taken enough of it.
    ///
    /// # Errors
    /// [`Refusal::StreamLong`], [`Refusal::StreamSlow`], and what the engine says.
    pub(super) async fn fill(
        &mut self,
        wanted: &Wanted,
        BodyBuffer { memory, buf }: &mut BodyBuffer,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        self.count(bytes.len())?;
        // The padding and the trailer come with the last byte.
        let needed = if self.missing() == 0 {
            u64::MAX
        } else {
            self.got
        };
        let since = Instant::now();
        let mut waited = memory.cover(needed).await;
        let before = buf.waited_ns();
        let written = buf.write(bytes).await;
        waited |= buf.waited_ns() > before;
        // What the service has waited for is not the client's.
        if waited {
            self.began += since.elapsed();
            self.last = Instant::now();
        }
        written.map_err(|error| wanted.named.refusal(error))
    }

    /// Counts bytes of the body.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        if bytes > self.missing() {
            return Err(self.long());
        }
        self.got += bytes;
        let elapsed = self.began.elapsed();
        let late = self.missing() > 0 && elapsed > self.patience;
        if !late {
            return Ok(());
        }
        let min_rate = self.memory.least_rate(self.min_rate, self.announced);
        if is_slow(self.got, elapsed, min_rate) {
            return Err(Refusal::StreamSlow {
                announced: self.announced,
                got: self.got,
                elapsed,
                min_rate,
            });
        }
        Ok(())
    }

    /// The body has ended before its announced length.
    pub(super) fn short(&self) -> Refusal {
        Refusal::StreamShort {
            announced: self.announced,
            got: self.got,
        }
    }

    /// The body goes on after its announced length.
    pub(super) fn long(&self) -> Refusal {
        Refusal::StreamLong {
            announced: self.announced,
        }
    }
}
