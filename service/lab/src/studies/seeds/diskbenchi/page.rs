//! The result as a report.

use super::args::ODD_OFFSET;
use super::report::{ROWS, Report, most_published, place, range};
use crate::disks::StoreKind;
use crate::experiment::report::{Cell, Page, Setup, Table, Unit};
use crate::studies::predict::Rule;
use crate::studies::seeds::pictures;
use crate::studies::seeds::published::DISKBENCHI;

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact("Drive", self.drive.clone());
        setup.fact(
            "Runs",
            format!(
                "{} of each, {} writes of {} bytes",
                self.runs, self.count, self.block
            ),
        );
        let mut page = Page::new("Direct writes to a new file, from byte 0 and 3584", setup);
        page.findings = self.findings.clone();
        page.section("Times").add(self.times());
        page.section("Requests").add(self.requests());
        let traces = self
            .traces
            .iter()
            .map(|(name, trace)| (name.as_str(), trace));
        pictures::add(&mut page, traces);
        page
    }

    pub(super) fn requests(&self) -> Table {
        let places = self.places();
        let names: Vec<String> = places.iter().map(|(kind, at)| place(*kind, *at)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut table = Table::new("What the disk was asked for, over all runs.", &names);
        for (name, of) in ROWS {
            let cells = places
                .iter()
                .map(|at| Cell::text(range(self.at(*at).map(of))));
            table.row(name, cells.collect());
        }
        table.notes = self.notes.iter().map(|note| (*note).to_owned()).collect();
        table
    }

    pub(super) fn times(&self) -> Table {
        let columns = ["writes", "from 0, s", "from 3584, s", "ratio"];
        let caption = "Predicted seconds, scaled to the published writes: medians and ranges.";
        let mut table = Table::new(caption, &columns);
        table.group("published, xfs");
        for (writes, even, odd) in DISKBENCHI {
            let seconds = |value| Cell::Value(value, Unit::Plain);
            table.row(
                "published",
                vec![
                    Cell::text(writes.to_string()),
                    seconds(even),
                    seconds(odd),
                    Cell::Value(odd / even, Unit::Ratio),
                ],
            );
        }
        for kind in [StoreKind::Xfs, StoreKind::Ext4] {
            if !self.places().iter().any(|place| place.0 == kind) {
                continue;
            }
            table.group(kind.name());
            if let Some(rule) = self.live {
                let (even, odd) = (self.measured((kind, 0)), self.measured((kind, ODD_OFFSET)));
                let ratio = even.zip(odd).map(|(even, odd)| odd.median / even.median);
                let cells = vec![
                    Cell::text(most_published().to_string()),
                    Cell::spread(even, Unit::Plain),
                    Cell::spread(odd, Unit::Plain),
                    Cell::value(ratio, Unit::Ratio),
                ];
                table.row(format!("MEASURED, {}", rule.name()), cells);
            }
            for rule in Rule::ALL {
                for (writes, ..) in DISKBENCHI {
                    let seconds = |offset| {
                        let predicted = self.predicted((kind, offset), rule, writes);
                        Cell::spread(predicted, Unit::Plain)
                    };
                    table.row(
                        rule.name(),
                        vec![
                            Cell::text(writes.to_string()),
                            seconds(0),
                            seconds(ODD_OFFSET),
                            Cell::spread(self.ratio(kind, rule, writes), Unit::Ratio),
                        ],
                    );
                }
            }
        }
        table
    }
}
