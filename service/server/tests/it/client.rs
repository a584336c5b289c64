//! The client crate and the real service.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::common::{Running, body, config, folder, store_file};
use bytes::Bytes;
use lumpscope_client::{Body, Client, Code, Error, LumpId, Options, PutOptions, Retry, v1};
use lumpscope_engine::crc32c;
use lumpscope_server::serve::Service;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_stream::StreamExt as _;

const STORE: &str = "disk";

async fn connect(running: &Running) -> Client {
    Client::connect(Options::new(&running.grpc)).await.unwrap()
}

#[tokio::test]
async fn lumps_of_every_size_go_in_and_out() {
    let running = Running::alone(STORE, 128 << 20, 512, 0.1).await;
    let client = connect(&running).await;
    let options = PutOptions::default();
    for (id, length) in (0_u128..).zip([0, 1, 511, 512, 1 << 20, (4 << 20) + 1, 9_000_001]) {
        let (id, bytes) = (LumpId(id), body(id, length));
        let put = client.put(STORE, id, bytes.clone(), &options);
        let stored = put.await.unwrap();
        assert!(stored.created);
        assert_eq!(stored.crc32c, crc32c::of(&bytes));
        let lump = client.get(STORE, id, None).await.unwrap();
        assert!(lump.bytes == bytes, "{length}");
        assert_eq!(lump.header.crc32c, Some(stored.crc32c), "{length}");
        let mut written = Vec::new();
        let done = client.get_into(STORE, id, None, &mut written).await;
        done.unwrap();
        assert!(written == bytes, "{length}");
        let reader = Body::reader(std::io::Cursor::new(bytes.clone()), length as u64);
        let again = client.put(STORE, id, reader, &options).await.unwrap();
        assert!(!again.created, "{length}");
        assert_eq!(client.head(STORE, id).await.unwrap().length, length as u64);
        let peek = client.peek(STORE, id).await.unwrap();
        assert_eq!(peek.crc32c, Some(stored.crc32c), "{length}");
        let small = client.get_small(STORE, id, None).await;
        if length <= lumpscope_client::SMALL {
            assert!(small.unwrap().bytes == bytes, "{length}");
            client.put_small(STORE, id, bytes, &options).await.unwrap();
        } else {
            assert_eq!(small.unwrap_err().code(), Some(Code::OutOfRange));
            let refused = client.put_small(STORE, id, bytes, &options).await;
            assert_eq!(refused.unwrap_err().code(), Some(Code::OutOfRange));
        }
        let range = v1::ByteRange {
            offset: length as u64 / 2,
            length: Some(3),
        };
        let part = client.get(STORE, id, Some(range)).await.unwrap();
        assert_eq!(part.bytes.len(), 3.min(length - length / 2));
    }
    running.stop().await;
}

#[tokio::test]
async fn many_lumps_conditions_and_lists() {
    let running = Running::alone(STORE, 64 << 20, 512, 0.1).await;
    let client = connect(&running).await;
    let lump = |id| (LumpId(id), body(id, usize::try_from(id).unwrap() * 9_000));
    let lumps: Vec<(LumpId, Bytes)> = (0..50_u128).map(lump).collect();
    let options = PutOptions {
        if_absent: true,
        ..PutOptions::default()
    };
    let put_all = || client.put_many(STORE, lumps.clone(), &options);
    for outcome in put_all().await.unwrap() {
        assert!(outcome.unwrap().created);
    }
    for outcome in put_all().await.unwrap() {
        let refusal = outcome.unwrap_err().refusal().unwrap().clone();
        assert_eq!(refusal.code, Code::AlreadyExists);
        assert!(!refusal.reason.is_empty());
    }
    let put = client.put(STORE, LumpId(7), "x", &options);
    let error = put.await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, Code::AlreadyExists);
    assert_eq!(refusal.store, STORE);
    assert!(refusal.request_id.is_some());

    let ids = lumps.iter().map(|(id, _)| *id);
    let ids: Vec<LumpId> = ids.chain([LumpId(999)]).collect();
    let mut many = client.get_many(STORE, ids.clone()).await.unwrap();
    for (id, bytes) in &lumps {
        let (got, outcome) = many.next().await.unwrap().unwrap();
        assert_eq!(got, *id);
        assert!(outcome.unwrap().bytes == *bytes, "{id}");
    }
    let (_, missing) = many.next().await.unwrap().unwrap();
    assert_eq!(missing.unwrap_err().code(), Some(Code::NotFound));
    assert!(many.next().await.unwrap().is_none());

    let listed: Result<Vec<LumpId>, _> = client.list(STORE, Some(LumpId(3)), None).collect().await;
    assert_eq!(listed.unwrap(), ids[3..50]);
    let deleted = [1, 1, 77].map(LumpId);
    let existed = client.delete_many(STORE, &deleted).await;
    assert_eq!(existed.unwrap(), [true, false, false]);
    let stores = client.stores().await.unwrap();
    assert_eq!(stores[0].name, STORE);
    let store = STORE.to_owned();
    client.sync(v1::SyncRequest { store }).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_unix_socket_is_as_good_as_tcp() {
    let dir = folder();
    let path = store_file(dir.path(), STORE, 16 << 20, 512, 0.1);
    let socket = dir.path().join("socket");
    let mut config = config(&[(STORE, &path)]);
    config.unix_socket = Some(socket.clone());
    let running = Running::with(config).await;
    let server = format!("unix:{}", socket.display());
    let client = Client::connect(Options::new(server)).await.unwrap();
    let bytes = body(1, 3_000_000);
    let options = PutOptions::default();
    let done = client.put(STORE, LumpId(1), bytes.clone(), &options).await;
    done.unwrap();
    assert!(client.get(STORE, LumpId(1), None).await.unwrap().bytes == bytes);
    running.stop().await;
}

/// A certificate for "localhost" signed by `issuer`: files of it and of its key.
fn signed(folder: &Path, name: &str, issuer: &Issuer<'_, KeyPair>) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.signed_by(&key, issuer).unwrap().pem();
    let files = ["pem", "key"].map(|end| folder.join(format!("{name}.{end}")));
    std::fs::write(&files[0], pem).unwrap();
    std::fs::write(&files[1], key.serialize_pem()).unwrap();
    std::fs::set_permissions(&files[1], Permissions::from_mode(0o600)).unwrap();
    let [certificate, key] = files;
    (certificate, key)
}

#[tokio::test]
async fn both_sides_of_tls_know_each_other() {
    let dir = folder();
    let path = store_file(dir.path(), STORE, 16 << 20, 512, 0.1);
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let (cert, key) = signed(dir.path(), "service", &issuer);
    let mut config = config(&[(STORE, &path)]);
    config.tls_cert = Some(cert);
    config.tls_key = Some(key);
    config.tls_client_ca = Some(ca.clone());
    let service = Service::start(config).await.unwrap();
    let server = format!("https://localhost:{}", service.grpc.port());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let ended = tokio::spawn(service.run_until(async move {
        let _ = stopped.await;
    }));

    let mut options = Options::new(&server);
    options.retry = Retry::never();
    let error = Client::connect(options.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "no CA: {error}");
    options.tls.ca = Some(ca);
    let refused = match Client::connect(options.clone()).await {
        Ok(client) => client.stores().await.map(drop),
        Err(error) => Err(error),
    };
    let error = refused.unwrap_err();
    assert!(error.refusal().is_none(), "no certificate: {error}");
    options.tls.identity = Some(signed(dir.path(), "client", &issuer));
    let client = Client::connect(options.clone()).await.unwrap();
    assert_eq!(client.stores().await.unwrap()[0].name, STORE);
    options.tls.name = Some("elsewhere".to_owned());
    let error = Client::connect(options).await.unwrap_err();
    let no_connection = matches!(error, Error::Connect { .. });
    assert!(no_connection, "wrong name: {error}");
    drop(client);
    stop.send(()).unwrap();
    ended.await.unwrap().unwrap();
}

/// A service whose numbers one client asks for, and another client.
struct ClientPair {
    client: Client,
    asking: Client,
    /// Connections of others.
    others: u32,
}

impl ClientPair {
    async fn new(running: &Running, connections: usize) -> Self {
        let options = |connections| Options {
            connections,
            ..Options::new(&running.grpc)
        };
        let asking = Client::connect(options(1)).await.unwrap();
        let ask = v1::DescribeServiceRequest {};
        let others = asking.describe_service(ask).await.unwrap().connections;
        Self {
            client: Client::connect(options(connections)).await.unwrap(),
            asking,
            others,
        }
    }

    /// Connections of the client.
    async fn connections(&self) -> u32 {
        let ask = v1::DescribeServiceRequest {};
        let about = self.asking.describe_service(ask).await.unwrap();
        about.connections - self.others
    }

    async fn until_under_way(&self, wanted: u64) {
        loop {
            let ask = v1::DescribeServiceRequest {};
            if self.asking.describe_service(ask).await.unwrap().under_way == wanted {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// A put that does not end, because the rest of its bytes does not come.
    async fn endless(&self, id: u128) -> (tokio::task::JoinHandle<()>, tokio::io::DuplexStream) {
        let (rest, come) = tokio::io::duplex(64);
        let client = self.client.clone();
        let put = tokio::spawn(async move {
            let body = Body::reader(come, 1000);
            let options = PutOptions::default();
            panic!("{:?}", client.put(STORE, LumpId(id), body, &options).await);
        });
        (put, rest)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_get_more_connections_up_to_the_bound() {
    for bound in [1, 3] {
        let running = Running::alone(STORE, 64 << 20, 512, 0.1).await;
        let asked = ClientPair::new(&running, usize::try_from(bound).unwrap()).await;
        for id in 0..8 {
            let options = PutOptions::default();
            let put = asked.client.put(STORE, LumpId(id), "x", &options);
            put.await.unwrap();
        }
        assert_eq!(asked.connections().await, 1, "one call at a time");
        let mut puts = Vec::new();
        // A connection is made beside the calls, so it may come with a later one.
        while puts.len() < 12 || asked.connections().await < bound {
            let number = puts.len() + 1;
            puts.push(asked.endless(100 + number as u128).await);
            asked.until_under_way(number as u64).await;
            assert!(number < 1000);
        }
        assert_eq!(asked.connections().await, bound);
        // Given up here, they are given up in the service, too.
        for (put, _rest) in puts {
            put.abort();
        }
        asked.until_under_way(0).await;
        assert!(asked.client.head(STORE, LumpId(101)).await.is_err());
        drop(asked);
        running.stop().await;
    }
}
