//! The result of a run, for people and for programs.

use std::fmt::Write as _;

use lumpscope_units::columns::Table;
use serde::Serialize;

use super::RunStats;
use super::place::PlaceView;
use crate::experiment::{Machine, text};
use crate::human;
use crate::load::runner::Verified;
use crate::stats::{Percentiles, Slot};
use crate::workload::{CommandStream, WorkloadArgs};

/// Most lines of the time series on paper; the JSON has all of it.
const MOST_LINES: usize = 20;

/// Everything about one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(super) command_line: Vec<String>,
    pub(super) machine: Machine,
    pub(super) workload: WorkloadView,
    pub(super) place: PlaceView,
    pub(super) engine: String,
    pub(super) durability: String,
    pub(super) clients: usize,
    pub(super) wall_seconds: f64,
    pub(super) bytes_put: u64,
    pub(super) bytes_got: u64,
    /// The lines of the published tables.
    pub(super) published: Vec<String>,
    pub(super) overall: Percentiles,
    pub(super) kinds: Vec<KindView>,
    pub(super) series: SeriesView,
    /// Lumps and bytes compared at the end; absent: it was not asked for.
    pub(super) verified: Option<Verified>,
    pub(super) notes: Vec<String>,
}

/// The workload.
#[derive(Debug, Serialize)]
pub(super) struct WorkloadView {
    pub(super) name: String,
    pub(super) scale: f64,
    /// Absent: the workload's own.
    pub(super) seed: Option<u64>,
    pub(super) commands: usize,
    pub(super) peak_bytes: u64,
    pub(super) least_required_bytes: u64,
}

/// Commands of one kind and size.
#[derive(Debug, Serialize)]
pub(super) struct KindView {
    pub(super) kind: String,
    pub(super) latency: Percentiles,
}

/// Throughput over time.
#[derive(Debug, Serialize)]
pub(super) struct SeriesView {
    pub(super) slot_seconds: f64,
    pub(super) slots: Vec<Slot>,
}

/// Context that a report needs besides the results.
pub(crate) struct Setup<'a> {
    pub(crate) machine: Machine,
    pub(crate) workload: &'a WorkloadArgs,
    pub(crate) stream: &'a CommandStream,
    pub(crate) place: PlaceView,
    pub(crate) clients: usize,
    pub(crate) notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(setup: Setup<'_>, stats: RunStats) -> Report {
        let all = stats.latencies.by_kind();
        let kinds = all.map(|(kind, latencies)| KindView {
            kind: kind.to_string(),
            latency: Percentiles::of(latencies.iter().copied()),
        });
        let every = stats.latencies.by_kind().flat_map(|(_, all)| all.iter());
        Report {
            command_line: std::env::args().collect(),
            machine: setup.machine.and_after(),
            workload: WorkloadView {
                name: setup.workload.workload.clone(),
                scale: setup.workload.scale,
                seed: setup.workload.seed,
                commands: setup.stream.commands.len(),
                peak_bytes: setup.stream.peak_bytes,
                least_required_bytes: setup.stream.least_required_bytes,
            },
            place: setup.place,
            engine: stats.engine,
            durability: stats.durability,
            clients: setup.clients,
            wall_seconds: stats.wall.as_secs_f64(),
            bytes_put: stats.bytes_put,
            bytes_got: stats.bytes_got,
            published: stats.latencies.published_lines(),
            overall: Percentiles::of(every.copied()),
            kinds: kinds.collect(),
            series: SeriesView {
                slot_seconds: stats.timeline.slot().as_secs_f64(),
                slots: stats.timeline.slots().to_vec(),
            },
            verified: stats.verified,
            notes: setup.notes,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = self.published.join("\n");
        text.push_str("\n\n");
        push_lines(&mut text, &text::figures(&self.percentile_table()));
        text.push('\n');
        push_lines(&mut text, &self.throughput().lines());
        text.push('\n');
        let _ = writeln!(
            text,
            "{}: {} on {}, {}, {} in flight, {:.3} s in all",
            self.workload_text(),
            self.engine,
            self.place.what,
            self.durability,
            self.clients,
            self.wall_seconds,
        );
        let _ = writeln!(text, "{}", self.machine);
        if let Some(verified) = self.verified_text() {
            let _ = writeln!(text, "{verified}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text.trim_end().to_owned()
    }

    pub(super) fn workload_text(&self) -> String {
        let seed = self.workload.seed.map(|seed| format!(", seed {seed}"));
        format!(
            "{}, scale {}{}, {} commands",
            self.workload.name,
            self.workload.scale,
            seed.unwrap_or_default(),
            human::count_of(self.workload.commands),
        )
    }

    pub(super) fn verified_text(&self) -> Option<String> {
        let Verified { lumps, bytes } = self.verified?;
        Some(format!(
            "verified: every byte of every get, and at the end {} lumps of {}; nothing else lives",
            human::count(lumps),
            human::bytes(bytes),
        ))
    }

    fn throughput(&self) -> Table {
        let header = [
            "from",
            "puts/s",
            "gets/s",
            "deletes/s",
            "put",
            "got",
            "longest",
        ];
        let mut table = text::table(&header);
        let slots = &self.series.slots;
        let together = slots.len().div_ceil(MOST_LINES).max(1);
        for (line, part) in slots.chunks(together).enumerate() {
            let begin = self.series.slot_seconds * human::as_float(as_u64(line * together));
            let full = self.series.slot_seconds * human::as_float(as_u64(part.len()));
            let seconds = full.min(self.wall_seconds - begin).max(1e-6);
            let sum = sum_of(part);
            let rate = |count: u64| format!("{:.0}", human::as_float(count) / seconds);
            let bytes = |bytes: u64| {
                let rate = rounded(human::as_float(bytes) / seconds);
                format!("{}/s", human::bytes(rate))
            };
            table.add_row([
                format!("{begin:.1} s"),
                rate(sum.puts),
                rate(sum.gets),
                rate(sum.deletes),
                bytes(sum.bytes_put),
                bytes(sum.bytes_got),
                human::duration_ns(sum.longest_ns),
            ]);
        }
        table
    }
}

fn sum_of(slots: &[Slot]) -> Slot {
    let mut sum = Slot::default();
    for slot in slots {
        sum.add(slot);
    }
    sum
}

fn push_lines(text: &mut String, lines: &[String]) {
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for display only: positive, and a float cast saturates"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}
