//! How the service ends: in order, within bounds, and with everything that was acknowledged.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::process::Process;
use lumpscope_engine::{LumpId, RequestCtx, Store, StoreOptions};
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_proto::{REQUEST_ID_KEY, v1};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

const MIB: u64 = 1 << 20;
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(60);
/// Drain timeout that no test reaches, in seconds.
const LONG: &str = "600";

type Watch = Streaming<HealthCheckResponse>;

/// Watches the health of the whole service.
async fn watch(grpc: &str) -> Watch {
    let mut health = HealthClient::new(channel(grpc).await);
    let request = HealthCheckRequest::default();
    let mut watch = health.watch(request).await.unwrap().into_inner();
    let now = watch.message().await.unwrap().unwrap();
    assert_eq!(now.status(), ServingStatus::Serving);
    watch
}

async fn until_not_serving(watch: &mut Watch) {
    let next = tokio::time::timeout(EVENTUALLY, watch.message()).await;
    let now = next.unwrap().unwrap().unwrap();
    assert_eq!(now.status(), ServingStatus::NotServing);
}

/// True: the service took no more of this client, by the call's own status or because its connection had just been
/// ended, whichever came first: by GOAWAY, closed, or reset for bytes that came after that.
fn turned_away(status: &Status) -> bool {
    let (mut cause, mut ended) = (std::error::Error::source(status), false);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        }
        ended |= error.is::<tonic::transport::Error>();
        cause = error.source();
    }
    ended || status.code() == Code::Unavailable
}

/// A put on a connection of its own, of which half has arrived.
struct HalfPut {
    more: mpsc::Sender<v1::PutRequest>,
    ended: JoinHandle<Result<Response<v1::PutResponse>, Status>>,
}

impl HalfPut {
    async fn begin(grpc: &str, id: u128) -> Self {
        let (more, parts) = mpsc::channel(8);
        let mut client = connect(grpc).await;
        more.send(first(header("s", id, 1000))).await.unwrap();
        more.send(chunk(body(id, 1000).slice(..500))).await.unwrap();
        let ended = tokio::spawn(async move { client.put(ReceiverStream::new(parts)).await });
        let mut admin = AdminClient::new(channel(grpc).await);
        let begun = Instant::now();
        loop {
            let ask = v1::DescribeServiceRequest {};
            let told = admin.describe_service(ask).await.unwrap().into_inner();
            if told.under_way == 1 {
                return Self { more, ended };
            }
            assert!(begun.elapsed() < EVENTUALLY, "the put does not begin");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The lumps of a store that nobody serves any more.
fn lumps(path: &Path, ids: impl IntoIterator<Item = u128>) -> Vec<Vec<u8>> {
    let store = Store::open(path, StoreOptions::new("after")).unwrap();
    let get = |id| store.get(RequestCtx::default(), LumpId(id)).unwrap();
    let found = ids.into_iter().map(|id| get(id).to_vec());
    let found = found.collect();
    store.close().unwrap();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_on_another_connection_finishes() {
    let dir = folder();
    let path = store_file(dir.path(), "finishes", 64 * MIB, 4096, 0.05);
    let drain = ["--drain-timeout", LONG];
    let mut service = Process::start(dir.path(), &[("s", &path)], &drain);
    let mut client = connect(&service.grpc).await;
    for id in 1..20 {
        put(&mut client, "s", id, &body(id, 100_000)).await.unwrap();
    }
    // It ends only with its connection, and must not keep the service.
    let mut watch = watch(&service.grpc).await;
    let half = HalfPut::begin(&service.grpc, 20).await;
    service.signal(Signal::TERM);
    until_not_serving(&mut watch).await;
    // Each connection is told by itself; until then it may still put.
    let mut late = Ok(());
    for _ in 0..10_000 {
        late = put(&mut client, "s", 21, &body(21, 10)).await.map(drop);
        if late.is_err() {
            break;
        }
    }
    assert!(turned_away(&late.unwrap_err()));
    let rest = chunk(body(20, 1000).slice(500..));
    half.more.send(rest).await.unwrap();
    drop(half.more);
    half.ended.await.unwrap().unwrap();
    assert!(service.ended(EVENTUALLY).success(), "{}", service.log());
    let found = lumps(&path, 1..21);
    for (id, bytes) in (1..20).zip(&found) {
        assert!(*bytes == body(id, 100_000), "{id}");
    }
    assert!(found[19] == body(20, 1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_stall_do_not_keep_the_service() {
    let dir = folder();
    let path = store_file(dir.path(), "stall", 128 * MIB, 4096, 0.05);
    let drain = ["--drain-timeout", "1", "--body-timeout", "600"];
    let mut service = Process::start(dir.path(), &[("s", &path)], &drain);
    let mut client = connect(&service.grpc).await;
    let bytes = body(1, 32 << 20);
    put(&mut client, "s", 1, &bytes).await.unwrap();
    let half = HalfPut::begin(&service.grpc, 2).await;
    // It takes the head of the reply, and none of its 32 MiB.
    let request = v1::GetRequest {
        store: "s".to_owned(),
        id: raw_id(1),
        ..v1::GetRequest::default()
    };
    let mut reader = connect(&service.grpc).await;
    let never_read = reader.get(request).await.unwrap();
    let begun = Instant::now();
    service.signal(Signal::TERM);
    let status = service.ended(EVENTUALLY);
    assert!(status.success(), "{status}: {}", service.log());
    assert!(begun.elapsed() >= Duration::from_secs(1), "it did not wait");
    let log = service.log();
    assert!(log.contains("cut off"), "{log}");
    let cut = half.ended.await.unwrap().unwrap_err();
    assert_eq!(cut.code(), Code::Unavailable, "{cut:?}");
    drop((half.more, never_read));
    let store = Store::open(&path, StoreOptions::new("after")).unwrap();
    assert_eq!(store.info().replay.lumps, 1);
    store.close().unwrap();
    assert!(lumps(&path, [1])[0] == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_the_wait() {
    let dir = folder();
    let path = store_file(dir.path(), "second", 16 * MIB, 4096, 0.05);
    let drain = ["--drain-timeout", LONG, "--body-timeout", "600"];
    let mut service = Process::start(dir.path(), &[("s", &path)], &drain);
    let mut client = connect(&service.grpc).await;
    put(&mut client, "s", 1, &body(1, 1000)).await.unwrap();
    let mut watch = watch(&service.grpc).await;
    let half = HalfPut::begin(&service.grpc, 2).await;
    service.signal(Signal::TERM);
    until_not_serving(&mut watch).await;
    service.signal(Signal::INT);
    let status = service.ended(EVENTUALLY);
    assert!(status.success(), "{status}: {}", service.log());
    drop(half);
    assert!(lumps(&path, [1])[0] == body(1, 1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_in_json_is_one_flat_object_a_line() {
    let dir = folder();
    let path = store_file(dir.path(), "json", 16 * MIB, 4096, 0.05);
    let log = ["--log-format", "json", "--log", "debug"];
    let mut service = Process::start(dir.path(), &[("s", &path)], &log);
    let mut client = connect(&service.grpc).await;
    let secret = "payload-that-nobody-may-log";
    put(&mut client, "s", 1, &secret.as_bytes().into())
        .await
        .unwrap();
    get(&mut client, "s", 1).await.unwrap();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut ask = tonic::Request::new(v1::HeadRequest {
        store: "s".to_owned(),
        id: raw_id(2),
        ..v1::HeadRequest::default()
    });
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let parent = parent.parse().unwrap();
    ask.metadata_mut().insert("traceparent", parent);
    let missed = client.head(ask).await.unwrap_err();
    let id = missed.metadata().get(REQUEST_ID_KEY).unwrap();
    let id: u64 = id.to_str().unwrap().parse().unwrap();
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success());
    let text = service.log();
    assert!(!text.contains(secret), "{text}");
    let (mut messages, mut traced) = (Vec::new(), 0);
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let line = line.as_object().unwrap();
        for key in ["timestamp", "level", "target", "message"] {
            assert!(line[key].is_string(), "{key} in {line:?}");
        }
        let flat = |value: &serde_json::Value| !value.is_object() && !value.is_array();
        assert!(line.values().all(flat), "{line:?}");
        if line.get("trace_id").is_some_and(|of| of == trace) {
            assert_eq!(line["request_id"], id, "{line:?}");
            assert_eq!(
                (&line["method"], &line["store"]),
                (&"head".into(), &"s".into())
            );
            traced += 1;
        }
        messages.push(line["message"].as_str().unwrap().to_owned());
    }
    assert!(traced > 0, "the request was not logged: {text}");
    for message in ["opened", "serving", "stopped"] {
        assert!(messages.iter().any(|m| m == message), "{messages:?}");
    }
}
