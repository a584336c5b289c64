//! The result as a report.

use super::report::{self, Report};
use crate::experiment::report::{Compared, Page, Setup};
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
        let mut page = Compared::page(
            "The engine beside fio and the original",
            setup,
            &report::Compared::compared(&self.figures),
            "Ours to the peer's, round by round.",
            &self.notes,
        );
        page.findings.differs.extend(
            self.failures
                .iter()
                .map(|why| format!("Failed, left out: {why}")),
        );
        page
    }
}
