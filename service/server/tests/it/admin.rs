//! Running the service: syncing, collecting, scrubbing, and what it tells of its stores and itself.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use crate::common::*;
use lumpscope_proto::v1;
use lumpscope_server::config::{CommitArg, ServeConfig};
use tonic::Code;

const MIB: u64 = 1 << 20;
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_synced_and_its_journal_collected() {
    let dir = folder();
    let path = store_file(dir.path(), "collect", 16 * MIB, 4096, 0.05);
    // Of a put in a run there is no record that could be collected.
    let mut service = Running::with(ServeConfig {
        commit: CommitArg::Ordered,
        ..config(&[("s", &path)])
    })
    .await;
    let mut admin = service.admin().await;
    for id in 0..50 {
        service.put("s", id % 5, &body(id, 20_000)).await;
    }
    let synced = admin.sync(v1::SyncRequest { store: "s".into() }).await;
    assert!(synced.unwrap().into_inner().request_id > 50);
    let collect = v1::CollectJournalRequest { store: "s".into() };
    let done = admin.collect_journal(collect).await.unwrap().into_inner();
    assert!(done.dropped_records >= 40, "{done:?}");
    assert!(done.freed_bytes > 0 && done.used_bytes > 0, "{done:?}");
    for id in 45..50 {
        let bytes = get(&mut service.client, "s", id % 5).await.unwrap();
        assert!(bytes == body(id, 20_000));
    }
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scrubber_is_started_stopped_and_asked() {
    let dir = folder();
    let path = store_file(dir.path(), "scrub", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("s", &path)]).await;
    let mut admin = service.admin().await;
    for id in 1..4 {
        let bytes = body(id, 200_000);
        put(&mut service.client, "s", id, &bytes).await.unwrap();
    }
    let ask = v1::GetScrubRequest { store: "s".into() };
    let before = admin.get_scrub(ask.clone()).await.unwrap().into_inner();
    assert!(!before.running && before.passes == 0 && before.last_pass.is_none());

    let rotten = body(2, 200_000);
    let content = std::fs::read(&path).unwrap();
    let at = content.windows(64).position(|w| w == &rotten[..64]);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"rot", at.unwrap() as u64 + 5000)
        .unwrap();
    file.sync_all().unwrap();

    let start = v1::StartScrubRequest {
        store: "s".into(),
        bytes_per_second: 0,
    };
    admin.start_scrub(start).await.unwrap();
    let begun = Instant::now();
    let after = loop {
        let now = admin.get_scrub(ask.clone()).await.unwrap().into_inner();
        if now.passes > 0 {
            break now;
        }
        assert!(begun.elapsed() < EVENTUALLY, "{now:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(!after.running, "its pass has ended: {after:?}");
    assert_eq!((after.verified_lumps, after.corrupt_lumps), (2, 1));
    assert_eq!((after.findings, after.listed.len()), (1, 1));
    assert_eq!(after.listed[0].id, 2_u128.to_be_bytes().to_vec());
    assert!(!after.listed[0].message.is_empty());
    let pass = after.last_pass.unwrap();
    assert_eq!((pass.lumps, pass.damaged), (3, 1));
    assert!(pass.ended_unix_seconds > 1_700_000_000, "{pass:?}");

    let stop = v1::StopScrubRequest { store: "s".into() };
    admin.stop_scrub(stop).await.unwrap();
    assert!(!admin.get_scrub(ask).await.unwrap().into_inner().running);
    let slow = v1::StartScrubRequest {
        store: "s".into(),
        bytes_per_second: 4096,
    };
    admin.start_scrub(slow).await.unwrap();
    let ask = v1::GetScrubRequest { store: "s".into() };
    let slow = admin.get_scrub(ask).await.unwrap().into_inner();
    assert_eq!((slow.running, slow.bytes_per_second), (true, 4096));
    drop(admin);
    service.stop().await;
}

/// The series of one store that have no label but its name, without their prefix.
fn numbers_of_s(text: &str) -> BTreeMap<String, f64> {
    let mut exposed = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        if let Some(name) = series.strip_suffix("{store=\"s\"}")
            && let Some(name) = name.strip_prefix("lumpscope_store_")
        {
            let name = name.strip_suffix("_total").unwrap_or(name);
            exposed.insert(name.to_owned(), value.parse::<f64>().unwrap());
        }
    }
    exposed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_of_a_store_are_those_of_its_metrics() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let mut admin = service.admin().await;
    service.put("s", 1, &body(1, 70_000)).await;
    // The engine tells its numbers a moment after it has answered.
    let begun = Instant::now();
    let told = loop {
        let ask = v1::DescribeStoreRequest { store: "s".into() };
        let told = admin.describe_store(ask).await.unwrap().into_inner();
        let exposed = numbers_of_s(&service.http_get("/metrics").await.1);
        let numbers: BTreeMap<_, _> = told.numbers.clone().into_iter().collect();
        assert!(numbers.len() > 40, "{numbers:?}");
        if numbers == exposed && told.lumps == 1 {
            break told;
        }
        assert!(begun.elapsed() < EVENTUALLY, "{numbers:?} {exposed:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!((told.numbers["lumps"] - 1.0).abs() < 1e-9);
    assert!(["uring", "threads"].contains(&told.io_backend.as_str()));
    let info = told.info.unwrap();
    assert_eq!((info.name.as_str(), info.layout.as_str()), ("s", "lusf"));
    assert_eq!(info.state(), v1::StoreState::Serving);
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_describes_itself() {
    let dir = folder();
    let path = store_file(dir.path(), "itself", 16 * MIB, 4096, 0.05);
    let service = Running::start(&[("s", &path)]).await;
    let mut admin = service.admin().await;
    let ask = v1::DescribeServiceRequest {};
    let told = admin.describe_service(ask).await.unwrap().into_inner();
    assert_eq!(told.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(told.pid, std::process::id());
    assert_eq!(told.settings["queue-limit"], "1024");
    assert!(told.settings["store"].contains(path.to_str().unwrap()));
    let held = told.privileges.unwrap();
    assert_eq!(held.uid, rustix::process::geteuid().as_raw());
    assert_eq!(told.under_way, 0);
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_admin_refuses() {
    let service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let mut admin = service.admin().await;
    let store = || "t".to_owned();
    let words = ["\"t\"", "has s"];
    let sync = admin.sync(v1::SyncRequest { store: store() }).await;
    refused(sync, Code::NotFound, &words);
    let ask = v1::DescribeStoreRequest { store: store() };
    refused(admin.describe_store(ask).await, Code::NotFound, &words);
    let ask = v1::GetScrubRequest { store: store() };
    refused(admin.get_scrub(ask).await, Code::NotFound, &words);
    let ask = v1::DrainRequest {
        store: store(),
        timeout_ms: 0,
        changes_only: false,
    };
    refused(admin.drain(ask).await, Code::NotFound, &words);
    let ask = v1::RemoveStoreRequest {
        store: store(),
        drain_timeout_ms: 0,
    };
    refused(admin.remove_store(ask).await, Code::NotFound, &words);
    let ask = v1::DrainRequest {
        store: "s".to_owned(),
        timeout_ms: 600_001,
        changes_only: false,
    };
    let words = ["timeout_ms", "600001", "600000"];
    refused(admin.drain(ask).await, Code::InvalidArgument, &words);
    let ask = v1::ListStoresRequest {};
    let stores = service.client.clone().list_stores(ask).await.unwrap();
    let expected = v1::StoreState::Serving;
    assert_eq!(stores.into_inner().stores[0].state(), expected);
    drop(admin);
    service.stop().await;
}
