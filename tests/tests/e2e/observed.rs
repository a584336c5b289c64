//! The commands that show what the disk did, against a live service with real probes, and against a recording of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lumpscope_lab::disks::StoreKind;
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, ROOT, alone};
use lumpscope_tests::service::{Service, binary, good, lab_with_stores, words};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4")];
const STORE: &str = "ext4";
const LUMP: usize = 1 << 20;

fn command(service: &Service, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env("LUMPSCOPE_SERVER", &service.grpc)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn text(service: &Service, arguments: &[&str]) -> String {
    let output = command(service, arguments).output();
    good(&output.expect("lumpscope starts"))
}

/// Each line of what it prints.
fn json(service: &Service, arguments: &[&str]) -> Vec<Value> {
    let printed = text(service, &[arguments, &["--json"]].concat());
    lines(&printed)
}

fn lines(printed: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).expect("each line is JSON");
    printed.lines().map(parse).collect()
}

fn interrupt(child: Child) -> String {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    good(&child.wait_with_output().expect("it ends"))
}

/// Starts a recording and waits until something is in it.
fn record(service: &Service, file: &Path) -> Child {
    let file_name = file.to_str().expect("paths are UTF-8");
    let child = command(service, &["record", file_name, "--json"]).spawn();
    while std::fs::metadata(file).map_or(0, |meta| meta.len()) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.expect("lumpscope starts")
}

async fn puts(client: &mut Client, ids: std::ops::Range<u128>) -> u64 {
    let mut last = 0;
    for id in ids {
        let stored = client.put(STORE, id, content(id, 1, LUMP)).await;
        last = stored.expect("the put works").request_id;
    }
    last
}

/// Parts of an explained request's block requests that do not depend on the displayed clock.
fn places(explained: &Value) -> Vec<[Value; 5]> {
    let blocks = explained["blocks"].as_array().expect("a list");
    let keys = ["operation", "sector", "sectors", "seek_bytes", "device_ns"];
    let place = |block: &Value| keys.map(|key| block[key].clone());
    blocks.iter().map(place).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_told_live_and_from_a_recording() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Ext4], 512 << 20, "300M");
    let service = Service::start(&lab, &[]);
    let client = Client::connect(&service.grpc).await;
    let mut client = client.expect("the service is up");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("recording");
    let recording = record(&service, &file);
    let request = puts(&mut client, 1..9).await.to_string();

    let live = json(&service, &["explain", &request]).remove(0);
    assert_eq!(live["method"], "put");
    assert_eq!(live["store"], STORE);
    let steps = live["steps"].as_array().expect("steps");
    assert!(!steps.is_empty(), "{live}");
    let blocks = live["blocks"].as_array().expect("block requests").iter();
    let data = blocks.filter(|it| it["operation"] == "write" && it["purpose"] == "data");
    let written: u64 = data.filter_map(|block| block["sectors"].as_u64()).sum();
    assert!(written * 512 >= LUMP as u64, "{live}");
    let told = text(&service, &["explain", &request]);
    for word in "put of 1 MiB took|what happened|there before|write".split('|') {
        assert!(told.contains(word), "{word} in {told}");
    }
    let slowest = json(&service, &["explain", "--slowest", "3", "--store", STORE]);
    assert!(!slowest.is_empty() && slowest.len() <= 3);

    let recorded = lines(&interrupt(recording)).remove(0);
    assert_eq!(recorded["dropped"], 0);
    let file = file.to_str().expect("paths are UTF-8");
    assert!(service.stop(), "the service ends well");

    // From here on there is no service any more.
    let ask = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .args(["--replay", file])
            .env("LUMPSCOPE_SERVER", "http://127.0.0.1:1")
            .output();
        good(&output.expect("lumpscope starts"))
    };
    let again = lines(&ask(&["explain", &request, "--json"])).remove(0);
    assert_eq!(again["sentence"], live["sentence"]);
    assert_eq!(places(&again), places(&live));
    let traced = lines(&ask(&["trace", "--request", &request, "--json"]));
    assert_eq!(traced.len() as u64, again["block_requests"], "{again}");
    let accepted = |told: &Value| told["begin_unix_ns"].as_u64().expect("a time");
    let apart = accepted(&again).abs_diff(accepted(&live));
    assert!(apart < 1_000_000_000, "{again}");
    let whole = lines(&ask(&["top", "--json"])).remove(0);
    let put = &whole["stores"][0]["methods"][0];
    assert_eq!(put["method"], "put");
    assert!(put["p99_ns"].as_u64() > Some(0), "{whole}");
    assert!(whole["stores"][0]["seek_median_bytes"].is_u64(), "{whole}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_is_watched_live() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Ext4], 512 << 20, "300M");
    let service = Service::start(&lab, &[]);
    let client = Client::connect(&service.grpc).await;
    let mut client = client.expect("the service is up");
    let begun = |line: &str| {
        let child = command(&service, &words(line)).spawn();
        child.expect("lumpscope starts")
    };
    let tracing = begun("trace --store ext4 --owner request --op write --count 8 --json");
    let top = begun("top --interval 300ms --count 3 --json");
    let (mut watched, mut id) = ([Some(tracing), Some(top)], 0);
    let mut printed = [String::new(), String::new()];
    while watched.iter().any(Option::is_some) {
        puts(&mut client, id..id + 1).await;
        id = (id + 1) % 64;
        for (child, printed) in watched.iter_mut().zip(&mut printed) {
            let ended = |it: &mut Child| it.try_wait().expect("it can be asked").is_some();
            if let Some(child) = child.take_if(ended) {
                *printed = good(&child.wait_with_output().expect("it has ended"));
            }
        }
    }
    let traced = lines(&printed[0]);
    assert_eq!(traced.len(), 8);
    for line in &traced {
        assert_eq!(line["owner"], "request", "{line}");
        assert_eq!(line["operation"], "write", "{line}");
        assert_eq!(line["stores"][0], STORE, "{line}");
        let ids = line["request_ids"].as_array().expect("ids");
        assert!(!ids.is_empty(), "{line}");
        assert!(line["sectors"].as_u64() > Some(0), "{line}");
    }
    let intervals = lines(&printed[1]);
    let last = &intervals[2]["stores"][0];
    assert_eq!(last["methods"][0]["method"], "put", "{last}");
    assert!(last["methods"][0]["p99_ns"].as_u64() > Some(0), "{last}");
    let rate = last["block_requests_per_second"].as_f64();
    assert!(rate > Some(0.0), "{last}");
    assert!(last["seek_median_bytes"].is_u64(), "{last}");
    assert!(last["attributed_share"].as_f64() > Some(0.9), "{last}");
    assert!(service.stop(), "the service ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_sampled_when_asked_and_the_observer_says_what_it_costs() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Ext4], 512 << 20, "300M");
    let service = Service::start(&lab, &["--event-one-in", "2"]);
    let client = Client::connect(&service.grpc).await;
    let mut client = client.expect("the service is up");
    let policy = |more: &[&str]| {
        let observer = json(&service, &[&["admin", "observer"], more].concat()).remove(0);
        observer["events"].clone()
    };
    assert_eq!(policy(&[])["one_in"], 2, "what the settings say");
    let set = policy(&["--one-in", "0", "--slower-than", "1h"]);
    assert_eq!(set["one_in"], 0);
    assert_eq!(set["slower_than_ns"], 3_600_000_000_000_u64);
    puts(&mut client, 1..5).await;
    let report = client.report(STORE).await.expect("a report");
    let audit = report.audit.expect("an audit");
    assert!(audit.not_sampled > 0, "{audit:?}");
    let page = service.scrape();
    let words = "\nlumpscope_event_policy_one_in 0.0\n";
    assert!(page.contains(words), "{page}");
    let words = "\nlumpscope_event_policy_slower_than_seconds 3600.0\n";
    assert!(page.contains(words), "{page}");
    let set = policy(&["--one-in", "1", "--slower-than", "0"]);
    assert_eq!(set["one_in"], 1);
    assert_eq!(set["slower_than_ns"], 0);
    puts(&mut client, 5..9).await;
    client.report(STORE).await.expect("a report");

    let observer = json(&service, &["admin", "observer"]).remove(0);
    assert_eq!(observer["stores"][0]["observed"], true, "{observer}");
    let programs = observer["programs"].as_array().expect("programs");
    let attached = programs.iter().any(|program| program["attached"] == true);
    assert!(attached, "{observer}");
    let page = service.scrape();
    for series in [
        "lumpscope_probe_program_attached{program=",
        "lumpscope_block_head_travel_bytes_total{store=\"ext4\",owner=\"request\",moved_by=",
        "lumpscope_audit_not_sampled_requests_total{store=\"ext4\"}",
    ] {
        assert!(page.contains(series), "{series} in {page}");
    }
    assert!(service.stop(), "the service ends well");
}

/// A read of a recording: where and how long, in a form that both sides have.
type Read = (u64, u64, u64, u64);

/// The requests of each read by its submission: which declared I/O the thread, or the io_uring's
/// own entry, named when it handed the read to the kernel. No place is looked at.
fn by_submission(recording: &str) -> Vec<(Read, Vec<u64>)> {
    let mut requests = BTreeMap::new();
    let mut reads = Vec::new();
    for input in lines(recording) {
        let number = |value: &Value| value.as_u64().expect("a number");
        if let Some(io) = input.get("declared") {
            let of = io["requests"].as_array().expect("ids").iter();
            requests.insert(number(&io["token"]), of.map(number).collect::<Vec<u64>>());
        }
        let Some(event) = input.get("event").filter(|event| event["op"] == "read") else {
            continue;
        };
        let (queue, issue) = (number(&event["queue_ns"]), number(&event["issue_ns"]));
        // Of a few, the kernel shows only the end.
        if queue == 0 || issue == 0 {
            continue;
        }
        let read = (
            number(&event["sector"]),
            number(&event["sectors"]),
            issue - queue,
            number(&event["done_ns"]) - issue,
        );
        // A kernel worker's submission is not seen.
        let token = event["submission"]["token"].as_u64();
        reads.extend(token.map(|token| (read, requests[&token].clone())));
    }
    reads.sort();
    reads
}

/// The requests of each read as the service tells them.
fn as_told(trace: &str) -> Vec<(Read, Vec<u64>)> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let reads = lines(trace).into_iter().filter_map(|block| {
        let read = (
            number(&block["sector"]),
            number(&block["sectors"]),
            block["queue_ns"].as_u64()?,
            // The kernel did not show the end of a few.
            block["device_ns"].as_u64().unwrap_or(0),
        );
        let requests = block["request_ids"].as_array().expect("ids");
        Some((read, requests.iter().map(number).collect()))
    });
    let mut reads: Vec<_> = reads.collect();
    reads.sort();
    reads
}

/// A lump that many get, with its checksums a single read: of more than 256 pages an io_uring leaves it to
/// a worker of the kernel, whose submission is not seen.
const SHARED: usize = 512 << 10;
/// Sectors of that read.
const READ: u64 = 1032;

/// All of them read the same places at the same time: only the submission tells them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_that_get_one_lump_are_told_apart() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 512 << 20, "200M");
    for backend in ["uring", "threads"] {
        let service = Service::start(&lab, &["--io-backend", backend]);
        let mut client = Client::connect(&service.grpc).await.expect("it is up");
        let put = client.put("raw", 1, content(1, 1, SHARED)).await;
        put.expect("it works");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("recording");
        let recording = record(&service, &file);
        let clients = (0..16).map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let got = client.get("raw", 1).await.expect("it is there");
                    assert_eq!(got.len(), SHARED);
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.expect("all gets work");
        }
        let report = client.report("raw").await.expect("a report");
        let audit = report.audit.expect("an audit");
        interrupt(recording);
        assert_eq!(audit.conflicts, 0, "{audit:?}");

        let recorded = std::fs::read_to_string(&file).expect("a recording");
        let truth = by_submission(&recorded);
        let arguments = ["trace", "--op", "read", "--json", "--replay"];
        let replay = Command::new(binary()).args(arguments).arg(&file).output();
        let told = as_told(&good(&replay.expect("lumpscope starts")));
        // A block request may be several reads that the block layer has merged; the submission is
        // that of one of them.
        let is_told = |(read, ids): &(Read, Vec<u64>)| {
            told.iter()
                .any(|(other, all)| other == read && ids.iter().all(|id| all.contains(id)))
        };
        let wrong = truth.iter().filter(|read| !is_told(read)).count();
        assert_eq!(wrong, 0, "{backend}, of {}", truth.len());
        let single = told.iter().filter(|((_, sectors, ..), _)| *sectors == READ);
        for ((_, sectors, ..), ids) in single {
            assert_eq!(ids.len(), 1, "{backend}: {sectors} sectors for {ids:?}");
        }
        // On a busy machine the kernel's workers submit some reads, and of some it shows only the end.
        assert!(truth.len() > 100, "{backend}: {}", truth.len());
        let gets: BTreeSet<u64> = told.iter().flat_map(|(_, ids)| ids.clone()).collect();
        assert!(gets.len() > 100, "{backend}: {}", gets.len());
        assert!(service.stop(), "the service ends well");
    }
}
