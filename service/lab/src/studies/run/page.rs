//! A run as a report.

use super::report::Report;
use crate::experiment::report::{
    Axis, Cdf, Cell, Curve, Line, Lines, Page, Setup, Table, Unit, Verbatim,
};
use crate::human;
use crate::stats::{Percentiles, Slot};

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact("Workload", self.workload_text());
        setup.fact("Run by", self.engine.as_str());
        setup.fact("On", self.place.what.as_str());
        if let Some(bytes) = self.place.block_size {
            setup.fact("Block", human::bytes(bytes.into()));
        }
        setup.fact("Durability", self.durability.as_str());
        setup.fact("In flight", self.clients.to_string());
        let mut page = Page::new(format!("Workload {}", self.workload.name), setup);
        page.summary.push(format!(
            "{} commands in {:.3} s; {} put, {} got",
            human::count_of(self.workload.commands),
            self.wall_seconds,
            human::bytes(self.bytes_put),
            human::bytes(self.bytes_got),
        ));
        page.summary.extend(self.verified_text());
        let section = page.section("Latencies");
        section.add(Cdf {
            caption: "Latency of a call, by kind and size.".to_owned(),
            x: Axis::log("latency", Unit::Nanoseconds),
            curves: self
                .kinds
                .iter()
                .map(|view| curve(&view.kind, &view.latency))
                .collect(),
        });
        section.add(self.percentile_table());
        let lines = self.published.join("\n");
        section.add(Verbatim {
            caption: "As the published tables print them.".to_owned(),
            text: lines,
        });
        page.section("Over time").add(self.throughput_lines());
        page
    }

    pub(super) fn percentile_table(&self) -> Table {
        let columns = [
            "count", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "longest", "mean",
        ];
        let mut table = Table::new("Percentiles from HDR histograms.", &columns);
        let kinds = self
            .kinds
            .iter()
            .map(|view| (view.kind.as_str(), &view.latency));
        for (name, latency) in kinds.chain([("all", &self.overall)]) {
            let mut cells = vec![Cell::text(human::count(latency.count))];
            cells.extend(
                [
                    latency.p50_ns,
                    latency.p90_ns,
                    latency.p95_ns,
                    latency.p99_ns,
                    latency.p999_ns,
                    latency.p9999_ns,
                    latency.max_ns,
                ]
                .map(|ns| Cell::Value(human::as_float(ns), Unit::Nanoseconds)),
            );
            cells.push(Cell::Value(latency.mean_ns, Unit::Nanoseconds));
            table.row(name, cells);
        }
        table.notes.clone_from(&self.notes);
        table
    }

    fn throughput_lines(&self) -> Lines {
        let slot = self.series.slot_seconds;
        let line = |name: &str, bytes: fn(&Slot) -> u64| Line {
            name: name.to_owned(),
            points: self
                .series
                .slots
                .iter()
                .enumerate()
                .map(|(index, one)| {
                    let index = u64::try_from(index).unwrap_or(u64::MAX);
                    let seconds = human::as_float(index) * slot;
                    (seconds * 1e9, human::as_float(bytes(one)) / slot)
                })
                .collect(),
        };
        Lines {
            caption: "Bytes of lumps put and got; the last point may be of a part of its slot."
                .to_owned(),
            x: Axis::linear("since the first command", Unit::Nanoseconds),
            y: Axis::linear("throughput", Unit::BytesPerSecond),
            lines: vec![
                line("put", |slot| slot.bytes_put),
                line("got", |slot| slot.bytes_got),
            ],
        }
    }
}

fn curve(name: &str, latency: &Percentiles) -> Curve {
    let steps = latency.buckets.iter();
    Curve {
        name: name.to_owned(),
        steps: steps
            .map(|(ns, count)| (human::as_float(*ns), *count))
            .collect(),
        left_out: 0,
    }
}
