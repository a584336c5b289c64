//! Queries to the observer, through gRPC and through the commands. Without probes the work of the
//! disk is unknown, and every answer has to say so.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::*;
use crate::process::PROGRAM;
use lumpscope_proto::v1;
use lumpscope_server::observed::MAX_WATCHES;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tonic::Code;

const STORE: &str = "disk";

struct Setup {
    running: Running,
    dir: tempfile::TempDir,
}

impl Setup {
    /// A service with one store and one lump in it; the id of the request that put it.
    async fn new() -> (Self, u64) {
        let dir = folder();
        let path = store_file(dir.path(), "observing", 32 << 20, 4096, 0.05);
        let mut running = Running::start(&[(STORE, &path)]).await;
        let stored = put(&mut running.client, STORE, 1, &body(1, 100_000)).await;
        let id = stored.unwrap().request_id;
        (Self { running, dir }, id)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .env("LUMPSCOPE_SERVER", &self.running.grpc)
            .env("LUMPSCOPE_RETRIES", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    fn said(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let ended = output.status.code();
        assert_eq!(ended, Some(code), "{arguments:?}: {out}{err}");
        (out, err)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let (out, _) = self.said(0, &[arguments, &["--json"]].concat());
        serde_json::from_str(out.lines().next().unwrap()).unwrap()
    }
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_tells_one_request_and_the_slowest() {
    let (setup, id) = Setup::new().await;
    let told = setup.json(&["explain", &id.to_string()]);
    assert_eq!(told["request_id"], id);
    assert_eq!(told["method"], "put");
    assert_eq!(told["store"], STORE);
    assert_eq!(told["bytes"], 100_000);
    let stages = told["stages"].as_object().unwrap().values();
    let sum: u64 = stages.map(|ns| ns.as_u64().unwrap()).sum();
    assert_eq!(told["total_ns"], sum);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let begin = u128::from(told["begin_unix_ns"].as_u64().unwrap());
    assert!(begin < now && now - begin < 3_600_000_000_000, "{told}");
    let (text, _) = setup.said(0, &["explain", &id.to_string()]);
    assert!(text.starts_with("put of "), "{text}");
    let which = format!("request {id}, store {STORE}");
    assert!(text.contains(&which), "{text}");

    let slowest = ["explain", "--slowest=3", "--store", STORE, "--within=5m"];
    assert_eq!(setup.json(&slowest)["request_id"], id);
    let (_, err) = setup.said(3, &["explain", "99999"]);
    assert!(err.contains("99999"), "{err}");
    setup.said(3, &["explain", "--slowest", "--store", "tape"]);
    assert_eq!(setup.json(&["explain"])["request_id"], id);
    setup.said(2, &["explain", "1", "--slowest"]);
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_says_what_it_cannot_see_and_ends_well() {
    let (setup, _) = Setup::new().await;
    let mut child = setup.command(&["trace", "--store", STORE]).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert!(line.contains("incomplete: disk: not observed"), "{line}");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let out = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(out.lines().count() <= 2, "nothing but the head: {out}");
    setup.said(2, &["trace", "--owner", "nobody"]);
    setup.said(3, &["trace", "--store", "tape"]);
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_each_interval_and_its_rates() {
    let (setup, _) = Setup::new().await;
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let mut client = setup.running.client.clone();
    let load = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            get(&mut client, STORE, 1).await.unwrap();
        }
    });
    let arguments = ["top", "--interval", "200ms", "--count", "2", "--json"];
    let (out, _) = tokio::task::block_in_place(|| setup.said(0, &arguments));
    let (text, _) = tokio::task::block_in_place(|| setup.said(0, &arguments[..5]));
    stop.send(()).unwrap();
    load.await.unwrap();
    let intervals = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let intervals: Vec<Value> = intervals.collect();
    assert_eq!(intervals.len(), 2);
    for interval in &intervals {
        let store = &interval["stores"][0];
        assert_eq!(store["store"], STORE);
        let method = &store["methods"][0];
        assert_eq!(method["method"], "get");
        assert!(method["per_second"].as_f64().unwrap() > 0.0, "{store}");
        assert!(method["mean_ns"].as_u64().unwrap() > 0, "{store}");
        let missing = store["incomplete"].as_str().unwrap();
        assert!(missing.starts_with("not observed: "), "{store}");
    }
    let incomplete = text.matches("INCOMPLETE: not observed").count();
    assert_eq!(incomplete, 2, "{text}");
    assert!(!text.contains('\x1b'), "no terminal: {text:?}");
    setup.said(1, &["top", "--interval", "1ms"]);
    setup.said(3, &["top", "--store", "tape"]);
    setup.running.stop().await;
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn record_makes_a_private_file_and_keeps_what_is_there() {
    let (setup, _) = Setup::new().await;
    let path = setup.dir.path().join("r.jsonl");
    let file = path.to_str().unwrap();
    let done = setup.json(&["record", file, "--seconds", "1"]);
    assert_eq!(done["dropped"], 0);
    assert_eq!(mode(&path), 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count() as u64, done["lines"].as_u64().unwrap());
    for line in text.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let (_, err) = setup.said(1, &["record", file, "--seconds", "1"]);
    assert!(err.contains("--force"), "{err}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

    setup.said(0, &["record", file, "--seconds", "1", "--force"]);
    std::fs::remove_file(&path).unwrap();
    let child = setup.command(&["record", file]).spawn().unwrap();
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.starts_with(b"recorded "), "{output:?}");
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_observer_is_described_and_cannot_hand_out_events_without_probes() {
    let (setup, _) = Setup::new().await;
    let described = setup.json(&["admin", "observer"]);
    let store = &described["stores"][0];
    assert_eq!(store["store"], STORE);
    assert_eq!(store["observed"], false);
    assert!(!store["not_observed_because"].as_str().unwrap().is_empty());
    assert_eq!(store["guard"]["policy"], "off");
    let (text, _) = setup.said(0, &["admin", "observer"]);
    assert!(text.contains("no: "), "{text}");
    assert_eq!(described["events"]["one_in"], 1);
    assert!(text.contains("each block request"), "{text}");
    let (_, err) = setup.said(1, &["admin", "observer", "--one-in", "10"]);
    assert!(err.contains("FAILED_PRECONDITION"), "{err}");
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_watch_at_a_time_and_all_end_with_the_service() {
    let (setup, _) = Setup::new().await;
    let mut observe = setup.running.observe().await;
    let mut watching = Vec::new();
    for _ in 0..MAX_WATCHES {
        let stream = observe.trace(v1::TraceRequest::default()).await.unwrap();
        let mut stream = stream.into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert!(first.incomplete.contains("not observed"), "{first:?}");
        watching.push(stream);
    }
    let wanted = ["16 calls", "end one first"];
    let more = observe.trace(v1::TraceRequest::default()).await;
    refused(more.map(|_| ()), Code::ResourceExhausted, &wanted);
    let more = observe.record(v1::RecordRequest {}).await;
    refused(more.map(|_| ()), Code::ResourceExhausted, &wanted);
    let page = setup.running.http_get("/metrics").await.1;
    let line = "lumpscope_watches{kind=\"trace\"} 16.0";
    assert!(page.lines().any(|l| l == line), "{page}");

    // One less, and there is room; the service notices within moments.
    drop(watching.pop());
    let mut recording = loop {
        match observe.record(v1::RecordRequest {}).await {
            Ok(recording) => break recording.into_inner(),
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    // Heartbeats come by themselves.
    for _ in 0..2 {
        let beat = watching[0].message().await.unwrap().unwrap();
        assert_eq!((beat.blocks.len(), beat.dropped), (0, 0));
    }
    setup.running.stop().await;
    for mut stream in watching {
        while stream.message().await.unwrap().is_some() {}
    }
    while recording.message().await.unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let (setup, _) = Setup::new().await;
    let mut observe = setup.running.observe().await;
    let odd = v1::TraceRequest {
        owner: "journal".into(),
        ..Default::default()
    };
    let asked = observe.trace(odd).await.map(|_| ());
    refused(asked, Code::InvalidArgument, &["owner", "fs-journal"]);
    let asked = observe.set_events(v1::SetEventsRequest::default()).await;
    refused(asked, Code::InvalidArgument, &["events"]);
    let asked = observe.explain(v1::ExplainRequest::default()).await;
    refused(asked, Code::NotFound, &["request 0"]);
    let with = |without_heat| v1::ReportRequest {
        store: STORE.into(),
        without_heat,
    };
    let report = observe.report(with(true)).await.unwrap().into_inner();
    assert!(report.stores[0].heat.is_empty());
    assert_eq!(report.stores[0].slowest[0].store, STORE);
    setup.running.stop().await;
}

#[test]
fn a_flight_recording_is_explained_by_the_request_that_it_was_written_for() {
    let dir = folder();
    let file = dir.path().join("flight-01795271750-put-7.jsonl");
    let ended = |request: u64, took: u64, ok: bool, control: bool| {
        format!(
            r#"{{"ended":{{"request":{request},"store":0,"method":"put","bytes":4096,"begin_ns":10,"end_ns":{},"ok":{ok},"control":{control},"stages_ns":[0,0,0,{took},0,0]}}}}"#,
            10 + took
        )
    };
    let lines = [
        r#"{"clock":{"monotonic_ns":1000,"unix_ns":1795271750000000000,"since_ns":0,"request":7}}"#
            .to_owned(),
        r#"{"added":{"store":0,"name":"fast"}}"#.to_owned(),
        ended(7, 100, true, false),
        ended(8, 50, false, false),
        ended(9, 500, true, false),
        ended(10, 900, true, true),
        r#"{"drained":{"until_ns":1000}}"#.to_owned(),
    ];
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let told = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["explain", "--json", "--replay"]);
        let output = output.arg(&file).args(options).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let ids = text.lines().map(|line| {
            let told: Value = serde_json::from_str(line).unwrap();
            told["request_id"].as_u64().unwrap()
        });
        ids.collect::<Vec<u64>>()
    };
    assert_eq!(told(&[]), [7]);
    assert_eq!(told(&["--failed"]), [8]);
    assert_eq!(told(&["--slowest"]), [9, 7, 8]);
    assert_eq!(told(&["9"]), [9]);
}
