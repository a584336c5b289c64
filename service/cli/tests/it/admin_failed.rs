//! A store that fails is taken out, and the others go on.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::process::{Process, program};
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::format::claim::{self, Claim};
use lumpscope_engine::{Store, StoreOptions};
use lumpscope_proto::v1;
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_server::serve::Service;
use rustix::process::Signal;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const MIB: u64 = 1 << 20;
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(60);

fn adding(name: &str, path: &Path) -> v1::AddStoreRequest {
    v1::AddStoreRequest {
        name: name.to_owned(),
        path: path.to_str().unwrap().to_owned(),
        salvage: false,
    }
}

/// Health once it is no longer `other`: a failure is noticed at the next look.
async fn health_after(grpc: &str, name: &str, other: ServingStatus) -> ServingStatus {
    let begun = Instant::now();
    loop {
        let now = health(grpc, name).await;
        if now != other || begun.elapsed() > EVENTUALLY {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn health(grpc: &str, name: &str) -> ServingStatus {
    let mut health = HealthClient::new(channel(grpc).await);
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    health.check(request).await.unwrap().into_inner().status()
}

async fn info(client: &mut Client, store: &str) -> v1::StoreInfo {
    let reply = client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    let mut stores = reply.into_inner().stores.into_iter();
    stores.find(|info| info.name == store).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_open_does_not_keep_the_others_from_being_served() {
    let dir = folder();
    let good = store_file(dir.path(), "good", 16 * MIB, 4096, 0.05);
    let bad = dir.path().join("lumpscope-bad.lusf");
    std::fs::write(&bad, vec![7; 1 << 20]).unwrap();
    let mut service = Running::start(&[("bad", &bad), ("good", &good)]).await;
    let client = &mut service.client;
    put(client, "good", 1, &body(1, 1000)).await.unwrap();
    let words = ["\"bad\"", "lumpscope format", "AddStore"];
    let refusal = put(client, "bad", 1, &body(1, 1000)).await;
    refused(refusal, Code::FailedPrecondition, &words);
    let result = get(client, "bad", 1).await;
    refused(result, Code::FailedPrecondition, &words);
    let told = info(client, "bad").await;
    assert_eq!(told.state(), v1::StoreState::Unavailable);
    assert!(told.failed.contains("lumpscope format"), "{told:?}");
    assert_eq!(told.path, bad.to_str().unwrap());
    let expected = ServingStatus::NotServing;
    assert_eq!(health(&service.grpc, "store/bad").await, expected);
    let expected = ServingStatus::Serving;
    assert_eq!(health(&service.grpc, "store/good").await, expected);
    assert_eq!(health(&service.grpc, "").await, ServingStatus::Serving);
    let (status, text) = service.http_get("/healthz").await;
    assert!(status == 503 && text.contains("store bad"), "{text}");
    assert_eq!(service.http_get("/readyz").await.0, 200);
    let (_, text) = service.http_get("/metrics").await;
    assert!(text.contains("lumpscope_store_failed{store=\"bad\"} 1.0"));
    assert!(text.contains("lumpscope_store_failed{store=\"good\"} 0.0"));

    let mut admin = service.admin().await;
    let ask = v1::DescribeStoreRequest {
        store: "bad".into(),
    };
    let told = admin.describe_store(ask).await.unwrap().into_inner();
    assert!((told.numbers["failed"] - 1.0).abs() < 1e-9);
    assert_eq!(told.info.unwrap().state(), v1::StoreState::Unavailable);
    let sync = v1::SyncRequest {
        store: "bad".into(),
    };
    refused(admin.sync(sync).await, Code::FailedPrecondition, &words);
    // Still not a store; and its name is kept for its path.
    let again = admin.add_store(adding("bad", &bad)).await;
    refused(again, Code::FailedPrecondition, &["lumpscope format"]);
    let other = admin.add_store(adding("bad", &dir.path().join("x"))).await;
    refused(other, Code::InvalidArgument, &[bad.to_str().unwrap()]);
    let options = CreateOptions {
        capacity: Some(16 * MIB),
        force: true,
        ..CreateOptions::default()
    };
    std::fs::remove_file(&bad).unwrap();
    format(&bad, &options).unwrap();
    let added = admin.add_store(adding("bad", &bad)).await.unwrap();
    let added = added.into_inner().store.unwrap();
    assert_eq!(added.state(), v1::StoreState::Serving);
    service.put("bad", 1, &body(1, 1000)).await;
    assert_eq!(service.http_get("/healthz").await.0, 200);
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_open_can_be_taken_out() {
    let dir = folder();
    let good = store_file(dir.path(), "good", 16 * MIB, 4096, 0.05);
    let nowhere = dir.path().join("nowhere");
    let service = Running::start(&[("bad", &nowhere), ("good", &good)]).await;
    let mut admin = service.admin().await;
    let request = v1::RemoveStoreRequest {
        store: "bad".into(),
        drain_timeout_ms: 0,
    };
    admin.remove_store(request.clone()).await.unwrap();
    let gone = admin.remove_store(request).await;
    refused(gone, Code::NotFound, &["\"bad\""]);
    assert_eq!(service.http_get("/healthz").await.0, 200);
    let (_, text) = service.http_get("/metrics").await;
    assert!(!text.contains("\"bad\""), "{text}");
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_any_store_that_opens_does_not_start() {
    let dir = folder();
    let good = store_file(dir.path(), "good", 16 * MIB, 4096, 0.05);
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let start = |config| async { Service::start(config).await.err().unwrap().to_string() };
    let said = start(config(&[("a", &one), ("b", &two)])).await;
    assert!(said.contains("\"a\"") && said.contains("one"), "{said}");
    let mut all = config(&[("good", &good), ("b", &two)]);
    all.require_all_stores = true;
    let said = start(all).await;
    assert!(said.contains("\"b\""), "{said}");
    // The one that did open was closed.
    let alone = Store::open(&good, StoreOptions::new("alone")).unwrap();
    alone.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_another_machine_has_claimed_is_served_when_it_is_taken_over() {
    let dir = folder();
    let path = store_file(dir.path(), "a", 16 * MIB, 4096, 0.05);
    let mut image = std::fs::read(&path).unwrap();
    let there = Claim {
        machine: 1,
        boot: 1,
        nonce: 1,
        since: 1_800_000_000,
        host: "node-7".to_owned(),
    };
    claim::put_into(&mut image, Some(&there));
    std::fs::write(&path, &image).unwrap();
    let store = format!("a={}", path.display());
    let serve = |more: &[&str]| {
        let mut command = program();
        let listen = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
        command.args(["serve", "--no-probes", "--store", &store]);
        let output = command.args(listen).args(more).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = serve(&[]);
    let words = "is claimed by node-7 since 2027-01-15 08:00 UTC: stop the service there";
    assert!(said.contains(words), "{said}");
    assert!(said.contains("--take-over"), "{said}");
    let said = serve(&["--take-over", "b"]);
    assert!(said.contains("take-over: b"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), image);
    let stores = [("a", path.as_path())];
    let mut service = Process::start(dir.path(), &stores, &["--take-over", "a"]);
    let mut client = connect(&service.grpc).await;
    put(&mut client, "a", 1, &body(1, 1000)).await.unwrap();
    let claimed = || claim::decode(&std::fs::read(&path).unwrap());
    assert!(claimed().is_some_and(|own| own.nonce != there.nonce));
    let log = service.log();
    let line = log.lines().find(|line| line.contains("taken over"));
    let from = "node-7 since 2027-01-15 08:00 UTC";
    assert!(
        line.is_some_and(|line| line.contains("WARN") && line.contains(from)),
        "{log}"
    );
    let mut admin = AdminClient::new(channel(&service.grpc).await);
    let request = v1::RemoveStoreRequest {
        store: "a".into(),
        drain_timeout_ms: 0,
    };
    admin.remove_store(request).await.unwrap();
    assert_eq!(claimed(), None);
    // Whoever has claimed it since is no machine that is gone for good.
    let mut image = std::fs::read(&path).unwrap();
    claim::put_into(&mut image, Some(&there));
    std::fs::write(&path, &image).unwrap();
    let refused = admin.add_store(adding("a", &path)).await.unwrap_err();
    assert!(refused.message().contains(words), "{refused:?}");
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success());
    assert_eq!(claimed(), Some(there));
}

/// The kernel refuses writes beyond a file-size limit: a disk that fails, without privileges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_in_service_is_taken_out_and_added_again() {
    let dir = folder();
    // The limit is inside the journal of the first, and behind everything of the second.
    let bad = store_file(dir.path(), "bad", 16 * MIB, 4096, 0.5);
    let good = store_file(dir.path(), "good", 2 * MIB, 4096, 0.3);
    let stores = [("bad", bad.as_path()), ("good", good.as_path())];
    let threads = ["--io-backend", "threads"];
    let service = Process::limited(dir.path(), &stores, &threads, 3 * MIB);
    let mut client = connect(&service.grpc).await;
    let embedded = |store: &str, id| v1::PutHeader {
        placement: v1::Placement::Embedded.into(),
        ..header(store, id, 40_000)
    };
    let mut stored = 0;
    let failure = loop {
        let id = stored + 1;
        match put_as(&mut client, embedded("bad", id), &body(id, 40_000)).await {
            Ok(_) => stored += 1,
            Err(status) => break status,
        }
        assert!(stored < 100, "the limit does not hold");
    };
    assert!(stored > 5, "{failure:?}");
    let words = ["refuses the journal"];
    let late = put_as(&mut client, embedded("bad", 999), &body(1, 40_000)).await;
    refused(late, Code::Unavailable, &words);
    assert!(get(&mut client, "bad", 1).await.unwrap() == body(1, 40_000));
    let told = info(&mut client, "bad").await;
    assert_eq!(told.state(), v1::StoreState::ReadOnly);
    assert!(told.failed.contains("File too large"), "{told:?}");
    put_as(&mut client, embedded("good", 1), &body(1, 40_000))
        .await
        .unwrap();
    let (status, text) = http_get(service.metrics, "/healthz").await;
    assert!(status == 503 && text.contains("store bad"), "{text}");
    assert_eq!(http_get(service.metrics, "/readyz").await.0, 200);
    let (_, text) = http_get(service.metrics, "/metrics").await;
    assert!(text.contains("lumpscope_store_failed{store=\"bad\"} 1.0"));
    assert_eq!(
        health_after(&service.grpc, "store/bad", ServingStatus::Serving).await,
        ServingStatus::NotServing
    );
    let expected = ServingStatus::Serving;
    assert_eq!(health(&service.grpc, "store/good").await, expected);

    let mut admin = AdminClient::new(channel(&service.grpc).await);
    let early = admin.add_store(adding("bad", &bad)).await;
    refused(early, Code::FailedPrecondition, &["take it out first"]);
    service.lift_limit();
    let request = v1::RemoveStoreRequest {
        store: "bad".into(),
        drain_timeout_ms: 0,
    };
    admin.remove_store(request).await.unwrap();
    let added = admin.add_store(adding("bad", &bad)).await.unwrap();
    let added = added.into_inner().store.unwrap();
    assert_eq!(added.state(), v1::StoreState::Serving, "{added:?}");
    for id in 1..=stored {
        assert!(get(&mut client, "bad", id).await.unwrap() == body(id, 40_000));
    }
    put_as(&mut client, embedded("bad", 999), &body(1, 40_000))
        .await
        .unwrap();
    assert_eq!(http_get(service.metrics, "/healthz").await.0, 200);
    let expected = ServingStatus::Serving;
    assert_eq!(health(&service.grpc, "store/bad").await, expected);
}
