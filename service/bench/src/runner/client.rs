//! One gRPC client of one store.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::{
    DeleteRangeRequest, DeleteRequest, GetRequest, LumpId, Placement, PutHeader, PutRequest,
    get_response, lump_id, put_request,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::content::content;
use super::order::{Step, position};
use super::{Mismatch, RunError, Shared};
use crate::workload::Command;

/// A whole lump of the usual sizes is under way without waiting for window updates.
const WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES: u32 = 1 << 20;
/// Size of one message of a put.
const CHUNK_BYTES: usize = 1 << 20;
const MESSAGE_LIMIT: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct StoreClient {
    grpc: LumpStoreClient<Channel>,
    store: String,
}

/// Why one command failed; the command is added by `perform`.
enum Failure {
    Status(Status),
    Wrong(Mismatch),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Status(status)
    }
}

impl StoreClient {
    /// A connection of its own.
    pub(super) async fn connect(server: &str, store: &str) -> Result<StoreClient, RunError> {
        let failed = |error: tonic::transport::Error| RunError::Connect {
            server: server.to_owned(),
            reason: chain(&error),
        };
        let channel = Endpoint::from_shared(server.to_owned())
            .map_err(failed)?
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(10))
            .connect()
            .await
            .map_err(failed)?;
        let grpc = LumpStoreClient::new(channel)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        Ok(StoreClient {
            grpc,
            store: store.to_owned(),
        })
    }

    /// Performs one command, checks the answer, and returns how long the call took.
    pub(super) async fn perform(
        &mut self,
        index: usize,
        step: &Step,
        shared: &Shared,
    ) -> Result<Duration, RunError> {
        let command = || format!("command {} ({})", index + 1, step.command);
        match tokio::time::timeout(PATIENCE, self.call(step, shared)).await {
            Ok(Ok(latency)) => Ok(latency),
            Ok(Err(Failure::Status(status))) => Err(RunError::Refused {
                command: command(),
                status: Box::new(status),
            }),
            Ok(Err(Failure::Wrong(what))) => Err(RunError::Wrong {
                command: command(),
                what,
            }),
            Err(_) => Err(RunError::TimedOut {
                command: command(),
                waited: PATIENCE,
            }),
        }
    }

    async fn call(&mut self, step: &Step, shared: &Shared) -> Result<Duration, Failure> {
        match step.command {
            Command::Put { id, size } => {
                self.put(id, size, step.version, Placement::Data, shared)
                    .await
            }
            Command::Embed { id, size } => {
                self.put(id, size, step.version, Placement::Embedded, shared)
                    .await
            }
            Command::Get { id, size } => self.get(id, size, step.version, shared).await,
            Command::Delete { id, .. } => self.delete(id).await,
            Command::DeleteRange { start, end, count } => {
                self.delete_range(start, end, count).await
            }
        }
    }

    async fn put(
        &mut self,
        id: u64,
        size: u64,
        version: u64,
        placement: Placement,
        shared: &Shared,
    ) -> Result<Duration, Failure> {
        let body = content(id, version, size);
        let checksum = u64::from(crc32c::crc32c(&body));
        shared.checksums[position(id)].store(checksum, Ordering::Release);
        let header = PutHeader {
            store: self.store.clone(),
            id: Some(lump_id(id)),
            length: size,
            placement: placement.into(),
            ..PutHeader::default()
        };
        let mut messages = vec![PutRequest {
            part: Some(put_request::Part::Header(header)),
        }];
        let mut rest = body;
        while !rest.is_empty() {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            messages.push(PutRequest {
                part: Some(put_request::Part::Chunk(chunk)),
            });
        }
        let begin = Instant::now();
        let reply = self.grpc.put(tokio_stream::iter(messages)).await?;
        let latency = begin.elapsed();
        let created = reply.into_inner().created;
        if created != (version == 1) {
            return Err(Failure::Wrong(Mismatch::Existed(!created)));
        }
        Ok(latency)
    }

    async fn get(
        &mut self,
        id: u64,
        size: u64,
        version: u64,
        shared: &Shared,
    ) -> Result<Duration, Failure> {
        let request = GetRequest {
            store: self.store.clone(),
            id: Some(lump_id(id)),
            range: None,
            ..Default::default()
        };
        let mut chunks: Vec<Bytes> = Vec::new();
        let begin = Instant::now();
        let mut reply = self.grpc.get(request).await?.into_inner();
        let first = reply.message().await?.and_then(|message| message.part);
        let Some(get_response::Part::Header(_)) = first else {
            return Err(Failure::Wrong(Mismatch::NoHeader));
        };
        while let Some(message) = reply.message().await? {
            if let Some(get_response::Part::Chunk(chunk)) = message.part {
                chunks.push(chunk);
            }
        }
        let latency = begin.elapsed();
        let expected = shared.checksums[position(id)].load(Ordering::Acquire);
        check_content(&chunks, size, expected).map_err(Failure::Wrong)?;
        if shared.verify_bytes {
            check_bytes(&chunks, &content(id, version, size)).map_err(Failure::Wrong)?;
        }
        Ok(latency)
    }

    async fn delete(&mut self, id: u64) -> Result<Duration, Failure> {
        let request = DeleteRequest {
            store: self.store.clone(),
            id: Some(lump_id(id)),
            ..DeleteRequest::default()
        };
        let begin = Instant::now();
        let reply = self.grpc.delete(request).await?;
        let latency = begin.elapsed();
        if reply.into_inner().existed {
            return Ok(latency);
        }
        Err(Failure::Wrong(Mismatch::Existed(false)))
    }

    async fn delete_range(
        &mut self,
        start: u64,
        end: u64,
        count: u64,
    ) -> Result<Duration, Failure> {
        let request = DeleteRangeRequest {
            store: self.store.clone(),
            start: Some(lump_id(start)),
            end: Some(lump_id(end)),
            ..DeleteRangeRequest::default()
        };
        let begin = Instant::now();
        let reply = self.grpc.delete_range(request).await?;
        let latency = begin.elapsed();
        let found = reply.into_inner().deleted;
        if found == count {
            return Ok(latency);
        }
        Err(Failure::Wrong(Mismatch::Deleted {
            expected: count,
            found,
        }))
    }
}

fn check_content(chunks: &[Bytes], size: u64, expected: u64) -> Result<(), Mismatch> {
    let length: usize = chunks.iter().map(Bytes::len).sum();
    let found = u64::try_from(length).unwrap_or(u64::MAX);
    if found != size {
        return Err(Mismatch::Length {
            expected: size,
            found,
        });
    }
    let found = chunks
        .iter()
        .fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk));
    if u64::from(found) != expected {
        let expected = u32::try_from(expected).unwrap_or(u32::MAX);
        return Err(Mismatch::Checksum { expected, found });
    }
    Ok(())
}

fn check_bytes(chunks: &[Bytes], expected: &[u8]) -> Result<(), Mismatch> {
    let found = chunks.iter().flat_map(|chunk| chunk.iter());
    match found
        .zip(expected)
        .position(|(found, expected)| found != expected)
    {
        Some(offset) => Err(Mismatch::Byte { offset }),
        None => Ok(()),
    }
}

fn lump_id(id: u64) -> LumpId {
    let raw = Bytes::copy_from_slice(&u128::from(id).to_be_bytes());
    LumpId {
        form: Some(lump_id::Form::Raw(raw)),
    }
}

/// tonic hides the reason behind "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
