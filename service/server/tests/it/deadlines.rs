//! The time a client gives a call: kept, counted, and over without an effect.

use std::time::Duration;

use crate::common::*;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lumpscope_proto::v1;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_units::Size;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

const MIB: u64 = 1 << 20;

/// The value of a metric of the store.
async fn metric(service: &Running, name: &str) -> f64 {
    let page = service.http_get("/metrics").await.1;
    let start = format!("lumpscope_{name}{{store=\"s\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&*start));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

async fn wait_for(service: &Running, line: &str) {
    for _ in 0..6000 {
        if service.http_get("/metrics").await.1.contains(line) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no {line:?} within a minute");
}

/// A client that leaves the time of its calls to the service: tonic's own ends them itself, and says
/// CANCELLED.
type Patient = LumpStoreClient<HyperClient<HttpConnector, tonic::body::Body>>;

fn patient(service: &Running) -> Patient {
    let client = HyperClient::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    LumpStoreClient::with_origin(client, service.grpc.parse().unwrap())
}

fn in_time<T>(message: T, timeout: &str) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("grpc-timeout", timeout.parse().unwrap());
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_time_is_over_never_touches_the_disk() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    service.put("s", 1, &body(1, 100_000)).await;
    let get = v1::GetRequest {
        store: "s".into(),
        id: raw_id(1),
        ..Default::default()
    };
    // No time at all: over before the engine can start it, whatever the machine does.
    let late = patient(&service).get(in_time(get.clone(), "0n")).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    let delete = v1::DeleteRequest {
        store: "s".into(),
        id: raw_id(1),
        ..Default::default()
    };
    let late = patient(&service).delete(in_time(delete, "1n")).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    let found = head(&mut service.client, "s", 1).await.unwrap();
    assert_eq!(found.length, 100_000, "the late delete was carried out");
    // Time enough.
    let got = patient(&service).get(in_time(get, "60S")).await.unwrap();
    let first = got.into_inner().message().await.unwrap();
    assert!(first.is_some());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_time_passes_in_the_queue_is_dropped_and_counted() {
    let dir = folder();
    let path = store_file(dir.path(), "busy", 256 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    // One I/O at a time, in the order of arrival: who comes later waits.
    config.queue_depth = 1;
    config.queue_policy = lumpscope_server::config::QueuePolicyArg::Fifo;
    let service = Running::with(config).await;
    let lump = body(7, 4 << 20);
    put(&mut service.client.clone(), "s", 7, &lump)
        .await
        .unwrap();
    let patient = patient(&service);
    for _ in 0..200 {
        let mut calls = tokio::task::JoinSet::new();
        for id in 100..110 {
            let (mut client, lump) = (service.client.clone(), lump.clone());
            calls.spawn(async move {
                put(&mut client, "s", id, &lump).await.unwrap();
            });
        }
        for _ in 0..20 {
            let mut client = patient.clone();
            calls.spawn(async move {
                let get = v1::GetRequest {
                    store: "s".into(),
                    id: raw_id(7),
                    ..Default::default()
                };
                if let Err(status) = client.get(in_time(get, "2m")).await {
                    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
                }
            });
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
        if metric(&service, "store_deadline_dropped_requests_total").await > 0.0 {
            service.stop().await;
            return;
        }
    }
    panic!("no get was dropped in its queue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_whose_time_is_over_while_it_comes_in_is_dropped() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let commits = metric(&service, "store_journal_commits_total").await;
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    sender.send(first(header("s", 1, 10))).await.unwrap();
    sender.send(chunk("123")).await.unwrap();
    let put = in_time(ReceiverStream::new(receiver), "300m");
    let late = patient(&service).put(put).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    drop(sender);
    let result = head(&mut service.client, "s", 1).await;
    refused(result, Code::NotFound, &["no lump"]);
    assert!((metric(&service, "store_journal_commits_total").await - commits).abs() < 0.5);
    let held = "lumpscope_body_memory_bytes{direction=\"put\"} 0.0\n";
    assert!(
        service.http_get("/metrics").await.1.contains(held),
        "memory is held"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_waits_for_memory_waits_no_longer_than_its_client() {
    let dir = folder();
    let path = store_file(dir.path(), "memory", 64 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    config.put_memory = Some(Size(4 * MIB));
    let mut service = Running::with(config).await;
    // Takes all of the memory, as its bytes come, and then sends nothing.
    let (holder, receiver) = tokio::sync::mpsc::channel(4);
    // Too large for this store to be written while it comes.
    holder.send(first(header("s", 1, 8 * MIB))).await.unwrap();
    for _ in 0..3 {
        holder.send(chunk(vec![1; 1 << 20])).await.unwrap();
    }
    let mut other = service.client.clone();
    let holding = tokio::spawn(async move { other.put(ReceiverStream::new(receiver)).await });
    let full = "lumpscope_body_memory_bytes{direction=\"put\"} 4194304.0\n";
    wait_for(&service, full).await;
    // More than the reserve for small bodies.
    let waits = tokio_stream::iter(vec![first(header("s", 2, 100_000)), chunk("1234567890")]);
    let late = patient(&service).put(in_time(waits, "200m")).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    // One that has time gets its turn when the memory comes back.
    let mut patient = service.client.clone();
    let bytes = body(3, 100_000);
    let waiting = tokio::spawn(async move { put(&mut patient, "s", 3, &bytes).await });
    holding.abort();
    waiting.await.unwrap().unwrap();
    let result = head(&mut service.client, "s", 2).await;
    refused(result, Code::NotFound, &["no lump"]);
    drop(holder);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_drips_is_given_up() {
    let dir = folder();
    let path = store_file(dir.path(), "drips", 16 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    config.body_timeout = Duration::from_secs(1);
    config.min_rate = Size(1 << 20);
    let mut service = Running::with(config).await;
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let drip = tokio::spawn(async move {
        sender.send(first(header("s", 1, MIB))).await?;
        // Never silent for long, never done.
        // A minute, unless the service gives it up before.
        for _ in 0..600 {
            sender.send(chunk("x")).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok::<(), tokio::sync::mpsc::error::SendError<v1::PutRequest>>(())
    });
    let slow = service.client.put(ReceiverStream::new(receiver)).await;
    let words = ["less than 1048576 bytes a second", "nothing was stored"];
    refused(slow, Code::DeadlineExceeded, &words);
    drip.abort();
    let result = head(&mut service.client, "s", 1).await;
    refused(result, Code::NotFound, &["no lump"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_gives_its_memory_back() {
    let dir = folder();
    let path = store_file(dir.path(), "deaf", 64 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    config.body_timeout = Duration::from_secs(1);
    config.min_rate = Size(1 << 30);
    let mut service = Running::with(config).await;
    service.put("s", 1, &body(1, 8 << 20)).await;
    let mut deaf = connect(&service.grpc).await;
    let request = v1::GetRequest {
        store: "s".into(),
        id: raw_id(1),
        ..Default::default()
    };
    let reply = deaf.get(request).await.unwrap();
    // A piece, and the next one that is read behind it.
    assert!(metric(&service, "store_buffer_get_bytes").await > 2e5);
    while metric(&service, "store_buffer_get_bytes").await > 0.0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The connection is over, and says so to who reads at last.
    let mut parts = reply.into_inner();
    let end = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            match parts.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        }
    });
    let end = end.await.expect("the reply does not end");
    assert!(end.is_some(), "a reply that was cut off looks complete");
    assert!(get(&mut service.client, "s", 1).await.unwrap() == body(1, 8 << 20));
    service.stop().await;
}
