//! Gain of the orders of waiting gets on an emulated disk: the real engine in virtual time, so that
//! the figures do not depend on the machine.

use lumpscope_lab::OutputArgs;
use lumpscope_lab::orders::{Line, OrdersArgs, compare};
use lumpscope_platter::drive::{Drive, by_name};

/// Gets of one size, all of `in_flight` under way.
fn lines(drive: &Drive, size: u64, in_flight: usize, at_disk: &[usize], bound: u32) -> Vec<Line> {
    let args = OrdersArgs {
        drive: drive.name.to_string(),
        depth: vec![in_flight],
        size: vec![size],
        at_disk: at_disk.to_vec(),
        requests: 1500,
        rounds: 2,
        max_overtakes: bound,
        output: OutputArgs::default(),
    };
    let lines = compare(&args, drive, |_| Ok(())).unwrap();
    for line in &lines {
        println!("{line:?}");
        assert!(line.overtaken <= u64::from(bound), "{line:?}");
        assert!(line.overtaken == 0 || line.policy != "fifo", "{line:?}");
        // The drive lets no request be passed more than 64 times, either.
        assert!(line.answered_before <= u64::from(bound) + 64, "{line:?}");
        assert!(line.p99_ns > 100_000.0 && line.max_ns > 100_000, "{line:?}");
    }
    lines
}

fn times_fifo(lines: &[Line], policy: &str, at_disk: usize) -> f64 {
    let wanted = |line: &&Line| line.policy == policy && line.at_disk == at_disk;
    lines.iter().find(wanted).unwrap().times_fifo[1]
}

fn published() -> Drive {
    by_name("st1000dm003").unwrap()
}

#[test]
fn of_32_small_gets_the_order_makes_nearly_two_of_one() {
    let lines = lines(&published(), 4096, 32, &[1, 8, 32], 512);
    let position = times_fifo(&lines, "position", 1);
    assert!(position >= 1.8, "{position}");
    // The drive knows where its platters are.
    for policy in ["fifo", "position"] {
        assert!(times_fifo(&lines, policy, 32) > position);
    }
    assert!(times_fifo(&lines, "position", 8) > position);
}

#[test]
fn with_large_gets_the_transfer_remains() {
    let lines = lines(&published(), 1 << 20, 32, &[1], 512);
    let position = times_fifo(&lines, "position", 1);
    assert!((1.3..1.8).contains(&position), "{position}");
}

#[test]
fn a_few_gets_gain_less_and_one_gains_nothing() {
    let eight = lines(&published(), 4096, 8, &[1], 512);
    assert!(times_fifo(&eight, "position", 1) > 1.3);
    for line in lines(&published(), 4096, 1, &[1], 512) {
        assert_eq!(line.times_fifo, [1.0; 3], "{line:?}");
    }
}

#[test]
fn a_tight_bound_is_kept_and_costs() {
    let tight = lines(&published(), 4096, 32, &[1], 24);
    let roomy = lines(&published(), 4096, 32, &[1], 512);
    let [tight, roomy] = [&tight, &roomy].map(|lines| times_fifo(lines, "position", 1));
    assert!(1.0 < tight && tight < roomy, "{tight} {roomy}");
}

#[test]
fn a_disk_without_an_arm_loses_nothing() {
    // As far to every place: no seek takes time, and a turn takes little beside the transfer.
    let flat = Drive {
        rpm: 100_000,
        outer_rate: 20_000_000,
        inner_rate: 20_000_000,
        track_to_track_ns: 1,
        average_seek_ns: 1,
        head_switch_ns: 0,
        track_skew_ns: 0,
        cylinder_skew_ns: 1,
        ..published()
    };
    let lines = lines(&flat, 65536, 32, &[1, 8], 512);
    for at_disk in [1, 8] {
        let fifo = times_fifo(&lines, "fifo", at_disk);
        let ours = times_fifo(&lines, "position", at_disk);
        assert!((ours / fifo - 1.0).abs() < 0.01, "{ours} {fifo}");
    }
}

#[test]
fn the_same_comes_out_each_time() {
    let twice = [0, 1].map(|_| lines(&published(), 65536, 8, &[1, 4], 64));
    let [first, second] = twice.map(|lines| serde_json::to_string(&lines).unwrap());
    assert_eq!(first, second);
}
