//! The published table beside its repetition, and what the disks were asked for.

use lumpscope_platter::drive::Drive;
use serde::Serialize;

use super::Engine;
use super::case::Case;
use super::published_workload::PublishedWorkload;
use crate::blocks::{Recorded, TraceCounts, Trust};
use crate::disks::StoreKind;
use crate::experiment::report::{Cell, Limit, Picture, Report, Spread, Table, Unit};
use crate::experiment::text::percent;
use crate::human;
use crate::studies::predict::{self, Rule};
use crate::studies::seeds::published::{CANNYLS, CannylsRow};
use crate::workload::Command;

const NOTES: [&str; 7] = [
    "Requests are those that the running kernel sent to a fast loop disk, recorded by our probes; \
     every run has a new disk or file system (ext4 without a journal, mounted with \
     noinit_itable,no_prefetch_block_bitmaps).",
    "Times are predicted: the recorded requests, replayed through a mechanical model of the drive. \
     The drive is scaled like the workload, so that the head covers the same part of it.",
    "Without a published figure, a file system is expected to cost nothing.",
    "rand2 runs 10,000 iterations, not the 20,000 of its listing: its table counts 15,000 puts and \
     10,000 gets.",
    "The original engine runs with the crate's defaults: a record of the journal is written every \
     4096 puts, and nothing is flushed. Ours writes its record with each put and flushes; blocks of \
     4096 are its default. The published table is the original's, with blocks of 512.",
    "Raw is the bare disk, in place of the published minfs, which maps its one file to the disk \
     from byte 61440 on; the original begins at byte 0, ours inside a minfs.",
    "Overlaps: writes that begin in the end of the write before. A rewritten block: of 4 KiB, covered \
     in part by a write after something in it was written before.",
];
const HYPOTHESIS: &str = "That a drive loses a revolution for a rewritten end after each 3 MiB of a \
     stream is supposed: one parameter, fitted to the published table itself. It does not explain \
     rand2. That file systems make lumps of whole sectors overlap, and blocks of 4096 do not, is \
     measured.";

/// Blocks of the published table.
const PUBLISHED_BLOCK: u16 = 512;
/// Ratios that are no further apart agree.
const NEAR: f64 = 0.06;
/// The rules whose predictions are shown. Write-through would say nothing of this drive.
const RULES: [Rule; 2] = [Rule::Ideal, Rule::Overlap];

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunView {
    workload: String,
    #[serde(flatten)]
    case: Case,
    /// Predicted seconds, in the order of [`RULES`].
    predicted_seconds: [f64; 2],
    puts: u64,
    counted: TraceCounts,
    trust: Trust,
}

impl RunView {
    pub(super) fn new(
        (workload, case): (&PublishedWorkload, Case),
        recorded: &Recorded,
        (drive, scale): (&Drive, f64),
    ) -> anyhow::Result<RunView> {
        let trace = &recorded.trace;
        let drive = predict::scaled(drive, scale, trace);
        let is_put = |command: &&Command| matches!(command, Command::Put { .. });
        let puts = workload.stream.commands.iter().filter(is_put).count();
        let mut predicted_seconds = [0.0; 2];
        for (seconds, rule) in predicted_seconds.iter_mut().zip(RULES) {
            *seconds = predict::seconds(trace, &drive, rule)?;
        }
        Ok(RunView {
            workload: workload.name.clone(),
            case,
            predicted_seconds,
            puts: u64::try_from(puts).unwrap_or(u64::MAX),
            counted: TraceCounts::of(trace),
            trust: recorded.trust(),
        })
    }
}

/// Runs that differ in the disk alone.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Group<'a> {
    workload: &'a str,
    engine: Engine,
    block_size: u16,
}

impl Group<'_> {
    /// The row of the published table that it repeats: the original engine's, with its blocks.
    fn published(&self) -> Option<&'static CannylsRow> {
        let repeats = self.engine == Engine::Original && self.block_size == PUBLISHED_BLOCK;
        let row = CANNYLS.iter().find(|row| row.workload == self.workload);
        row.filter(|_| repeats)
    }

    fn name(&self) -> String {
        let (engine, blocks) = (self.engine.name(), self.block_size);
        format!("{}, {engine} engine, blocks of {blocks}", self.workload)
    }
}

/// The data behind the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CannylsRuns {
    pub(super) runs: Vec<RunView>,
}

impl CannylsRuns {
    /// In the order of the table.
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for run in &self.runs {
            let group = Group {
                workload: &run.workload,
                engine: run.case.engine,
                block_size: run.case.block_size,
            };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// All runs of a group on one kind of disk.
    fn of(&self, group: Group<'_>, kind: StoreKind) -> impl Iterator<Item = &RunView> {
        self.runs.iter().filter(move |run| {
            let case = run.case;
            let of = (
                run.workload.as_str(),
                case.engine,
                case.block_size,
                case.kind,
            );
            of == (group.workload, group.engine, group.block_size, kind)
        })
    }

    /// Predicted seconds over those on the raw disk, run by run.
    fn ratio(&self, group: Group<'_>, kind: StoreKind, rule: usize) -> Cell {
        let pairs = self.of(group, kind).filter_map(|run| {
            let mut raw = self.of(group, StoreKind::Raw);
            let raw = raw.find(|raw| raw.case.run == run.case.run)?;
            Some(run.predicted_seconds[rule] / raw.predicted_seconds[rule])
        });
        let column = StoreKind::ALL.iter().position(|one| *one == kind);
        let published = group.published().zip(column);
        let limit = match published {
            Some((row, column)) => Limit::Published(row.ratios[column], Some(NEAR)),
            None => Limit::Near(1.0, NEAR),
        };
        Cell::runs(Unit::Ratio, pairs).within(limit)
    }

    /// The report; the drive is scaled like the workloads.
    pub(super) fn report(&self, scale: f64) -> Report {
        let mut report = Report::new("Raw disk, ext4 and xfs under a store of lumps");
        let columns = [
            "raw, s at full scale",
            "published, s",
            "ext4/raw",
            "xfs/raw",
        ];
        let mut ratios = Table::new("Time over that on the raw disk, predicted.", &columns);
        ratios.picture = Some(Picture {
            columns: vec![2, 3],
            reference: (1.0, "as on the raw disk"),
        });
        let columns = REASONS.map(|(name, _)| name);
        let mut reasons = Table::new("What the disks were asked for.", &columns);
        for group in self.groups() {
            ratios.group(group.name());
            for (at, rule) in RULES.iter().enumerate() {
                let raw = self.of(group, StoreKind::Raw);
                let raw = raw.map(|run| run.predicted_seconds[at] / scale);
                let seconds = group.published().map(|row| row.seconds[0]);
                let cells = vec![
                    Cell::runs(Unit::Plain, raw.collect::<Vec<f64>>()),
                    Cell::value(seconds, Unit::Plain),
                    self.ratio(group, StoreKind::Ext4, at),
                    self.ratio(group, StoreKind::Xfs, at),
                ];
                ratios.row(rule.name(), cells);
            }
            reasons.group(group.name());
            for kind in StoreKind::ALL {
                let count = |of: Reason| Cell::counts(self.of(group, kind).map(of));
                let cells = REASONS.map(|(_, of)| count(of));
                reasons.row(kind.name(), cells.to_vec());
            }
        }
        report.section("Penalty of file systems").add(ratios);
        report.section("Reasons").add(reasons);
        report.summary.extend(self.cause());
        report.findings.hypotheses.push(HYPOTHESIS.to_owned());
        report.note(&NOTES);
        report
    }

    /// How many puts rewrite the end of the put before, by block size, with the original engine.
    fn cause(&self) -> Option<String> {
        let mut told = Vec::new();
        for size in [PUBLISHED_BLOCK, 4096] {
            let groups = self.groups().into_iter();
            let of_size =
                groups.filter(|one| (one.engine, one.block_size) == (Engine::Original, size));
            let shares = of_size.filter_map(|group| {
                let files = [StoreKind::Ext4, StoreKind::Xfs];
                let runs = files.iter().flat_map(|kind| self.of(group, *kind));
                let most = runs.max_by_key(|run| run.counted.overlaps)?;
                human::ratio(most.counted.overlaps, most.puts)
            });
            let Spread { min, max, .. } = Spread::of(shares.collect())?;
            let [least, most] = [min, max].map(percent);
            let share = if least == most {
                most
            } else {
                format!("{least} to {most}")
            };
            told.push(format!("with blocks of {size}, {share}"));
        }
        let told = told.join("; ");
        Some(format!(
            "Puts that rewrite the end of the put before, on file systems: {told}."
        ))
    }
}

/// Value of a run in a column.
type Reason = fn(&RunView) -> u64;
/// The columns of the table of reasons.
const REASONS: [(&str, Reason); 9] = [
    ("writes", |run| run.counted.own_writes.requests),
    ("reads", |run| run.counted.own_reads.requests),
    ("overlaps", |run| run.counted.overlaps),
    ("rewritten blocks", |run| run.counted.sub_block_rewrites),
    ("below 4 KiB", |run| run.counted.small),
    ("seeks > 4 KiB", |run| run.counted.far_seeks),
    ("flushes", |run| run.counted.flushes),
    ("file system", |run| run.counted.other_requests()),
    ("not seen", |run| run.trust.missing),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::{Part, Row};

    /// A run whose time by the overlap rule is `seconds`; by the ideal cache it is 1.
    fn run(
        (engine, block_size): (Engine, u16),
        kind: StoreKind,
        number: usize,
        seconds: f64,
        overlaps: u64,
    ) -> RunView {
        RunView {
            workload: "seq1".to_owned(),
            case: Case {
                engine,
                block_size,
                kind,
                run: number,
            },
            predicted_seconds: [1.0, seconds],
            puts: 1000,
            counted: TraceCounts {
                overlaps,
                ..TraceCounts::default()
            },
            trust: Trust {
                missing: 0,
                kernel_requests: 1000,
                complete: true,
            },
        }
    }

    #[test]
    fn ratios_stand_beside_the_published_ones_or_beside_no_cost() {
        let mut runs = Vec::new();
        for number in 1..=3 {
            // Published: 1.65 and 1.58.
            let of = [(1.0, 0), (1.64, 874), (1.40, 870)];
            for (kind, (seconds, overlaps)) in StoreKind::ALL.into_iter().zip(of) {
                runs.push(run(
                    (Engine::Original, 512),
                    kind,
                    number,
                    seconds,
                    overlaps,
                ));
                let whole = if kind == StoreKind::Xfs { 1.2 } else { 1.0 };
                runs.push(run((Engine::Original, 4096), kind, number, whole, 0));
            }
        }
        let report = CannylsRuns { runs }.report(0.05);
        let Part::Table(table) = &report.sections[0].parts[0] else {
            panic!("a table");
        };
        let met = |row: usize| match &table.rows[row] {
            Row::Cells(_, cells) => {
                [2, 3].map(|at| cells[at].figure().and_then(|one| one.judged()))
            }
            Row::Group(_) => panic!("a group"),
        };
        let (yes, no) = (Some(Ok(true)), Some(Ok(false)));
        // Group, ideal cache, overlap rule, twice.
        assert_eq!([met(1), met(2)], [[no, no], [yes, no]]);
        assert_eq!([met(4), met(5)], [[yes, yes], [yes, no]]);
        assert_eq!(
            report.summary,
            [
                "Puts that rewrite the end of the put before, on file systems: with blocks of 512, \
              87.4 %; with blocks of 4096, 0.0 %."
            ]
        );
    }
}
