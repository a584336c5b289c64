//! The report of a fixed comparison: its important cells, its width, and what is missing is said.

use lumpscope_proto::v1::{
    AuditReport, BlockReport, HeatCell, OperationReport, OwnerTotal, SlowRequest, StageTime,
    StoreReport,
};

use super::super::modelled::{ModelledView, OwnerView};
use super::super::report::*;
use super::*;
use crate::disks::StoreKind;
use crate::experiment::report::{Curve, Dots};
use crate::experiment::text;
use crate::stats::Summary;
use crate::studies::compare::watch::DiskObservations;

fn latency(kind: &str, base_us: u64) -> Summary {
    Summary {
        kind: kind.to_owned(),
        count: 40,
        p50_ns: base_us * 1_000,
        p90_ns: base_us * 2_000,
        p95_ns: base_us * 3_000,
        p99_ns: base_us * 4_000,
        total_ns: base_us * 40_000,
    }
}

fn disk() -> StoreReport {
    let stage = |stage: &str, total_ns| StageTime {
        stage: stage.to_owned(),
        total_ns,
    };
    let owner = |owner: &str, requests, bytes| OwnerTotal {
        owner: owner.to_owned(),
        operation: "write".to_owned(),
        requests,
        bytes,
    };
    let heat = HeatCell {
        owner: "request".to_owned(),
        operation: "write".to_owned(),
        seek_from_bytes: 1 << 20,
        seek_to_bytes: 1 << 21,
        device_from_ns: 1 << 22,
        device_to_ns: 1 << 23,
        count: 12,
    };
    StoreReport {
        device: "loop7".to_owned(),
        observed: true,
        operations: vec![OperationReport {
            method: "put".to_owned(),
            count: 40,
            total_ns: 40_000_000,
            stages: vec![stage("recv", 10_000_000), stage("device", 30_000_000)],
            block_requests: 100,
            ..OperationReport::default()
        }],
        block: Some(BlockReport {
            owners: vec![
                owner("request", 100, 1 << 20),
                owner("fs-metadata", 3, 12_288),
            ],
            data_requests: 103,
            sequential: 50,
            seek_median_bytes: 4096,
            seek_p99_bytes: 3 << 30,
            own_bytes: 1000,
            attributed_bytes: 900,
            shared_bytes: 95,
            unattributed_bytes: 5,
            ..BlockReport::default()
        }),
        audit: Some(AuditReport {
            seen_requests: 103,
            kernel_requests: 103,
            complete: true,
            ..AuditReport::default()
        }),
        heat: vec![heat],
        slowest: vec![SlowRequest {
            sentence: "put of 1 MiB took 16 ms: ".to_owned() + &"the head moved ".repeat(9),
            ..SlowRequest::default()
        }],
        ..StoreReport::default()
    }
}

fn modelled(elapsed_ms: u64) -> ModelledView {
    let owner = |owner, requests, seeks| OwnerView {
        owner,
        requests,
        bytes: requests << 20,
        seeks,
        seek_ns: seeks * 4_000_000,
    };
    ModelledView {
        model: "a-drive".to_owned(),
        elapsed_ns: elapsed_ms * 10_000_000,
        ratio_to_raw: None,
        kinds: vec![latency("Put(1048576)", 23_000)],
        owners: vec![owner("request", 100, 70), owner("fs-metadata", 3, 2)],
        lost_to_fs_journal_ns: -3_000_000,
        lost_to_fs_metadata_ns: 25_000_000,
        added: 0,
    }
}

fn store(kind: StoreKind, block_size: u16, elapsed_ms: u64) -> StoreView {
    StoreView {
        kind,
        block_size,
        modelled: vec![modelled(elapsed_ms)],
        model_note: String::new(),
        path: "/dev/loop7".into(),
        client: ClientView {
            elapsed_ns: elapsed_ms * 1_000_000,
            wall_ns: elapsed_ms * 1_100_000,
            ratio_to_raw: None,
            bytes: 80 << 20,
            mib_per_second: 123.45,
            kinds: vec![
                latency("Put(1048576)", 3_062),
                latency("Get(1048576)", 12_467),
            ],
            overall: Some(Summary {
                count: 1080,
                ..latency("Overall", 4_000)
            }),
            published: vec!["kind = Put(1048576), count = 40, 50% = 3.062ms".to_owned()],
        },
        disk: Some(disk()),
        tracer: None,
        for_report: ForReport::default(),
    }
}

pub(in crate::studies::compare) fn comparison() -> Comparison {
    let mut comparison = Comparison {
        workload: WorkloadView {
            name: "rand1".to_owned(),
            scale: "0.05".to_owned(),
            commands: 1080,
            bytes_put: 40 << 20,
            peak_bytes: 40 << 20,
            published_ratios: Some([1.0, 1.13, 1.17]),
        },
        clients: 1,
        emulated: Vec::new(),
        disks: "lab".to_owned(),
        ext4_journal: Some(false),
        models: vec![ModelView {
            name: "a-drive".to_owned(),
            title: "a drive".to_owned(),
            rpm: 7200,
        }],
        stores: vec![
            store(StoreKind::Raw, 512, 1000),
            store(StoreKind::Ext4, 512, 1130),
            store(StoreKind::Xfs, 512, 1170),
            store(StoreKind::Raw, 4096, 1000),
            store(StoreKind::Ext4, 4096, 1000),
            store(StoreKind::Xfs, 4096, 1000),
        ],
    };
    comparison.set_ratios();
    comparison
}

fn render(comparison: &Comparison) -> String {
    text::report(&report(comparison, false), false)
}

/// The cells of the first line that begins with this name after this heading.
fn cells(text: &str, heading: &str, name: &str) -> String {
    let after = text
        .split_once(heading)
        .unwrap_or_else(|| panic!("no {heading} in\n{text}"))
        .1;
    let line = after
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} after {heading} in\n{text}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_important_cells() {
    let text = render(&comparison());
    let six = |cell: &str| [cell; 6].join(" ");
    let wanted = [
        ("Disk time", "", "raw ext4 xfs raw ext4 xfs".to_owned()),
        (
            "Disk time",
            "blocks of",
            "512 512 512 4096 4096 4096".to_owned(),
        ),
        (
            "a-drive, 7200 rpm",
            "elapsed",
            "10.0 s 11.3 s 11.7 s 10.0 s 10.0 s 10.0 s".to_owned(),
        ),
        (
            "a-drive, 7200 rpm",
            "ratio to raw",
            "1.00 1.13 1.17 1.00 1.00 1.00".to_owned(),
        ),
        (
            "a-drive, 7200 rpm",
            "as published, of 512",
            "1.00 1.13 1.17 – – –".to_owned(),
        ),
        ("a-drive, 7200 rpm", "Put(1048576), 50%", six("23.0 ms")),
        ("a-drive, 7200 rpm", "Put(1048576), 99%", six("92.0 ms")),
        ("a-drive, 7200 rpm", "seeks, request", six("70")),
        ("a-drive, 7200 rpm", "seeks, fs-metadata", six("2")),
        ("a-drive, 7200 rpm", "lost to fs-journal", six("−3.00 ms")),
        ("a-drive, 7200 rpm", "lost to fs-metadata", six("25.0 ms")),
        ("Seen by", "commands", six("1,080")),
        (
            "Seen by",
            "total elapsed",
            "1.00 s 1.13 s 1.17 s 1.00 s 1.00 s 1.00 s".to_owned(),
        ),
        (
            "Seen by",
            "ratio to raw",
            "1.00 1.13 1.17 1.00 1.00 1.00".to_owned(),
        ),
        ("Seen by", "MiB/s", six("123.5")),
        ("Seen by", "Put(1048576), 50%", six("3.06 ms")),
        ("Seen by", "Get(1048576), 99%", six("49.9 ms")),
        ("of a put", "recv", six("250 µs")),
        ("of a put", "device", six("750 µs")),
        ("of a put", "queue", six("0 ns")),
        ("Block requests", "per put", six("2.50")),
        ("Block requests", "sequential", six("48.5 %")),
        ("Block requests", "median |seek distance|", six("4.00 KiB")),
        ("Block requests", "99% |seek distance|", six("3.00 GiB")),
        ("no request", "fs-metadata", six("3")),
        ("no request", "fs-journal", six("0")),
        ("trusted", "own bytes tied", six("99.5 %")),
        ("trusted", "lost events", six("0")),
        ("trusted", "complete", six("yes")),
    ];
    for (heading, name, expected) in wanted {
        if !name.is_empty() {
            assert_eq!(cells(&text, heading, name), expected, "{heading}: {name}");
        }
    }
    assert!(text.contains("=> On a-drive, with blocks of 512, ext4 takes"));
    assert!(text.contains("\nxfs, blocks of 4096\n") && text.contains("Seek distance"));
    // Where all details are, the HTML has them.
    assert!(!text.contains("\nxfs, blocks of 512\n"));
    assert!(text.contains("xfs, blocks of 4096: put of 1 MiB took 16 ms"));
    assert!(!text.contains('\x1b'), "no colour unless asked");
}

#[test]
fn fits_into_80_columns() {
    let text = render(&comparison());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let mut comparison = comparison();
    let disk = comparison.stores[1].disk.as_mut().unwrap();
    disk.observed = false;
    disk.not_observed_because = "no privilege".to_owned();
    disk.heat.clear();
    let disk = comparison.stores[2].disk.as_mut().unwrap();
    let audit = disk.audit.as_mut().unwrap();
    audit.complete = false;
    audit.finding = "3 events were lost".to_owned();
    comparison.stores[0].modelled.clear();
    comparison.stores[0].model_note = "nobody looked".to_owned();
    comparison.stores[0].disk = None;
    comparison.set_ratios();
    let text = render(&comparison);
    assert!(text.contains("raw, blocks of 512: nobody looked"));
    let unseen = "ext4, blocks of 512: its disk was not observed: no privilege";
    assert!(text.contains(unseen));
    assert!(text.contains("xfs, blocks of 512: 3 events were lost"));
    let elapsed = cells(&text, "a-drive, 7200 rpm", "elapsed");
    assert_eq!(elapsed, "– 11.3 s 11.7 s 10.0 s 10.0 s 10.0 s");
    let ratios = cells(&text, "a-drive, 7200 rpm", "ratio to raw");
    assert_eq!(ratios, "– – – 1.00 1.00 1.00");
    assert_eq!(cells(&text, "trusted", "lost events"), "– – 0 0 0 0");
}

#[test]
fn the_json_has_everything() {
    let json = serde_json::to_value(comparison()).unwrap();
    assert_eq!(json["stores"][1]["kind"], "ext4");
    assert_eq!(json["stores"][1]["client"]["ratio_to_raw"], 1.13);
    assert_eq!(
        json["stores"][2]["disk"]["operations"][0]["stages"][1]["stage"],
        "device"
    );
    assert_eq!(json["stores"][4]["block_size"], 4096);
    assert_eq!(json["stores"][2]["modelled"][0]["ratio_to_raw"], 1.17);
    assert_eq!(json["stores"][2]["modelled"][0]["owners"][0]["seeks"], 70);
    assert_eq!(json["workload"]["commands"], 1080);
}

#[test]
fn a_comparison_has_all_its_charts_in_a_file() {
    let mut comparison = comparison();
    for store in &mut comparison.stores {
        store.for_report.curves = vec![Curve::of("Get(1048576)", 1_000_000..1_000_100)];
        store.for_report.seen = Some(DiskObservations {
            groups: vec![Dots::of("request, write", vec![(0.0, 0.0), (1e9, 1e9)])],
            ..DiskObservations::default()
        });
    }
    let html = report(&comparison, true).html().unwrap();
    for chart in ["cdf", "bars", "heat", "scatter"] {
        assert!(html.contains(&format!("\"part\":\"{chart}\"")), "{chart}");
    }
    assert!(html.contains("How long Get(1048576) took"));
}

#[test]
fn cells_of_one_place_are_one() {
    let mut disk = disk();
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
    let panel = heat("raw".to_owned(), &disk);
    assert_eq!(
        (panel.cells.len(), panel.cells[0].count, panel.left_out),
        (1, 6, 3)
    );
    assert!(panel.cells[0].x.0 < panel.cells[0].x.1 && panel.cells[0].x.0 < 0.0);
}
