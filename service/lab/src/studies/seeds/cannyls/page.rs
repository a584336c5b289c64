//! The result as a report.

use super::report::{REASONS, RULES, Report};
use crate::disks::StoreKind;
use crate::experiment::report::{Axis, Cell, Page, Range, Ranges, Setup, Table, Unit};
use crate::studies::seeds::diskbenchi::range;
use crate::studies::seeds::pictures;

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact("Drive", self.drive.clone());
        setup.fact("Scale of workloads and drive", self.scale.to_string());
        setup.fact("Runs of each", self.runs_of_each.to_string());
        let mut page = Page::new("Raw disk, ext4 and xfs under a store of lumps", setup);
        page.findings = self.findings.clone();
        page.summary.push(self.conclusion());
        page.section("Penalty").add(self.penalties());
        page.section("Ratios").add(self.ratios()).add(self.times());
        page.section("Reasons").add(self.reasons());
        if let Some(table) = self.variations() {
            page.section("Variations").add(table);
        }
        let traces = self.traces.iter().map(|(workload, case, trace)| {
            let name = format!("{workload}, {}", case.kind.name());
            (name, trace)
        });
        let traces: Vec<_> = traces.collect();
        pictures::add(
            &mut page,
            traces.iter().map(|(name, trace)| (name.as_str(), *trace)),
        );
        page
    }

    fn ratios(&self) -> Ranges {
        let mut rows = Vec::new();
        for group in self.groups() {
            let published = self
                .published
                .iter()
                .find(|row| row.workload == group.workload);
            for (at, rule) in RULES.iter().enumerate() {
                for (kind, column) in [(StoreKind::Ext4, 1), (StoreKind::Xfs, 2)] {
                    rows.push(Range {
                        name: format!(
                            "{}, {}, {}, {}, {}",
                            group.workload,
                            group.engine.name(),
                            group.block_size,
                            kind.name(),
                            rule.name()
                        ),
                        spread: self.ratio(group, kind, at),
                        goal: None,
                        published: published.map(|row| row.ratios[column]),
                    });
                }
            }
        }
        Ranges {
            caption: "Time over that on the raw disk, beside the published ratio.".to_owned(),
            x: Axis::log("Time over that on the raw disk", Unit::Ratio),
            reference: Some((1.0, "as on the raw disk".to_owned())),
            rows,
        }
    }

    fn times(&self) -> Table {
        let columns = ["raw, s", "raw at full scale, s", "ext4, s", "xfs, s"];
        let mut table = Table::new("Predicted seconds: medians and ranges.", &columns);
        for group in self.groups() {
            for (at, rule) in RULES.iter().enumerate() {
                let seconds = |kind| self.seconds(group, kind, at);
                let full = seconds(StoreKind::Raw).map(|raw| raw.median / self.scale);
                let shown = |kind| Cell::spread(seconds(kind), Unit::Plain);
                table.row(
                    format!(
                        "{}, {}, {}, {}",
                        group.workload,
                        group.engine.name(),
                        group.block_size,
                        rule.name()
                    ),
                    vec![
                        shown(StoreKind::Raw),
                        Cell::value(full, Unit::Plain),
                        shown(StoreKind::Ext4),
                        shown(StoreKind::Xfs),
                    ],
                );
            }
        }
        table
    }

    pub(super) fn reasons(&self) -> Table {
        let mut columns: Vec<&str> = REASONS.iter().map(|(name, _)| *name).collect();
        columns.push("beyond raw");
        let mut table = Table::new("What the disks were asked for, over all runs.", &columns);
        for group in self.groups() {
            table.group(format!(
                "{}, {} engine, blocks of {}",
                group.workload,
                group.engine.name(),
                group.block_size
            ));
            for kind in StoreKind::ALL {
                let of = |(_, of): &(_, super::report::Reason)| {
                    Cell::text(range(self.of(group, kind).map(*of)))
                };
                let mut cells: Vec<Cell> = REASONS.iter().map(of).collect();
                cells.push(Cell::text(range(self.beyond_raw(group, kind))));
                table.row(kind.name(), cells);
            }
        }
        table.notes = self.notes.iter().map(|note| (*note).to_owned()).collect();
        table
    }
}
