//! The side-by-side table.

use comfy_table::{Cell, CellAlignment, Table, presets};
use lumpscope_proto::v1::OperationReport;

use super::report::{ClientView, Comparison, DiskView, LatencyView, StoreView};
use crate::disks::StoreKind;
use crate::experiment::report;
use crate::human;

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

/// The table, one column a store, as text.
pub(super) fn render(comparison: &Comparison) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let right = |text: &str| Cell::new(text).set_alignment(CellAlignment::Right);
    let stores = comparison.stores.iter();
    let names = stores.map(|store| right(store.kind.name()));
    table.set_header(std::iter::once(Cell::new("")).chain(names));
    for column in table.column_iter_mut().skip(1) {
        column.set_padding((3, 0));
    }
    for line in lines(comparison) {
        match line {
            Line::Section(title) => {
                table.add_row(vec![""]);
                table.add_row(vec![title]);
            }
            Line::Row(name, cells) => {
                let name = std::iter::once(Cell::new(format!("  {name}")));
                table.add_row(name.chain(cells.iter().map(|cell| right(cell))));
            }
        }
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// As cells of the HTML report.
pub(super) fn for_report(comparison: &Comparison) -> report::Table {
    let stores = comparison.stores.iter();
    let columns: Vec<&str> = stores.map(|store| store.kind.name()).collect();
    let mut table = report::Table::new("All numbers, side by side.", &columns);
    for line in lines(comparison) {
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

/// All lines of the table.
fn lines(comparison: &Comparison) -> Vec<Line> {
    let mut rows = Rows {
        stores: &comparison.stores,
        lines: Vec::new(),
    };
    client(&mut rows, comparison.workload.published_ratios);
    stages(&mut rows);
    block_requests(&mut rows);
    unasked(&mut rows);
    trust(&mut rows);
    rows.lines
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

fn client(rows: &mut Rows<'_>, published_ratios: Option<[f64; 3]>) {
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
    if let Some(published) = published_ratios {
        rows.row("  as published for a 7200 rpm disk", |store| {
            let column = StoreKind::ALL.iter().position(|kind| *kind == store.kind);
            let ratio = column.and_then(|column| published.get(column));
            ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}"))
        });
    }
    rows.client("throughput", |client| {
        format!("{:.1} MiB/s", client.mib_per_second)
    });
    let mut kinds: Vec<String> = Vec::new();
    for client in rows.stores.iter().filter_map(|store| store.client.as_ref()) {
        for kind in &client.kinds {
            if !kinds.contains(&kind.kind) {
                kinds.push(kind.kind.clone());
            }
        }
    }
    for kind in kinds {
        rows.section(&format!("Latency of {kind}"));
        for (name, percentile) in PERCENTILES {
            rows.client(name, |client| {
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
        rows.section(&format!("Where the time of a {method} went: share, mean"));
        for stage in STAGES {
            rows.disk(stage, |disk| {
                let Some(operation) = operation(disk, &method) else {
                    return nothing();
                };
                let time = stage_ns(operation, stage);
                let share = human::share(time, operation.total_ns);
                format!("{share} {:>8}", human::duration_ns(time / operation.count))
            });
        }
        rows.disk("all, in the service", |disk| {
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
    rows.observed("reads and writes of the disk", |disk| {
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
    rows.section("Asked for by no request: number, bytes");
    for class in UNASKED {
        rows.observed(class, |disk| {
            let owners = disk
                .block
                .owners
                .iter()
                .filter(|owner| owner.owner == class);
            let (mut requests, mut bytes) = (0, 0);
            for owner in owners {
                requests += owner.requests;
                bytes += owner.bytes;
            }
            if requests == 0 {
                return "0".to_owned();
            }
            format!("{} {:>9}", human::count(requests), human::bytes(bytes))
        });
    }
}

fn trust(rows: &mut Rows<'_>) {
    rows.section("Can it be trusted?");
    rows.observed("own bytes tied to their request", |disk| {
        let block = &disk.block;
        human::share(block.attributed_bytes + block.shared_bytes, block.own_bytes)
    });
    rows.observed("of these, in a shared block request", |disk| {
        human::share(disk.block.shared_bytes, disk.block.own_bytes)
    });
    rows.observed("lost events", |disk| human::count(disk.audit.lost_events));
    rows.observed("seen / counted by the kernel", |disk| {
        let audit = &disk.audit;
        format!(
            "{} / {}",
            human::count(audit.seen_requests),
            human::count(audit.kernel_requests)
        )
    });
    if rows.stores.iter().any(|store| store.tracer.is_some()) {
        rows.row("seen / counted by bpftrace", |store| match &store.tracer {
            None => String::new(),
            Some(tracer) => format!(
                "{} / {}",
                human::count(tracer.seen_requests),
                human::count(tracer.requests)
            ),
        });
        rows.row("bytes seen / by bpftrace", |store| match &store.tracer {
            None => String::new(),
            Some(tracer) if tracer.equal => "equal".to_owned(),
            Some(tracer) => format!("{} / {}", tracer.seen_bytes, tracer.bytes),
        });
    }
    rows.observed("audit", |disk| {
        if disk.audit.complete {
            "complete"
        } else {
            "incomplete"
        }
        .to_owned()
    });
}
