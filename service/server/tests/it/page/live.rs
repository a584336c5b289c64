//! Live messages to viewers.

use std::collections::BTreeMap;
use std::time::Duration;

use lumpscope_proto::v1;
use lumpscope_server::config::Rhythm;
use serde_json::Value;

use super::{FAST, MIB, ask, every, metrics, number, service, service_with, sums};
use crate::common::web::Events;
use crate::common::{body, folder, head, put, store_file};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hello_tells_the_words_and_the_stores() {
    let dir = folder();
    let trace_url = "http://127.0.0.1:16686/trace/{trace_id}";
    let service = service_with(dir.path(), &["a", "b"], every(FAST), |config| {
        config.trace_url = Some(trace_url.to_owned());
    })
    .await;
    let mut events = Events::open(service.metrics, "", "").await;
    let hello = events.take("hello").await;
    assert_eq!(hello["version"], env!("CARGO_PKG_VERSION"));
    let rhythm = (number(&hello["frame_ms"]), number(&hello["history_frames"]));
    assert_eq!(rhythm, (20, 300));
    assert_eq!(hello["trace_url"], trace_url);
    assert_eq!(hello["owners"][0], "request");
    assert_eq!(hello["operations"][1], "write");
    assert_eq!(hello["stages"].as_array().unwrap().len(), 11);
    assert!(number(&hello["started_unix_ms"]) <= number(&hello["now_unix_ms"]));
    let stores = hello["stores"].as_array().unwrap();
    let names: Vec<&Value> = stores.iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(stores[0]["layout"], "lusf");
    assert_eq!(number(&stores[0]["block_size"]), 4096);
    assert!(stores[0]["path"].as_str().unwrap().ends_with("a.lusf"));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_tell_what_happened_and_add_up_to_the_metrics() {
    let dir = folder();
    let mut service = service(dir.path(), &["a", "b"], every(FAST)).await;
    // Before anybody looks: in the totals only.
    service.put("a", 1, &body(1, 5000)).await;
    let mut observe = service.observe().await;
    observe.report(v1::ReportRequest::default()).await.unwrap();
    let mut events = Events::open(service.metrics, "", "").await;
    events.take("hello").await;
    let first = events.take("frame").await;
    assert_eq!((number(&first["seq"]), number(&first["skipped"])), (1, 0));
    let a = &first["stores"]["a"];
    assert_eq!(a["requests"], serde_json::json!({}));
    assert_eq!(number(&a["totals"]["requests"]["put"]["count"]), 1);
    for id in 2..12 {
        for (store, len) in [("a", 5000), ("b", 100)] {
            let bytes = body(id, len);
            put(&mut service.client, store, id, &bytes).await.unwrap();
        }
    }
    head(&mut service.client, "b", 99).await.unwrap_err();
    let (counts, frame) = until_told(&mut events).await;
    let key = |store: &str, method: &str| (store.to_owned(), method.to_owned());
    let wanted = [
        (key("a", "put"), 10),
        (key("b", "head"), 1),
        (key("b", "put"), 10),
    ];
    assert_eq!(counts, BTreeMap::from(wanted));
    let failed = &frame["stores"]["b"]["totals"]["requests"]["head"]["errors"];
    assert_eq!(number(failed), 1);
    let metrics = metrics(&service).await;
    let (mut requests, mut bytes) = (BTreeMap::new(), BTreeMap::new());
    for (store, f) in frame["stores"].as_object().unwrap() {
        for (method, of) in f["totals"]["requests"].as_object().unwrap() {
            let key = vec![store.clone(), method.clone()];
            requests.insert(key.clone(), number(&of["count"]));
            bytes.insert(key, number(&of["bytes"]));
        }
    }
    let labels = ["store", "method"];
    let mut told = sums(&metrics, "lumpscope_requests_total", &labels);
    // Of no store: the report that was asked for above.
    told.retain(|key, _| !key[0].is_empty());
    assert_eq!(requests, told);
    let told = sums(&metrics, "lumpscope_request_body_bytes_total", &labels);
    assert_eq!(bytes, told);
    service.stop().await;
}

/// Reads until the 11th put to a and the head of b are in the totals: how many requests the frames
/// have told of, by store and method, and the last frame.
async fn until_told(events: &mut Events) -> (BTreeMap<(String, String), u64>, Value) {
    let (mut counts, mut last) = (BTreeMap::new(), 1);
    loop {
        let frame = events.take("frame").await;
        let found = (number(&frame["seq"]), number(&frame["skipped"]));
        assert_eq!(found, (last + 1, 0));
        last += 1;
        for (store, f) in frame["stores"].as_object().unwrap() {
            assert_eq!(f["observed"], false);
            let doubts = f["doubts"].as_str().unwrap();
            assert!(doubts.contains("switched off"), "{f}");
            for (method, of) in f["requests"].as_object().unwrap() {
                let key = (store.clone(), method.clone());
                *counts.entry(key).or_default() += number(&of["count"]);
                check_requests(of);
            }
        }
        let total = |store: &str, method: &str| {
            frame["stores"][store]["totals"]["requests"][method]["count"].as_u64()
        };
        if total("a", "put") == Some(11) && total("b", "head") == Some(1) {
            return (counts, frame);
        }
    }
}

/// The parts of one method's requests fit together.
fn check_requests(of: &Value) {
    let stages = of["stages"].as_object().unwrap().values();
    let expected = number(&of["total_ns"]);
    assert_eq!(stages.map(number).sum::<u64>(), expected, "{of}");
    let latency = of["latency"].as_array().unwrap();
    let counts = latency.iter().map(|bucket| number(&bucket[2]));
    assert_eq!(counts.sum::<u64>(), number(&of["count"]), "{of}");
    let (p50, p99) = (number(&of["p50_ns"]), number(&of["p99_ns"]));
    assert!(p50 <= p99, "{of}");
    assert!(p99 < number(&latency.last().unwrap()[1]), "{of}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_comes_back_goes_on_where_it_was_and_a_new_one_has_a_picture() {
    let dir = folder();
    let service = service(dir.path(), &["s"], every(FAST)).await;
    let mut events = Events::open(service.metrics, "", "").await;
    events.take("hello").await;
    for seq in 1..=5 {
        assert_eq!(number(&events.take("frame").await["seq"]), seq);
    }
    drop(events);
    for (query, first) in [
        ("?since=5", 6),
        ("", 1),
        ("?since=0", 1),
        // Of another run of the service.
        ("?since=900719925474099", 1),
    ] {
        let mut events = Events::open(service.metrics, query, "").await;
        events.take("hello").await;
        let frame = events.take("frame").await;
        let found = (number(&frame["seq"]), number(&frame["skipped"]));
        assert_eq!(found, (first, 0), "{query}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_come_and_go_are_told() {
    let dir = folder();
    let service = service(dir.path(), &["s"], every(FAST)).await;
    let mut events = Events::open(service.metrics, "", "").await;
    events.take("hello").await;
    events.take("frame").await;
    let more = store_file(dir.path(), "more", 16 * MIB, 4096, 0.05);
    let mut admin = service.admin().await;
    let add = v1::AddStoreRequest {
        name: "more".into(),
        path: more.display().to_string(),
        ..Default::default()
    };
    admin.add_store(add).await.unwrap();
    let mut told = Vec::new();
    let hello = loop {
        match events.next().await.unwrap() {
            (name, hello) if name == "hello" => break hello,
            (_, frame) => told.push(number(&frame["seq"])),
        }
    };
    assert_eq!(hello["stores"][1]["name"], "more");
    let frame = events.take("frame").await;
    assert_eq!(number(&frame["seq"]), told.last().copied().unwrap_or(1) + 1);
    assert!(frame["stores"]["more"]["totals"].is_object(), "{frame}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_is_told_to_who_comes_later() {
    let dir = folder();
    let rhythm = Rhythm {
        past_frame: FAST,
        ..Rhythm::default()
    };
    let service = service(dir.path(), &["a", "b"], rhythm).await;
    let past = async |since: u64| {
        let reply = ask(&service, &format!("/api/v1/past?since={since}")).await;
        reply.json()["frames"].as_array().unwrap().clone()
    };
    while past(0).await.is_empty() {
        tokio::time::sleep(FAST).await;
    }
    let mut client = service.client.clone();
    for id in 1..=3 {
        put(&mut client, "a", id, &body(id, 5000)).await.unwrap();
    }
    let puts = |frame: &Value| frame["stores"]["a"]["requests"]["put"]["count"].as_u64();
    let frames = loop {
        let frames = past(0).await;
        if frames.iter().filter_map(puts).sum::<u64>() == 3 {
            break frames;
        }
        tokio::time::sleep(FAST).await;
    };
    for (before, frame) in frames.iter().zip(&frames[1..]) {
        assert_eq!(number(&frame["seq"]), number(&before["seq"]) + 1);
        assert_eq!(frame["from_unix_ms"], before["unix_ms"]);
    }
    let last = frames.last().unwrap();
    let health = &last["stores"]["a"]["health"];
    assert_eq!(
        (&health["state"], &health["why"]),
        (&"serving".into(), &"".into())
    );
    assert_eq!(number(&health["numbers"]["lumps"]), 3);
    let found = number(&last["stores"]["b"]["health"]["numbers"]["lumps"]);
    assert_eq!(found, 0);
    assert_eq!(health["firing"], Value::Array(Vec::new()));
    let seq = number(&last["seq"]);
    let later = past(seq).await;
    assert!(later.iter().all(|frame| number(&frame["seq"]) > seq));
    // Of another run of the service: all there is.
    assert!(past(900_719_925_474_099).await.len() >= frames.len());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_open_is_shown() {
    let dir = folder();
    let lost = dir.path().join("lost.lusf");
    let service = service_with(dir.path(), &["s"], every(FAST), |config| {
        let path = lost.clone();
        config.stores.push(lumpscope_server::config::StoreSpec {
            name: "lost".to_owned(),
            path,
            uuid: None,
        });
    })
    .await;
    let mut events = Events::open(service.metrics, "", "").await;
    let hello = events.take("hello").await;
    assert_eq!(hello["stores"][1]["name"], "lost");
    let frame = events.take("frame").await;
    let health = &frame["stores"]["lost"]["health"];
    assert_eq!(
        (&health["state"], &health["numbers"]),
        (&"unavailable".into(), &Value::Null)
    );
    assert_eq!(health["firing"][0]["alert"], "LumpscopeStoreFailed");
    let words = "lost.lusf";
    assert!(health["why"].as_str().unwrap().contains(words), "{health}");
    assert_eq!(frame["stores"]["lost"]["observed"], false);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_nobody_looks_the_frames_go_and_their_numbers_stay() {
    let dir = folder();
    let rhythm = Rhythm {
        linger: Duration::ZERO,
        ..every(FAST)
    };
    let service = service(dir.path(), &["s"], rhythm).await;
    let first = async || {
        let mut events = Events::open(service.metrics, "", "").await;
        events.take("hello").await;
        number(&events.take("frame").await["seq"])
    };
    assert_eq!(first().await, 1);
    // Until the service has noticed, the old picture is still there.
    while first().await == 1 {
        tokio::time::sleep(FAST).await;
    }
    service.stop().await;
}
