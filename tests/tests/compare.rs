//! The main job with a second opinion: while `lumpscope compare` runs, bpftrace counts the same block requests.

use std::path::Path;
use std::process::Command;

use lumpscope_tests::needs::{Need, available};
use lumpscope_tests::service::binary;
use serde_json::Value;

/// How often the comparison is made again when a tracer or the probes say that they missed something.
const ATTEMPTS: usize = 5;

fn compare() -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebpf/bpftrace/block-count.bt");
    let output = Command::new(binary())
        .args([
            "compare",
            "--scale",
            "0.01",
            "--clients",
            "8",
            "--json",
            "--bpftrace",
        ])
        .arg(&script)
        .output()
        .expect("lumpscope starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("one JSON document and nothing else")
}

/// Checks one store's part; `Err`: something went unseen, and both sides say so.
fn agree(store: &Value) -> Result<(), String> {
    let (name, disk, tracer) = (&store["kind"], &store["disk"], &store["tracer"]);
    let number = |value: &Value| {
        value
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: no number: {value}"))
    };
    let block = &disk["block"];
    let right = number(&block["attributed_bytes"]) + number(&block["shared_bytes"]);
    assert!(
        right * 100 >= number(&block["own_bytes"]) * 99,
        "{name}: {block}"
    );
    assert!(
        number(&tracer["requests"]) > 0,
        "{name}: the tracer saw nothing"
    );
    let complete = disk["audit"]["complete"].as_bool().expect("a verdict");
    let equal = tracer["equal"].as_bool().expect("a verdict");
    if complete && equal {
        return Ok(());
    }
    assert!(
        !complete || number(&tracer["requests"]) < number(&tracer["seen_requests"]),
        "{name}: {tracer}"
    );
    Err(format!("{name}: {} {tracer}", disk["audit"]["finding"]))
}

#[test]
fn two_tracers_and_the_kernel_count_the_same() {
    if !available(&[
        Need::Root,
        Need::Tool("bpftrace"),
        Need::Tool("mkfs.ext4"),
        Need::Tool("mkfs.xfs"),
    ]) {
        return;
    }
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
