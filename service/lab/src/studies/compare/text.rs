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
    let head = format!(
        "{} at scale {}: {} commands, {} put, {} alive at most; {}{}; Linux {}",
        workload.name,
        workload.scale,
        human::count_of(workload.commands),
        human::bytes(workload.bytes_put),
        human::bytes(workload.peak_bytes),
        clients(comparison.clients),
        comparison.journal(),
        comparison.kernel,
    );
    writeln!(out, "{head}\n")?;
    writeln!(out, "{}", title("Disk time, on a modelled drive", colour))?;
    modelled(out, comparison)?;
    writeln!(out, "{}", title(&comparison.where_measured(), colour))?;
    let images = "Below, for completeness: times measured here, which say as much about the machine and \
                  its other work as about the stores.";
    writeln!(out, "{images}\n")?;
    writeln!(out, "{}\n", table::measured(comparison))?;
    notes(out, comparison)?;
    heatmaps(out, comparison, colour)?;
    slowest(out, comparison, colour)
}

/// The answer: times on the modelled drives, and what follows from them.
fn modelled(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    let how = "The block requests of each store, as they were recorded here with who waited for \
               which, replayed through the model of a drive that is scaled like the workload. All \
               three commit in order. The time is the drive's alone: this machine's speed and load \
               do not enter it.";
    writeln!(out, "{how}\n")?;
    writeln!(out, "{}\n", table::modelled(comparison))?;
    for note in table::model_notes(comparison) {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "\n=> {}\n", comparison.conclusion)?;
    Ok(())
}

/// The stores with blocks of the last size: the details of all would fill pages, which `--report`
/// does.
fn last(comparison: &Comparison) -> impl Iterator<Item = &StoreView> {
    let size = comparison.stores.last().map(|store| store.block_size);
    let stores = comparison.stores.iter();
    stores.filter(move |store| Some(store.block_size) == size)
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
    last(comparison).filter_map(|store| Some((store, store.disk.as_ref()?)))
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
        writeln!(out, "{}: FAILED: {}", store.name(), store.failed)?;
    }
    for store in &comparison.stores {
        let Some(disk) = &store.disk else { continue };
        let name = store.name();
        if !disk.observed {
            any = true;
            let why = &disk.not_observed_because;
            let why = format!("{name}: what the disk did was not observed: {why}");
            writeln!(out, "{why}")?;
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
        "A column: how far the head went from the end of the request before (left: back,\n\
         right: forward, in bytes; 0: no seek). A row: how long the device then took.\n\
         {}\n",
        heatmap::legend(&scale, colour)
    )?;
    for (store, disk) in disks(comparison).filter(|(_, disk)| !disk.heat.is_empty()) {
        writeln!(out, "{} ({})", store.name(), disk.device)?;
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
        writeln!(out, "[{}]", store.name())?;
        for (index, request) in disk.slowest.iter().take(5).enumerate() {
            writeln!(out, "{}. {}", index + 1, request.sentence)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
