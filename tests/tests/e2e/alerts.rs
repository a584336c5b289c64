//! Recording rules and alerts name metrics that exist, are tested, have a runbook, and agree with the page. What
//! Prometheus makes of them: `pages::rules`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the file is there")
}

const RULES: &str = "dashboards/prometheus/rules.yml";
const ALERTS: &str = "dashboards/prometheus/alerts.yml";
const RUNBOOKS: &str = "docs/runbooks";
const RULES_TESTS: &str = "dashboards/prometheus/tests/rules.yml";
const ALERTS_TESTS: &str = "dashboards/prometheus/tests/alerts.yml";
const PROMETHEUS: &str = "dashboards/prometheus/prometheus.yml";
/// A store that has failed has its alert within this many seconds.
const TOLD_WITHIN: u64 = 5;

/// Seconds of the first `key` in a text of YAML.
fn seconds(text: &str, key: &str) -> u64 {
    let (_, value) = text.split_once(key).expect(key);
    let (value, _) = value.trim_start().split_once('s').expect("seconds");
    value.parse().expect("a whole number of seconds")
}

#[test]
fn a_failed_store_has_its_alert_within_five_seconds() {
    let (prometheus, rules) = (text(PROMETHEUS), text(ALERTS));
    let (_, job) = prometheus
        .split_once("job_name: lumpscope\n")
        .expect("the job of the service");
    let (_, group) = rules
        .split_once("name: lumpscope-store-states\n")
        .expect("the group of the states");
    let (group, _) = group.split_once("  - name: ").expect("other groups");
    assert!(group.contains("alert: LumpscopeStoreFailed") && !group.contains("for: "));
    // The metric changes right after a scrape, and the next one ends right after a look.
    let scrape = seconds(job, "scrape_interval:") + seconds(job, "scrape_timeout:");
    assert!(scrape + seconds(group, "interval:") <= TOLD_WITHIN);
}

/// Names of this service's metrics in a text, as a query writes them, and of what the rules record (with colons).
fn metrics(text: &str) -> BTreeSet<&str> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !part_of_name(c))
        .map(|word| word.trim_matches(':'))
        .filter(|word| word.starts_with("lumpscope_") || word.contains(":lumpscope_"))
        .collect()
}

/// Names of the recording rules.
fn recorded(rules: &str) -> BTreeSet<&str> {
    let names = rules.split("- record: ").skip(1);
    names
        .filter_map(|rule| rule.split_whitespace().next())
        .collect()
}

#[test]
fn every_metric_that_a_rule_names_exists() {
    let document = text("service/server/METRICS.md");
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let known: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert!(known.len() > 50, "{known:?}");
    let rules = text(RULES);
    let recorded = recorded(&rules);
    assert!(recorded.len() > 10, "{recorded:?}");
    let exists = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        let stems = parts.iter().filter_map(|part| name.strip_suffix(part));
        let mut names = stems.chain([name]);
        names.any(|name| known.contains(name) || recorded.contains(name))
    };
    for path in [RULES, ALERTS, RULES_TESTS, ALERTS_TESTS] {
        let text = text(path);
        let named = metrics(&text);
        assert!(named.len() > 10, "{path}: {named:?}");
        let missing: Vec<&&str> = named.iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "{path} names {missing:?}");
    }
}

#[test]
fn every_recording_rule_is_tested() {
    let (rules, tests) = (text(RULES), text(RULES_TESTS));
    let tested: BTreeSet<&str> = tests
        .split("expr: ")
        .skip(1)
        .flat_map(|test| metrics(test.lines().next().unwrap_or("")))
        .collect();
    let recorded = recorded(&rules);
    let missing: Vec<&&str> = recorded.difference(&tested).collect();
    assert!(missing.is_empty(), "no test of {missing:?}");
}

/// Each alert with its name.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let alerts = rules.split("- alert: ").skip(1);
    let named = alerts.map(|alert| (alert.lines().next().unwrap_or("").trim(), alert));
    let found: Vec<_> = named.collect();
    assert!(found.len() >= 10, "{found:?}");
    found
}

/// The query of an alert, as it stands in the file.
fn expression(alert: &str) -> &str {
    let (_, rest) = alert.split_once("expr: ").expect("a query");
    let ends = ["\n        for: ", "\n        labels:"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min();
    rest[..end.expect("what follows a query")].trim_start_matches(">-")
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let rules = text(ALERTS);
    let mut pages = BTreeSet::from(["README.md".to_owned()]);
    for (name, alert) in alerts(&rules) {
        let page = format!("{RUNBOOKS}/{name}.md");
        let linked = format!("runbook: {page}\n");
        assert!(alert.contains(&linked), "{name} does not lead to {page}");
        let text = text(&page);
        assert!(text.starts_with(&format!("# {name}\n")), "title of {page}");
        for part in ["What it means", "What to look at", "What to do"] {
            let found = text.split_once(&format!("\n## {part}\n"));
            let words = found.map_or(0, |(_, rest)| rest.trim_start().len());
            assert!(words > 40, "{page} does not say: {part}");
        }
        let query = one_line(expression(alert));
        let block = format!("```promql\n{query}\n```\n");
        assert!(
            text.contains(&block),
            "{page} should have the query:\n{block}"
        );
        for part in ["**Wake somebody**: ", "**Takes**: "] {
            assert!(text.contains(part), "{page} does not say: {part}");
        }
        pages.insert(format!("{name}.md"));
    }
    let files = std::fs::read_dir(root().join(RUNBOOKS)).expect("the folder is there");
    let files = files.map(|file| file.expect("it can be read").file_name());
    let found: BTreeSet<String> = files.filter_map(|name| name.into_string().ok()).collect();
    assert_eq!(found, pages, "{RUNBOOKS}");
}

/// The page evaluates some of the alerts by itself.
#[test]
fn the_page_has_the_names_and_limits_of_the_alerts() {
    let rules = text(ALERTS);
    let alerts: BTreeMap<&str, &str> = alerts(&rules).into_iter().collect();
    let page = text("service/server/src/http/page/health.rs");
    let named = page.split('"').filter(|word| word.starts_with("Lumpscope"));
    let named: BTreeSet<&str> = named.collect();
    assert!(named.len() > 5, "{named:?}");
    for name in named {
        assert!(alerts.contains_key(name), "{name} is no alert");
    }
    for (limit, name, expression) in [
        ("HANGS: u64 = 30;", "LumpscopeDiskHangs", "> 30\n"),
        (
            "JOURNAL_FULL: u64 = 80;",
            "LumpscopeJournalNearlyFull",
            "> 0.8\n",
        ),
        ("DATA_FULL: u64 = 90;", "LumpscopeDataNearlyFull", "> 0.9\n"),
    ] {
        assert!(page.contains(limit), "{limit}");
        assert!(alerts[name].contains(expression), "{name}: {expression}");
    }
}

#[test]
fn every_alert_is_tested_and_says_what_to_do() {
    let rules = text(ALERTS);
    let tests = text(ALERTS_TESTS);
    for (name, alert) in alerts(&rules) {
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
