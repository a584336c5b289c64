//! The result of a run.

use serde::Serialize;

use super::RunStats;
use super::place::PlaceView;
use crate::experiment::report::{
    Axis, Cdf, Cell, Curve, Line, Lines, Report, Section, Table, Unit, Verbatim,
};
use crate::human;
use crate::load::Percentiles;
use crate::load::runner::Verified;
use crate::stats::Slot;
use crate::workload::{CommandStream, WorkloadArgs};

/// Most rows of the table of the time series; the JSON has all of it.
const ROWS: usize = 20;
/// Most points of its picture.
const POINTS: usize = 500;

/// The data behind the figures.
#[derive(Debug, Serialize)]
pub(super) struct RunRecord {
    workload: WorkloadView,
    place: PlaceView,
    engine: String,
    durability: String,
    wall_seconds: f64,
    bytes_put: u64,
    bytes_got: u64,
    overall: Percentiles,
    kinds: Vec<KindView>,
    series: SeriesView,
    /// Lumps and bytes compared at the end; absent: it was not asked for.
    verified: Option<Verified>,
}

/// The workload.
#[derive(Debug, Serialize)]
struct WorkloadView {
    name: String,
    scale: f64,
    /// Absent: the workload's own.
    seed: Option<u64>,
    commands: usize,
    peak_bytes: u64,
    least_required_bytes: u64,
}

/// Commands of one kind and size.
#[derive(Debug, Serialize)]
struct KindView {
    kind: String,
    latency: Percentiles,
}

/// Throughput over time.
#[derive(Debug, Serialize)]
struct SeriesView {
    slot_seconds: f64,
    slots: Vec<Slot>,
}

/// The report of a run, with the data behind it.
pub(super) fn report(
    (workload, stream): (&WorkloadArgs, &CommandStream),
    place: PlaceView,
    stats: RunStats,
) -> (Report, RunRecord) {
    let RunStats {
        engine,
        durability,
        outcome,
        verified,
    } = stats;
    let published = outcome.latencies.published_lines().join("\n");
    let kinds = outcome
        .latencies
        .by_kind()
        .map(|(kind, latencies)| KindView {
            kind: kind.to_string(),
            latency: Percentiles::of(latencies.iter().copied()),
        });
    let every = outcome.latencies.by_kind().flat_map(|(_, all)| all.iter());
    let data = RunRecord {
        workload: WorkloadView {
            name: workload.workload.clone(),
            scale: workload.scale,
            seed: workload.seed,
            commands: stream.commands.len(),
            peak_bytes: stream.peak_bytes,
            least_required_bytes: stream.least_required_bytes,
        },
        kinds: kinds.collect(),
        overall: Percentiles::of(every.copied()),
        place,
        engine,
        durability,
        wall_seconds: outcome.wall.as_secs_f64(),
        bytes_put: outcome.bytes_put,
        bytes_got: outcome.bytes_got,
        series: SeriesView {
            slot_seconds: outcome.timeline.slot().as_secs_f64(),
            slots: outcome.timeline.slots().to_vec(),
        },
        verified,
    };
    (data.report(published), data)
}

impl RunRecord {
    fn report(&self, published: String) -> Report {
        let workload = &self.workload;
        let mut report = Report::new(format!("Workload {}", workload.name));
        let seed = workload.seed.map(|seed| format!(", seed {seed}"));
        let commands = human::count_of(workload.commands);
        let scale = format!("scale {}{}", workload.scale, seed.unwrap_or_default());
        report.fact(
            "Workload",
            format!("{}, {scale}, {commands} commands", workload.name),
        );
        report.fact("Run by", self.engine.as_str());
        report.fact("On", self.place.what.as_str());
        report.fact("Durability", self.durability.as_str());
        report.summary.push(format!(
            "{commands} commands in {:.3} s; {} put, {} got",
            self.wall_seconds,
            human::bytes(self.bytes_put),
            human::bytes(self.bytes_got),
        ));
        report.summary.extend(self.verified.map(|Verified { lumps, bytes }| {
            format!(
                "verified: every byte of every get, and at the end {} lumps of {}; nothing else lives",
                human::count(lumps),
                human::bytes(bytes),
            )
        }));
        let section = report.section("Latencies");
        let curve = |view: &KindView| {
            let steps = view.latency.buckets.iter();
            Curve {
                name: view.kind.clone(),
                steps: steps
                    .map(|(ns, count)| (human::as_float(*ns), *count))
                    .collect(),
            }
        };
        section.add(Cdf {
            caption: "Latency of a call, by kind and size.".to_owned(),
            x: Axis::log("latency", Unit::Nanoseconds),
            curves: self.kinds.iter().map(curve).collect(),
        });
        section.add(self.percentiles());
        section.add(Verbatim {
            caption: "As the published tables print them:".to_owned(),
            text: published,
        });
        self.over_time(report.section("Over time"));
        report
    }

    fn percentiles(&self) -> Table {
        let columns = [
            "count", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "longest", "mean",
        ];
        let mut table = Table::new("Percentiles from HDR histograms.", &columns);
        let kinds = self
            .kinds
            .iter()
            .map(|view| (view.kind.as_str(), &view.latency));
        for (name, latency) in kinds.chain([("all", &self.overall)]) {
            let times = [
                latency.p50_ns,
                latency.p90_ns,
                latency.p95_ns,
                latency.p99_ns,
                latency.p999_ns,
                latency.p9999_ns,
                latency.max_ns,
            ];
            let time = |ns| Cell::value(Some(ns), Unit::Nanoseconds);
            let mut cells = vec![Cell::count(latency.count)];
            cells.extend(times.map(|ns| time(human::as_float(ns))));
            cells.push(time(latency.mean_ns));
            table.row(name, cells);
        }
        table
    }

    /// The slots, so many or fewer: begin and length of each in seconds, and its sum.
    fn slots(&self, most: usize) -> impl Iterator<Item = (f64, f64, Slot)> {
        let slots = &self.series.slots;
        let together = slots.len().div_ceil(most).max(1);
        let (slot, wall) = (self.series.slot_seconds, self.wall_seconds);
        let length = move |slots: usize| slot * human::as_float(slots as u64);
        slots.chunks(together).enumerate().map(move |(line, part)| {
            let begin = length(line * together);
            let seconds = length(part.len()).min(wall - begin).max(1e-6);
            let mut sum = Slot::default();
            part.iter().for_each(|slot| sum.add(slot));
            (begin, seconds, sum)
        })
    }

    fn over_time(&self, section: &mut Section) {
        let line = |name: &str, bytes: fn(&Slot) -> u64| Line {
            name: name.to_owned(),
            points: self
                .slots(POINTS)
                .map(|(begin, seconds, sum)| (begin * 1e9, human::as_float(bytes(&sum)) / seconds))
                .collect(),
        };
        section.add(Lines {
            caption: "Bytes of lumps put and got.".to_owned(),
            x: Axis::linear("since the first command", Unit::Nanoseconds),
            y: Axis::linear("throughput", Unit::BytesPerSecond),
            lines: vec![
                line("put", |slot| slot.bytes_put),
                line("got", |slot| slot.bytes_got),
            ],
        });
        let columns = ["puts/s", "gets/s", "deletes/s", "put", "got", "longest"];
        let mut table = Table::new("Throughput over time.", &columns);
        table.corner = "from".to_owned();
        for (begin, seconds, sum) in self.slots(ROWS) {
            let rate = |count, unit| Cell::value(Some(human::as_float(count) / seconds), unit);
            let cells = vec![
                rate(sum.puts, Unit::Count),
                rate(sum.gets, Unit::Count),
                rate(sum.deletes, Unit::Count),
                rate(sum.bytes_put, Unit::BytesPerSecond),
                rate(sum.bytes_got, Unit::BytesPerSecond),
                Cell::value(Some(human::as_float(sum.longest_ns)), Unit::Nanoseconds),
            ];
            table.row(format!("{begin:.1} s"), cells);
        }
        section.add(table);
    }
}
