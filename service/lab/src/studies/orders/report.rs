//! The figures as a table.

use lumpscope_platter::queue::Order;
use serde::Serialize;

use super::client::OrderRun;
use super::{Case, spread};
use crate::experiment::report::{Cell, Picture, Report, Spread, Table, Unit};
use crate::human;

/// How to read the numbers.
const NOTES: [&str; 3] = [
    "The real engine, stepped on one thread in virtual time, over the emulated drive: the same \
     figures on every machine. Clients ask for the next lump when they have one; the lumps lie all \
     over the drive, and each is asked for at random.",
    "Times fifo: gets a second to those of fifo with one I/O at the drive, of the same seed: \
     median and range over the seeds. Latencies: medians over the seeds; the longest of all of \
     them.",
    "Overtaken: most younger gets that the engine started before a waiting one, to be no more than \
     the bound. Answered: most younger ones that were answered before, which the drive's own queue \
     adds to. A drive that orders by position knows where arm and platters are; it lets no request \
     be passed by more than 64 later ones.",
];

/// One way to order gets of one size at one depth.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Bytes of each get.
    pub size: u64,
    /// Gets under way.
    pub in_flight: usize,
    /// The engine's order.
    pub policy: &'static str,
    /// I/Os handed to the drive at a time.
    pub at_disk: usize,
    /// The drive's own order.
    pub drive_order: Order,
    /// Gets a second of virtual time, median over the seeds.
    pub rate: f64,
    /// Ratio to fifo with one I/O at the drive: least, median and greatest.
    pub times_fifo: [f64; 3],
    /// Mean latency in nanoseconds, median over the seeds.
    pub mean_ns: f64,
    /// 99th percentile of it, median over the seeds.
    pub p99_ns: f64,
    /// The longest of all.
    pub max_ns: u64,
    /// Most others that the engine has started before an older get that waited.
    pub overtaken: u64,
    /// Most others that were answered before an older one.
    pub answered_before: u64,
}

impl Line {
    pub(super) fn of(case: &Case, runs: &[OrderRun], base: &[OrderRun]) -> Line {
        let of = |value: fn(&OrderRun) -> f64| spread(runs.iter().map(value)).median;
        let most = |value: fn(&OrderRun) -> u64| runs.iter().map(value).max().unwrap_or(0);
        let ratios = runs
            .iter()
            .zip(base)
            .map(|(run, base)| run.rate / base.rate);
        let Spread { median, min, max } = spread(ratios);
        Line {
            size: case.size,
            in_flight: case.in_flight,
            policy: case.policy.name(),
            at_disk: case.at_disk,
            drive_order: case.drive_order,
            rate: of(|run| run.rate),
            times_fifo: [min, median, max],
            mean_ns: of(|run| run.latency.mean_ns),
            p99_ns: of(|run| human::as_float(run.latency.p99_ns)),
            max_ns: most(|run| run.latency.max_ns),
            overtaken: most(|run| run.overtaken),
            answered_before: most(|run| run.answered_before),
        }
    }
}

/// The data behind the figures.
#[derive(Serialize)]
pub(super) struct OrderLines {
    pub(super) lines: Vec<Line>,
}

/// All lines, grouped by load.
pub(super) fn report(lines: &[Line]) -> Report {
    let columns = [
        "gets/s",
        "times fifo",
        "mean",
        "p99",
        "max",
        "overtaken",
        "answered before",
    ];
    let mut table = Table::new(
        "Medians over the seeds; the longest latency and the most overtakes of all of them.",
        &columns,
    );
    table.picture = Some(Picture {
        columns: vec![1],
        reference: (1.0, "fifo"),
    });
    let mut group = String::new();
    for line in lines {
        let load = format!("{}, {} in flight", human::bytes(line.size), line.in_flight);
        if load != group {
            table.group(load.clone());
            group = load;
        }
        let time = |ns| Cell::value(Some(ns), Unit::Nanoseconds);
        let (policy, at_disk, drive) = (line.policy, line.at_disk, line.drive_order);
        table.row(
            format!("{policy}, {at_disk} at the drive ({drive})"),
            vec![
                Cell::value(Some(line.rate), Unit::PerSecond),
                Cell::runs(Unit::Ratio, line.times_fifo),
                time(line.mean_ns),
                time(line.p99_ns),
                time(human::as_float(line.max_ns)),
                Cell::count(line.overtaken),
                Cell::count(line.answered_before),
            ],
        );
    }
    let mut report = Report::new("The order of waiting gets");
    report.section("Orders on an emulated disk").add(table);
    report.note(&NOTES);
    report
}
