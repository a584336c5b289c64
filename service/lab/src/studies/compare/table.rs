//! The side-by-side tables.

use lumpscope_proto::v1::{AuditReport, BlockReport, OperationReport, StoreReport};

use super::modelled::ModelledView;
use super::report::{ClientView, Comparison, StoreView, TracerView};
use crate::disks::StoreKind;
use crate::experiment::report::{Cell, Table, Unit};
use crate::human;
use crate::stats::Summary;

/// Stages of a request in the order in which it goes through them.
pub(super) const STAGES: [&str; 11] = [
    "recv", "sched", "index", "submit", "queue", "device", "journal", "wait", "write", "flush",
    "reply",
];
const METHODS: [&str; 3] = ["put", "get", "delete"];
/// Owner classes of I/O that no request asked for.
const UNASKED: [&str; 4] = ["fs-journal", "fs-metadata", "writeback", "other"];
/// Name of a percentile, and where it is.
type Percentile = (&'static str, fn(&Summary) -> u64);
const PERCENTILES: [Percentile; 4] = [
    ("50%", |latency| latency.p50_ns),
    ("90%", |latency| latency.p90_ns),
    ("95%", |latency| latency.p95_ns),
    ("99%", |latency| latency.p99_ns),
];
/// Blocks of the published tables.
pub(super) const PUBLISHED_BLOCK: u16 = 512;

/// The times on this machine's disks, one column a store.
pub(super) fn measured(comparison: &Comparison) -> Table {
    let mut rows = Rows::new(
        comparison,
        "All numbers of this machine's disks, side by side.",
    );
    client(&mut rows);
    stages(&mut rows);
    block_requests(&mut rows);
    unasked(&mut rows);
    trust(&mut rows);
    rows.table
}

/// The times on the modelled drives, likewise.
pub(super) fn modelled(comparison: &Comparison) -> Table {
    let mut rows = Rows::new(comparison, "Modelled times, side by side.");
    for (place, model) in comparison.models.iter().enumerate() {
        rows.section(&format!("{}, {} rpm", model.name, model.rpm));
        on_drive(&mut rows, place, comparison);
    }
    rows.table
}

/// Sentences without which the modelled times would be misread.
pub(super) fn model_notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.workload.published_ratios.is_some() {
        notes.push(
            "The published ratios are of an engine that flushes nothing; here every put is flushed \
             before it is acknowledged."
                .to_owned(),
        );
    }
    for store in &comparison.stores {
        let added = store.modelled.iter().map(|view| view.added).max();
        if let Some(added) = added.filter(|added| *added > 0) {
            notes.push(format!(
                "{}: of the file system's inode {} writes were added. It writes the inode when it \
                 flushes in another clock tick than before, as it always does on a drive so slow.",
                store.name(),
                human::count(added)
            ));
        }
        if !store.model_note.is_empty() {
            notes.push(format!("{}: {}.", store.name(), store.model_note));
        }
    }
    notes
}

fn on_drive(rows: &mut Rows<'_>, place: usize, comparison: &Comparison) {
    rows.modelled(place, "elapsed", |view| ns(view.elapsed_ns));
    rows.modelled(place, "ratio to raw", |view| {
        Cell::value(view.ratio_to_raw, Unit::Ratio)
    });
    if let Some(published) = comparison.workload.published_ratios {
        rows.row("as published, of 512", |store| {
            let column = StoreKind::ALL.iter().position(|kind| *kind == store.kind);
            let ratio = column.and_then(|column| published.get(column));
            let ratio = ratio.filter(|_| store.block_size == PUBLISHED_BLOCK);
            Cell::value(ratio.copied(), Unit::Ratio)
        });
    }
    let views = || {
        rows.stores
            .iter()
            .filter_map(|store| store.modelled.get(place))
    };
    let kinds = unique(views().flat_map(|view| view.kinds.iter().map(|one| one.kind.clone())));
    let owners = unique(views().flat_map(|view| view.owners.iter().map(|one| one.owner)));
    for kind in kinds {
        for (name, percentile) in [PERCENTILES[0], PERCENTILES[3]] {
            rows.modelled(place, &format!("{kind}, {name}"), |view| {
                let latency = view.kinds.iter().find(|latency| latency.kind == kind);
                latency.map_or(Cell::Nothing, |latency| ns(percentile(latency)))
            });
        }
    }
    for owner in owners {
        rows.modelled(place, &format!("seeks, {owner}"), |view| {
            let found = view.owners.iter().find(|one| one.owner == owner);
            Cell::count(found.map_or(0, |one| one.seeks))
        });
    }
    rows.modelled(place, "lost to fs-journal", |view| {
        signed(view.lost_to_fs_journal_ns)
    });
    rows.modelled(place, "lost to fs-metadata", |view| {
        signed(view.lost_to_fs_metadata_ns)
    });
}

/// Each once, in the order in which they come.
pub(super) fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

struct Rows<'a> {
    stores: &'a [StoreView],
    table: Table,
}

impl<'a> Rows<'a> {
    fn new(comparison: &'a Comparison, caption: &str) -> Rows<'a> {
        let stores = &comparison.stores;
        let columns: Vec<&str> = stores.iter().map(|store| store.kind.name()).collect();
        let mut rows = Rows {
            stores,
            table: Table::new(caption, &columns),
        };
        rows.row("blocks of", |store| {
            Cell::text(store.block_size.to_string())
        });
        rows
    }

    fn section(&mut self, title: &str) {
        self.table.group(title);
    }

    fn row(&mut self, name: &str, cell: impl Fn(&StoreView) -> Cell) {
        let cells = self.stores.iter().map(cell).collect();
        self.table.row(name, cells);
    }

    /// For the drive at this place.
    fn modelled(&mut self, place: usize, name: &str, cell: impl Fn(&ModelledView) -> Cell) {
        self.row(name, |store| {
            store.modelled.get(place).map_or(Cell::Nothing, &cell)
        });
    }

    fn client(&mut self, name: &str, cell: impl Fn(&ClientView) -> Cell) {
        self.row(name, |store| cell(&store.client));
    }

    /// For what only the service knows, probes or not.
    fn disk(&mut self, name: &str, cell: impl Fn(&StoreReport) -> Cell) {
        self.row(name, |store| {
            store.disk.as_ref().map_or(Cell::Nothing, &cell)
        });
    }

    /// For what only the probes know.
    fn observed(&mut self, name: &str, cell: impl Fn(&StoreReport) -> Cell) {
        self.disk(name, |disk| {
            if disk.observed {
                cell(disk)
            } else {
                Cell::Nothing
            }
        });
    }

    fn block(&mut self, name: &str, cell: impl Fn(&BlockReport) -> Cell) {
        self.observed(name, |disk| {
            disk.block.as_ref().map_or(Cell::Nothing, &cell)
        });
    }

    fn audit(&mut self, name: &str, cell: impl Fn(&AuditReport) -> Cell) {
        self.observed(name, |disk| {
            disk.audit.as_ref().map_or(Cell::Nothing, &cell)
        });
    }
}

fn ns(ns: u64) -> Cell {
    Cell::value(Some(human::as_float(ns)), Unit::Nanoseconds)
}

fn signed(ns: i64) -> Cell {
    let size = human::as_float(ns.unsigned_abs());
    Cell::value(Some(if ns < 0 { -size } else { size }), Unit::Nanoseconds)
}

fn bytes(bytes: u64) -> Cell {
    Cell::value(Some(human::as_float(bytes)), Unit::Bytes)
}

fn share(part: u64, whole: u64) -> Cell {
    Cell::value(human::ratio(part, whole), Unit::Share)
}

fn yes(is: bool) -> Cell {
    Cell::text(if is { "yes" } else { "no" })
}

fn client(rows: &mut Rows<'_>) {
    rows.section("Seen by the client");
    rows.client("commands", |client| {
        let count = client.overall.as_ref().map(|overall| overall.count as u64);
        count.map_or(Cell::Nothing, Cell::count)
    });
    rows.client("total elapsed", |client| ns(client.elapsed_ns));
    rows.client("ratio to raw", |client| {
        Cell::value(client.ratio_to_raw, Unit::Ratio)
    });
    rows.client("MiB/s", |client| {
        Cell::text(format!("{:.1}", client.mib_per_second))
    });
    let kinds = rows.stores.iter().flat_map(|store| &store.client.kinds);
    let kinds = unique(kinds.map(|one| one.kind.clone()));
    for kind in kinds {
        for (name, percentile) in PERCENTILES {
            rows.client(&format!("{kind}, {name}"), |client| {
                let latency = client.kinds.iter().find(|latency| latency.kind == kind);
                latency.map_or(Cell::Nothing, |latency| ns(percentile(latency)))
            });
        }
    }
}

/// Methods that were called: the usual ones in the usual order, then any others.
pub(super) fn methods(stores: &[StoreView]) -> Vec<String> {
    let disks = stores.iter().filter_map(|store| store.disk.as_ref());
    let called = disks
        .flat_map(|disk| &disk.operations)
        .filter(|operation| operation.count > 0);
    let mut methods: Vec<String> = called.map(|operation| operation.method.clone()).collect();
    let rank = |method: &String| METHODS.iter().position(|usual| usual == method);
    methods.sort_by_key(|method| (rank(method).unwrap_or(METHODS.len()), method.clone()));
    methods.dedup();
    methods
}

pub(super) fn operation<'a>(disk: &'a StoreReport, method: &str) -> Option<&'a OperationReport> {
    disk.operations
        .iter()
        .find(|operation| operation.method == method && operation.count > 0)
}

/// Time of one stage over all requests of a method; stages that never occurred are 0.
pub(super) fn stage_ns(operation: &OperationReport, stage: &str) -> u64 {
    let times = operation.stages.iter().filter(|time| time.stage == stage);
    times.map(|time| time.total_ns).sum()
}

fn stages(rows: &mut Rows<'_>) {
    for method in methods(rows.stores) {
        rows.section(&format!("Mean time of a {method} in each stage"));
        for stage in STAGES {
            rows.disk(stage, |disk| {
                let found = operation(disk, &method);
                found.map_or(Cell::Nothing, |one| ns(stage_ns(one, stage) / one.count))
            });
        }
        rows.disk("all, in service", |disk| {
            let found = operation(disk, &method);
            found.map_or(Cell::Nothing, |one| ns(one.total_ns / one.count))
        });
    }
}

fn block_requests(rows: &mut Rows<'_>) {
    rows.section("Block requests");
    for method in methods(rows.stores) {
        rows.observed(&format!("per {method}"), |disk| {
            let operation = operation(disk, &method);
            let ratio = operation.and_then(|op| human::ratio(op.block_requests, op.count));
            Cell::value(ratio, Unit::Ratio)
        });
    }
    rows.block("reads and writes", |block| Cell::count(block.data_requests));
    rows.block("sequential", |block| {
        share(block.sequential, block.data_requests)
    });
    rows.block("median |seek distance|", |block| {
        bytes(block.seek_median_bytes)
    });
    rows.block("99% |seek distance|", |block| bytes(block.seek_p99_bytes));
}

/// Block requests of one owner class.
pub(super) fn requests_of(disk: &StoreReport, class: &str) -> u64 {
    let owners = disk.block.iter().flat_map(|block| &block.owners);
    let owners = owners.filter(|owner| owner.owner == class);
    owners.map(|owner| owner.requests).sum()
}

fn unasked(rows: &mut Rows<'_>) {
    rows.section("Block requests that no request asked for");
    for class in UNASKED {
        rows.observed(class, |disk| Cell::count(requests_of(disk, class)));
    }
}

fn trust(rows: &mut Rows<'_>) {
    rows.section("Can it be trusted?");
    rows.block("own bytes tied", |block| {
        share(block.attributed_bytes + block.shared_bytes, block.own_bytes)
    });
    rows.block("of these, shared", |block| {
        share(block.shared_bytes, block.own_bytes)
    });
    rows.audit("requests seen", |audit| Cell::count(audit.seen_requests));
    rows.audit("counted by the kernel", |audit| {
        Cell::count(audit.kernel_requests)
    });
    rows.audit("lost events", |audit| Cell::count(audit.lost_events));
    if rows.stores.iter().any(|store| store.tracer.is_some()) {
        let traced = |of: fn(&TracerView) -> Cell| {
            move |store: &StoreView| store.tracer.as_ref().map_or(Cell::Nothing, of)
        };
        rows.row(
            "seen meanwhile",
            traced(|one| Cell::count(one.seen_requests)),
        );
        rows.row(
            "counted by bpftrace",
            traced(|one| Cell::count(one.requests)),
        );
        rows.row("equal, bytes too", traced(|one| yes(one.equal)));
    }
    rows.audit("complete", |audit| yes(audit.complete));
}
