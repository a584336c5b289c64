//! The result: as JSON, and as a table for people.

use serde::Serialize;

use super::args::Transport;
use super::disk::Disk;
use super::memory::MemoryView;
use super::resets::ResetsView;
use crate::experiment::{Machine, Measure, report, verdict};
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

/// How many times as fast as the peer a disk is at least that is surely not the limit.
const DISK_AHEAD: f64 = 1.5;

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
    "What the disk gives alone is under the table: where that is not far above the peer's throughput, \
     the disk is measured and not the service. A file system in memory (--dir /dev/shm) has no disk \
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    BytesPerSecond,
    Nanoseconds,
    CpuSecondsPerGib,
}

impl Measure for Unit {
    fn unit(self) -> report::Unit {
        match self {
            Unit::BytesPerSecond => report::Unit::BytesPerSecond,
            Unit::Nanoseconds => report::Unit::Nanoseconds,
            Unit::CpuSecondsPerGib => report::Unit::SecondsPerGib,
        }
    }

    fn higher_is_better(self) -> bool {
        self == Unit::BytesPerSecond
    }
}

/// A line of the result.
pub(super) type Compared = crate::experiment::Figure<Unit>;

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

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) disk: Disk,
    pub(super) store_mib: u64,
    pub(super) seconds_per_run: f64,
    pub(super) calls_per_connection: usize,
    pub(super) probes: bool,
    pub(super) working_peer: bool,
    pub(super) transport: Transport,
    pub(super) rounds: usize,
    pub(super) figures: Vec<Compared>,
    pub(super) memory: Option<MemoryView>,
    pub(super) resets: Option<ResetsView>,
    pub(super) notes: [&'static str; 6],
    pub(super) runs: Vec<RunPair>,
}

pub(super) fn notes(working_peer: bool) -> [&'static str; 6] {
    let mut notes = NOTES;
    if working_peer {
        notes[1] = WORKING_NOTE;
    }
    notes
}

/// Three lines for each setting.
pub(super) fn figures(runs: &[RunPair], working_peer: bool) -> Vec<Compared> {
    let goals = if working_peer { &WORKING } else { &IDLE };
    let mut views = Vec::new();
    for setting in Setting::all() {
        let pairs: Vec<&RunPair> = runs.iter().filter(|run| run.setting == setting).collect();
        if pairs.is_empty() {
            continue;
        }
        // Where a server answered nothing in time there is nothing to compare.
        let pairs: Vec<&RunPair> = pairs.into_iter().filter(|pair| pair.is_whole()).collect();
        for unit in [
            Unit::BytesPerSecond,
            Unit::Nanoseconds,
            Unit::CpuSecondsPerGib,
        ] {
            views.push(figure(setting, (unit, goals), &pairs));
        }
    }
    views
}

fn figure(setting: Setting, (unit, goals): (Unit, &Goals), pairs: &[&RunPair]) -> Compared {
    let (what, goal) = match unit {
        Unit::BytesPerSecond => ("throughput", Some(goals.throughput)),
        Unit::Nanoseconds => ("99 %", Some(goals.p99)),
        Unit::CpuSecondsPerGib => ("processor time", goals.cpu),
    };
    let value = |outcome: &Outcome| {
        Some(match unit {
            Unit::BytesPerSecond => outcome.measured.bytes_per_second(),
            Unit::Nanoseconds => human::as_float(outcome.measured.latency.p99_ns),
            Unit::CpuSecondsPerGib => outcome.cpu_seconds_per_gib,
        })
    };
    let values = pairs.iter();
    let values = values.map(|pair| (value(&pair.ours), value(&pair.peer)));
    let name = format!("{}, {what}", setting.name());
    Compared::of(name, unit, goal, &values.collect::<Vec<_>>())
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        if !self.figures.is_empty() {
            lines.extend(Compared::lines(&self.figures));
            lines.push(String::new());
        }
        lines.extend(self.memory.as_ref().map(MemoryView::text));
        lines.extend(self.resets.as_ref().map(ResetsView::text));
        lines.push(self.circumstances());
        lines.extend(self.doubt());
        lines.push(String::new());
        lines.extend(self.notes.map(|note| format!("- {note}")));
        lines.push(String::new());
        lines.join("\n")
    }

    /// Remark for a disk that is hardly faster than the peer.
    pub(super) fn doubt(&self) -> Option<String> {
        let of_bytes = |figure: &&Compared| figure.unit == Unit::BytesPerSecond;
        let peers = self.figures.iter().filter(of_bytes);
        let fastest = peers
            .filter_map(|figure| Some(figure.peer?.median))
            .fold(0.0, f64::max);
        let disk = self
            .disk
            .write_bytes_per_second
            .min(self.disk.read_bytes_per_second);
        (disk < fastest * DISK_AHEAD).then(|| {
            format!(
                "THE DISK MAY BE THE LIMIT: it gives less than {DISK_AHEAD} times what the peer \
                 reaches without one"
            )
        })
    }

    fn circumstances(&self) -> String {
        format!(
            "{} rounds of {} s a run, {} calls under way on each connection; store of {} MiB on {} \
             ({}), which alone writes {} and reads {} (8 x 1 MiB at a time); probes {}; {}",
            self.rounds,
            self.seconds_per_run,
            self.calls_per_connection,
            self.store_mib,
            self.disk.dir.display(),
            self.disk.file_system,
            report::Unit::BytesPerSecond.text(self.disk.write_bytes_per_second),
            report::Unit::BytesPerSecond.text(self.disk.read_bytes_per_second),
            if self.probes { "on" } else { "off" },
            self.machine,
        )
    }
}

impl MemoryView {
    fn text(&self) -> String {
        format!(
            "memory: {} clients put 4 MiB each again and again for {:.1} s ({} puts, {} told to try \
             again): resident at most {} (before {}, after {}), goal ≤ {}: {}",
            self.clients,
            self.seconds,
            human::count(self.puts),
            human::count(self.refused),
            human::bytes(self.peak_bytes),
            human::bytes(self.idle_bytes),
            human::bytes(self.after_bytes),
            human::bytes(self.goal_bytes),
            verdict(self.met),
        )
    }
}

impl ResetsView {
    fn text(&self) -> String {
        let left = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value}"));
        format!(
            "resets: {} puts of 4 MiB reset in the middle: {} answered, {} partial lumps visible, {} \
             bytes of buffers, {} bytes of body memory and {} bytes of disk left in use, goal 0: {}",
            self.resets,
            self.answered,
            self.visible,
            left(self.leaked_buffer_bytes),
            left(self.leaked_body_bytes),
            self.leaked_disk_bytes,
            verdict(self.met),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_run_without_calls_meets_nothing() {
        let setting = Setting::all().next().expect("there are settings");
        let silent = RunPair {
            round: 1,
            setting,
            ours: outcome(0, Duration::ZERO),
            peer: outcome(10, Duration::from_millis(1)),
        };
        let views = figures(&[silent], false);
        assert_eq!(views.len(), 3);
        assert!(
            views
                .iter()
                .all(|view| view.ratio.is_none() && view.met.is_none())
        );
    }

    #[test]
    fn goals_are_of_the_ratios_of_all_rounds() {
        let ms = Duration::from_millis;
        let setting = Setting::all().next().expect("there are settings");
        let pair = |ours, peer| RunPair {
            round: 1,
            setting,
            ours: outcome(ours, ms(3)),
            peer: outcome(peer, ms(1)),
        };
        let views = figures(&[pair(95, 100), pair(90, 100), pair(50, 50)], false);
        let [throughput, p99, cpu] = &views[..] else {
            panic!("three figures, not {views:?}")
        };
        let ratio = throughput.ratio.expect("three ratios");
        assert!((ratio.median - 0.95).abs() < 1e-9, "{ratio:?}");
        assert_eq!(
            (throughput.met, p99.met, cpu.met),
            (Some(true), Some(false), Some(true))
        );
    }
}
