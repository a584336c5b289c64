//! The result as a report.

use super::report::{Line, NOTES, Report};
use crate::experiment::report::{Axis, Cell, Page, Range, Ranges, Setup, Spread, Table, Unit};
use crate::human;

fn spread(line: &Line) -> Spread {
    let [min, median, max] = line.times_fifo;
    Spread { median, min, max }
}

fn way(line: &Line) -> String {
    let (policy, at_disk, drive) = (line.policy, line.at_disk, line.drive_order);
    format!("{policy}, {at_disk} at the drive ({drive})")
}

fn load(line: &Line) -> String {
    let bytes = human::bytes(line.size);
    format!("{bytes}, {} in flight", line.in_flight)
}

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        let (requests, rounds, bound) = (self.requests, self.rounds, self.max_overtakes);
        setup.fact("Emulated drive", self.drive.clone());
        setup.fact(
            "Runs",
            format!("{requests} gets a run, {rounds} seeds, bound {bound}"),
        );
        let mut page = Page::new("The order of waiting gets", setup);
        let section = page.section("Orders on an emulated disk");
        for note in NOTES {
            section.say(note);
        }
        section.add(self.picture()).add(self.table());
        page
    }

    fn picture(&self) -> Ranges {
        let row = |line: &Line| Range {
            name: format!("{}: {}", load(line), way(line)),
            spread: Some(spread(line)),
            ..Range::default()
        };
        Ranges {
            caption: "Gets a second to those of fifo with one I/O at the drive, seed by seed."
                .to_owned(),
            x: Axis::linear("Times fifo", Unit::Ratio),
            reference: Some((1.0, "fifo".to_owned())),
            rows: self.lines.iter().map(row).collect(),
        }
    }

    /// All lines, grouped by load.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(
            "Medians over the seeds; the longest latency and the most overtakes of all of them.",
            &[
                "gets/s",
                "times fifo",
                "mean",
                "p99",
                "max",
                "overtaken",
                "answered before",
            ],
        );
        let mut group = String::new();
        for line in &self.lines {
            let load = load(line);
            if load != group {
                table.group(load.clone());
                group = load;
            }
            let time = |ns: f64| Cell::Value(ns, Unit::Nanoseconds);
            table.row(
                way(line),
                vec![
                    Cell::Value(line.rate, Unit::PerSecond),
                    Cell::spread(Some(spread(line)), Unit::Ratio),
                    time(line.mean_ns),
                    time(line.p99_ns),
                    Cell::text(human::duration_ns(line.max_ns)),
                    Cell::text(line.overtaken.to_string()),
                    Cell::text(line.answered_before.to_string()),
                ],
            );
        }
        table
    }
}
