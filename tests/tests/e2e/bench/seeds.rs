//! `lumpscope bench seeds` end to end on real file systems, in tiny runs: which requests the kernel
//! makes, and that everything is said. Never how long anything took.

use std::path::Path;
use std::process::Command;

use lumpscope_tests::needs::{Need, ROOT, alone};
use lumpscope_tests::service::{binary, words};
use serde_json::Value;

use super::{PEER, peer};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("mkfs.xfs")];
/// Writes of a tiny run: enough for a first, a last, and some between.
const WRITES: i64 = 8;
/// Every report has such a picture of its figures.
const CHART: &str = "\"part\":\"ranges\"";

/// Runs it to its successful end; what it printed, its JSON, and its page.
fn seeds(args: &[&str]) -> (String, Value, String) {
    let folder = tempfile::tempdir().expect("a directory can be made");
    let (json, page) = (folder.path().join("it.json"), folder.path().join("it.html"));
    let output = Command::new(binary())
        .args(["bench", "seeds"])
        .args(args)
        .arg(format!("--output={}", json.display()))
        .arg("--html")
        .arg(&page)
        .output()
        .expect("lumpscope starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let read = |path: &Path| std::fs::read_to_string(path).expect("it was written");
    let report = serde_json::from_str(&read(&json)).expect("it is JSON");
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        report,
        read(&page),
    )
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no {key}"))
}

fn number(value: &Value) -> i64 {
    value
        .as_i64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// `N - 1`, or `N to 2 N`, of a table of docs/xfs-offset.md, for so many writes: from and to.
fn formula(text: &str, writes: i64) -> (i64, i64) {
    let term = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let value = |word: &str| match word {
            "N" => writes,
            digits => digits.parse().unwrap_or_else(|_| panic!("{text}: {word}")),
        };
        match words[..] {
            [one] => value(one),
            [factor, "N"] => value(factor) * writes,
            [one, "+", other] => value(one) + value(other),
            [one, "-", other] => value(one) - value(other),
            _ => panic!("{text} is no formula"),
        }
    };
    match text.split_once(" to ") {
        Some((from, to)) => (term(from), term(to)),
        None => (term(text), term(text)),
    }
}

/// Value of a run for a row of the tables.
fn counted(row: &str, trial: &Value) -> i64 {
    let counts = &trial["counted"];
    number(match row {
        "of less than 8 sectors" => &counts["small"],
        "begin 1 to 8 sectors before the end of the write before" => &counts["overlaps"],
        "sectors beyond the payload" => &trial["padding"],
        "reads" => &counts["own_reads"]["requests"],
        "flushes" => &counts["flushes"],
        _ => panic!("{row}: no such row"),
    })
}

#[test]
fn the_kernel_makes_the_requests_that_the_document_says() {
    let Some(_alone) = alone(NEEDS) else { return };
    let count = WRITES.to_string();
    let (text, report, page) = seeds(&["diskbenchi", "--count", &count, "--rounds", "1"]);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/xfs-offset.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let mut rows = 0;
    for kind in ["xfs", "ext4"] {
        let head = format!("| requests of the program, {kind} |");
        let table = document.split(&head).nth(1).expect("a table of each");
        for line in table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
        {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            for (offset, cell) in [(0, cells[2]), (3584, cells[3])] {
                let mut trials = list(&report, "trials").iter();
                let trial = trials.find(|trial| trial["kind"] == kind && trial["offset"] == offset);
                let trial = trial.expect("each was run");
                assert_eq!(trial["trust"]["missing"], 0, "{trial}");
                let found = counted(cells[1], trial);
                let (from, to) = formula(cell, WRITES);
                assert!(
                    (from..=to).contains(&found),
                    "{kind} from {offset}: {found}; {line}"
                );
                rows += 1;
            }
        }
    }
    assert_eq!(rows, 2 * 2 * 5);
    for words in ["published, xfs", "overlap rule", "HYPOTHESIS"] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    assert!(page.contains(CHART) && page.contains("3584"));
}

#[test]
fn lumps_of_whole_sectors_overlap_on_file_systems_only() {
    let Some(_alone) = alone(&[NEEDS, &[PEER]].concat()) else {
        return;
    };
    let (text, report, page) = seeds(&[
        "cannyls",
        "--scale",
        "0.0004",
        "--rounds",
        "1",
        "--workload",
        "seq1,rand2",
        "--engine",
        "original",
        "--cannyls-peer",
        &peer(),
    ]);
    let runs = list(&report, "runs");
    assert_eq!(runs.len(), 2 * 2 * 3);
    for run in runs {
        assert_eq!(run["trust"]["missing"], 0, "{run}");
        let overlaps = number(&run["counted"]["overlaps"]);
        let puts = number(&run["puts"]);
        match (run["kind"].as_str(), number(&run["block_size"])) {
            (Some("raw"), _) => assert_eq!(overlaps, 0, "{run}"),
            // A put of 513 sectors ends in a whole block once in eight.
            (_, 512) => assert!(overlaps > puts / 2, "{run}"),
            // One write when the store is made on xfs; no put.
            (_, _) => assert!(overlaps <= 1, "{run}"),
        }
        for seconds in list(run, "predicted_seconds") {
            assert!(
                seconds.as_f64().is_some_and(|seconds| seconds > 0.0),
                "{run}"
            );
        }
    }
    for words in ["10,000 iterations", "HYPOTHESIS", "published, s"] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    assert!(page.contains(CHART));
}

#[test]
fn the_published_program_writes_and_says_nothing_else() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a directory can be made");
    let file = folder.path().join("file");
    let run = |more: &[&str]| {
        Command::new(binary())
            .args("bench seeds diskbenchi --size 8192 --count 2 --of".split(' '))
            .arg(&file)
            .args(more)
            .output()
            .expect("lumpscope starts")
    };
    let output = run(&["--offset", "4096"]);
    assert!(output.status.success());
    let length = std::fs::metadata(&file).expect("it is there").len();
    assert_eq!(length, 4096 + 2 * 8192);
    let refused = run(&["--offset", "7"]);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{complaint}");
    assert!(complaint.contains("--offset"), "{complaint}");
}

#[test]
fn the_file_server_s_table_has_ours_beside_the_published_one() {
    let Some(_alone) = alone(ROOT) else { return };
    let args = "fileserver --rounds 1 --seconds 0.3 --files 100";
    let (text, report, page) = seeds(&words(args));
    // Without probes, with them, and without once more: none was dropped.
    assert_eq!(list(&report, "runs").len(), 3);
    let costs = |column: &str| {
        let figures = list(&report, "figures").iter();
        let measured = |figure: &&Value| figure["column"] == column && figure["median"].is_f64();
        figures.filter(measured).count()
    };
    // The three sums, and seven of the ten operations.
    assert_eq!((costs("cost"), costs("A/A")), (10, 10));
    for words in ["37596", "5.0 %", "A/A", "appendfilerand", "within each put"] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    assert!(page.contains(CHART));
}
