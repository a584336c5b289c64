//! A service that does what a test tells it, and a proxy that cuts connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crc_fast::crc32_iscsi;
use lumpscope_client::{Client, Error, Options, Retry, v1};
use lumpscope_proto::v1::lump_store_server::{LumpStore, LumpStoreServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

type Reply<T> = Result<Response<T>, Status>;
pub(crate) type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Reaction of the service to one call.
pub(crate) enum Act {
    /// Answers with what fits the call.
    Serve,
    /// Answers with this checksum.
    Crc(u32),
    /// Answers a get with these messages.
    Get(Vec<v1::GetResponse>),
    Refuse(Status),
    /// Cuts the connection once the whole request has come.
    Cut,
    Silent,
}

/// A call as it came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) metadata: MetadataMap,
    pub(crate) header: Option<v1::PutHeader>,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, Default)]
pub(crate) struct Fake {
    acts: Arc<Mutex<VecDeque<Act>>>,
    pub(crate) came: Arc<Mutex<Vec<Came>>>,
    cut: Arc<Notify>,
}

impl Fake {
    /// Serves the acts in their order, then everything as it should be; answers the address to connect to.
    pub(crate) async fn start(acts: Vec<Act>) -> (Self, String) {
        let fake = Self::default();
        fake.acts.lock().unwrap().extend(acts);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = listener.local_addr().unwrap();
        let service = LumpStoreServer::new(fake.clone());
        let router = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        let address = proxy(behind, Arc::clone(&fake.cut)).await;
        (fake, format!("http://{address}"))
    }

    pub(crate) fn calls(&self) -> usize {
        self.came.lock().unwrap().len()
    }

    pub(crate) fn call(&self, number: usize) -> Came {
        self.came.lock().unwrap()[number].clone()
    }

    async fn act(&self, came: Came) -> Result<Act, Status> {
        self.came.lock().unwrap().push(came);
        let act = self.acts.lock().unwrap().pop_front();
        match act.unwrap_or(Act::Serve) {
            Act::Refuse(status) => Err(status),
            Act::Cut => {
                self.cut.notify_waiters();
                std::future::pending().await
            }
            Act::Silent => std::future::pending().await,
            act => Ok(act),
        }
    }

    fn plain<M>(request: &Request<M>) -> Came {
        Came {
            metadata: request.metadata().clone(),
            header: None,
            body: Vec::new(),
        }
    }
}

/// Passes bytes on until it is told to cut all connections.
async fn proxy(behind: SocketAddr, cut: Arc<Notify>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                let mut far = TcpStream::connect(behind).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    address
}

/// Options with short waits.
pub(crate) fn options(server: &str) -> Options {
    let mut options = Options::new(server);
    options.retry = Retry {
        times: 3,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_millis(5),
    };
    options
}

/// A client with short waits.
pub(crate) async fn client(server: &str) -> Result<Client, Error> {
    Client::connect(options(server)).await
}

/// Header and chunks of a get.
pub(crate) fn get_reply(
    length: u64,
    crc32c: Option<u32>,
    chunks: &[&[u8]],
) -> Vec<v1::GetResponse> {
    let header = v1::GetHeader {
        lump_length: length,
        length,
        verified: true,
        crc32c,
        ..Default::default()
    };
    let header = v1::get_response::Part::Header(header);
    let chunk = |chunk: &&[u8]| v1::get_response::Part::Chunk(chunk.to_vec().into());
    let parts = std::iter::once(header).chain(chunks.iter().map(chunk));
    let messages = parts.map(|part| v1::GetResponse { part: Some(part) });
    messages.collect()
}

const NOT_USED: &str = "this method is not used by the tests";

#[tonic::async_trait]
impl LumpStore for Fake {
    type PutManyStream = Replies<v1::PutManyResponse>;
    type GetStream = Replies<v1::GetResponse>;
    type GetManyStream = Replies<v1::GetManyResponse>;

    async fn put(&self, request: Request<Streaming<v1::PutRequest>>) -> Reply<v1::PutResponse> {
        let mut came = Self::plain(&request);
        let mut stream = request.into_inner();
        while let Some(message) = stream.message().await? {
            match message.part.unwrap() {
                v1::put_request::Part::Header(header) => came.header = Some(header),
                v1::put_request::Part::Chunk(chunk) => came.body.extend_from_slice(&chunk),
            }
        }
        let length = came.header.as_ref().unwrap().length;
        if length != came.body.len() as u64 {
            return Err(Status::invalid_argument("the stream is too short"));
        }
        let crc32c = crc32_iscsi(&came.body);
        let crc32c = match self.act(came).await? {
            Act::Crc(other) => other,
            _ => crc32c,
        };
        Ok(Response::new(v1::PutResponse {
            request_id: 7,
            created: true,
            crc32c,
            ..Default::default()
        }))
    }

    async fn put_small(
        &self,
        request: Request<v1::PutSmallRequest>,
    ) -> Reply<v1::PutSmallResponse> {
        let mut came = Self::plain(&request);
        let request = request.into_inner();
        came.header = request.header;
        came.body = request.body.to_vec();
        let crc32c = crc32_iscsi(&came.body);
        self.act(came).await?;
        let put = v1::PutResponse {
            crc32c,
            ..Default::default()
        };
        Ok(Response::new(v1::PutSmallResponse { put: Some(put) }))
    }

    async fn put_many(
        &self,
        request: Request<Streaming<v1::PutManyRequest>>,
    ) -> Reply<Self::PutManyStream> {
        let mut came = Self::plain(&request);
        let mut stream = request.into_inner();
        let mut sums = Vec::new();
        while let Some(message) = stream.message().await? {
            match message.part.unwrap() {
                v1::put_many_request::Part::Header(header) => sums.push(header.crc32c.unwrap()),
                v1::put_many_request::Part::Chunk(chunk) => came.body.extend_from_slice(&chunk),
            }
        }
        self.act(came).await?;
        // Answered from the last to the first; every second one is refused.
        let replies: Vec<_> = (0_u64..).zip(sums).map(many_reply).collect();
        let replies = tokio_stream::iter(replies.into_iter().rev());
        Ok(Response::new(Box::pin(replies.map(Ok))))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Reply<Self::GetStream> {
        let replies = match self.act(Self::plain(&request)).await? {
            Act::Get(replies) => replies,
            _ => get_reply(3, Some(crc32_iscsi(b"abc")), &[b"a", b"bc"]),
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(replies).map(Ok))))
    }

    async fn get_small(&self, _: Request<v1::GetSmallRequest>) -> Reply<v1::GetSmallResponse> {
        Err(Status::unimplemented(NOT_USED))
    }

    async fn get_many(&self, request: Request<v1::GetManyRequest>) -> Reply<Self::GetManyStream> {
        self.act(Self::plain(&request)).await?;
        let mut replies = Vec::new();
        for index in 0..request.get_ref().ids.len() as u64 {
            for reply in get_reply(3, Some(crc32_iscsi(b"abc")), &[b"ab", b"c"]) {
                use v1::get_many_response::Part;
                let part = match reply.part.unwrap() {
                    _ if index == 1 => Part::Failed(failure()),
                    v1::get_response::Part::Header(header) => Part::Header(header),
                    v1::get_response::Part::Chunk(chunk) => Part::Chunk(chunk),
                };
                let part = Some(part);
                replies.push(Ok(v1::GetManyResponse { index, part }));
                if index == 1 {
                    break;
                }
            }
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(replies))))
    }

    async fn head(&self, _: Request<v1::HeadRequest>) -> Reply<v1::HeadResponse> {
        Err(Status::unimplemented(NOT_USED))
    }

    async fn delete(&self, _: Request<v1::DeleteRequest>) -> Reply<v1::DeleteResponse> {
        Err(Status::unimplemented(NOT_USED))
    }

    async fn delete_many(
        &self,
        _: Request<v1::DeleteManyRequest>,
    ) -> Reply<v1::DeleteManyResponse> {
        Err(Status::unimplemented(NOT_USED))
    }

    async fn delete_range(
        &self,
        _: Request<v1::DeleteRangeRequest>,
    ) -> Reply<v1::DeleteRangeResponse> {
        Err(Status::unimplemented(NOT_USED))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Reply<v1::ListResponse> {
        self.act(Self::plain(&request)).await?;
        let page = request.get_ref().page_token.first().copied().unwrap_or(0);
        let id = |number: u8| u128::from(number).to_be_bytes().to_vec().into();
        Ok(Response::new(v1::ListResponse {
            ids: vec![id(2 * page), id(2 * page + 1)],
            next_page_token: if page == 2 { vec![] } else { vec![page + 1] }.into(),
            ..Default::default()
        }))
    }

    async fn usage(&self, _: Request<v1::UsageRequest>) -> Reply<v1::UsageResponse> {
        Err(Status::unimplemented(NOT_USED))
    }

    async fn list_stores(
        &self,
        request: Request<v1::ListStoresRequest>,
    ) -> Reply<v1::ListStoresResponse> {
        self.act(Self::plain(&request)).await?;
        Ok(Response::new(v1::ListStoresResponse::default()))
    }
}

fn failure() -> v1::LumpFailure {
    v1::LumpFailure {
        code: tonic::Code::NotFound.into(),
        message: "no lump".to_owned(),
        reason: "LUMP_NOT_FOUND".to_owned(),
    }
}

fn many_reply((index, crc32c): (u64, u32)) -> v1::PutManyResponse {
    let stored = v1::PutResponse {
        request_id: index,
        crc32c,
        ..Default::default()
    };
    let outcome = if index % 2 == 0 {
        v1::put_many_response::Outcome::Stored(stored)
    } else {
        v1::put_many_response::Outcome::Failed(failure())
    };
    v1::PutManyResponse {
        index,
        outcome: Some(outcome),
    }
}
