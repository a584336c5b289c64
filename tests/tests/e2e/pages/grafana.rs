//! The Grafana dashboards: made from their source, of the types that Grafana publishes, asking only for what exists.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lumpscope_tests::needs::{Need, available, find_tool};

fn folder() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent().expect("tests/ lies in the workspace");
    root.join("dashboards/grafana")
}

/// `dashboards/grafana/run check` in a folder that may be a copy.
fn check(folder: &Path) -> Output {
    let tsc = find_tool("grafana-tsc").expect("it was found before");
    let tools = tsc.parent().and_then(Path::parent).expect("TOOLS/bin/tsc");
    let mut check = Command::new("bash");
    check.arg(folder.join("run")).arg("check");
    let output = check.arg(tools.join("grafana")).output();
    output.expect("bash starts")
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn needs() -> bool {
    available(&[Need::Tool("node"), Need::Tool("grafana-tsc")])
}

#[test]
fn the_dashboards_are_what_their_source_makes_and_ask_for_what_exists() {
    if !needs() {
        return;
    }
    let output = check(&folder());
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("fit the types of Grafana"), "{said}");
}

/// Findings of the check for a changed copy of its input: (file, text, other text). It must find
/// something.
fn with(changes: &[(&str, &str, &str)]) -> String {
    let copy = tempfile::tempdir().expect("there is room");
    let root = folder();
    let root = root.ancestors().nth(2).expect("the workspace");
    for path in ["dashboards", METRICS, "docker-compose.yml"] {
        let target = copy.path().join(path);
        std::fs::create_dir_all(target.parent().expect("a folder")).expect("it can be made");
        let copied = [Path::new("-r"), &root.join(path), &target];
        let copied = Command::new("cp").args(copied).status();
        assert!(copied.expect("cp starts").success());
    }
    for (file, from, to) in changes {
        let path = copy.path().join(file);
        let text = std::fs::read_to_string(&path).expect("the file is there");
        assert!(text.contains(from), "{file} has no {from}");
        std::fs::write(&path, text.replacen(from, to, 1)).expect("it can be written");
    }
    let output = check(&copy.path().join("dashboards/grafana"));
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    said
}

#[test]
fn what_no_longer_fits_is_found() {
    if !needs() {
        return;
    }
    let made = "dashboards/grafana/dashboards/lumpscope-seek.json";
    let said = with(&[
        (made, "Sequential share", "Random share"),
        (METRICS, "`lumpscope_watches`", "`lumpscope_lookers`"),
        (METRICS, "`owner`, `moved_by`", "`owner`"),
    ]);
    for part in [
        "lumpscope-seek.json: not what the source makes; run ./dev dashboards",
        "there is no series lumpscope_watches",
        "lumpscope_lookers is in no dashboard",
        "nothing here has the label moved_by",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_option_that_grafana_does_not_know_does_not_compile() {
    if !needs() {
        return;
    }
    let said = with(&[(BUILD, "'auto_min', 'footer'", "'auto_min'")]);
    assert!(said.contains("footer"), "{said}");
}

const METRICS: &str = "service/server/METRICS.md";
const BUILD: &str = "dashboards/grafana/src/build.ts";
const PANELS: &str = "dashboards/grafana/src/panels.ts";
const OVERVIEW: &str = "dashboards/grafana/src/overview.ts";
const SEEK: &str = "dashboards/grafana/src/seek.ts";
const ENGINE: &str = "dashboards/grafana/src/engine.ts";

/// Faults that only Grafana would show: file, text, other text, and what is found then.
const FAULTS: [(&str, &str, &str, &str); 15] = [
    (
        BUILD,
        ".titleFormat('{{alertname}}')",
        ".titleFormat('Alert')",
        "a mark of Alerts does not name its alert and its runbook",
    ),
    (
        PANELS,
        ".xTickLabelMaxLength(40)",
        "",
        "labels below the bars end after",
    ),
    (PANELS, "color: 'blue', ", "", "red from 80 of the unit on"),
    (
        PANELS,
        "if (words.native) panel",
        "if (!words.native) panel",
        "the zero bucket of a native histogram empties the panel",
    ),
    (
        PANELS,
        ".scheme('YlOrRd')",
        ".scheme('Turbo')",
        "the palette Turbo is not turned round",
    ),
    (
        OVERVIEW,
        "      names: true,\n",
        "",
        "Version: shows how many there are, not which",
    ),
    (
        OVERVIEW,
        "worst('instance, store')",
        "worst('store')",
        "stores of one name are one series",
    ),
    (
        OVERVIEW,
        "legend: '{{instance}} {{store}}'",
        "legend: '{{store}}'",
        "stores of one name have one legend",
    ),
    (
        OVERVIEW,
        "[null, 'green'], [1, 'red']",
        "[null, 'green'], [1, 'red'], [0, 'red']",
        "thresholds do not rise",
    ),
    (
        SEEK,
        "legend: name,",
        "legend: name && '{{store}}',",
        "two queries have one legend",
    ),
    (
        SEEK,
        "`sum by (le) (${ofDisks(rate('lumpscope_block_signed",
        "`sum by (le, operation) (${ofDisks(rate('lumpscope_block_signed",
        "Time and signed seek distance: rows are not the buckets",
    ),
    (
        SEEK,
        "'16GiB..inf'];",
        "];",
        "no table has a line for seek=16GiB..inf",
    ),
    (
        ENGINE,
        "'Past their deadline'",
        "'Requests that were past their deadline'",
        "the title is cut on a laptop",
    ),
    (
        ENGINE,
        "said('never', 0)",
        "said('never', 1)",
        "a time of 0 is shown as decades ago",
    ),
    (ENGINE, "      w: 16,", "      w: 12,", "holes in the grid"),
];

#[test]
fn what_grafana_would_show_otherwise_is_found() {
    if !needs() {
        return;
    }
    let said = with(&FAULTS.map(|(file, from, to, _)| (file, from, to)));
    for (.., found) in FAULTS {
        assert!(said.contains(found), "{found}: {said}");
    }
}

#[test]
fn rows_that_are_not_buckets_and_runbooks_that_are_nowhere_are_found() {
    if !needs() {
        return;
    }
    let format = "format: prometheus.PromQueryFormat.Heatmap }));";
    let compose = "docker-compose.yml";
    let said = with(&[
        (PANELS, format, "}));"),
        (compose, "- ./docs/runbooks:", "- ./docs/books:"),
    ]);
    for found in [
        "in the order of parseFloat of their names",
        "puts no runbooks at",
    ] {
        assert!(said.contains(found), "{found}: {said}");
    }
}
