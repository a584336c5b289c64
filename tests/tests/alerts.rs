//! The alerts: rules that Prometheus accepts, that come when they should, and that name metrics which exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use lumpscope_tests::needs::{Need, available, find_tool};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the file is there")
}

fn promtool(args: &[&str]) -> String {
    let program = find_tool("promtool").expect("it was found before");
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .expect("promtool starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
    said
}

#[test]
fn prometheus_accepts_the_rules_and_they_do_what_their_tests_say() {
    if !available(&[Need::Tool("promtool")]) {
        return;
    }
    promtool(&["check", "rules", "dashboards/prometheus/alerts.yml"]);
    let said = promtool(&["test", "rules", "dashboards/prometheus/tests/alerts.yml"]);
    assert!(said.contains("SUCCESS"), "{said}");
}

/// Names of this service's metrics in a text, as a query writes them.
fn metrics(text: &str) -> BTreeSet<&str> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !part_of_name(c))
        .filter(|word| word.starts_with("lumpscope_"))
        .collect()
}

#[test]
fn every_metric_that_an_alert_names_exists() {
    let document = text("service/server/METRICS.md");
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let known: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert!(known.len() > 50, "{known:?}");
    let exists = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        let stems = parts.iter().filter_map(|part| name.strip_suffix(part));
        known.contains(name) || stems.into_iter().any(|stem| known.contains(stem))
    };
    for path in [
        "dashboards/prometheus/alerts.yml",
        "dashboards/prometheus/tests/alerts.yml",
    ] {
        let text = text(path);
        let named = metrics(&text);
        assert!(named.len() > 10, "{path}: {named:?}");
        let missing: Vec<&&str> = named.iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "{path} names {missing:?}");
    }
}

#[test]
fn every_alert_is_tested_and_says_what_to_do() {
    let rules = text("dashboards/prometheus/alerts.yml");
    let tests = text("dashboards/prometheus/tests/alerts.yml");
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 10);
    for alert in alerts {
        let name = alert.lines().next().unwrap_or("").trim();
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        let fires = format!("alertname: {name}\n        exp_alerts:");
        assert!(tests.contains(&fires), "no test in which {name} comes");
        let silent = format!("alertname: {name} }}");
        assert!(
            tests.contains(&silent),
            "no test in which {name} does not come"
        );
    }
}
