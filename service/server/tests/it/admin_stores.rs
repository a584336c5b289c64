//! Stores that are added, taken out, drained and resumed while the service runs.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use lumpscope_engine::{Store, StoreOptions};
use lumpscope_proto::v1;
use lumpscope_proto::v1::admin_client::AdminClient;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const MIB: u64 = 1 << 20;
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(60);
/// Longer than any test may take, in milliseconds.
const LONG: u32 = 300_000;

type Added = Result<Response<v1::AddStoreResponse>, Status>;

async fn add(admin: &mut AdminClient<Channel>, name: &str, path: &Path) -> Added {
    let request = v1::AddStoreRequest {
        name: name.to_owned(),
        path: path.to_str().unwrap().to_owned(),
        salvage: false,
    };
    admin.add_store(request).await
}

fn removal(store: &str, drain_timeout_ms: u32) -> v1::RemoveStoreRequest {
    v1::RemoveStoreRequest {
        store: store.to_owned(),
        drain_timeout_ms,
    }
}

fn draining(store: &str, timeout_ms: u32) -> v1::DrainRequest {
    v1::DrainRequest {
        store: store.to_owned(),
        timeout_ms,
        changes_only: false,
    }
}

async fn state(client: &mut Client, store: &str) -> Option<v1::StoreInfo> {
    let reply = client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    let mut stores = reply.into_inner().stores.into_iter();
    stores.find(|info| info.name == store)
}

async fn health(service: &Running, name: &str) -> Result<ServingStatus, Code> {
    let mut health = HealthClient::new(channel(&service.grpc).await);
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    let reply = health
        .check(request)
        .await
        .map_err(|status| status.code())?;
    Ok(reply.into_inner().status())
}

/// A put whose header and first chunk were sent, and whose end waits.
struct HalfPut {
    more: mpsc::Sender<v1::PutRequest>,
    ended: JoinHandle<Result<Response<v1::PutResponse>, Status>>,
}

impl HalfPut {
    async fn begin(service: &Running, store: &str, id: u128) -> Self {
        let (more, parts) = mpsc::channel(8);
        let mut client = service.client.clone();
        more.send(first(header(store, id, 1000))).await.unwrap();
        more.send(chunk(body(id, 1000).slice(..500))).await.unwrap();
        let ended = tokio::spawn(async move { client.put(ReceiverStream::new(parts)).await });
        let mut admin = service.admin().await;
        let begun = Instant::now();
        loop {
            let ask = v1::DescribeServiceRequest {};
            let told = admin.describe_service(ask).await.unwrap().into_inner();
            if told.under_way == 1 {
                break;
            }
            assert!(begun.elapsed() < EVENTUALLY, "the put does not begin");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Self { more, ended }
    }

    async fn finish(self, id: u128) -> Result<Response<v1::PutResponse>, Status> {
        let rest = chunk(body(id, 1000).slice(500..));
        self.more.send(rest).await.unwrap();
        drop(self.more);
        self.ended.await.unwrap()
    }
}

/// Waits until a store has a state.
async fn until(client: &mut Client, store: &str, wanted: v1::StoreState) {
    let begun = Instant::now();
    while state(client, store).await.unwrap().state() != wanted {
        assert!(begun.elapsed() < EVENTUALLY, "{store} is never {wanted:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_comes_goes_and_comes_again() {
    let dir = folder();
    let one = store_file(dir.path(), "first", 16 * MIB, 4096, 0.05);
    let two = store_file(dir.path(), "second", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("one", &one)]).await;
    let mut admin = service.admin().await;
    let info = add(&mut admin, "two", &two).await.unwrap().into_inner();
    let info = info.store.unwrap();
    assert_eq!((info.name.as_str(), info.layout.as_str()), ("two", "lusf"));
    assert_eq!(info.state(), v1::StoreState::Serving);
    let of_two = health(&service, "store/two").await;
    assert_eq!(of_two, Ok(ServingStatus::Serving));
    let bytes = body(1, 100_000);
    put(&mut service.client, "two", 1, &bytes).await.unwrap();
    let (_, text) = service.http_get("/metrics").await;
    assert!(text.contains("lumpscope_store_lumps{store=\"two\"}"));
    assert!(text.contains("lumpscope_requests_total{store=\"two\",method=\"put\""));

    let mut watch = HealthClient::new(channel(&service.grpc).await);
    let request = HealthCheckRequest {
        service: "store/two".to_owned(),
    };
    let mut watched = watch.watch(request).await.unwrap().into_inner();
    let seen = watched.message().await.unwrap().unwrap();
    assert_eq!(seen.status(), ServingStatus::Serving);
    admin.remove_store(removal("two", 0)).await.unwrap();
    let seen = watched.message().await.unwrap().unwrap();
    assert_eq!(seen.status(), ServingStatus::NotServing);
    assert!(watched.message().await.unwrap().is_none());

    // The file was let go, at once.
    let alone = Store::open(&two, StoreOptions::new("alone")).unwrap();
    assert_eq!(alone.info().replay.lumps, 1);
    alone.close().unwrap();
    assert_eq!(health(&service, "store/two").await, Err(Code::NotFound));
    assert_eq!(health(&service, "").await, Ok(ServingStatus::Serving));
    let words = ["\"two\"", "has one"];
    let unknown = get(&mut service.client, "two", 1).await;
    refused(unknown, Code::NotFound, &words);
    let (_, text) = service.http_get("/metrics").await;
    assert!(!text.contains("\"two\""), "{text}");
    assert_eq!(service.http_get("/healthz").await.0, 200);
    let mut observe = service.observe().await;
    let reports = observe.report(v1::ReportRequest::default()).await.unwrap();
    assert_eq!(reports.into_inner().stores.len(), 1);

    add(&mut admin, "two", &two).await.unwrap();
    assert!(get(&mut service.client, "two", 1).await.unwrap() == bytes);
    let request = v1::ReportRequest {
        store: "two".into(),
        without_heat: true,
    };
    let report = observe.report(request).await.unwrap();
    let report = &report.into_inner().stores[0];
    assert_eq!(report.operations.len(), 1, "{:?}", report.operations);
    assert_eq!(report.operations[0].method, "get");
    drop((admin, observe, watch, watched));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_added() {
    let dir = folder();
    let one = store_file(dir.path(), "one", 16 * MIB, 4096, 0.05);
    let two = store_file(dir.path(), "two", 16 * MIB, 4096, 0.05);
    let service = Running::start(&[("one", &one)]).await;
    let mut admin = service.admin().await;
    let taken = add(&mut admin, "one", &two).await;
    refused(taken, Code::AlreadyExists, &["\"one\""]);
    let link = dir.path().join("lumpscope-link");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let same = add(&mut admin, "three", &link).await;
    refused(same, Code::InvalidArgument, &["\"one\"", "same device"]);
    for name in ["", "a b", "x=y", &"n".repeat(65)] {
        let bad = add(&mut admin, name, &two).await;
        refused(bad, Code::InvalidArgument, &["store name"]);
    }
    for path in ["", "relative.lusf", "/nul\0byte"] {
        let bad = add(&mut admin, "three", Path::new(path)).await;
        refused(bad, Code::InvalidArgument, &["path"]);
    }
    let nowhere = add(&mut admin, "three", Path::new("/nowhere/at/all")).await;
    refused(nowhere, Code::FailedPrecondition, &["/nowhere/at/all"]);
    let plain = dir.path().join("lumpscope-plain");
    std::fs::write(&plain, vec![7; 1 << 20]).unwrap();
    let bare = add(&mut admin, "three", &plain).await;
    refused(bare, Code::FailedPrecondition, &["lumpscope format"]);
    assert!(std::fs::read(&plain).unwrap() == vec![7; 1 << 20]);
    // Somebody else has it.
    let other = Store::open(&two, StoreOptions::new("other")).unwrap();
    let held = add(&mut admin, "three", &two).await;
    refused(held, Code::FailedPrecondition, &["in use"]);
    other.close().unwrap();
    add(&mut admin, "three", &two).await.unwrap();
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_under_way_ends_before_its_store_is_taken_out() {
    let dir = folder();
    let path = store_file(dir.path(), "under-way", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("s", &path)]).await;
    let half = HalfPut::begin(&service, "s", 5).await;
    let mut admin = service.admin().await;
    let mut other = service.admin().await;
    let removing = tokio::spawn(async move { admin.remove_store(removal("s", LONG)).await });
    until(&mut service.client, "s", v1::StoreState::Draining).await;
    let words = ["\"s\"", "being taken out"];
    let late = put(&mut service.client, "s", 6, &body(6, 10)).await;
    refused(late, Code::Unavailable, &words);
    let result = get(&mut service.client, "s", 5).await;
    refused(result, Code::Unavailable, &words);
    let again = other.remove_store(removal("s", 0)).await;
    refused(again, Code::FailedPrecondition, &words);
    let name = add(&mut other, "s", &path).await;
    refused(name, Code::FailedPrecondition, &["being taken out"]);
    let resume = v1::ResumeRequest { store: "s".into() };
    refused(other.resume(resume).await, Code::Unavailable, &words);
    assert!(!removing.is_finished());
    half.finish(5).await.unwrap();
    removing.await.unwrap().unwrap();
    let alone = Store::open(&path, StoreOptions::new("alone")).unwrap();
    assert_eq!(alone.info().replay.lumps, 1);
    alone.close().unwrap();
    drop(other);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_never_ends_is_cut_off() {
    let dir = folder();
    let path = store_file(dir.path(), "never-ends", 16 * MIB, 4096, 0.05);
    let service = Running::start(&[("s", &path)]).await;
    let half = HalfPut::begin(&service, "s", 5).await;
    let mut admin = service.admin().await;
    let late = admin.remove_store(removal("s", 200)).await;
    let words = ["\"s\"", "200 ms", "cut off"];
    refused(late, Code::DeadlineExceeded, &words);
    let cut = half.ended.await.unwrap();
    refused(cut, Code::Unavailable, &["cut off"]);
    let alone = Store::open(&path, StoreOptions::new("alone")).unwrap();
    assert_eq!(alone.info().replay.lumps, 0);
    alone.close().unwrap();
    let (_, text) = service.http_get("/metrics").await;
    assert!(!text.contains("store=\"s\""), "{text}");
    assert!(text.contains("lumpscope_body_memory_bytes{direction=\"put\"} 0.0"));
    // Without any store nothing is served, and one can still be added.
    assert_eq!(health(&service, "").await, Ok(ServingStatus::NotServing));
    assert_eq!(service.http_get("/readyz").await.0, 503);
    assert_eq!(service.http_get("/livez").await.0, 200);
    add(&mut admin, "s", &path).await.unwrap();
    assert_eq!(health(&service, "").await, Ok(ServingStatus::Serving));
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_drains_and_the_other_goes_on() {
    let dir = folder();
    let one = store_file(dir.path(), "drains", 16 * MIB, 4096, 0.05);
    let two = store_file(dir.path(), "goes-on", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("one", &one), ("two", &two)]).await;
    let mut admin = service.admin().await;
    let half = HalfPut::begin(&service, "one", 5).await;
    let left = admin.drain(draining("one", 100)).await.unwrap();
    assert_eq!(left.into_inner().under_way, 1);
    let late = put(&mut service.client, "one", 6, &body(6, 10)).await;
    refused(late, Code::Unavailable, &["\"one\"", "draining"]);
    service.put("two", 6, &body(6, 10)).await;
    let info = state(&mut service.client, "one").await.unwrap();
    assert_eq!(info.state(), v1::StoreState::Draining);
    let not = Ok(ServingStatus::NotServing);
    assert_eq!(health(&service, "store/one").await, not);
    assert_eq!(health(&service, "").await, Ok(ServingStatus::Serving));
    let (status, text) = service.http_get("/healthz").await;
    assert!(status == 503 && text.contains("one") && text.contains("draining"));
    assert_eq!(service.http_get("/readyz").await.0, 200);
    // Administration goes on.
    let sync = v1::SyncRequest {
        store: "one".into(),
    };
    admin.sync(sync).await.unwrap();
    half.finish(5).await.unwrap();
    let left = admin.drain(draining("one", LONG)).await.unwrap();
    assert_eq!(left.into_inner().under_way, 0);
    let resume = v1::ResumeRequest {
        store: "one".into(),
    };
    admin.resume(resume).await.unwrap();
    assert!(get(&mut service.client, "one", 5).await.unwrap() == body(5, 1000));
    assert_eq!(service.http_get("/healthz").await.0, 200);
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_refuses_changes_is_read() {
    let dir = folder();
    let path = store_file(dir.path(), "frozen", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("s", &path)]).await;
    let mut admin = service.admin().await;
    service.put("s", 1, &body(1, 10)).await;
    let half = HalfPut::begin(&service, "s", 5).await;
    let changes_only = || v1::DrainRequest {
        changes_only: true,
        ..draining("s", LONG)
    };
    // A put whose bytes are not all there is no change under way.
    let left = admin.drain(changes_only()).await.unwrap();
    assert_eq!(left.into_inner().under_way, 0);
    let words = ["\"s\"", "refuse changes", "admin resume"];
    let read_only = Code::FailedPrecondition;
    refused(half.finish(5).await, read_only, &words);
    let late = put(&mut service.client, "s", 6, &body(6, 10)).await;
    refused(late, read_only, &words);
    let ask = v1::DeleteRequest {
        store: "s".into(),
        id: raw_id(1),
        ..Default::default()
    };
    refused(service.client.delete(ask).await, read_only, &words);
    assert!(get(&mut service.client, "s", 1).await.unwrap() == body(1, 10));
    let sync = v1::SyncRequest { store: "s".into() };
    admin.sync(sync).await.unwrap();
    let info = state(&mut service.client, "s").await.unwrap();
    assert_eq!(info.state(), v1::StoreState::ReadOnly);
    assert!(info.state_reason.contains("admin resume"), "{info:?}");
    let not = Ok(ServingStatus::NotServing);
    assert_eq!(health(&service, "store/s").await, not);
    // The operator asked for it: no disk has failed.
    let (_, text) = service.http_get("/metrics").await;
    for line in [
        "lumpscope_store_failed{store=\"s\"} 0.0",
        "lumpscope_store_state{store=\"s\",state=\"read-only\"} 1.0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let resume = v1::ResumeRequest { store: "s".into() };
    admin.resume(resume).await.unwrap();
    service.put("s", 6, &body(6, 10)).await;
    // The state goes with the store.
    admin.drain(changes_only()).await.unwrap();
    admin.remove_store(removal("s", LONG)).await.unwrap();
    add(&mut admin, "s", &path).await.unwrap();
    service.put("s", 7, &body(7, 10)).await;
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_stores_drain_together() {
    let dir = folder();
    let one = store_file(dir.path(), "all-one", 16 * MIB, 4096, 0.05);
    let two = store_file(dir.path(), "all-two", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("one", &one), ("two", &two)]).await;
    let mut admin = service.admin().await;
    let left = admin.drain(draining("", 0)).await.unwrap();
    assert_eq!(left.into_inner().under_way, 0);
    for store in ["one", "two"] {
        let late = put(&mut service.client, store, 6, &body(6, 10)).await;
        refused(late, Code::Unavailable, &["draining"]);
    }
    let not = Ok(ServingStatus::NotServing);
    assert_eq!(health(&service, "").await, not);
    assert_eq!(health(&service, "lumpscope.v1.LumpStore").await, not);
    assert_eq!(service.http_get("/readyz").await.0, 503);
    let resume = v1::ResumeRequest::default();
    admin.resume(resume).await.unwrap();
    assert_eq!(health(&service, "").await, Ok(ServingStatus::Serving));
    service.put("two", 6, &body(6, 10)).await;
    drop(admin);
    service.stop().await;
}
