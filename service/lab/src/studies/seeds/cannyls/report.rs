//! The result: for programs, and as tables for people.

use lumpscope_platter::drive::Drive;
use lumpscope_platter::trace::Trace;
use serde::Serialize;

use super::args::{CannylsArgs, Engine};
use super::case::{Case, Done};
use super::findings;
use super::vary;
use crate::blocks::{Counted, Trust};
use crate::disks::{EmulatedView, StoreKind};
use crate::experiment::Machine;
use crate::experiment::report::{Findings, Spread};
use crate::experiment::text;
use crate::studies::predict::{self, Rule};
use crate::studies::seeds::live;
use crate::studies::seeds::published::{CANNYLS, CannylsRow};

/// Where requests and times come from: replayed, or live.
const RECORDED: [&str; 2] = [
    "Requests are those that the running kernel sent to a fast loop disk, recorded by our probes; \
     every run has a new disk or file system (ext4 without a journal, mounted with \
     noinit_itable,no_prefetch_block_bitmaps).",
    "Times are predicted: the recorded requests, replayed through a mechanical model of the drive. \
     The drive is scaled like the workload, so that the head goes over the same part of it.",
];
const LIVE: [&str; 2] = [
    "Requests are those that the running kernel sent to the emulated drive, recorded by our \
     probes; every run has a new disk or file system (ext4 without a journal, mounted with \
     noinit_itable,no_prefetch_block_bitmaps).",
    "Times are measured, by the clock, on that drive, which answers as the rule has it; and \
     predicted: what was recorded, replayed through the model. A prediction goes to \
     the end of the last request, with what is flushed when the store is closed; measured are the \
     calls alone, which matters when they are few. The drive is scaled like the workload.",
];
const NOTES: [&str; 5] = [
    "The 3 MiB window of the overlap rule is one parameter, fitted to this very table: that the \
     rule comes near it is no proof. It does not explain rand2: see the variations.",
    "rand2 runs 10,000 iterations, not the 20,000 of its listing: its table counts 15,000 puts and \
     10,000 gets.",
    "The original engine runs with the crate's defaults: a record of the journal is written every \
     4096 puts, and nothing is flushed. Ours writes its record with each put and flushes; blocks of \
     4096 are its default. The published table is the original's, with blocks of 512.",
    "Raw is the bare disk, in place of the published minfs, which maps its one file to the disk \
     from byte 61440 on; the original begins at byte 0, ours inside a minfs.",
    "Beyond raw: sectors written by the program beyond those on the raw disk. A rewritten block: \
     of 4 KiB, covered in part by a write after something in it was written before.",
];

/// Blocks of the published table.
const PUBLISHED_BLOCK: u16 = 512;

/// How long the drive would have taken.
#[derive(Debug)]
pub(super) struct Predictor<'a> {
    pub(super) drive: &'a Drive,
    pub(super) scale: f64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunView {
    pub(super) workload: String,
    #[serde(flatten)]
    pub(super) case: Case,
    /// Sum of the timed calls: on the fast disk or, live, on the emulated drive.
    pub(super) measured_seconds: f64,
    /// Predicted seconds, in the order of [`Rule::ALL`] without the last.
    pub(super) predicted_seconds: [f64; 2],
    /// Predicted seconds, in the order of [`vary::ALL`].
    pub(super) varied_seconds: Vec<f64>,
    pub(super) commands: u64,
    pub(super) puts: u64,
    pub(super) counted: Counted,
    pub(super) trust: Trust,
    /// How late the emulated drive answered; absent: it was the fast disk.
    pub(super) emulated: Option<EmulatedView>,
}

/// The rules whose predictions are shown. Write-through would say nothing of this drive.
pub(super) const RULES: [Rule; 2] = [Rule::Ideal, Rule::Overlap];

impl RunView {
    pub(super) fn new(done: &Done, predictor: &Predictor<'_>) -> anyhow::Result<RunView> {
        let trace = &done.recorded.trace;
        let drive = match done.emulated {
            // The one that it ran on.
            Some((_, sectors)) => predictor.drive.resized(sectors),
            None => predict::scaled(predictor.drive, predictor.scale, trace),
        };
        let mut predicted_seconds = [0.0; 2];
        for (seconds, rule) in predicted_seconds.iter_mut().zip(RULES) {
            *seconds = predict::seconds(trace, &drive, rule)?;
        }
        Ok(RunView {
            workload: done.workload.clone(),
            case: done.case,
            measured_seconds: done.elapsed.as_secs_f64(),
            predicted_seconds,
            varied_seconds: vary::seconds(trace, &drive, done.case.kind)?,
            commands: done.commands,
            puts: done.puts,
            counted: Counted::of(trace),
            trust: done.recorded.trust(),
            emulated: done.emulated.as_ref().map(|(view, _)| view.clone()),
        })
    }
}

/// Runs that differ in the disk alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group<'a> {
    pub(super) workload: &'a str,
    pub(super) engine: Engine,
    pub(super) block_size: u16,
}

impl Group<'_> {
    /// The row of the published table that it repeats: the original engine's, with its blocks.
    pub(super) fn published(&self) -> Option<&'static CannylsRow> {
        let repeats = self.engine == Engine::Original && self.block_size == PUBLISHED_BLOCK;
        let row = CANNYLS.iter().find(|row| row.workload == self.workload);
        row.filter(|_| repeats)
    }
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) drive: String,
    pub(super) scale: f64,
    /// The runs were on the emulated drive, with this rule; absent: on a fast disk.
    pub(super) live: Option<Rule>,
    pub(super) runs_of_each: usize,
    pub(super) runs: Vec<RunView>,
    pub(super) published: [CannylsRow; 4],
    pub(super) findings: Findings,
    pub(super) notes: Vec<&'static str>,
    /// Of the first run of each case, for the pictures.
    #[serde(skip)]
    pub(super) traces: Vec<(String, Case, Trace)>,
}

impl Report {
    pub(super) fn new(args: &CannylsArgs, machine: Machine, drive: &Drive) -> Report {
        Report {
            machine,
            drive: drive.title.to_string(),
            scale: args.scale,
            live: args.live,
            runs_of_each: args.runs,
            runs: Vec::new(),
            published: CANNYLS,
            findings: Findings::default(),
            notes: args
                .live
                .map_or(RECORDED, |_| LIVE)
                .into_iter()
                .chain(NOTES)
                .collect(),
            traces: Vec::new(),
        }
    }

    /// Adds a run. Its trace is kept for a picture if a page will have one.
    pub(super) fn add(&mut self, view: RunView, done: Done) {
        let pictured = done.case.run == 1 && done.case.engine == Engine::Original;
        if pictured && done.case.block_size == PUBLISHED_BLOCK {
            self.traces
                .push((done.workload, done.case, done.recorded.trace));
        }
        self.runs.push(view);
    }

    /// To be called when all runs are there.
    pub(super) fn finish(&mut self) {
        self.machine = self.machine.clone().and_after();
        self.findings = findings::of(self);
    }

    /// In the order of the table.
    pub(super) fn groups(&self) -> Vec<Group<'_>> {
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
    pub(super) fn of(&self, group: Group<'_>, kind: StoreKind) -> impl Iterator<Item = &RunView> {
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

    /// Predicted seconds.
    pub(super) fn seconds(&self, group: Group<'_>, kind: StoreKind, rule: usize) -> Option<Spread> {
        self.seconds_of(group, kind, |run| run.predicted_seconds[rule])
    }

    pub(super) fn seconds_of(
        &self,
        group: Group<'_>,
        kind: StoreKind,
        of: impl Fn(&RunView) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.of(group, kind).map(of).collect())
    }

    /// Measured live over predicted from the same run's record; nothing when it was not live.
    pub(super) fn measured_over_predicted(
        &self,
        group: Group<'_>,
        kind: StoreKind,
    ) -> Option<Spread> {
        let rule = RULES.iter().position(|rule| Some(*rule) == self.live)?;
        let runs = self.of(group, kind);
        Spread::of_ratios(runs.map(|run| (run.measured_seconds, run.predicted_seconds[rule])))
    }

    /// Predicted seconds over those on the raw disk, run by run.
    pub(super) fn ratio(&self, group: Group<'_>, kind: StoreKind, rule: usize) -> Option<Spread> {
        self.ratio_of(group, kind, |run| run.predicted_seconds[rule])
    }

    /// Likewise, with a variation: its place in [`vary::ALL`].
    pub(super) fn varied(&self, group: Group<'_>, kind: StoreKind, at: usize) -> Option<Spread> {
        self.ratio_of(group, kind, |run| run.varied_seconds[at])
    }

    fn ratio_of(
        &self,
        group: Group<'_>,
        kind: StoreKind,
        of: impl Fn(&RunView) -> f64,
    ) -> Option<Spread> {
        let pairs = self.of(group, kind).filter_map(|run| {
            let mut raw = self.of(group, StoreKind::Raw);
            let raw = raw.find(|raw| raw.case.run == run.case.run)?;
            Some((of(run), of(raw)))
        });
        Spread::of_ratios(pairs)
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "{}, workloads and drive scaled by {}: time over that on the raw disk",
            self.drive, self.scale
        )];
        lines.extend(self.ratio_table());
        lines.push(String::new());
        lines.push("why: what the disks were asked for".to_owned());
        lines.extend(text::figures(&self.reasons()));
        lines.push(String::new());
        if let Some(table) = self.variations() {
            lines.push(table.caption.clone());
            lines.extend(text::figures(&table));
            lines.push(String::new());
        }
        lines.extend(text::findings(&self.findings));
        lines.push(String::new());
        lines.push(format!(
            "{} runs of each; {}",
            self.runs_of_each, self.machine
        ));
        lines.extend(live::lateness(
            self.runs.iter().filter_map(|run| run.emulated.as_ref()),
        ));
        lines.extend(self.notes.iter().map(|note| format!("- {note}")));
        lines.push(String::new());
        lines.join("\n")
    }

    fn ratio_table(&self) -> Vec<String> {
        let mut table = text::table(&[
            "workload",
            "engine",
            "blocks",
            "rule",
            "raw s",
            "raw s, full",
            "ext4",
            "xfs",
            "| published raw s",
            "ext4",
            "xfs",
        ]);
        for group in self.groups() {
            for (at, rule) in RULES.iter().enumerate() {
                let predicted = |run: &RunView| run.predicted_seconds[at];
                table.add_row(self.ratio_row(group, rule.name(), predicted));
            }
            if let Some(rule) = self.live {
                let name = format!("MEASURED, {}", rule.name());
                table.add_row(self.ratio_row(group, &name, |run| run.measured_seconds));
            }
        }
        table.lines()
    }

    pub(super) fn ratio_row(
        &self,
        group: Group<'_>,
        rule: &str,
        of: impl Fn(&RunView) -> f64 + Copy,
    ) -> Vec<String> {
        let row = group.published();
        let raw = self.seconds_of(group, StoreKind::Raw, of);
        let ratio = |kind| {
            let ratio = self.ratio_of(group, kind, of);
            ratio.map_or_else(text::dash, text::spread)
        };
        let published =
            |at: usize| row.map_or_else(text::dash, |row| format!("{:.2}", row.ratios[at]));
        let full = raw.map(|raw| raw.median / self.scale);
        let minfs = row.map_or_else(text::dash, |row| text::number(row.seconds[0]));
        vec![
            group.workload.to_owned(),
            group.engine.name().to_owned(),
            group.block_size.to_string(),
            rule.to_owned(),
            raw.map_or_else(text::dash, text::spread),
            full.map_or_else(text::dash, text::number),
            ratio(StoreKind::Ext4),
            ratio(StoreKind::Xfs),
            format!("| {minfs}"),
            published(1),
            published(2),
        ]
    }

    /// Sectors that the program wrote beyond those of the same run on the raw disk.
    pub(super) fn beyond_raw<'a>(
        &'a self,
        group: Group<'a>,
        kind: StoreKind,
    ) -> impl Iterator<Item = i128> + 'a {
        let sectors = |run: &RunView| i128::from(run.counted.own_writes.sectors);
        self.of(group, kind).filter_map(move |run| {
            let mut raw = self.of(group, StoreKind::Raw);
            let raw = raw.find(|raw| raw.case.run == run.case.run)?;
            Some(sectors(run) - sectors(raw))
        })
    }
}

/// Value of a run in a column.
pub(super) type Reason = fn(&RunView) -> i128;
/// The columns of the table of reasons.
pub(super) const REASONS: [(&str, Reason); 9] = [
    ("writes", |run| i128::from(run.counted.own_writes.requests)),
    ("reads", |run| i128::from(run.counted.own_reads.requests)),
    ("overlaps", |run| i128::from(run.counted.overlaps)),
    ("rewritten blocks", |run| {
        i128::from(run.counted.sub_block_rewrites)
    }),
    ("below 4 KiB", |run| i128::from(run.counted.small)),
    ("seeks > 4 KiB", |run| {
        i128::from(run.counted.seeks.beyond(8))
    }),
    ("flushes", |run| i128::from(run.counted.flushes)),
    ("file system", |run| {
        i128::from(run.counted.other_requests())
    }),
    ("not seen", |run| i128::from(run.trust.missing)),
];
