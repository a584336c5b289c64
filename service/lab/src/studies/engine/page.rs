//! The result as a report.

use super::figures::Unit as Measure;
use super::report::{FigureView, Report};
use crate::experiment::report::{Compared, Goal, Page, Setup, Unit};
use crate::human;

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact(
            "Target",
            format!("{}, {}", self.target, human::bytes(self.target_bytes)),
        );
        let backend = self.io_backend.as_deref().unwrap_or("none");
        setup.fact("Our I/O backend", backend);
        for (name, peer) in [("fio", &self.fio), ("cannyls", &self.cannyls)] {
            let missing = peer.missing.iter().map(|why| format!("missing: {why}"));
            let said = peer.version.iter().cloned().chain(missing);
            setup.fact(name, said.collect::<Vec<_>>().join(", "));
        }
        setup.fact(
            "Runs",
            format!(
                "{} rounds of {} asked for; {} s a run",
                self.rounds, self.rounds_asked, self.seconds_per_run
            ),
        );
        let rows: Vec<Compared> = self.figures.iter().map(FigureView::compared).collect();
        let mut page = Page::new("The engine beside fio and the original", setup);
        page.summary.push(Compared::summary(&rows));
        page.findings = Compared::findings(&rows);
        page.findings.differs.extend(
            self.failures
                .iter()
                .map(|why| format!("Failed, left out: {why}")),
        );
        let section = page.section("Ratios");
        section.add(Compared::picture(
            &rows,
            "Ours to the peer's, round by round.",
        ));
        let mut table = Compared::table(&rows, "peer", "Medians, and the ranges of all rounds.");
        table.notes = self.notes.map(str::to_owned).to_vec();
        section.add(table);
        page
    }
}

impl FigureView {
    fn compared(&self) -> Compared {
        let goal = if self.higher_is_better {
            Goal::AtLeast
        } else {
            Goal::AtMost
        };
        Compared {
            name: self.name.clone(),
            unit: match self.unit {
                Measure::BytesPerSecond => Unit::BytesPerSecond,
                Measure::RequestsPerSecond => Unit::PerSecond,
                Measure::Nanoseconds => Unit::Nanoseconds,
            },
            ours: self.ours,
            peer: self.peer,
            ratio: self.ratio,
            goal: self.goal.map(goal),
            met: self.met,
        }
    }
}
