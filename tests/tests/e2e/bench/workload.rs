//! `lumpscope bench run`, and `peers` end to end, at tiny sizes: what is checked is that
//! every byte is right and everything is said, never how fast it was.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lumpscope_tests::needs::{Need, alone, find_tool};
use lumpscope_tests::service::{binary, run_ok, words};
use serde_json::Value;

use super::{PEER, peer};

/// All kinds of commands, some 150 of them.
const WORKLOAD: &str = "Command { 20.times { New(100K); }; 3.times { Embed(500); }; New(0); }
    Unordered[100] { <20%> OverWrite(64K); <40%> Get; <20%> New(4097); <20%> Delete; }
    Command { DeleteRange(10, 50); 5.times { Get; }; }";

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    let output = command.arg("bench").args(args).output();
    output.expect("lumpscope starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the workload, verified, and looks at the JSON.
fn verified(folder: &Path, args: &[&str]) {
    let (workload, json) = (folder.join("workload"), folder.join("result.json"));
    std::fs::write(&workload, WORKLOAD).expect("the workload can be written");
    let text = |path: &Path| path.display().to_string();
    let (workload, json) = (text(&workload), text(&json));
    let file = format!("--output={json}");
    let mut all = vec!["run", &workload, "--verify", &file];
    let peer = peer();
    all.extend(["--cannyls-peer", &peer]);
    all.extend(args);
    let output = bench(&all);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    let printed: Vec<&str> = printed.split_whitespace().collect();
    let printed = printed.join(" ");
    for expected in [
        "kind = Put(102400), count = 20, 50% = ",
        "kind = DeleteRange, count = 1, ",
        "Total Elapsed Time by Commands = ",
        "nothing else lives",
    ] {
        assert!(printed.contains(expected), "{args:?}: {printed}");
    }
    let report = std::fs::read(json).expect("the JSON was written");
    let report: Value = serde_json::from_slice(&report).expect("it is JSON");
    let number = |value: &Value| value.as_u64().expect("a number");
    let commands = number(&report["workload"]["commands"]);
    assert!(commands > 120);
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let kinds = list(&report["kinds"]);
    let counts = kinds.iter().map(|kind| number(&kind["latency"]["count"]));
    assert_eq!(counts.sum::<u64>(), commands, "{args:?}");
    let buckets = list(&report["overall"]["buckets"]);
    let in_buckets: u64 = buckets.iter().map(|bucket| number(&bucket[1])).sum();
    assert_eq!(in_buckets, commands);
    assert!(number(&report["verified"]["lumps"]) > 5);
}

#[test]
fn every_engine_runs_a_workload_and_every_byte_is_right() {
    let [ext4, xfs] = ["mkfs.ext4", "mkfs.xfs"].map(Need::Tool);
    let needs = [Need::Root, ext4, xfs, PEER];
    let Some(_alone) = alone(&needs) else { return };
    let folder = tempfile::tempdir().expect("a directory can be made");
    for args in [
        "--target engine --store raw --block-size 512",
        "--target engine --store xfs --depth 8",
        "--target grpc --store ext4 --durability journaled",
        "--target grpc --store raw --depth 4",
        "--target s3 --store raw --depth 4",
        "--target cannyls --store raw --block-size 512",
        "--target cannyls --store ext4 --block-size 4096",
    ] {
        verified(folder.path(), &words(args));
    }
}

#[test]
fn a_file_of_ones_own_is_made_and_removed_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().expect("a directory can be made");
    let file = folder.path().join("store");
    let path = file.display().to_string();
    verified(folder.path(), &["--device", &path]);
    assert!(!file.exists(), "the store is left");
    std::fs::write(&file, "mine").expect("a file can be written");
    let output = bench(&["run", "rand1", "--scale", "0.001", "--device", &path]);
    assert!(!output.status.success());
    let said = said(&output);
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"mine");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        ("run no-such-workload", "neither one of seq1"),
        ("run rand1 --scale 0", "--scale must be above 0"),
        ("run rand1 --depth 0", "--depth must be"),
        ("run rand1 --block-size 1000", "a multiple of 512"),
        (
            "run rand1 --target cannyls --depth 2",
            "one command after the other",
        ),
        ("peers --mix 1:0", "PUT:GET"),
        ("peers --capacity 64M --size 16M", "at least 8 lumps"),
        ("run rand1 --limit 3", "required arguments"),
    ] {
        let output = bench(&words(args));
        assert!(!output.status.success(), "{args}");
        let said = said(&output);
        assert!(said.contains(expected), "{args}: {said}");
    }
}

#[test]
fn commands_end_quietly_with_their_reader() {
    let all = run_ok(&words("bench run seq2 --print commands --limit 1"));
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines[0], "# commands 5000 least_required_bytes 20971520000");
    assert_eq!(lines[2..], ["put 00000000000000000000000000000001 4194304"]);
    let mut command = Command::new(binary());
    command.args("bench run seq1 --print commands".split(' '));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("lumpscope starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is a pipe");
    let read = BufReader::new(stdout).read_line(&mut line);
    read.expect("a line comes");
    // The reader is gone now, with megabytes still to come.
    let output = child.wait_with_output().expect("it ends");
    let quiet = output.status.success() && output.stderr.is_empty();
    assert!(quiet, "{}", said(&output));
    assert!(line.starts_with("# commands 100000 "), "{line}");
}

#[test]
fn peers_are_run_in_turn_and_what_is_missing_is_said() {
    let needs = [Need::Root, Need::Tool("mkfs.xfs"), Need::Tool("fio"), PEER];
    let Some(_alone) = alone(&needs) else { return };
    let folder = tempfile::tempdir().expect("a directory can be made");
    let json = folder.path().join("result.json");
    let file = format!("--output={}", json.display());
    let minio = find_tool("minio");
    let small = words("peers --capacity 64M --size 64K --mix 1:1 --seconds 0.05 --rounds 2");
    let ours = ["--cannyls-peer", &peer(), &file];
    let output = bench(&[&small[..], &ours].concat());
    assert!(output.status.success(), "{}", said(&output));
    let report = std::fs::read(json).expect("the JSON was written");
    let report: Value = serde_json::from_slice(&report).expect("it is JSON");
    let mut peers = words("engine service service-s3 cannyls fio files-ext4 files-xfs");
    peers.extend(minio.is_some().then_some("minio"));
    peers.extend(find_tool("weed").is_some().then_some("seaweedfs"));
    peers.extend(find_tool("weed").is_some().then_some("seaweedfs-s3"));
    peers.extend(find_tool("ceph-osd").is_some().then_some("bluestore"));
    let runs = report["runs"].as_array().expect("a list");
    for peer in peers {
        let its: Vec<&Value> = runs.iter().filter(|run| run["who"] == peer).collect();
        assert_eq!(its.len(), 2, "{peer}: {}", report["left_out"]);
        for run in its {
            let requests = run["puts"].as_u64().unwrap_or(0) + run["gets"].as_u64().unwrap_or(0);
            assert!(requests > 0, "{run}");
        }
    }
    if minio.is_none() {
        let printed = String::from_utf8_lossy(&output.stdout);
        let words = "MinIO on xfs: LEFT OUT: it is not in PATH";
        assert!(printed.contains(words), "{printed}");
    }
}

#[test]
fn an_object_of_each_peer_is_counted_in_block_requests() {
    let [xfs, ceph] = ["mkfs.xfs", "ceph-osd"].map(Need::Tool);
    let Some(_alone) = alone(&[Need::Root, xfs, ceph, Need::LoopDevices]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory can be made");
    let json = folder.path().join("result.json").display().to_string();
    let file = format!("--output={json}");
    let small = ["--blocks", "--capacity", "64M", "--size", "64K", &file];
    let only = ["--only", "service,files-xfs,bluestore,fio"];
    let output = bench(&[["peers"].as_slice(), &small, &only].concat());
    assert!(output.status.success(), "{}", said(&output));
    let report = std::fs::read(json).expect("the JSON was written");
    let report: Value = serde_json::from_slice(&report).expect("it is JSON");
    let costs = report["costs"].as_array().expect("a list");
    let cost = |who: &str, what: &str| {
        let mut all = costs.iter();
        let found = all.find(|cost| cost["who"] == who && cost["what"] == what);
        found.unwrap_or_else(|| panic!("no {what} of {who}: {report}"))
    };
    for who in ["service", "files-xfs", "bluestore"] {
        for (what, moved) in [("put", "written_bytes"), ("get", "read_bytes")] {
            let cost = cost(who, what);
            assert_eq!(cost["complete"], true, "{cost}");
            let (objects, bytes) = (&cost["objects"], &cost["all"][moved]);
            let objects = objects.as_u64().expect("a number");
            // An object that is got again is in BlueStore's own memory.
            let again = match (who, what) {
                ("bluestore", "get") => objects / 4,
                _ => 0,
            };
            let least = (objects - again) * (64 << 10);
            assert!(bytes.as_u64() >= Some(least), "{cost}");
            let [modelled, transfer] = ["modelled_ns", "transfer_ns"].map(|ns| cost[ns].as_u64());
            assert!(modelled > transfer, "{cost}");
        }
    }
    // A get of ours reads once, where it knows that its lump lies.
    let get = cost("service", "get");
    assert_eq!(get["all"]["reads"], get["objects"], "{get}");
    assert_eq!(get["all"]["writes"], 0, "{get}");
    assert_eq!(report["left_out"][0]["who"], "fio");
}
