//! The result as a report.

use super::report::{FigureView, Report, Unit as Measure};
use crate::experiment::report::{Cell, Compared, Goal, Page, Setup, Table, Unit};
use crate::human;

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let rows: Vec<Compared> = self.figures.iter().map(FigureView::compared).collect();
        let mut page = Page::new(
            "The service through gRPC, beside one that stores nothing",
            self.setup(),
        );
        page.summary.push(Compared::summary(&rows));
        page.findings = Compared::findings(&rows);
        page.findings.hypotheses.extend(self.doubt());
        let section = page.section("Ratios");
        section.add(Compared::picture(
            &rows,
            "Ours to the peer's, round by round.",
        ));
        let mut table = Compared::table(&rows, "peer", "Medians, and the ranges of all rounds.");
        table.notes = self.notes.map(str::to_owned).to_vec();
        section.add(table);
        if self.memory.is_some() || self.resets.is_some() {
            let section = page.section("Memory, and what resets leave behind");
            section.add(self.promises());
        }
        page
    }

    fn setup(&self) -> Setup {
        let mut setup = Setup::of(&self.machine);
        let speed = |value| Unit::BytesPerSecond.text(value);
        setup.fact(
            "Store",
            format!(
                "{} MiB in {} ({}), which alone writes {} and reads {}",
                self.store_mib,
                self.disk.dir.display(),
                self.disk.file_system,
                speed(self.disk.write_bytes_per_second),
                speed(self.disk.read_bytes_per_second)
            ),
        );
        setup.disk("Disk", &self.disk.dir);
        setup.fact("Probes", if self.probes { "on" } else { "off" });
        setup.fact(
            "Runs",
            format!(
                "{} rounds of {} s a run, {} calls under way on each connection",
                self.rounds, self.seconds_per_run, self.calls_per_connection
            ),
        );
        setup.fact("HTTP/2", format!("{:?}", self.transport));
        setup
    }

    /// What is promised beside speed.
    fn promises(&self) -> Table {
        let mut table = Table::new(
            "What is promised beside speed.",
            &["seen", "goal", "verdict"],
        );
        let verdict = |met: bool| {
            let words = if met { "met" } else { "missed" };
            Cell::Verdict(words.to_owned(), Some(met))
        };
        if let Some(memory) = &self.memory {
            let name = format!(
                "most memory while {} clients put 4 MiB each",
                memory.clients
            );
            let goal = format!("≤ {}", human::bytes(memory.goal_bytes));
            let seen = Cell::text(human::bytes(memory.peak_bytes));
            table.row(name, vec![seen, Cell::Text(goal), verdict(memory.met)]);
        }
        if let Some(resets) = &self.resets {
            let name = format!("left in use by {} puts that were reset", resets.resets);
            let seen =
                |bytes: Option<f64>| bytes.map_or("?".to_owned(), |bytes| format!("{bytes} B"));
            let seen = format!(
                "{} lumps, {} of buffers, {} of bodies, {} B of disk",
                resets.visible,
                seen(resets.leaked_buffer_bytes),
                seen(resets.leaked_body_bytes),
                resets.leaked_disk_bytes
            );
            table.row(
                name,
                vec![Cell::Text(seen), Cell::text("0"), verdict(resets.met)],
            );
        }
        table
    }
}

impl FigureView {
    fn compared(&self) -> Compared {
        let (unit, goal): (Unit, fn(f64) -> Goal) = match self.unit {
            Measure::BytesPerSecond => (Unit::BytesPerSecond, Goal::AtLeast),
            Measure::Nanoseconds => (Unit::Nanoseconds, Goal::AtMost),
            Measure::CpuSecondsPerGib => (Unit::SecondsPerGib, Goal::AtMost),
        };
        Compared {
            name: self.name.clone(),
            unit,
            ours: self.ours,
            peer: self.peer,
            ratio: self.ratio,
            goal: self.goal.map(goal),
            met: self.met,
        }
    }
}
