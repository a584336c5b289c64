//! A comparison as a report.

use lumpscope_proto::v1::OperationReport;

use super::report::{Comparison, DiskView, StoreView};
use super::table::{self, STAGES};
use super::watch::OWNERS;
use crate::disks::StoreKind;
use crate::experiment::report::{
    Axis, Bar, Bars, Cdf, Cell, ENOUGH_RUNS, Heat, HeatCell, HeatPanel, Page, Range, Ranges,
    Scatter, ScatterPanel, Section, Setup, Spread, Table, TraceParts, Undecided, Unit, Verbatim,
    of_trace,
};
use crate::human;

/// How far a ratio may be from the published one and still agree with it.
const NEAR: f64 = 0.1;
/// How far the modelled ratios of two runs by one client may be apart.
const REPEATS: f64 = 0.01;
/// Slow requests of a store that are told.
const SLOWEST: usize = 5;

/// The comparison as one HTML file.
pub(super) fn page(comparison: &Comparison) -> Page {
    let workload = &comparison.workload;
    let names = StoreKind::ALL.map(StoreKind::name);
    let title = format!("{} on {}", workload.name, names.join(", "));
    let mut page = Page::new(title, setup(comparison));
    page.summary.push(comparison.conclusion.clone());
    findings(&mut page, comparison);
    modelled(page.section("Disk time, on a modelled drive"), comparison);
    elapsed(page.section(comparison.where_measured()), comparison);
    latency(page.section("Latency, as the client saw it"), comparison);
    stages(page.section("Where the time went"), comparison);
    disk(page.section("What the disks did"), comparison);
    slowest(page.section("The slowest requests"), comparison);
    let section = page.section("In the form of the published tables");
    for store in &comparison.stores {
        if let Some(client) = &store.client {
            section.add(Verbatim {
                caption: store.name(),
                text: client.published.join("\n"),
            });
        }
    }
    page
}

fn setup(comparison: &Comparison) -> Setup {
    let workload = &comparison.workload;
    let mut setup = Setup::here();
    setup.fact(
        "Workload",
        format!(
            "{} at scale {}: {} commands, {} put, {} alive at most",
            workload.name,
            workload.scale,
            human::count_of(workload.commands),
            human::bytes(workload.bytes_put),
            human::bytes(workload.peak_bytes)
        ),
    );
    setup.fact("Requests in flight", comparison.clients.to_string());
    let disks = match comparison.disks.as_str() {
        "lab" => "made for the comparison, and gone after it",
        "own" => "the user's",
        emulated => emulated,
    };
    setup.fact("Disks", format!("{disks}{}", comparison.journal()));
    for disk in &comparison.emulated {
        setup.fact("Lateness", disk.to_string());
    }
    for store in &comparison.stores {
        let disk = &store.for_report.disk;
        let said = if disk.is_empty() { "not known" } else { disk };
        setup.fact(format!("Disk of {}", store.name()), said);
    }
    setup
}

/// Time over that of the raw store on the first modelled drive.
fn ratio(store: &StoreView) -> Option<f64> {
    store.modelled.first()?.ratio_to_raw
}

/// The published figure of a store with these blocks.
fn published(comparison: &Comparison, store: &StoreView) -> Option<f64> {
    let ratios = comparison.workload.published_ratios?;
    let column = StoreKind::ALL.iter().position(|kind| *kind == store.kind)?;
    let ratio = ratios.get(column).copied();
    ratio.filter(|_| store.block_size == table::PUBLISHED_BLOCK)
}

/// The answer: times on the modelled drives.
fn modelled(section: &mut Section, comparison: &Comparison) {
    section.say(
        "The block requests of each store, as they were recorded here with who waited for which, \
         replayed through the model of a drive that is scaled like the workload. The time is the \
         drive's alone: this machine's speed and load do not enter it.",
    );
    for (place, model) in comparison.models.iter().enumerate() {
        let row = |store: &StoreView| Range {
            name: store.name(),
            spread: store
                .modelled
                .get(place)
                .and_then(|view| view.ratio_to_raw)
                .map(Spread::once),
            goal: None,
            published: published(comparison, store),
        };
        section.add(Ranges {
            caption: format!(
                "Time of all commands on {} ({}) over that of the raw store with blocks of the same \
                 size.",
                model.name, model.title
            ),
            x: Axis::log("Ratio to raw", Unit::Ratio),
            reference: Some((1.0, "as fast as raw".to_owned())),
            rows: comparison.stores.iter().map(row).collect(),
        });
    }
    section.add(table::modelled_for_report(comparison));
    for note in table::model_notes(comparison) {
        section.say(note);
    }
}

/// Whether a modelled ratio is near the published one. What one client asked for is replayed without
/// this machine's times, so one run stands for many; the order in which several clients come is the
/// machine's.
fn near(ratio: f64, published: f64, clients: usize) -> Result<bool, Undecided> {
    let runs = if clients == 1 { ENOUGH_RUNS } else { 1 };
    let every_run = Spread {
        median: ratio,
        min: ratio * (1.0 - REPEATS),
        max: ratio * (1.0 + REPEATS),
    };
    every_run.judged(runs, &(published * (1.0 - NEAR)..=published * (1.0 + NEAR)))
}

fn findings(page: &mut Page, comparison: &Comparison) {
    let findings = &mut page.findings;
    for store in &comparison.stores {
        let name = store.name();
        if !store.failed.is_empty() {
            findings
                .differs
                .push(format!("{name} failed: {}", store.failed));
        }
        let both = ratio(store).zip(published(comparison, store));
        if let Some((ratio, published)) = both.filter(|_| store.kind != StoreKind::Raw) {
            let told = format!(
                "{name}: {ratio:.2} times raw on the modelled drive, published {published:.2}; they \
                 agree within 10 %"
            );
            findings.file(told, near(ratio, published, comparison.clients));
        }
        let Some(disk) = &store.disk else {
            continue;
        };
        if !disk.observed {
            let why = &disk.not_observed_because;
            findings
                .differs
                .push(format!("{name}: its disk was not observed: {why}"));
        } else if disk.audit.complete {
            findings.agrees.push(format!(
                "{name}: the probes saw {} block requests, the kernel counted {}",
                human::count(disk.audit.seen_requests),
                human::count(disk.audit.kernel_requests)
            ));
        } else {
            findings
                .differs
                .push(format!("{name}: {}", disk.audit.finding));
        }
    }
    if comparison.workload.published_ratios.is_some() {
        findings.hypotheses.push(
            "A ratio here and a published one have the same cause only if the programs are alike: \
             the published ones are of an engine that flushes nothing, and this one flushes every \
             put before it is acknowledged."
                .to_owned(),
        );
    }
}

fn elapsed(section: &mut Section, comparison: &Comparison) {
    section.say(
        "Times of this machine's own disks, which say as much about the machine and its other work \
         as about the stores.",
    );
    section.say(
        "The kernel counts a flush twice, as a write without data and as what it then sends to the \
         disk. So what it counted, and what the probes saw of the same, is more than the block \
         requests by who made them: by one for each flush.",
    );
    section.add(table::measured_for_report(comparison));
}

fn latency(section: &mut Section, comparison: &Comparison) {
    let mut kinds: Vec<&str> = Vec::new();
    for curve in comparison
        .stores
        .iter()
        .flat_map(|store| &store.for_report.curves)
    {
        if !kinds.contains(&curve.name.as_str()) {
            kinds.push(&curve.name);
        }
    }
    for kind in kinds {
        let of = |store: &StoreView| {
            let curve = store
                .for_report
                .curves
                .iter()
                .find(|curve| curve.name == kind);
            curve.cloned().map(|mut curve| {
                curve.name = store.name();
                curve
            })
        };
        section.add(Cdf {
            caption: format!("How long {kind} took: call to answer."),
            x: Axis::log("Latency", Unit::Nanoseconds),
            curves: comparison.stores.iter().filter_map(of).collect(),
        });
    }
}

fn stages(section: &mut Section, comparison: &Comparison) {
    let stores = &comparison.stores;
    section.say(
        "Mean time of a request in each stage of the service: received, waiting for its turn, index, \
         on its way to the block layer, queued there, in the device, committing: waiting for the batch \
         before, writing, flushing; answered.",
    );
    for method in table::methods(stores) {
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

fn mean(operation: &OperationReport, stage: &str) -> f64 {
    human::ratio(table::stage_ns(operation, stage), operation.count).unwrap_or(0.0)
}

fn disks(comparison: &Comparison) -> impl Iterator<Item = (String, &DiskView)> {
    let stores = comparison.stores.iter();
    stores.filter_map(|store| Some((store.name(), store.disk.as_ref()?)))
}

fn disk(section: &mut Section, comparison: &Comparison) {
    section.add(owners(comparison));
    section.add(Heat {
        caption:
            "How far the head went from the end of the request before, and how long the device \
                  then took."
                .to_owned(),
        x: TraceParts::seek(),
        y: TraceParts::device(),
        counted: "requests".to_owned(),
        panels: disks(comparison)
            .map(|(name, disk)| heat(&name, disk))
            .collect(),
    });
    let seen = || {
        let stores = comparison.stores.iter();
        stores.filter_map(|store| Some((store.name(), store.for_report.seen.as_ref()?)))
    };
    section.add(Scatter {
        caption: "Every read and write: when, and where on the disk, by who made it.".to_owned(),
        x: TraceParts::time(),
        y: TraceParts::place(),
        counted: "requests".to_owned(),
        panels: seen()
            .map(|(name, seen)| ScatterPanel {
                name,
                groups: seen.groups.clone(),
            })
            .collect(),
    });
    section.add(Heat {
        caption: "How far the head went, over time.".to_owned(),
        x: TraceParts::time(),
        y: TraceParts::seek(),
        counted: "requests".to_owned(),
        panels: seen()
            .map(|(name, seen)| of_trace(&name, &seen.trace).seeks)
            .collect(),
    });
}

fn owners(comparison: &Comparison) -> Bars {
    let requests = |disk: &DiskView, class: &str| {
        let owners = disk
            .block
            .owners
            .iter()
            .filter(|owner| owner.owner == class);
        human::as_float(owners.map(|owner| owner.requests).sum())
    };
    Bars {
        caption: "Block requests by who made them, flushes among them.".to_owned(),
        title: "Block requests".to_owned(),
        unit: Unit::Count,
        parts: OWNERS.map(str::to_owned).to_vec(),
        bars: disks(comparison)
            .map(|(name, disk)| Bar {
                name,
                values: OWNERS.map(|class| requests(disk, class)).to_vec(),
            })
            .collect(),
    }
}

fn heat(name: &str, disk: &DiskView) -> HeatPanel {
    let is_data = |operation: &str| matches!(operation, "read" | "write");
    let data = disk.heat.iter().filter(|cell| is_data(&cell.operation));
    let others = disk.heat.iter().filter(|cell| !is_data(&cell.operation));
    // Cells of several owners and operations lie on each other: one cell counts them all.
    let mut counts = std::collections::BTreeMap::new();
    for cell in data {
        let place = (
            (cell.seek_from_bytes, cell.seek_to_bytes),
            (cell.device_from_ns, cell.device_to_ns),
        );
        *counts.entry(place).or_insert(0) += cell.count;
    }
    let cells = counts.into_iter().map(|((seek, device), count)| HeatCell {
        x: (signed(seek.0), signed(seek.1)),
        y: (human::as_float(device.0), human::as_float(device.1)),
        count,
    });
    HeatPanel {
        name: name.to_owned(),
        cells: cells.collect(),
        left_out: others.map(|cell| cell.count).sum(),
    }
}

fn signed(number: i64) -> f64 {
    let size = human::as_float(number.unsigned_abs());
    if number < 0 { -size } else { size }
}

fn slowest(section: &mut Section, comparison: &Comparison) {
    let mut table = Table::new(
        "The slowest requests of each store, and what they waited for.",
        &["took", "why"],
    );
    if let Some(why) = table.columns.last_mut() {
        why.text = true;
    }
    for (name, disk) in disks(comparison).filter(|(_, disk)| !disk.slowest.is_empty()) {
        table.group(name);
        for request in disk.slowest.iter().take(SLOWEST) {
            table.row(
                &request.method,
                vec![
                    Cell::Value(human::as_float(request.total_ns), Unit::Nanoseconds),
                    Cell::text(&request.sentence),
                ],
            );
        }
    }
    section.add(table);
}

#[cfg(test)]
mod tests;
