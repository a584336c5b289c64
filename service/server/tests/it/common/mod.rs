//! A real service in this process, on real files, with a real gRPC client.

pub(crate) mod web;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_proto::REQUEST_ID_KEY;
use lumpscope_proto::v1;
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::observe_client::ObserveClient;
use lumpscope_server::config::{ServeConfig, StoreSpec, TlsFiles};
use lumpscope_server::error::ServerError;
use lumpscope_server::serve::Service;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub(crate) type Client = LumpStoreClient<Channel>;

/// A folder on a file system that knows O_DIRECT.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("lumpscope-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
}

pub(crate) fn store_file(
    folder: &Path,
    name: &str,
    capacity: u64,
    block_size: u16,
    ratio: f64,
) -> PathBuf {
    let path = folder.join(format!("lumpscope-{name}.lusf"));
    let options = CreateOptions {
        capacity: Some(capacity),
        block_size,
        journal_ratio: ratio,
        prealloc: Prealloc::Fallocate,
        ..CreateOptions::default()
    };
    format(&path, &options).unwrap();
    path
}

/// A configuration on free ports, without probes.
pub(crate) fn config(stores: &[(&str, &Path)]) -> ServeConfig {
    let any = "127.0.0.1:0".parse().unwrap();
    let spec = |(name, path): &(&str, &Path)| StoreSpec {
        name: (*name).to_owned(),
        path: path.to_path_buf(),
        uuid: None,
    };
    let config = ServeConfig {
        stores: stores.iter().map(spec).collect(),
        listen: any,
        metrics_listen: any,
        no_probes: true,
        ..ServeConfig::default()
    };
    config.checked().unwrap()
}

/// Serves TLS with these files.
pub(crate) fn use_tls(config: &mut ServeConfig, files: TlsFiles) {
    config.tls_cert = Some(files.cert);
    config.tls_key = Some(files.key);
    config.tls_client_ca = files.client_ca;
    config.tls_client_crl = files.client_crl;
}

/// A service that runs until [`Running::stop`].
pub(crate) struct Running {
    pub(crate) grpc: String,
    pub(crate) metrics: std::net::SocketAddr,
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServerError>>,
    /// Where its store lies, if that was made for it.
    folder: Option<tempfile::TempDir>,
}

impl Running {
    pub(crate) async fn start(stores: &[(&str, &Path)]) -> Self {
        Self::with(config(stores)).await
    }

    /// A service of one store, of this capacity, block size and share of the journal.
    pub(crate) async fn alone(store: &str, capacity: u64, block_size: u16, ratio: f64) -> Self {
        let folder = folder();
        let path = store_file(folder.path(), store, capacity, block_size, ratio);
        let mut running = Self::start(&[(store, &path)]).await;
        running.folder = Some(folder);
        running
    }

    /// Puts what must be stored.
    pub(crate) async fn put(&mut self, store: &str, id: u128, bytes: &Bytes) {
        put(&mut self.client, store, id, bytes).await.unwrap();
    }

    pub(crate) async fn with(config: ServeConfig) -> Self {
        let service = Service::start(config).await.unwrap();
        let (grpc, metrics) = (format!("http://{}", service.grpc), service.metrics);
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(service.run_until(async move {
            let _ = stopped.await;
        }));
        let client = connect(&grpc).await;
        Self {
            grpc,
            metrics,
            client,
            stop,
            ended,
            folder: None,
        }
    }

    pub(crate) async fn observe(&self) -> ObserveClient<Channel> {
        ObserveClient::connect(self.grpc.clone()).await.unwrap()
    }

    pub(crate) async fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(channel(&self.grpc).await)
    }

    /// Stops the service in order.
    pub(crate) async fn stop(self) {
        drop(self.client);
        self.stop.send(()).unwrap();
        self.ended.await.unwrap().unwrap();
        drop(self.folder);
    }

    /// One GET over plain HTTP: status and body.
    pub(crate) async fn http_get(&self, path: &str) -> (u16, String) {
        http_get(self.metrics, path).await
    }
}

/// One GET over plain HTTP: status and body.
pub(crate) async fn http_get(at: std::net::SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text[9..12].parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
    (status, body)
}

pub(crate) async fn channel(grpc: &str) -> Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(grpc.to_owned()).unwrap();
    let patient = endpoint.timeout(Duration::from_secs(120));
    patient.connect().await.unwrap()
}

pub(crate) async fn connect(grpc: &str) -> Client {
    LumpStoreClient::new(channel(grpc).await)
}

pub(crate) fn raw_id(id: u128) -> Option<v1::LumpId> {
    let raw = Bytes::copy_from_slice(&id.to_be_bytes());
    let form = Some(v1::lump_id::Form::Raw(raw));
    Some(v1::LumpId { form })
}

pub(crate) fn text_id(text: &str) -> Option<v1::LumpId> {
    Some(v1::LumpId {
        form: Some(v1::lump_id::Form::Text(text.to_owned())),
    })
}

pub(crate) fn header(store: &str, id: u128, length: u64) -> v1::PutHeader {
    v1::PutHeader {
        store: store.to_owned(),
        id: raw_id(id),
        length,
        durability: 0,
        placement: 0,
        ..Default::default()
    }
}

pub(crate) fn first(header: v1::PutHeader) -> v1::PutRequest {
    v1::PutRequest {
        part: Some(v1::put_request::Part::Header(header)),
    }
}

pub(crate) fn chunk(bytes: impl Into<Bytes>) -> v1::PutRequest {
    v1::PutRequest {
        part: Some(v1::put_request::Part::Chunk(bytes.into())),
    }
}

/// Bytes that differ from lump to lump and from place to place.
pub(crate) fn body(seed: u128, len: usize) -> Bytes {
    let half = |part: u128| u64::try_from(part & u128::from(u64::MAX)).unwrap();
    let mut state = half(seed) ^ half(seed >> 64) ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// Puts in chunks of 1 MiB.
pub(crate) async fn put(
    client: &mut Client,
    store: &str,
    id: u128,
    bytes: &Bytes,
) -> Result<v1::PutResponse, Status> {
    put_as(client, header(store, id, bytes.len() as u64), bytes).await
}

pub(crate) async fn put_as(
    client: &mut Client,
    header: v1::PutHeader,
    bytes: &Bytes,
) -> Result<v1::PutResponse, Status> {
    let mut messages = vec![first(header)];
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        messages.push(chunk(rest.split_to(rest.len().min(1 << 20))));
    }
    client
        .put(tokio_stream::iter(messages))
        .await
        .map(tonic::Response::into_inner)
}

/// Header and bytes of a get.
pub(crate) async fn get_range(
    client: &mut Client,
    store: &str,
    id: u128,
    range: Option<v1::ByteRange>,
) -> Result<(v1::GetHeader, Vec<u8>), Status> {
    let request = v1::GetRequest {
        store: store.to_owned(),
        id: raw_id(id),
        range,
        ..Default::default()
    };
    let reply = client.get(request).await?;
    let id_of_head = reply.metadata().get(REQUEST_ID_KEY).unwrap();
    let id_of_head = id_of_head.to_str().unwrap().to_owned();
    let mut parts = reply.into_inner();
    let mut head = None;
    let mut bytes = Vec::new();
    while let Some(message) = parts.message().await? {
        match message.part.unwrap() {
            v1::get_response::Part::Header(header) => {
                assert!(head.is_none(), "two headers");
                assert_eq!(header.request_id.to_string(), id_of_head);
                head = Some(header);
            }
            v1::get_response::Part::Chunk(chunk) => {
                assert!(head.is_some(), "a chunk before the header");
                assert!(!chunk.is_empty(), "an empty chunk");
                bytes.extend_from_slice(&chunk);
            }
        }
    }
    let head = head.expect("a header");
    assert_eq!(head.length, bytes.len() as u64);
    Ok((head, bytes))
}

pub(crate) async fn get(client: &mut Client, store: &str, id: u128) -> Result<Vec<u8>, Status> {
    let got = get_range(client, store, id, None).await;
    got.map(|(_, bytes)| bytes)
}

pub(crate) async fn head(
    client: &mut Client,
    store: &str,
    id: u128,
) -> Result<v1::HeadResponse, Status> {
    let request = v1::HeadRequest {
        store: store.to_owned(),
        id: raw_id(id),
        ..Default::default()
    };
    client.head(request).await.map(tonic::Response::into_inner)
}

pub(crate) async fn delete(client: &mut Client, store: &str, id: u128) -> Result<bool, Status> {
    let request = v1::DeleteRequest {
        store: store.to_owned(),
        id: raw_id(id),
        durability: 0,
        ..Default::default()
    };
    let reply = client.delete(request).await?;
    Ok(reply.into_inner().existed)
}

/// Checks code, words and request id of a refusal.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, words: &[&str]) {
    let status = result.expect_err("it should have been refused");
    assert_eq!(status.code(), code, "{status:?}");
    let said = status.message();
    for word in words {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
    let id = status.metadata().get(REQUEST_ID_KEY).expect("a request id");
    assert!(id.to_str().unwrap().parse::<u64>().unwrap() > 0);
}
