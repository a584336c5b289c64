//! The peer of the service: the server that tonic generates from the protos of the service, with
//! tonic's own codec and equal settings of HTTP/2. It discards puts, and serves gets from memory. If it
//! works, it first does what every store has to: it copies a body that is put into memory of its own,
//! and sums that and what it sends.

use std::hint::black_box;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use lumpscope_engine::crc32c;
use lumpscope_proto::v1::lump_store_server::{LumpStore, LumpStoreServer};
use lumpscope_proto::v1::{self, get_response, lump_id, put_request};
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::args::{GrpcPeerArgs, Transport};
use crate::failure::cannot_do;
use crate::load::grpc::content::{self, size_of};

/// Bytes of a chunk of a get, as the service sends them.
const GET_CHUNK: usize = (1 << 20) - 64;
/// As the service does.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// Serves until it is killed, with the settings that `lumpscope serve` has without flags. Prints where,
/// as that does.
///
/// # Errors
/// No socket, no runtime, no standard output.
pub fn serve(args: &GrpcPeerArgs, transport: Transport) -> anyhow::Result<ExitCode> {
    content::prepare();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(cannot_do("start the runtime"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
            .map_err(cannot_do("listen"))?;
        // As our service does for clients on the same machine; connections inherit it.
        rustix::net::sockopt::set_tcp_congestion(&listener, "reno")
            .map_err(std::io::Error::from)
            .map_err(cannot_do("choose how sockets are paced"))?;
        let address = listener
            .local_addr()
            .map_err(cannot_do("read the address"))?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "peer ready grpc={address}")
            .and_then(|()| stdout.flush())
            .map_err(cannot_do("write the ready line"))?;
        tonic::transport::Server::builder()
            .max_frame_size(transport.frame_size)
            .initial_stream_window_size(transport.stream_window)
            .initial_connection_window_size(transport.connection_window)
            .max_concurrent_streams(transport.max_streams)
            .http2_max_header_list_size(transport.max_header_bytes)
            .http2_keepalive_interval(Some(KEEPALIVE.0))
            .http2_keepalive_timeout(Some(KEEPALIVE.1))
            .add_service(
                LumpStoreServer::new(PeerService {
                    works: args.working,
                })
                .max_decoding_message_size(transport.max_message),
            )
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
            .await
            .context("the peer cannot serve")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// How it is called in messages.
pub(super) const PEER: &str = "the peer";

struct PeerService {
    works: bool,
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn not_here<T>() -> Result<T, Status> {
    Err(Status::unimplemented(
        "the peer of the bench has only Put and Get",
    ))
}

/// Header, then chunks.
struct Parts {
    header: Option<v1::GetHeader>,
    rest: Bytes,
}

impl Iterator for Parts {
    type Item = Result<v1::GetResponse, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        let part = match self.header.take() {
            Some(header) => get_response::Part::Header(header),
            None if self.rest.is_empty() => return None,
            None => get_response::Part::Chunk(self.rest.split_to(GET_CHUNK.min(self.rest.len()))),
        };
        Some(Ok(v1::GetResponse { part: Some(part) }))
    }
}

/// The length that a put announces, if it is one of the bench's.
fn body_len(announced: u64) -> Result<usize, Status> {
    let most = size_of(content::LARGE_BIT);
    let len = usize::try_from(announced).ok().filter(|len| *len <= most);
    len.ok_or_else(|| Status::invalid_argument(format!("a body has at most {most} bytes")))
}

fn id_of(id: Option<&v1::LumpId>) -> Result<u64, Status> {
    let Some(lump_id::Form::Raw(raw)) = id.and_then(|id| id.form.as_ref()) else {
        return Err(Status::invalid_argument("the id is missing"));
    };
    let raw: [u8; 16] = raw[..]
        .try_into()
        .map_err(|_| Status::invalid_argument("an id has 16 bytes"))?;
    u64::try_from(u128::from_be_bytes(raw)).map_err(|_| Status::not_found("no such lump"))
}

#[tonic::async_trait]
impl LumpStore for PeerService {
    async fn put(
        &self,
        request: Request<Streaming<v1::PutRequest>>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        let mut stream = request.into_inner();
        let mut left = None;
        let (mut body, mut sum) = (Vec::new(), 0);
        while let Some(message) = stream.message().await? {
            match (message.part, &mut left) {
                (Some(put_request::Part::Header(header)), None) => {
                    left = Some(header.length);
                    if self.works {
                        body = Vec::with_capacity(body_len(header.length)?);
                    }
                }
                (Some(put_request::Part::Chunk(chunk)), Some(left)) => {
                    *left = left
                        .checked_sub(chunk.len() as u64)
                        .ok_or_else(|| Status::invalid_argument("too long"))?;
                    if self.works {
                        body.extend_from_slice(&chunk);
                        sum = crc32c::append(sum, &chunk);
                    }
                }
                _ => return Err(Status::invalid_argument("not a put")),
            }
        }
        // The compiler must not see that nobody reads them.
        black_box((body, sum));
        match left {
            Some(0) => Ok(Response::new(v1::PutResponse::default())),
            _ => Err(Status::invalid_argument("too short")),
        }
    }

    type GetStream = tokio_stream::Iter<Parts>;

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<Self::GetStream>, Status> {
        let id = id_of(request.into_inner().id.as_ref())?;
        let rest = content::body(id, size_of(id));
        if self.works {
            black_box(crc32c::of(&rest));
        }
        let header = v1::GetHeader {
            lump_length: rest.len() as u64,
            length: rest.len() as u64,
            verified: true,
            ..v1::GetHeader::default()
        };
        let header = Some(header);
        Ok(Response::new(tokio_stream::iter(Parts { header, rest })))
    }

    async fn put_small(
        &self,
        _: Request<v1::PutSmallRequest>,
    ) -> Result<Response<v1::PutSmallResponse>, Status> {
        not_here()
    }

    type PutManyStream = Replies<v1::PutManyResponse>;

    async fn put_many(
        &self,
        _: Request<Streaming<v1::PutManyRequest>>,
    ) -> Result<Response<Self::PutManyStream>, Status> {
        not_here()
    }

    async fn get_small(
        &self,
        _: Request<v1::GetSmallRequest>,
    ) -> Result<Response<v1::GetSmallResponse>, Status> {
        not_here()
    }

    type GetManyStream = Replies<v1::GetManyResponse>;

    async fn get_many(
        &self,
        _: Request<v1::GetManyRequest>,
    ) -> Result<Response<Self::GetManyStream>, Status> {
        not_here()
    }

    async fn delete_many(
        &self,
        _: Request<v1::DeleteManyRequest>,
    ) -> Result<Response<v1::DeleteManyResponse>, Status> {
        not_here()
    }

    async fn head(
        &self,
        _: Request<v1::HeadRequest>,
    ) -> Result<Response<v1::HeadResponse>, Status> {
        not_here()
    }

    async fn delete(
        &self,
        _: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        not_here()
    }

    async fn delete_range(
        &self,
        _: Request<v1::DeleteRangeRequest>,
    ) -> Result<Response<v1::DeleteRangeResponse>, Status> {
        not_here()
    }

    async fn list(
        &self,
        _: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        not_here()
    }

    async fn usage(
        &self,
        _: Request<v1::UsageRequest>,
    ) -> Result<Response<v1::UsageResponse>, Status> {
        not_here()
    }

    async fn list_stores(
        &self,
        _: Request<v1::ListStoresRequest>,
    ) -> Result<Response<v1::ListStoresResponse>, Status> {
        not_here()
    }
}
