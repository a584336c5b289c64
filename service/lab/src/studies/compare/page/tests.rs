use lumpscope_proto::v1::HeatCell;

use super::page;
use crate::experiment::report::{Curve, Dots};
use crate::studies::compare::text::tests::comparison;
use crate::studies::compare::watch::Seen;

#[test]
fn a_comparison_becomes_a_page() {
    let mut comparison = comparison();
    for store in &mut comparison.stores {
        store.model_note = "some are missing: the last one".to_owned();
        store.for_report.curves = vec![Curve::of("Get(1048576)", 1_000_000..1_000_100)];
        store.for_report.seen = Some(Seen {
            groups: vec![Dots {
                name: "request, write".to_owned(),
                points: vec![(0.0, 0.0), (1e9, 1e9)],
            }],
            missing: "the last one".to_owned(),
            ..Seen::default()
        });
    }
    let page = page(&comparison);
    let found = |list: &[String], text: &str| list.iter().any(|line| line.contains(text));
    assert!(found(
        &page.findings.agrees,
        "ext4, blocks of 512: 1.13 times raw on the modelled drive, published 1.13"
    ));
    assert_eq!(page.summary, ["It follows."]);
    assert!(page.findings.undecided.is_empty());
    let html = page.html().unwrap();
    for text in [
        "Ratio to raw",
        "How long Get(1048576) took",
        "some are missing: the last one",
    ] {
        assert!(html.contains(text), "{text}");
    }
    for chart in ["ranges", "cdf", "bars", "heat", "scatter"] {
        assert!(html.contains(&format!("\"part\":\"{chart}\"")), "{chart}");
    }
}

#[test]
fn a_ratio_of_several_clients_decides_nothing_in_one_run() {
    let mut comparison = comparison();
    comparison.clients = 4;
    let findings = page(&comparison).findings;
    assert!(
        findings
            .agrees
            .iter()
            .all(|line| !line.contains("published"))
    );
    let open = |line: &String| line.contains("1.13 times raw") && line.contains("(one run, and");
    assert!(findings.undecided.iter().any(open), "{findings:?}");
}

#[test]
fn a_store_without_results_is_told() {
    let mut comparison = comparison();
    comparison.stores[1].client = None;
    comparison.stores[1].disk = None;
    comparison.stores[1].failed = "it <broke>".to_owned();
    comparison.stores[2].model_note = "no probes".to_owned();
    comparison.set_ratios();
    let page = page(&comparison);
    assert!(
        page.findings
            .differs
            .contains(&"ext4, blocks of 512 failed: it <broke>".to_owned())
    );
    let html = page.html().unwrap();
    assert!(html.contains("it \\u003cbroke>") && html.contains("xfs, blocks of 512: no probes"));
}

#[test]
fn cells_of_one_place_are_one() {
    let mut comparison = comparison();
    let disk = comparison.stores[0].disk.as_mut().expect("it has one");
    let cell = HeatCell {
        operation: "write".to_owned(),
        seek_from_bytes: -2048,
        seek_to_bytes: -1024,
        device_from_ns: 1000,
        device_to_ns: 2000,
        count: 3,
        ..HeatCell::default()
    };
    let mut flush = cell.clone();
    flush.operation = "flush".to_owned();
    disk.heat = vec![cell.clone(), cell, flush];
    let panel = super::heat("raw", disk);
    assert_eq!(
        (panel.cells.len(), panel.cells[0].count, panel.left_out),
        (1, 6, 3)
    );
    assert!(panel.cells[0].x.0 < panel.cells[0].x.1 && panel.cells[0].x.0 < 0.0);
}
