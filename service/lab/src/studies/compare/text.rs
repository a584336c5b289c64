//! A comparison as text for people.

use std::fmt::Write as _;

use super::report::{Comparison, DiskView, StoreView};
use super::{heatmap, table};
use crate::human;

/// The whole text, ending with a line feed. `colour`: the reader is a terminal.
pub(super) fn render(comparison: &Comparison, colour: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, comparison, colour);
    text
}

fn write_all(out: &mut String, comparison: &Comparison, colour: bool) -> std::fmt::Result {
    let workload = &comparison.workload;
    writeln!(
        out,
        "{} at scale {}: {} commands, {} put, {} alive at most; {}; Linux {}\n",
        workload.name,
        workload.scale,
        human::count_of(workload.commands),
        human::bytes(workload.bytes_put),
        human::bytes(workload.peak_bytes),
        clients(comparison.clients),
        comparison.kernel,
    )?;
    writeln!(out, "{}", title("Side by side", colour))?;
    writeln!(out, "{}\n", table::render(comparison))?;
    notes(out, comparison)?;
    writeln!(
        out,
        "{}",
        title("In the form of the published tables", colour)
    )?;
    for store in &comparison.stores {
        let Some(client) = &store.client else {
            continue;
        };
        writeln!(out, "[{}]", store.kind.name())?;
        for line in &client.published {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    heatmaps(out, comparison, colour)?;
    slowest(out, comparison, colour)
}

fn clients(clients: usize) -> String {
    if clients == 1 {
        "1 client".to_owned()
    } else {
        format!("{clients} clients")
    }
}

fn title(text: &str, colour: bool) -> String {
    if colour {
        return format!("\x1b[1m{text}\x1b[0m");
    }
    format!("{text}\n{}", "─".repeat(text.chars().count()))
}

fn disks(comparison: &Comparison) -> impl Iterator<Item = (&StoreView, &DiskView)> {
    comparison
        .stores
        .iter()
        .filter_map(|store| Some((store, store.disk.as_ref()?)))
}

/// Notes needed to judge the table.
fn notes(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    let mut any = false;
    for store in comparison
        .stores
        .iter()
        .filter(|store| !store.failed.is_empty())
    {
        any = true;
        writeln!(out, "{}: FAILED: {}", store.kind.name(), store.failed)?;
    }
    for (store, disk) in disks(comparison) {
        let name = store.kind.name();
        if !disk.observed {
            any = true;
            let why = &disk.not_observed_because;
            writeln!(out, "{name}: what the disk did was not observed: {why}")?;
        } else if !disk.audit.complete {
            any = true;
            writeln!(out, "{name}: {}", disk.audit.finding)?;
        }
    }
    for disk in &comparison.emulated {
        any = true;
        writeln!(out, "{disk}")?;
    }
    if any { writeln!(out) } else { Ok(()) }
}

fn heatmaps(out: &mut String, comparison: &Comparison, colour: bool) -> std::fmt::Result {
    let all = disks(comparison).map(|(_, disk)| disk.heat.as_slice());
    let Some(scale) = heatmap::Scale::new(all) else {
        return Ok(());
    };
    writeln!(out, "{}", title("Seek distance and device time", colour))?;
    writeln!(
        out,
        "How to read it: a column is how far the head went from the end of the request before\n\
         (left: back, right: forward, in bytes; 0: no seek), a row how long the device then took.\n\
         {}\n",
        heatmap::legend(&scale, colour)
    )?;
    for (store, disk) in disks(comparison).filter(|(_, disk)| !disk.heat.is_empty()) {
        writeln!(out, "{} ({})", store.kind.name(), disk.device)?;
        for line in heatmap::render(&disk.heat, &scale, colour) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn slowest(out: &mut String, comparison: &Comparison, colour: bool) -> std::fmt::Result {
    if disks(comparison).all(|(_, disk)| disk.slowest.is_empty()) {
        return Ok(());
    }
    writeln!(out, "{}", title("The slowest requests", colour))?;
    for (store, disk) in disks(comparison) {
        writeln!(out, "[{}]", store.kind.name())?;
        for (index, request) in disk.slowest.iter().take(5).enumerate() {
            let text = format!("{}. {}", index + 1, request.sentence);
            writeln!(out, "{}", wrap(&text, 98))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Lines of at most `width` characters; all but the first are indented.
fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            wrapped.push_str("\n   ");
            column = 3;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += length;
    }
    wrapped
}

#[cfg(test)]
pub(super) mod tests;
