//! The text of a fixed comparison: its important cells, its width, and what is missing is said.

use lumpscope_proto::v1::{
    AuditReport, BlockReport, HeatCell, OperationReport, OwnerTotal, StageTime,
};

use super::super::report::*;
use super::*;
use crate::disks::StoreKind;

fn latency(kind: &str, base_us: u64) -> LatencyView {
    LatencyView {
        kind: kind.to_owned(),
        count: 40,
        p50_ns: base_us * 1_000,
        p90_ns: base_us * 2_000,
        p95_ns: base_us * 3_000,
        p99_ns: base_us * 4_000,
        total_ns: base_us * 40_000,
    }
}

fn disk() -> DiskView {
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
    DiskView {
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
        block: BlockReport {
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
        },
        audit: AuditReport {
            seen_requests: 103,
            kernel_requests: 103,
            complete: true,
            ..AuditReport::default()
        },
        heat: vec![heat],
        slowest: vec![SlowView {
            sentence: "put of 1 MiB took 16 ms: ".to_owned() + &"the head moved ".repeat(9),
            ..SlowView::default()
        }],
        ..DiskView::default()
    }
}

fn store(kind: StoreKind, elapsed_ms: u64) -> StoreView {
    StoreView {
        kind,
        path: "/dev/loop7".into(),
        failed: String::new(),
        client: Some(ClientView {
            elapsed_ns: elapsed_ms * 1_000_000,
            wall_ns: elapsed_ms * 1_100_000,
            ratio_to_raw: None,
            bytes: 80 << 20,
            mib_per_second: 123.45,
            kinds: vec![
                latency("Put(1048576)", 3_062),
                latency("Get(1048576)", 12_467),
            ],
            overall: Some(LatencyView {
                count: 1080,
                ..latency("Overall", 4_000)
            }),
            published: vec!["kind = Put(1048576), count = 40, 50% = 3.062ms".to_owned()],
        }),
        disk: Some(disk()),
        tracer: None,
        for_report: ForReport::default(),
    }
}

pub(in crate::studies::compare) fn comparison() -> Comparison {
    let mut comparison = Comparison {
        version: "0.1.0".to_owned(),
        kernel: "6.18.0".to_owned(),
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
        stores: vec![
            store(StoreKind::Raw, 1000),
            store(StoreKind::Ext4, 1130),
            store(StoreKind::Xfs, 1170),
        ],
    };
    comparison.set_ratios();
    comparison
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
    let text = render(&comparison(), false);
    let wanted = [
        ("Side by side", "", "raw ext4 xfs"),
        ("Seen by", "commands", "1,080 1,080 1,080"),
        ("Seen by", "total elapsed", "1.00 s 1.13 s 1.17 s"),
        ("Seen by", "ratio to raw", "1.00 1.13 1.17"),
        (
            "Seen by",
            "throughput",
            "123.5 MiB/s 123.5 MiB/s 123.5 MiB/s",
        ),
        ("of Put(1048576)", "50%", "3.06 ms 3.06 ms 3.06 ms"),
        ("of Get(1048576)", "99%", "49.9 ms 49.9 ms 49.9 ms"),
        (
            "of a put",
            "recv",
            "25.0 % 250 µs 25.0 % 250 µs 25.0 % 250 µs",
        ),
        (
            "of a put",
            "device",
            "75.0 % 750 µs 75.0 % 750 µs 75.0 % 750 µs",
        ),
        ("of a put", "queue", "0 % 0 ns 0 % 0 ns 0 % 0 ns"),
        ("Block requests", "per put", "2.50 2.50 2.50"),
        ("Block requests", "sequential", "48.5 % 48.5 % 48.5 %"),
        (
            "Block requests",
            "median |seek distance|",
            "4.00 KiB 4.00 KiB 4.00 KiB",
        ),
        (
            "Block requests",
            "99% |seek distance|",
            "3.00 GiB 3.00 GiB 3.00 GiB",
        ),
        (
            "no request",
            "fs-metadata",
            "3 12.0 KiB 3 12.0 KiB 3 12.0 KiB",
        ),
        ("no request", "fs-journal", "0 0 0"),
        (
            "trusted",
            "own bytes tied to their request",
            "99.5 % 99.5 % 99.5 %",
        ),
        ("trusted", "lost events", "0 0 0"),
        ("trusted", "audit", "complete complete complete"),
    ];
    for (heading, name, expected) in wanted {
        if !name.is_empty() {
            assert_eq!(cells(&text, heading, name), expected, "{heading}: {name}");
        }
    }
    assert!(text.contains("kind = Put(1048576), count = 40, 50% = 3.062ms"));
    assert!(text.contains("xfs (loop7)") && text.contains("How to read it"));
    assert!(text.contains("1. put of 1 MiB took 16 ms"));
    assert!(!text.contains('\x1b'), "no colour unless asked");
}

#[test]
fn fits_into_100_columns() {
    let text = render(&comparison(), false);
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let mut comparison = comparison();
    let disk = comparison.stores[1].disk.as_mut().unwrap();
    disk.observed = false;
    disk.not_observed_because = "no privilege".to_owned();
    disk.heat.clear();
    let audit = &mut comparison.stores[2].disk.as_mut().unwrap().audit;
    audit.complete = false;
    audit.finding = "3 events were lost".to_owned();
    comparison.stores[0].client = None;
    comparison.stores[0].disk = None;
    comparison.stores[0].failed = "command 7: store full".to_owned();
    comparison.set_ratios();
    let text = render(&comparison, false);
    assert!(text.contains("raw: FAILED: command 7: store full"));
    assert!(text.contains("ext4: what the disk did was not observed: no privilege"));
    assert!(text.contains("xfs: 3 events were lost"));
    assert_eq!(cells(&text, "Seen by", "total elapsed"), "– 1.13 s 1.17 s");
    assert_eq!(cells(&text, "Seen by", "ratio to raw"), "– – –");
    assert_eq!(cells(&text, "trusted", "lost events"), "– – 0");
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
    assert_eq!(json["workload"]["commands"], 1080);
}
