//! Reports in a real browser: one with each kind of part, and that of a real comparison.

use std::path::Path;
use std::process::Command;

use lumpscope_lab::report::{
    Axis, Bar, Bars, Cdf, Cell, Curve, Dots, Findings, Heat, HeatCell, HeatPanel, Limit, MARK,
    Picture, Report, Scatter, ScatterPanel, Section, Table, Unit, Verbatim,
};
use lumpscope_tests::browser::{BROWSER, Scenario};
use lumpscope_tests::needs::{Need, alone, available};
use lumpscope_tests::service::binary;

/// Markup that would run if it were not escaped.
const HOSTILE: &str = "/dev/<script>hacked=1</script><img src=x onerror='hacked=1'>\"&";

/// Numbers that look like chance and are the same in every run.
fn chance(index: u32, below: u32) -> f64 {
    f64::from(index.wrapping_mul(2_654_435_761) % below)
}

fn page() -> Report {
    let mut page = Report::new("A report with one part of each kind");
    page.fact("Disk", HOSTILE.repeat(3));
    page.summary
        .push(format!("Nothing was measured on {HOSTILE}."));
    page.findings = Findings {
        differs: vec!["Another.".to_owned()],
        hypotheses: vec!["A third.".to_owned()],
    };
    page.note(&["A note."]);
    tables(page.section("Tables"));
    let section = page.section("Charts");
    curves(section);
    charts(section);
    panels(page.section("Side by side"));
    page
}

fn tables(section: &mut Section) {
    let mut table = Table::new("Ours beside a peer's.", &["ours", "the peer's", "ratio"]);
    table.picture = Some(Picture {
        columns: vec![2],
        reference: (1.0, "both are the same"),
    });
    table.group("A heading");
    for index in 0..40 {
        let ratio = 1.0 + chance(index, 50) / 100.0;
        table.row(
            format!("1 MiB, depth {index}: put journaled / cannyls buffered {HOSTILE}"),
            vec![
                Cell::value(Some(chance(index, 1 << 30)), Unit::BytesPerSecond),
                Cell::Nothing,
                Cell::runs(Unit::Ratio, [0.9, ratio, 1.8]).within(Limit::AtLeast(1.3)),
            ],
        );
    }
    section.add(table);
    section.add(Verbatim {
        caption: "As printed".to_owned(),
        text: "kind = Put(1048576), count = 25000, 50% = 3.062402ms, ".repeat(6),
    });
    section.add(Table::new("Nothing.", &["a"]));
}

fn curves(section: &mut Section) {
    let curve =
        |name: &str, from: u64| Curve::of(name, (0..20_000).map(|index| from + index * index));
    section.add(Cdf {
        caption: "Latencies.".to_owned(),
        x: Axis::log("Latency", Unit::Nanoseconds),
        curves: vec![
            curve("raw", 3_000_000),
            curve("ext4", 4_000_000),
            curve(HOSTILE, 5_000_000),
        ],
    });
    section.add(Cdf {
        caption: "Latencies, too few of one.".to_owned(),
        x: Axis::log("Latency", Unit::Nanoseconds),
        curves: vec![
            curve("raw", 3_000_000),
            Curve::of(HOSTILE, [10_000_000, 200_000_000]),
        ],
    });
    // The word of the first tick is written beside that of the vertical axis.
    section.add(Cdf {
        caption: "Latencies that begin at a tick.".to_owned(),
        x: Axis::log("Latency", Unit::Nanoseconds),
        curves: vec![Curve::of("raw", (1..=20).map(|index| index * 10_000_000))],
    });
}

fn charts(section: &mut Section) {
    section.add(Bars {
        caption: "Stages.".to_owned(),
        title: "Time of one get".to_owned(),
        unit: Unit::Nanoseconds,
        parts: (1..=8).map(|part| format!("stage {part}")).collect(),
        bars: ["raw", "ext4", "xfs"]
            .map(|name| Bar {
                name: name.to_owned(),
                values: (1..=8).map(|part| f64::from(part) * 1e5).collect(),
            })
            .to_vec(),
    });
}

fn panels(section: &mut Section) {
    let names = ["raw", "ext4", HOSTILE];
    let cells = |index: u32| {
        let power = f64::from(index % 20).exp2() * 1024.0;
        let took = (f64::from(index % 7) / 2.0).exp2() * 1e6;
        let x = if index.is_multiple_of(2) {
            (power, power * 2.0)
        } else {
            (-power * 2.0, -power)
        };
        HeatCell {
            x,
            y: (took, took * 1.41),
            count: u64::from(index * index),
        }
    };
    section.add(Heat {
        caption: "Seeks.".to_owned(),
        x: Axis::linear("Seek distance", Unit::Bytes),
        y: Axis::linear("Time in the device", Unit::Nanoseconds),
        counted: "requests".to_owned(),
        panels: names
            .map(|name| HeatPanel {
                name: name.to_owned(),
                cells: (1..140).map(cells).collect(),
                left_out: 3,
            })
            .to_vec(),
    });
    let dots = |kind: u32| {
        let point = |index: u32| {
            let place = chance(index * 7 + kind, 1 << 30) * 8.0;
            (chance(index, 1000) * 1e7, place)
        };
        Dots::of(format!("kind {kind}"), (0..2000).map(point).collect())
    };
    section.add(Scatter {
        caption: "Requests.".to_owned(),
        x: Axis::linear("Time", Unit::Nanoseconds),
        y: Axis::linear("First byte on the disk", Unit::Bytes),
        counted: "requests".to_owned(),
        panels: names
            .map(|name| ScatterPanel {
                name: name.to_owned(),
                groups: (1..=8).map(dots).collect(),
            })
            .to_vec(),
    });
}

#[test]
fn a_report_is_drawn_fits_and_prints() {
    if !available(BROWSER) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("report.html");
    page().write(&path).expect("it can be written");
    look_at(&path);
}

fn look_at(path: &Path) {
    let url = format!("file://{}", path.display());
    Scenario::start("report", &[("LUMPSCOPE_URL", &url)]).end();
}

#[test]
fn a_comparison_writes_a_report() {
    let needs = [Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("mkfs.xfs")];
    let Some(_alone) = alone(&needs) else { return };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("report.html");
    let output = Command::new(binary())
        .args(["compare", "--scale", "0.002", "--depth", "4", "--html"])
        .arg(&path)
        .output()
        .expect("lumpscope starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let html = std::fs::read_to_string(&path).expect("it was written");
    assert!(html.starts_with(MARK));
    for chart in ["cdf", "bars", "heat", "scatter"] {
        assert!(html.contains(&format!("\"part\":\"{chart}\"")), "{chart}");
    }
    for text in [
        "Where the time of a get went",
        "request, write",
        "Get(1048576)",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(html.len() < 4 << 20, "{} bytes", html.len());
    if available(BROWSER) {
        look_at(&path);
    }
}

#[test]
fn a_file_that_is_no_report_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("mine.html");
    std::fs::write(&path, "mine").expect("it can be written");
    for arguments in [
        &["compare", "--html"][..],
        &["bench", "engine", "--html"],
        &["bench", "grpc", "--html"],
        &["bench", "observe", "--html"],
    ] {
        let mut command = Command::new(binary());
        let output = command.args(arguments).arg(&path).output();
        let output = output.expect("lumpscope starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("is no report of lumpscope"), "{said}");
    }
    assert_eq!(std::fs::read(&path).expect("it is there"), b"mine");
}
