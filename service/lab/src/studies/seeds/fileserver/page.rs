//! The result as a report.

use super::{Report, Row};
use crate::experiment::report::{Axis, Cell, Page, Range, Ranges, Setup, Table, Unit};

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact(
            "Runs",
            format!(
                "{} rounds of {} s a run, {} clients, {} lumps",
                self.rounds, self.seconds_per_run, self.clients, self.files
            ),
        );
        let mut page = Page::new("What observing costs a file server", setup);
        let section = page.section("Cost of the probes");
        section.add(self.picture());
        section.add(table("The published sums, and ours.", &self.summary));
        let mut flowops = table("Operations a second, by kind.", &self.flowops);
        flowops.notes = self.notes.map(str::to_owned).to_vec();
        section.add(flowops);
        page
    }

    fn picture(&self) -> Ranges {
        let row = |name: &str, spread, published| Range {
            name: name.to_owned(),
            spread,
            goal: None,
            published,
        };
        let mut rows = Vec::new();
        for one in &self.summary {
            let name = one.published.name;
            rows.push(row(name, one.cost, Some(one.published.cost / 100.0)));
            rows.push(row(&format!("{name}, A/A"), one.noise, None));
        }
        Ranges {
            caption: "Share of the speed that was lost, round by round.".to_owned(),
            x: Axis::linear("Cost: share of the speed that was lost", Unit::Share),
            reference: Some((0.0, "no cost".to_owned())),
            rows,
        }
    }
}

fn table(caption: &str, rows: &[Row]) -> Table {
    let columns = [
        "without probes",
        "with probes",
        "cost",
        "A/A",
        "published without",
        "published with",
        "published cost",
    ];
    let mut table = Table::new(caption, &columns);
    for row in rows {
        let published = row.published;
        let name = match row.no_counterpart {
            None => published.name.to_owned(),
            Some(why) => format!("{} ({why})", published.name),
        };
        table.row(
            name,
            vec![
                Cell::spread(row.without, Unit::Plain),
                Cell::spread(row.with, Unit::Plain),
                Cell::spread(row.cost, Unit::Share),
                Cell::spread(row.noise, Unit::Share),
                Cell::Value(published.without, Unit::Plain),
                Cell::Value(published.with, Unit::Plain),
                Cell::Value(published.cost / 100.0, Unit::Share),
            ],
        );
    }
    table
}
