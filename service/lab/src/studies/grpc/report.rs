//! The figures as tables, and the runs behind them.

use serde::Serialize;

use super::memory::GOAL_BYTES;
use super::memory::MemoryView;
use crate::experiment::report::{Cell, Report, Table, Unit};
use crate::human;
use crate::load::grpc::{Outcome, Setting};

/// Goals of a figure: share of the peer's throughput that the service reaches at least, and how many
/// times the peer's 99th percentile and processor time its own are at most.
struct Goals {
    throughput: f64,
    p99: f64,
    cpu: Option<f64>,
}

/// To a peer that stores nothing.
const IDLE: Goals = Goals {
    throughput: 0.85,
    p99: 1.5,
    cpu: Some(1.3),
};
/// To a peer that does the work of a store in memory.
const WORKING: Goals = Goals {
    throughput: 0.9,
    p99: 1.3,
    cpu: None,
};

/// The comparison, and where it is unequal.
const NOTES: [&str; 6] = [
    "Both are processes of their own with the same HTTP/2 windows, frame and message limits, the \
     same number of worker threads, asked by one client over loopback; runs of one round follow \
     each other, every second round in reverse. A ratio is ours to the peer's of the same round; \
     shown are its median and its range over the rounds.",
    "The peer is the server tonic generates from our protos, with tonic's codec. It throws away \
     what is put and serves gets from memory: no checksum, no copy for a disk, no disk, no journal, \
     no request ids, no metrics. All of that is in our figures, and is what the ratio is about.",
    "Our puts are synced: data and journal record are written and flushed before the answer. Our \
     gets read the file through direct I/O and verify the checksum.",
    "Where the disk alone is not far faster than the peer (bench engine tells, with fio), the disk is \
     measured and not the service. A file system in memory (--dir /dev/shm) has no disk \
     to wait for, but there every transfer is a copy by a kernel thread of the service, which takes \
     its part of the processors; a disk moves the bytes by itself.",
    "The client compares the length of every get, and one in 32 byte by byte. It shares the \
     processors with whom it asks, so it weighs in every figure but the processor time, which is the \
     server's alone.",
    "99 % is of calls, from the first message to the answer or the last byte; with more calls \
     under way than processors it holds the time in which other calls were served. Of \
     fewer than 100 calls in a run it is the slowest. A run in which a server ended no call is left \
     out.",
];

/// In place of the second, if the peer works.
const WORKING_NOTE: &str = "The peer is the server tonic generates from our protos, with tonic's \
     codec. It copies each body that is put into memory of its own and sums it (CRC32C); of a get it \
     sums the whole body, which lies in 64 MiB of memory, before it sends it. No copy for a disk, no \
     disk, no journal, no request ids, no metrics: all of that is in our figures, and is what the \
     ratio is about.";

/// Ours and the peer's, of one setting in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RunPair {
    pub(super) round: usize,
    pub(super) setting: Setting,
    pub(super) ours: Outcome,
    pub(super) peer: Outcome,
}

impl RunPair {
    /// True: both servers have answered calls.
    fn is_whole(&self) -> bool {
        self.ours.measured.requests > 0 && self.peer.measured.requests > 0
    }
}

/// The data behind the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GrpcRuns {
    pub(super) memory: Option<MemoryView>,
    pub(super) runs: Vec<RunPair>,
}

/// What is measured of a call.
const MEASURES: [(&str, Unit); 3] = [
    ("throughput", Unit::BytesPerSecond),
    ("99 %", Unit::Nanoseconds),
    ("processor time", Unit::SecondsPerGib),
];

/// Three rows for each setting.
fn ratios(runs: &[RunPair], working_peer: bool) -> Table {
    let goals = if working_peer { &WORKING } else { &IDLE };
    let goals = [Some(goals.throughput), Some(goals.p99), goals.cpu];
    let mut table = Table::compared("Ours beside the peer's, round by round.");
    for setting in Setting::all() {
        let of: Vec<&RunPair> = runs.iter().filter(|run| run.setting == setting).collect();
        if of.is_empty() {
            continue;
        }
        for ((what, unit), goal) in MEASURES.into_iter().zip(goals) {
            let value = |outcome: &Outcome| {
                Some(match unit {
                    Unit::BytesPerSecond => outcome.measured.bytes_per_second(),
                    Unit::Nanoseconds => human::as_float(outcome.measured.latency.p99_ns),
                    _ => outcome.cpu_seconds_per_gib,
                })
            };
            // Where a server answered nothing in time there is nothing to compare.
            let whole = of.iter().filter(|pair| pair.is_whole());
            let pairs: Vec<_> = whole
                .map(|pair| (value(&pair.ours), value(&pair.peer)))
                .collect();
            table.pair(format!("{}, {what}", setting.name()), unit, goal, &pairs);
        }
    }
    table
}

/// The report: speed, and memory.
pub(super) fn report(data: &GrpcRuns, working_peer: bool) -> Report {
    let mut report = Report::new(match working_peer {
        true => "The service through gRPC, beside one that works in memory",
        false => "The service through gRPC, beside one that stores nothing",
    });
    report.note(&NOTES);
    if working_peer {
        report.notes[1] = WORKING_NOTE.to_owned();
    }
    if !data.runs.is_empty() {
        report
            .section("Ratios")
            .add(ratios(&data.runs, working_peer));
    }
    if let Some(memory) = &data.memory {
        report.section("Memory").add(resident(memory));
    }
    report
}

/// The memory of the service.
fn resident(memory: &MemoryView) -> Table {
    let bytes = |bytes: u64| vec![Cell::value(Some(human::as_float(bytes)), Unit::Bytes)];
    let mut table = Table::new("Memory of the service under many puts.", &["seen"]);
    table.group(format!(
        "{} clients put 4 MiB each, for {:.1} s",
        memory.clients, memory.seconds
    ));
    table.row("puts", vec![Cell::count(memory.puts)]);
    table.row("told to try again", vec![Cell::count(memory.refused)]);
    table.row("resident before", bytes(memory.idle_bytes));
    let is_met = memory.peak_bytes <= GOAL_BYTES;
    let met = if is_met { "met" } else { "MISSED" };
    let peak = format!(
        "resident at most (goal ≤ {}: {met})",
        human::bytes(GOAL_BYTES)
    );
    table.row(peak, bytes(memory.peak_bytes));
    table.row("resident after", bytes(memory.after_bytes));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::{Figure, Row};
    use crate::load::Meter;
    use std::time::Duration;

    fn outcome(calls: u32, latency: Duration) -> Outcome {
        let mut meter = Meter::new();
        meter.add_time(Duration::from_secs(1));
        for _ in 0..calls {
            meter.request(1 << 20, latency);
        }
        Outcome {
            measured: meter.finish(),
            cpu_seconds_per_gib: 1.0,
        }
    }

    #[test]
    fn goals_are_of_the_ratios_of_all_rounds_with_answers() {
        let ms = Duration::from_millis;
        let setting = Setting::all().next().expect("there are settings");
        let pair = |ours, peer| RunPair {
            round: 1,
            setting,
            ours: outcome(ours, ms(3)),
            peer: outcome(peer, ms(1)),
        };
        let silent = pair(0, 10);
        let table = ratios(&[silent, pair(95, 100), pair(90, 100), pair(50, 50)], false);
        let ratio = |row: &Row| match row {
            Row::Cells(_, cells) => cells[2].figure().expect("a ratio").clone(),
            Row::Group(_) => panic!("no groups"),
        };
        let ratios: Vec<Figure> = table.rows.iter().map(ratio).collect();
        let [throughput, p99, cpu] = &ratios[..] else {
            panic!("three figures, not {ratios:?}")
        };
        let median = throughput.spread().expect("three ratios").median;
        assert!(
            (median - 0.95).abs() < 1e-9 && throughput.runs.len() == 3,
            "{throughput:?}"
        );
        let met = [throughput, p99, cpu].map(|figure| figure.judged());
        assert_eq!(met, [Some(Ok(true)), Some(Ok(false)), Some(Ok(true))]);
    }
}
