//! The result of a run.

use std::time::Duration;

use serde::Serialize;

use super::RunStats;
use super::place::PlaceView;
use crate::experiment::report::{Axis, Cdf, Cell, Curve, Report, Table, Unit, Verbatim};
use crate::human;
use crate::load::runner::Verified;
use crate::load::{Latency, Meter};
use crate::workload::{CommandStream, WorkloadArgs};

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
    overall: LatencyView,
    kinds: Vec<KindView>,
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
    latency: LatencyView,
}

/// Latencies, and the histogram that they come from.
#[derive(Debug, Serialize)]
struct LatencyView {
    count: u64,
    #[serde(flatten)]
    latency: Latency,
    /// For each bucket that is not empty its upper end in nanoseconds and how many are in it,
    /// ascending.
    buckets: Vec<(u64, u64)>,
}

impl LatencyView {
    fn of<'a>(latencies: impl IntoIterator<Item = &'a Duration>) -> LatencyView {
        let mut meter = Meter::new();
        for latency in latencies {
            meter.request(0, *latency);
        }
        let histogram = meter.latencies();
        let steps = histogram.iter_recorded();
        LatencyView {
            count: histogram.len(),
            latency: Latency::from(histogram),
            buckets: steps
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        }
    }
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
            latency: LatencyView::of(latencies),
        });
    let every = outcome.latencies.by_kind().flat_map(|(_, all)| all);
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
        overall: LatencyView::of(every),
        place,
        engine,
        durability,
        wall_seconds: outcome.wall.as_secs_f64(),
        bytes_put: outcome.bytes_put,
        bytes_got: outcome.bytes_got,
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
        for (name, view) in kinds.chain([("all", &self.overall)]) {
            let latency = view.latency;
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
            let mut cells = vec![Cell::count(view.count)];
            cells.extend(times.map(|ns| time(human::as_float(ns))));
            cells.push(time(latency.mean_ns));
            table.row(name, cells);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_buckets_agree_with_what_was_recorded() {
        let all: Vec<Duration> = (1..=10_000).map(Duration::from_micros).collect();
        let all = LatencyView::of(&all);
        let near = |ns: u64, us: u64| ns.abs_diff(us * 1000) <= us * 2;
        assert_eq!(all.count, 10_000);
        assert!(near(all.latency.p50_ns, 5000), "{all:?}");
        assert!(near(all.latency.p9999_ns, 9999), "{all:?}");
        assert!(near(all.latency.max_ns, 10_000), "{all:?}");
        let counted: u64 = all.buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 10_000);
        assert!(all.buckets.is_sorted());
        let none = LatencyView::of(&[]);
        assert_eq!(
            (none.count, none.latency.max_ns, none.buckets.len()),
            (0, 0, 0)
        );
    }
}
