//! Emulated disks as a table.

use lumpscope_lab::disks::EmulatedView;
use lumpscope_platter::live::{Listed, Status};
use lumpscope_units::human;

use crate::output::{escaped, table};

/// One line a disk, and below what is wrong and who uses them.
pub(super) fn status(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "no emulated disks".to_owned();
    }
    let mut table = table(&[
        "device",
        "drive",
        "size",
        "scale",
        "age",
        "reads",
        "writes",
        "flushes",
        "late: mean",
        "p99",
        "max",
        "came late",
        "memory",
        "of",
    ]);
    for column in 2..14 {
        table.right(column);
    }
    let mut notes = String::new();
    for disk in listed {
        let device = disk.device.display().to_string();
        let size = human::bytes(disk.options.bytes.unwrap_or(0));
        let mut row = vec![device.clone(), disk.options.drive.clone(), size];
        row.push(format!("{}x", disk.options.scale));
        row.extend(disk.status.as_ref().map(cells).unwrap_or_default());
        table.add_row(row);
        if let Some(bad) = disk.status.as_ref().and_then(bad) {
            notes.push_str(&format!("{device}: {bad}\n"));
        }
        for note in disk.problem.iter().chain(&disk.holders) {
            notes.push_str(&format!("{device}: {}\n", escaped(note)));
        }
        if disk
            .status
            .as_ref()
            .is_some_and(|status| !status.runs_first)
        {
            notes.push_str(&format!(
                "{device}: its threads have no real-time priority (CAP_SYS_NICE), so a busy \
                 machine makes it late\n"
            ));
        }
    }
    format!("{table}\n{notes}")
}

/// The bad spots of a disk, if it has some.
fn bad(status: &Status) -> Option<String> {
    let spots = &status.options.bad_spots;
    let bytes = human::bytes(spots.iter().map(|spot| spot.bytes).sum());
    let failed = human::count(status.counts.failed);
    let number = human::count_of(spots.len());
    (!spots.is_empty()).then(|| format!("bad spots: {number}, {bytes}; requests failed: {failed}"))
}

fn cells(status: &Status) -> Vec<String> {
    let counts = &status.counts;
    let mut cells = vec![format!("{} s", status.age_seconds)];
    cells.extend([counts.reads, counts.writes, counts.flushes].map(|n| n.to_string()));
    let late = &status.lateness;
    cells.extend([late.mean_ns, late.p99_ns, late.max_ns].map(human::duration_ns));
    let came = EmulatedView::new("", status).came_late_mean_ns;
    cells.push(came.map_or_else(|| "-".to_owned(), human::duration_ns));
    cells.extend([status.memory_used, status.memory_bound].map(human::bytes));
    cells
}
