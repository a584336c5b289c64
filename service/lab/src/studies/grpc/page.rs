//! The result as a report.

use super::report::{self, Report};
use crate::experiment::report::{Cell, Compared, Page, Setup, Table, Unit};
use crate::human;

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut page = Compared::page(
            if self.working_peer {
                "The service through gRPC, beside one that works in memory"
            } else {
                "The service through gRPC, beside one that stores nothing"
            },
            self.setup(),
            &report::Compared::compared(&self.figures),
            "Ours to the peer's, round by round.",
            &self.notes,
        );
        page.findings.hypotheses.extend(self.doubt());
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
        setup.fact("HTTP/2", self.transport.to_string());
        setup
    }

    /// Promises beside speed.
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
