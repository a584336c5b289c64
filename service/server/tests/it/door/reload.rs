//! New certificates and tokens while the service runs.

use bytes::Bytes;
use lumpscope_proto::v1;
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

use super::harness::{
    Authority, LONG, SHORT, Serving, lumps, place, secret, token, tokens, with_token,
};
use crate::common::{body, chunk, first, header, http_get, put, raw_id, refused};

const ALL: &str = "scopes = [\"read\", \"write\", \"admin\", \"observe\"]";

/// A put of which the second half is sent later.
pub(crate) struct HalfPut {
    rest: mpsc::Sender<v1::PutRequest>,
    second: Bytes,
    reply: tokio::task::JoinHandle<Result<tonic::Response<v1::PutResponse>, tonic::Status>>,
}

impl HalfPut {
    pub(crate) async fn begin(channel: Channel, token: &str, bytes: &Bytes) -> Self {
        let (rest, messages) = mpsc::channel(8);
        let half = bytes.len() / 2;
        let head = header("s", 9, bytes.len() as u64);
        rest.send(first(head)).await.unwrap();
        rest.send(chunk(bytes.slice(..half))).await.unwrap();
        let mut client = lumps(channel, token);
        let reply = tokio::spawn(async move { client.put(ReceiverStream::new(messages)).await });
        Self {
            rest,
            second: bytes.slice(half..),
            reply,
        }
    }

    pub(crate) async fn finish(self) {
        self.rest.send(chunk(self.second)).await.unwrap();
        drop(self.rest);
        self.reply.await.unwrap().unwrap();
    }
}

pub(crate) async fn known(channel: &Channel, token: &str) -> Result<(), tonic::Status> {
    let mut client = lumps(channel.clone(), token);
    let asked = client.list_stores(v1::ListStoresRequest {}).await;
    asked.map(|_| ())
}

#[tokio::test]
async fn new_files_count_while_a_put_is_under_way() {
    let (folder, mut config) = place();
    let (old, new) = (Authority::new(), Authority::new());
    let files = old.files(folder.path());
    crate::common::use_tls(&mut config, files.clone());
    config.tokens = Some(tokens(folder.path(), &[token("old", "o", ALL)]));
    config.reload_interval = SHORT;
    let service = Serving::start(config).await;
    let channel = service.tls(&old, None).await.unwrap();
    let bytes = body(9, 4 << 20);
    let under_way = HalfPut::begin(channel.clone(), "o", &bytes).await;
    known(&channel, "o").await.unwrap();
    // The service may look between the two files: certificate and key then do not fit, which
    // changes nothing, and the next look finds both.
    new.write(&files);
    tokens(folder.path(), &[token("new", "n", ALL)]);
    let begun = std::time::Instant::now();
    while known(&channel, "n").await.is_err() {
        assert!(begun.elapsed() < LONG, "the new token does not count");
        tokio::time::sleep(SHORT / 10).await;
    }
    // On the connection that was open before: its session stays, its token does not.
    let result = known(&channel, "o").await;
    refused(result, Code::Unauthenticated, &["withdrawn"]);
    service.tls(&old, None).await.unwrap_err();
    let fresh = service.tls(&new, None).await.unwrap();
    known(&fresh, "n").await.unwrap();
    under_way.finish().await;
    let get = v1::HeadRequest {
        store: "s".to_owned(),
        id: raw_id(9),
        ..Default::default()
    };
    let found = lumps(fresh, "n").head(get).await.unwrap().into_inner();
    assert_eq!(found.length, 4 << 20);
    service.stop().await;
}

#[tokio::test]
async fn a_bad_file_stays_as_it_was_and_the_others_count() {
    let (folder, mut config) = place();
    let ours = Authority::new();
    let files = ours.files(folder.path());
    crate::common::use_tls(&mut config, files.clone());
    config.tokens = Some(tokens(folder.path(), &[token("t", "t", ALL)]));
    config.reload_interval = std::time::Duration::ZERO;
    let service = Serving::start(config).await;
    let channel = service.tls(&ours, None).await.unwrap();
    let mut admin = AdminClient::new(with_token(channel.clone(), "t"));
    let good = admin
        .reload(v1::ReloadRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(good.tokens, 1);
    // What rcgen makes by default ends in the year 4096.
    assert!(good.certificate_not_after > 60_000_000_000);
    // A certificate that nothing is wrong with, and tokens that are wrong.
    let newer = Authority::new();
    newer.write(&files);
    let path = folder.path().join("tokens.toml");
    std::fs::write(&path, "[[token]]\nname = \"t\"\nsecret = \"hunter2\"\n").unwrap();
    let asked = admin.reload(v1::ReloadRequest {}).await;
    let message = asked.as_ref().unwrap_err().message().to_owned();
    assert!(!message.contains("hunter2"), "{message}");
    refused(
        asked,
        Code::FailedPrecondition,
        &["tokens.toml, line 3", "secret", "stays in force"],
    );
    service.tls(&ours, None).await.unwrap_err();
    let again = service.tls(&newer, None).await.unwrap();
    known(&again, "t").await.unwrap();
    // The other way round: a key that does not fit keeps no token alive.
    tokens(folder.path(), &[token("u", "u", ALL)]);
    secret(&files.key, "no key\n");
    let asked = admin.reload(v1::ReloadRequest {}).await;
    refused(
        asked,
        Code::FailedPrecondition,
        &["key.pem", "no private key"],
    );
    known(&channel, "t").await.unwrap_err();
    known(&channel, "u").await.unwrap();
    let again = service.tls(&newer, None).await.unwrap();
    known(&again, "u").await.unwrap();
    ours.write(&files);
    let now = service.reloader.reload().unwrap();
    assert_eq!(now.tokens, 1);
    service.tls(&ours, None).await.unwrap();
    service.stop().await;
}

#[tokio::test]
async fn a_mistake_is_counted_once() {
    let (folder, mut config) = place();
    let path = folder.path().join("tokens.toml");
    config.tokens = Some(tokens(folder.path(), &[token("t", "t", ALL)]));
    config.reload_interval = std::time::Duration::from_millis(50);
    let socket = folder.path().join("sock");
    config.unix_socket = Some(socket.clone());
    let service = Serving::start(config).await;
    std::fs::write(&path, "nonsense").unwrap();
    let channel = service.plain().await;
    let begun = std::time::Instant::now();
    loop {
        let (_, text) = metrics(service.metrics).await;
        if text.contains("lumpscope_reloads_total{result=\"failed\"} 1\n") {
            break;
        }
        assert!(begun.elapsed() < LONG, "{text}");
        tokio::time::sleep(SHORT / 10).await;
    }
    // Many looks later it is still the same mistake.
    tokio::time::sleep(SHORT).await;
    let (_, text) = metrics(service.metrics).await;
    let words = "lumpscope_reloads_total{result=\"failed\"} 1\n";
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("result=\"ok\""), "{text}");
    known(&channel, "t").await.unwrap();
    // Without a token the UNIX socket still lets in who may open it.
    let uri = format!("unix://{}", socket.display());
    let mut client = LumpStoreClient::new(crate::common::channel(&uri).await);
    put(&mut client, "s", 1, &body(1, 10)).await.unwrap();
    assert_eq!(http_get(service.metrics, "/metrics").await.0, 401);
    service.stop().await;
}

async fn metrics(at: std::net::SocketAddr) -> (u16, String) {
    let stream = tokio::net::TcpStream::connect(at).await.unwrap();
    super::harness::http_get(stream, "/metrics", "Authorization: Bearer t\r\n").await
}
