//! The side-by-side table.

use lumpscope_proto::v1::OperationReport;

use super::modelled::ModelledView;
use super::report::{ClientView, Comparison, DiskView, LatencyView, StoreView, TracerView};
use crate::disks::StoreKind;
use crate::experiment::report;
use crate::human;
use lumpscope_units::columns::Table;

/// Stages of a request in the order in which it goes through them.
pub(super) const STAGES: [&str; 11] = [
    "recv", "sched", "index", "submit", "queue", "device", "journal", "wait", "write", "flush",
    "reply",
];
const METHODS: [&str; 3] = ["put", "get", "delete"];
/// Owner classes of I/O that no request asked for.
const UNASKED: [&str; 4] = ["fs-journal", "fs-metadata", "writeback", "other"];
/// Name of a percentile, and where it is.
type Percentile = (&'static str, fn(&LatencyView) -> u64);
const PERCENTILES: [Percentile; 4] = [
    ("50%", |latency| latency.p50_ns),
    ("90%", |latency| latency.p90_ns),
    ("95%", |latency| latency.p95_ns),
    ("99%", |latency| latency.p99_ns),
];
const NOTHING: &str = "–";
/// Blocks of the published tables.
pub(super) const PUBLISHED_BLOCK: u16 = 512;

/// The times on the modelled drives, one column a store, as text.
pub(super) fn modelled(comparison: &Comparison) -> String {
    as_text(comparison, modelled_lines(comparison))
}

/// The times on this machine's disks, likewise.
pub(super) fn measured(comparison: &Comparison) -> String {
    as_text(comparison, measured_lines(comparison))
}

fn as_text(comparison: &Comparison, lines: Vec<Line>) -> String {
    let stores = || comparison.stores.iter();
    let mut table = Table::new([""].into_iter().chain(stores().map(|s| s.kind.name())));
    let sizes = stores().map(|store| store.block_size.to_string());
    table.add_row(["  blocks of".to_owned()].into_iter().chain(sizes));
    for column in 1..=comparison.stores.len() {
        table.right(column);
    }
    for line in lines {
        match line {
            Line::Section(title) => {
                table.add_row([""]);
                table.add_row([title]);
            }
            Line::Row(name, cells) => {
                table.add_row([format!("  {name}")].into_iter().chain(cells));
            }
        }
    }
    table.to_string()
}

/// The modelled times as cells of the HTML report.
pub(super) fn modelled_for_report(comparison: &Comparison) -> report::Table {
    for_report(
        comparison,
        "Modelled times, side by side.",
        modelled_lines(comparison),
    )
}

/// The measured times, likewise.
pub(super) fn measured_for_report(comparison: &Comparison) -> report::Table {
    for_report(
        comparison,
        "All numbers of this machine's disks, side by side.",
        measured_lines(comparison),
    )
}

fn for_report(comparison: &Comparison, caption: &str, lines: Vec<Line>) -> report::Table {
    let columns: Vec<String> = comparison.stores.iter().map(StoreView::name).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = report::Table::new(caption, &columns);
    for line in lines {
        match line {
            Line::Section(title) => table.group(title),
            Line::Row(name, cells) => {
                let cells = cells.into_iter().map(report::Cell::Text);
                table.row(name.trim(), cells.collect());
            }
        }
    }
    table
}

fn measured_lines(comparison: &Comparison) -> Vec<Line> {
    let mut rows = Rows {
        stores: &comparison.stores,
        lines: Vec::new(),
    };
    client(&mut rows);
    stages(&mut rows);
    block_requests(&mut rows);
    unasked(&mut rows);
    trust(&mut rows);
    rows.lines
}

fn modelled_lines(comparison: &Comparison) -> Vec<Line> {
    let mut rows = Rows {
        stores: &comparison.stores,
        lines: Vec::new(),
    };
    for (place, model) in comparison.models.iter().enumerate() {
        rows.section(&format!("{}, {} rpm", model.name, model.rpm));
        on_drive(&mut rows, place, comparison.workload.published_ratios);
    }
    rows.lines
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

fn on_drive(rows: &mut Rows<'_>, place: usize, published_ratios: Option<[f64; 3]>) {
    rows.modelled(place, "elapsed", |view| human::duration_ns(view.elapsed_ns));
    rows.modelled(place, "ratio to raw", |view| {
        let ratio = view.ratio_to_raw;
        ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}"))
    });
    if let Some(published) = published_ratios {
        rows.row("  as published, of 512", |store| {
            let column = StoreKind::ALL.iter().position(|kind| *kind == store.kind);
            let ratio = column.and_then(|column| published.get(column));
            let ratio = ratio.filter(|_| store.block_size == PUBLISHED_BLOCK);
            ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}"))
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
                latency.map_or_else(nothing, |latency| human::duration_ns(percentile(latency)))
            });
        }
    }
    for owner in owners {
        rows.modelled(place, &format!("seeks, {owner}"), |view| {
            let found = view.owners.iter().find(|one| one.owner == owner);
            found.map_or_else(|| "0".to_owned(), |one| human::count(one.seeks))
        });
    }
    rows.modelled(place, "lost to fs-journal", |view| {
        human::signed_ns(view.lost_to_fs_journal_ns)
    });
    rows.modelled(place, "lost to fs-metadata", |view| {
        human::signed_ns(view.lost_to_fs_metadata_ns)
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

/// A line of the table.
enum Line {
    /// Heading of those below.
    Section(String),
    /// Name, and one cell a store.
    Row(String, Vec<String>),
}

struct Rows<'a> {
    stores: &'a [StoreView],
    lines: Vec<Line>,
}

impl Rows<'_> {
    fn section(&mut self, title: &str) {
        self.lines.push(Line::Section(title.to_owned()));
    }

    fn row(&mut self, name: &str, cell: impl Fn(&StoreView) -> String) {
        let cells = self.stores.iter().map(cell).collect();
        self.lines.push(Line::Row(name.to_owned(), cells));
    }

    /// For the drive at this place.
    fn modelled(&mut self, place: usize, name: &str, cell: impl Fn(&ModelledView) -> String) {
        self.row(name, |store| {
            store.modelled.get(place).map_or_else(nothing, &cell)
        });
    }

    fn client(&mut self, name: &str, cell: impl Fn(&ClientView) -> String) {
        self.row(name, |store| {
            store.client.as_ref().map_or_else(nothing, &cell)
        });
    }

    /// For what only the service knows, probes or not.
    fn disk(&mut self, name: &str, cell: impl Fn(&DiskView) -> String) {
        self.row(name, |store| {
            store.disk.as_ref().map_or_else(nothing, &cell)
        });
    }

    /// For what only the probes know.
    fn observed(&mut self, name: &str, cell: impl Fn(&DiskView) -> String) {
        self.disk(
            name,
            |disk| if disk.observed { cell(disk) } else { nothing() },
        );
    }
}

fn nothing() -> String {
    NOTHING.to_owned()
}

fn client(rows: &mut Rows<'_>) {
    rows.section("Seen by the client");
    rows.client("commands", |client| {
        client
            .overall
            .as_ref()
            .map_or_else(nothing, |overall| human::count_of(overall.count))
    });
    rows.client("total elapsed", |client| {
        human::duration_ns(client.elapsed_ns)
    });
    rows.client("ratio to raw", |client| {
        client
            .ratio_to_raw
            .map_or_else(nothing, |ratio| format!("{ratio:.2}"))
    });
    rows.client("MiB/s", |client| format!("{:.1}", client.mib_per_second));
    let clients = rows.stores.iter().filter_map(|store| store.client.as_ref());
    let kinds = unique(clients.flat_map(|client| client.kinds.iter().map(|one| one.kind.clone())));
    for kind in kinds {
        for (name, percentile) in PERCENTILES {
            rows.client(&format!("{kind}, {name}"), |client| {
                let latency = client.kinds.iter().find(|latency| latency.kind == kind);
                latency.map_or_else(nothing, |latency| human::duration_ns(percentile(latency)))
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

pub(super) fn operation<'a>(disk: &'a DiskView, method: &str) -> Option<&'a OperationReport> {
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
                let Some(operation) = operation(disk, &method) else {
                    return nothing();
                };
                human::duration_ns(stage_ns(operation, stage) / operation.count)
            });
        }
        rows.disk("all, in service", |disk| {
            operation(disk, &method).map_or_else(nothing, |operation| {
                human::duration_ns(operation.total_ns / operation.count)
            })
        });
    }
}

fn block_requests(rows: &mut Rows<'_>) {
    rows.section("Block requests");
    for method in methods(rows.stores) {
        rows.observed(&format!("per {method}"), |disk| {
            let operation = operation(disk, &method);
            let ratio = operation.and_then(|op| human::ratio(op.block_requests, op.count));
            ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}"))
        });
    }
    rows.observed("reads and writes", |disk| {
        human::count(disk.block.data_requests)
    });
    rows.observed("sequential", |disk| {
        human::share(disk.block.sequential, disk.block.data_requests)
    });
    rows.observed("median |seek distance|", |disk| {
        human::bytes(disk.block.seek_median_bytes)
    });
    rows.observed("99% |seek distance|", |disk| {
        human::bytes(disk.block.seek_p99_bytes)
    });
}

fn unasked(rows: &mut Rows<'_>) {
    rows.section("Block requests that no request asked for");
    for class in UNASKED {
        rows.observed(class, |disk| {
            let owners = disk
                .block
                .owners
                .iter()
                .filter(|owner| owner.owner == class);
            human::count(owners.map(|owner| owner.requests).sum())
        });
    }
}

fn trust(rows: &mut Rows<'_>) {
    rows.section("Can it be trusted?");
    rows.observed("own bytes tied", |disk| {
        let block = &disk.block;
        human::share(block.attributed_bytes + block.shared_bytes, block.own_bytes)
    });
    rows.observed("of these, shared", |disk| {
        human::share(disk.block.shared_bytes, disk.block.own_bytes)
    });
    rows.observed("requests seen", |disk| {
        human::count(disk.audit.seen_requests)
    });
    rows.observed("counted by the kernel", |disk| {
        human::count(disk.audit.kernel_requests)
    });
    rows.observed("lost events", |disk| human::count(disk.audit.lost_events));
    if rows.stores.iter().any(|store| store.tracer.is_some()) {
        let traced = |of: fn(&TracerView) -> String| {
            move |store: &StoreView| store.tracer.as_ref().map_or_else(nothing, of)
        };
        rows.row(
            "seen meanwhile",
            traced(|one| human::count(one.seen_requests)),
        );
        rows.row(
            "counted by bpftrace",
            traced(|one| human::count(one.requests)),
        );
        let equal = |one: &TracerView| if one.equal { "yes" } else { "no" }.to_owned();
        rows.row("equal, bytes too", traced(equal));
    }
    rows.observed("complete", |disk| {
        if disk.audit.complete { "yes" } else { "no" }.to_owned()
    });
}
