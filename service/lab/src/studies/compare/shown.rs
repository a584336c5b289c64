//! A comparison as a report.

use std::collections::BTreeMap;

use lumpscope_proto::v1::{OperationReport, StoreReport};

use super::conclusion;
use super::report::{Comparison, StoreView};
use super::table::{self, STAGES};
use super::watch::OWNERS;
use crate::disks::StoreKind;
use crate::experiment::report::{
    Axis, Bar, Bars, Cdf, Heat, HeatCell, HeatPanel, Report, Scatter, ScatterPanel, Section, Unit,
    Verbatim,
};
use crate::human;

/// Slow requests of a store that are told.
const SLOWEST: usize = 3;

/// The comparison. `charts`: the report is for more than a terminal.
pub(super) fn report(comparison: &Comparison, charts: bool) -> Report {
    let names = StoreKind::ALL.map(StoreKind::name).join(", ");
    let mut report = Report::new(format!("{} on {names}", comparison.workload.name));
    report.summary.push(conclusion::of(comparison));
    facts(&mut report, comparison);
    modelled(report.section("Disk time, on a modelled drive"), comparison);
    report
        .section(comparison.where_measured())
        .say(
            "Times measured here, which say as much about this machine and its other work as about \
             the stores.",
        )
        .add(table::measured(comparison));
    let shown: Vec<&StoreView> = match charts {
        true => comparison.stores.iter().collect(),
        false => last(comparison).collect(),
    };
    if charts {
        latency(report.section("Latency, as the client saw it"), comparison);
        stages(report.section("Where the time went"), comparison);
    }
    disks(report.section("What the disks did"), &shown);
    slowest(report.section("The slowest requests"), &shown);
    if charts {
        let section = report.section("In the form of the published tables");
        for store in &comparison.stores {
            section.add(Verbatim {
                caption: store.name(),
                text: store.client.published.join("\n"),
            });
        }
    }
    report
}

/// The stores with blocks of the last size: the details of all would fill pages.
fn last(comparison: &Comparison) -> impl Iterator<Item = &StoreView> {
    let size = comparison.stores.last().map(|store| store.block_size);
    let stores = comparison.stores.iter();
    stores.filter(move |store| Some(store.block_size) == size)
}

fn facts(report: &mut Report, comparison: &Comparison) {
    let workload = &comparison.workload;
    report.fact(
        "Workload",
        format!(
            "{} at scale {}: {} commands, {} put, at most {} alive",
            workload.name,
            workload.scale,
            human::count_of(workload.commands),
            human::bytes(workload.bytes_put),
            human::bytes(workload.peak_bytes)
        ),
    );
    report.fact("Requests in flight", comparison.clients.to_string());
    let disks = match comparison.disks.as_str() {
        "lab" => "created for the comparison, and gone after it",
        "own" => "the user's",
        emulated => emulated,
    };
    report.fact("Disks", format!("{disks}{}", comparison.journal()));
    for disk in &comparison.emulated {
        report.fact("Lateness", disk.to_string());
    }
    for store in &comparison.stores {
        let name = store.name();
        if !store.for_report.disk.is_empty() {
            report.fact(format!("Disk of {name}"), &store.for_report.disk);
        }
        let Some(disk) = &store.disk else { continue };
        if !disk.observed {
            let why = &disk.not_observed_because;
            let unseen = format!("{name}: its disk was not observed: {why}");
            report.findings.differs.push(unseen);
        } else if let Some(audit) = disk.audit.as_ref().filter(|audit| !audit.complete) {
            let finding = format!("{name}: {}", audit.finding);
            report.findings.differs.push(finding);
        }
    }
}

/// The answer: times on the modelled drives.
fn modelled(section: &mut Section, comparison: &Comparison) {
    section.say(
        "The block requests of each store, as they were recorded here with who waited for which, \
         replayed through the model of a drive that is scaled like the workload. All stores commit \
         in order. The time is the drive's alone: this machine's speed and load do not enter it.",
    );
    for note in table::model_notes(comparison) {
        section.say(note);
    }
    section.add(table::modelled(comparison));
}

fn latency(section: &mut Section, comparison: &Comparison) {
    let stores = &comparison.stores;
    let curves = stores.iter().flat_map(|store| &store.for_report.curves);
    for kind in table::unique(curves.map(|curve| &curve.name)) {
        let of = |store: &StoreView| {
            let mut curves = store.for_report.curves.iter();
            let mut curve = curves.find(|curve| curve.name == *kind)?.clone();
            curve.name = store.name();
            Some(curve)
        };
        section.add(Cdf {
            caption: format!("How long {kind} took: call to answer."),
            x: Axis::log("Latency", Unit::Nanoseconds),
            curves: stores.iter().filter_map(of).collect(),
        });
    }
}

fn stages(section: &mut Section, comparison: &Comparison) {
    let stores = &comparison.stores;
    section.say(
        "Mean time of a request in each stage of the service: received, scheduled, index lookup, \
         handed to the block layer, queued there, in the device; of a commit: journal, waiting for \
         the batch before, writing, flushing; answered.",
    );
    for method in table::methods(stores) {
        let mean = |operation: &OperationReport, stage: &str| {
            human::ratio(table::stage_ns(operation, stage), operation.count).unwrap_or(0.0)
        };
        let bar = |store: &StoreView| {
            let operation = table::operation(store.disk.as_ref()?, &method)?;
            Some(Bar {
                name: store.name(),
                values: STAGES.map(|stage| mean(operation, stage)).to_vec(),
            })
        };
        section.add(Bars {
            caption: format!("Where the time of a {method} went, on average."),
            title: format!("Time of one {method}"),
            unit: Unit::Nanoseconds,
            parts: STAGES.map(str::to_owned).to_vec(),
            bars: stores.iter().filter_map(bar).collect(),
        });
    }
}

fn disks(section: &mut Section, stores: &[&StoreView]) {
    let disks = || {
        let stores = stores.iter();
        stores.filter_map(|store| Some((store.name(), store.disk.as_ref()?)))
    };
    let bar = |(name, disk): (String, &StoreReport)| {
        let requests = |class| human::as_float(table::requests_of(disk, class));
        let values = OWNERS.map(requests).to_vec();
        Bar { name, values }
    };
    section.add(Bars {
        caption: "Block requests by who made them, flushes among them.".to_owned(),
        title: "Block requests".to_owned(),
        unit: Unit::Count,
        parts: OWNERS.map(str::to_owned).to_vec(),
        bars: disks().map(bar).collect(),
    });
    section.add(Heat {
        caption: "Seek distance from the end of the previous request, and time in the device."
            .to_owned(),
        x: Axis::linear("seek distance", Unit::Bytes),
        y: Axis::linear("time in the device", Unit::Nanoseconds),
        counted: "requests".to_owned(),
        panels: disks().map(|(name, disk)| heat(name, disk)).collect(),
    });
    let panel = |store: &&StoreView| {
        let seen = store.for_report.seen.as_ref()?;
        let (name, groups) = (store.name(), seen.groups.clone());
        Some(ScatterPanel { name, groups })
    };
    section.add(Scatter {
        caption: "Every read and write: when, and where on the disk, by who made it.".to_owned(),
        x: Axis::linear("Time since the first request", Unit::Nanoseconds),
        y: Axis::linear("First byte on the disk", Unit::Bytes),
        counted: "requests".to_owned(),
        panels: stores.iter().filter_map(panel).collect(),
    });
}

fn heat(name: String, disk: &StoreReport) -> HeatPanel {
    let is_data = |operation: &str| matches!(operation, "read" | "write");
    let (data, others): (Vec<_>, Vec<_>) =
        disk.heat.iter().partition(|cell| is_data(&cell.operation));
    // Cells of several owners and operations lie on each other: one cell counts them all.
    let mut counts = BTreeMap::new();
    for cell in data {
        let seek = (cell.seek_from_bytes, cell.seek_to_bytes);
        let device = (cell.device_from_ns, cell.device_to_ns);
        *counts.entry((seek, device)).or_insert(0) += cell.count;
    }
    let cells = counts.into_iter().map(|((seek, device), count)| HeatCell {
        x: (signed(seek.0), signed(seek.1)),
        y: (human::as_float(device.0), human::as_float(device.1)),
        count,
    });
    HeatPanel {
        name,
        cells: cells.collect(),
        left_out: others.iter().map(|cell| cell.count).sum(),
    }
}

fn signed(number: i64) -> f64 {
    let size = human::as_float(number.unsigned_abs());
    if number < 0 { -size } else { size }
}

fn slowest(section: &mut Section, stores: &[&StoreView]) {
    for store in stores {
        let requests = store.disk.iter().flat_map(|disk| &disk.slowest);
        for request in requests.take(SLOWEST) {
            section.say(format!("{}: {}", store.name(), request.sentence));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
