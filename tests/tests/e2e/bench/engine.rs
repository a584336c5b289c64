//! `lumpscope bench engine` end to end, with the real fio and the real original engine, in tiny
//! runs: what is checked is that everything is measured and said, never how fast it was.

use std::path::Path;
use std::process::{Command, Output};

use lumpscope_tests::needs::{Need, available};
use lumpscope_tests::service::binary;
use serde_json::Value;

use super::{PEER, peer};

fn bench(args: &[&str], path: Option<&Path>) -> Output {
    let mut command = Command::new(binary());
    command.args(["bench", "engine", "--seconds", "0.02", "--capacity", "64M"]);
    command.args(["--count", "20", "--rounds", "2"]).args(args);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("lumpscope starts")
}

/// Runs it to its successful end; what it printed, and its JSON.
fn report(args: &[&str], path: Option<&Path>) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a directory can be made");
    let json = folder.path().join("report.json");
    let file = format!("--output={}", json.display());
    let mut all = vec![file.as_str()];
    all.extend(args);
    let output = bench(&all, path);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let text = std::fs::read_to_string(&json).expect("the report was written");
    let report = serde_json::from_str(&text).expect("it is JSON");
    (String::from_utf8_lossy(&output.stdout).into_owned(), report)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn everything_is_measured_and_said() {
    if !available(&[PEER, Need::Tool("fio")]) {
        return;
    }
    let (text, report) = report(&["--cannyls-peer", &peer()], None);
    assert_eq!(list(&report, "failures").len(), 0, "{}", report["failures"]);
    let figures = list(&report, "figures");
    assert!(figures.len() > 3 * 70, "{} figures", figures.len());
    for figure in figures {
        assert_eq!(list(figure, "runs").len(), 2, "{figure}");
        let number = |key: &str| {
            let value = figure[key].as_f64();
            value.unwrap_or_else(|| panic!("no {key}: {figure}"))
        };
        assert!(number("min") > 0.0, "{figure}");
        assert!(number("min") <= number("median"), "{figure}");
        assert!(number("median") <= number("max"), "{figure}");
        // Two rounds decide nothing.
        assert!(figure["met"].is_null(), "{figure}");
        let name = figure["name"].as_str().expect("figures have names");
        assert!(text.contains(name), "the table lacks {name}");
    }
    for run in list(&report, "runs") {
        let outcome = &run["outcome"];
        let requests = |key: &str| outcome[key]["requests"].as_u64().unwrap_or(0);
        assert!(requests("put") + requests("get") > 0, "{run}");
        if run["run"]
            .as_str()
            .is_some_and(|run| run.starts_with("cannyls"))
        {
            assert!(outcome["durability"].is_string(), "{run}");
        }
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    for note in list(&report, "notes") {
        assert!(text.contains(note.as_str().expect("notes are text")));
    }
}

#[test]
fn a_peer_that_is_not_there_is_said_to_be_missing() {
    let nothing = tempfile::tempdir().expect("a directory can be made");
    let peer = nothing.path().join("no-such-peer");
    let peer = peer.to_str().expect("the path is UTF-8");
    let args = [
        "--cannyls-peer",
        peer,
        "--only",
        "1 MiB, depth 8: put synced",
    ];
    let (text, report) = report(&args, Some(nothing.path()));
    for name in ["fio", "cannyls"] {
        let facts = list(&report, "facts").iter();
        let mut facts = facts.filter(|fact| fact["name"] == name);
        let value = facts.next().and_then(|fact| fact["value"].as_str());
        assert!(
            value.is_some_and(|value| value.contains("MISSING")),
            "{report}"
        );
        assert!(text.contains(&format!("{name}: MISSING")), "{text}");
    }
    let figures = list(&report, "figures");
    assert!(!figures.is_empty());
    for figure in figures {
        let ours = figure["column"] == "ours";
        assert_eq!(figure["median"].is_number(), ours, "{figure}");
        assert!(figure["met"].is_null(), "a goal without a peer: {figure}");
    }
}

#[test]
fn a_peer_that_fails_is_left_out_and_named() {
    let args = ["--cannyls-peer", "/bin/false", "--only", "/ cannyls"];
    let (text, report) = report(&args, None);
    let failures = list(&report, "failures");
    assert!(!failures.is_empty());
    assert!(text.contains("FAILED, left out"), "{text}");
    let figures = list(&report, "figures").iter();
    for figure in figures.filter(|figure| figure["column"] == "ratio") {
        assert!(figure["median"].is_null(), "{figure}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (
            &["--only", "no such figure"][..],
            "fits none of the figures",
        ),
        (&["--rounds", "0"], "--rounds must be"),
        (&["--seconds", "nan"], "--seconds must be"),
        (&["--dir", "/no/such/folder"], "/no/such/folder"),
        (&["--device", "/etc/hostname"], "a block device"),
    ] {
        let output = Command::new(binary())
            .args(["bench", "engine"])
            .args(args)
            .output()
            .expect("lumpscope starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(complaint.contains(expected), "{args:?}: {complaint}");
    }
}
