//! The result as a report.

use super::report::{LIVE_GOAL, NOTES, REPLAY_GOAL, Report, Row, off};
use crate::experiment::report::{Axis, Cell, Page, Range, Ranges, Setup, Spread, Table, Unit};
use crate::human;

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact("Emulated drive", self.drive.clone());
        setup.fact("Rounds", self.rounds.to_string());
        let mut page = Page::new("A live emulated disk beside its model", setup);
        page.findings = self.findings.clone();
        let section = page.section("Live, model and replay");
        for note in NOTES {
            section.say(note);
        }
        let live = ranges(&self.rows, "Live over model", LIVE_GOAL, |row| {
            row.live_over_model
        });
        let replay = ranges(&self.rows, "Replay over live", REPLAY_GOAL, |row| {
            row.replay_over_live
        });
        section.add(live).add(replay).add(self.table());
        page
    }

    pub(super) fn table(&self) -> Table {
        let columns = [
            "requests",
            "model, s",
            "live, s",
            "live/model",
            "replay/live",
            "late: mean",
            "p99",
            "max",
            "all seen",
        ];
        let mut table = Table::new(
            "Medians and ranges over the rounds; the latest answers of all.",
            &columns,
        );
        table.corner = "pattern".to_owned();
        for row in &self.rows {
            let mut cells = vec![
                Cell::text(row.requests.to_string()),
                Cell::Value(row.model_seconds, Unit::Plain),
                Cell::spread(row.live_seconds, Unit::Plain),
                Cell::text(off(row.live_over_model)),
                Cell::text(off(row.replay_over_live)),
            ];
            cells.extend(row.late_ns.map(|ns| Cell::text(human::duration_ns(ns))));
            let seen = if row.all_seen { "yes" } else { "no" };
            cells.push(Cell::Verdict(seen.to_owned(), Some(row.all_seen)));
            table.row(format!("{}: {}", row.name, row.title), cells);
        }
        table
    }
}

fn ranges(rows: &[Row], what: &str, goal: f64, of: impl Fn(&Row) -> Option<Spread>) -> Ranges {
    let plus_one = |spread: Spread| Spread {
        median: spread.median + 1.0,
        min: spread.min + 1.0,
        max: spread.max + 1.0,
    };
    Ranges {
        caption: format!("{what}; the goal is within {:.0} %.", goal * 100.0),
        x: Axis::log(what, Unit::Ratio),
        reference: Some((1.0, "the same".to_owned())),
        rows: rows
            .iter()
            .map(|row| Range {
                name: row.name.to_owned(),
                spread: of(row).map(plus_one),
                ..Range::default()
            })
            .collect(),
    }
}
