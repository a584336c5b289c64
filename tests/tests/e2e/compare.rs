//! `lumpscope compare` on real loop devices: with bpftrace as a second opinion on the block requests, on disks of the
//! user, and stopped in the middle, when nothing of it may be left.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lumpscope_lab::disks::{Lab, LabOptions, StoreKind};
use lumpscope_tests::needs::{LOOPS, Need, alone};
use lumpscope_tests::service::{binary, good};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How often the comparison is made again when a tracer or the probes say that they missed something.
const ATTEMPTS: usize = 5;

/// The document that a comparison prints, with nothing else.
#[track_caller]
fn compared(args: &str, last: Option<&Path>) -> Value {
    let mut command = Command::new(binary());
    command.arg("compare").args(args.split(' ')).args(last);
    let output = command.output().expect("lumpscope starts");
    serde_json::from_str(&good(&output)).expect("one JSON document and nothing else")
}

fn compare() -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebpf/bpftrace/block-count.bt");
    compared(
        "--scale 0.01 --block-size 4096 --depth 8 --json --bpftrace",
        Some(script.as_path()),
    )
}

/// Checks one store's part; `Err`: something went unseen, and both sides say so.
fn agree(store: &Value) -> Result<(), String> {
    let (name, disk, tracer) = (&store["kind"], &store["disk"], &store["tracer"]);
    let number = |value: &Value| {
        let number = value.as_u64();
        number.unwrap_or_else(|| panic!("{name}: no number: {value}"))
    };
    let block = &disk["block"];
    let right = number(&block["attributed_bytes"]) + number(&block["shared_bytes"]);
    let own = number(&block["own_bytes"]);
    assert!(right * 100 >= own * 99, "{name}: {block}");
    let requests = number(&tracer["requests"]);
    assert!(requests > 0, "{name}: the tracer saw nothing");
    let complete = disk["audit"]["complete"].as_bool().expect("a verdict");
    let equal = tracer["equal"].as_bool().expect("a verdict");
    if complete && equal {
        return Ok(());
    }
    let fewer = requests < number(&tracer["seen_requests"]);
    assert!(!complete || fewer, "{name}: {tracer}");
    Err(format!("{name}: {} {tracer}", disk["audit"]["finding"]))
}

#[test]
fn two_tracers_and_the_kernel_count_the_same() {
    let Some(_alone) = alone(&[
        Need::Root,
        Need::Tool("bpftrace"),
        Need::Tool("mkfs.ext4"),
        Need::Tool("mkfs.xfs"),
    ]) else {
        return;
    };
    let mut findings = Vec::new();
    let mut agreed = [false; 3];
    for _ in 0..ATTEMPTS {
        let comparison = compare();
        let stores = comparison["stores"].as_array().expect("three stores");
        assert_eq!(stores.len(), 3);
        for (store, agreed) in stores.iter().zip(&mut agreed) {
            match agree(store) {
                Ok(()) => *agreed = true,
                Err(finding) => findings.push(finding),
            }
        }
        if agreed == [true; 3] {
            return;
        }
    }
    panic!("never complete on all three: {findings:#?}");
}

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("lumpscope-compare-test-")
        .tempdir_in("/var/tmp")
        .unwrap()
}

fn assert_nothing_left(dir: &Path) {
    let loops = || {
        let output = Command::new("losetup").arg("-a").output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        let dir = dir.to_str().unwrap();
        listing.lines().filter(|line| line.contains(dir)).count()
    };
    let patience = Instant::now() + Duration::from_secs(10);
    while loops() > 0 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(loops(), 0, "loop devices");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "files");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("/lumpscope-ext4") && !mounts.contains("/lumpscope-xfs"));
}

/// A comparison that has begun to run its workload on the second store.
fn started(dir: &Path) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(binary())
        .args(["compare", "--scale", "0.02", "--dir"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ext4: ") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    (child, stderr)
}

#[test]
fn three_stores_side_by_side() {
    let Some(_alone) = alone(LOOPS) else { return };
    let dir = scratch();
    let args = "--scale 0.002 --block-size 4096 --depth 8 --verify --json --dir";
    let result = compared(args, Some(dir.path()));
    assert_eq!(result["workload"]["commands"], 90);
    for (index, kind) in ["raw", "ext4", "xfs"].into_iter().enumerate() {
        let store = &result["stores"][index];
        assert_eq!(store["kind"], kind);
        assert_eq!(store["client"]["overall"]["count"], 90);
        assert_eq!(store["client"]["bytes"], 90 << 20);
        let operations = store["disk"]["operations"].as_array().unwrap();
        let count = |method: &str| {
            let operation = operations.iter().find(|one| one["method"] == method);
            operation.unwrap_or_else(|| panic!("{kind}: no {method}"))["count"].clone()
        };
        assert_eq!(count("put"), 50, "{kind}");
        assert_eq!(count("get"), 40, "{kind}");
    }
    assert_nothing_left(dir.path());
}

#[test]
fn ctrl_c_twice_leaves_nothing() {
    let Some(_alone) = alone(LOOPS) else { return };
    let dir = scratch();
    let (mut child, mut stderr) = started(dir.path());
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    // It may have ended already.
    let _ = kill_process(pid, Signal::INT);
    let status = child.wait().unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(status.code(), Some(130), "{rest}");
    assert!(rest.contains("stopped by a signal"), "{rest}");
    assert_nothing_left(dir.path());
}

#[test]
fn kill_9_leaves_nothing() {
    let Some(_alone) = alone(LOOPS) else { return };
    let dir = scratch();
    let (mut child, _stderr) = started(dir.path());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_nothing_left(dir.path());
}

/// Modelled nanoseconds and ratio of each store; `Err`: the kernel did not show every request.
fn disk_times() -> Result<Vec<(f64, f64)>, String> {
    let result = compared("--scale 0.001 --block-size 4096 --json", None);
    let stores = result["stores"].as_array().unwrap();
    let complete =
        |store: &Value| store["disk"]["audit"]["complete"] == true && store["model_note"] == "";
    if !stores.iter().all(complete) {
        return Err(format!("{:?}", stores[0]["disk"]["audit"]));
    }
    let time = |store: &Value| {
        let number = |key: &str| store["modelled"][0][key].as_f64().unwrap();
        (number("elapsed_ns"), number("ratio_to_raw"))
    };
    Ok(stores.iter().map(time).collect())
}

#[test]
fn two_runs_take_the_same_disk_time() {
    let Some(_alone) = alone(LOOPS) else { return };
    let mut findings = Vec::new();
    let mut complete = Vec::new();
    while complete.len() < 2 && findings.len() < ATTEMPTS {
        match disk_times() {
            Ok(times) => complete.push(times),
            Err(finding) => findings.push(finding),
        }
    }
    let [one, other] = complete.as_slice() else {
        panic!("never twice complete of {ATTEMPTS}: {findings:#?}");
    };
    for (one, other) in one.iter().zip(other) {
        assert!(one.0 > 100e6, "45 commands need a turn each: {one:?}");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() <= 0.01;
        assert!(near(one.0, other.0), "{one:?} {other:?}");
        assert!(near(one.1, other.1), "{one:?} {other:?}");
    }
}

fn assert_ran_on_own_disks(output: &Output) {
    let result: Value = serde_json::from_str(&good(output)).unwrap();
    assert_eq!(result["disks"], "own");
    let stores = result["stores"].as_array().unwrap().iter();
    let sizes: Vec<&Value> = stores.map(|store| &store["block_size"]).collect();
    assert_eq!(sizes, [512, 512, 512, 4096, 4096, 4096]);
}

#[test]
fn disks_of_the_user_are_used_once_they_are_empty_and_given_back() {
    let Some(_alone) = alone(LOOPS) else { return };
    let dir = scratch();
    let options = LabOptions {
        dir: Some(dir.path().to_owned()),
        ..LabOptions::new(500 << 20)
    };
    let lab = Lab::create(&options).unwrap();
    let folder = |kind| {
        let store = &lab.store(kind).unwrap().store_path;
        store.parent().unwrap().to_owned()
    };
    let raw = &lab.store(StoreKind::Raw).unwrap().device;
    let compare = || {
        let mut command = lab.command(binary());
        command.args("compare --scale 0.001 --json --raw".split(' '));
        command.arg(raw);
        command.arg("--ext4").arg(folder(StoreKind::Ext4));
        command.arg("--xfs").arg(folder(StoreKind::Xfs));
        command.output().unwrap()
    };
    for _ in 0..2 {
        assert_ran_on_own_disks(&compare());
        let mut find = lab.command(Path::new("find"));
        let listing = find.arg(folder(StoreKind::Xfs)).output().unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        assert_eq!(listing.lines().count(), 1, "a file stays: {listing}");
    }
    let mkfs = Command::new("mkfs.ext4").arg("-q").arg(raw).status();
    assert!(mkfs.unwrap().success());
    let begin = || {
        let mut bytes = vec![0; 1 << 20];
        let mut disk = std::fs::File::open(raw).unwrap();
        disk.read_exact(&mut bytes).unwrap();
        bytes
    };
    let before = begin();
    let output = compare();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    assert!(stderr.contains("ext4"), "{stderr}");
    assert_eq!(before, begin(), "a refused disk was touched");
    drop(lab);
    assert_nothing_left(dir.path());
}
