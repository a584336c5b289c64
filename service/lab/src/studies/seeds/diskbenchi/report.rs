//! The result: for programs, and as tables for people.

use lumpscope_platter::drive::Drive;
use lumpscope_platter::trace::Trace;
use serde::Serialize;

use super::args::{DiskbenchiArgs, ODD_OFFSET};
use super::findings;
use super::trial::Trial;
use crate::blocks::{Counted, Trust};
use crate::disks::{EmulatedView, StoreKind};
use crate::experiment::Machine;
use crate::experiment::report::{Findings, Spread};
use crate::experiment::text;
use crate::studies::predict::{self, Rule};
use crate::studies::seeds::live;
use crate::studies::seeds::published::DISKBENCHI;

/// Where requests and times come from: replayed, or live.
const RECORDED: [&str; 2] = [
    "Requests are those that the running kernel sent to a fast loop disk, recorded by our probes; \
     every run has a new file system, and the program neither reads nor flushes.",
    "Times are predicted: the recorded requests, replayed through a mechanical model of the drive, \
     each waiting for everything that had completed before it was sent. They are scaled to the \
     published number of writes.",
];
const LIVE: [&str; 2] = [
    "Requests are those that the running kernel sent to the emulated drive, recorded by our \
     probes; every run has a new file system, and the program neither reads nor flushes.",
    "Times are measured, by the clock, on that drive, which answers as the rule has it; and \
     predicted: what was recorded, replayed through the model. They are scaled to the published \
     number of writes.",
];
const NOTES: [&str; 2] = [
    "Whether a drive behaves as one of the rules is not known: nobody here has this drive. The \
     window of the overlap rule, 3 MiB, was fitted to the published tables.",
    "Beyond the payload: sectors that were written although the program did not write them, or \
     not so often. A rewritten block: of 4 KiB, covered in part by a write after something in it \
     was written before.",
];

/// Result of one run on a disk.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TrialView {
    pub(super) kind: StoreKind,
    pub(super) offset: u64,
    pub(super) run: usize,
    /// Seconds from opening the file to the end of the last write, on whatever disk it was.
    pub(super) wall_seconds: f64,
    pub(super) counted: Counted,
    /// Sectors beyond the payload.
    pub(super) padding: i64,
    pub(super) trust: Trust,
    /// How late the emulated drive answered; absent: it was the fast disk.
    pub(super) emulated: Option<EmulatedView>,
    /// Part that belongs to the first half of the writes.
    pub(super) of_half: Half,
}

/// Requests of the first half of the writes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Half {
    /// Sectors written.
    pub(super) sectors: u64,
    /// Writes that begin in the end of the one before.
    pub(super) overlaps: u64,
}

/// Predicted time of some writes at one place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Prediction {
    pub(super) kind: StoreKind,
    pub(super) offset: u64,
    pub(super) rule: Rule,
    /// Writes that were recorded.
    pub(super) writes: u64,
    /// Writes of the published row that they stand for.
    pub(super) published_writes: u64,
    /// Seconds, scaled to the published writes; over the runs.
    pub(super) seconds: Option<Spread>,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) drive: String,
    /// The runs were on the emulated drive, with this rule; absent: on a fast disk.
    pub(super) live: Option<Rule>,
    pub(super) block: u64,
    pub(super) count: u64,
    pub(super) hugepool: bool,
    pub(super) runs: usize,
    pub(super) trials: Vec<TrialView>,
    pub(super) predictions: Vec<Prediction>,
    /// Number of writes, seconds from byte 0 and from byte 3584.
    pub(super) published: [(u64, f64, f64); 3],
    pub(super) findings: Findings,
    pub(super) notes: Vec<&'static str>,
    /// Of the first run at each place, for the pictures.
    #[serde(skip)]
    pub(super) traces: Vec<(String, Trace)>,
}

impl Report {
    pub(super) fn new(
        args: &DiskbenchiArgs,
        machine: Machine,
        drive: Drive,
        trials: Vec<Trial>,
    ) -> anyhow::Result<Report> {
        let mut predictions = Vec::new();
        for kind in args.kinds() {
            for offset in args.offsets() {
                let of: Vec<&Trial> = trials
                    .iter()
                    .filter(|trial| trial.kind == kind && trial.program.offset == offset)
                    .collect();
                predict_place(&of, &drive, args.count, &mut predictions)?;
            }
        }
        let traces = trials.iter().filter(|trial| trial.run == 1);
        let traces = traces.map(|trial| (place(trial.kind, trial.program.offset), trial));
        let mut report = Report {
            machine: machine.and_after(),
            drive: drive.title.to_string(),
            live: args.live,
            block: args.bs,
            count: args.count,
            hugepool: args.hugepool,
            runs: args.runs,
            predictions,
            published: DISKBENCHI,
            findings: Findings::default(),
            notes: args
                .live
                .map_or(RECORDED, |_| LIVE)
                .into_iter()
                .chain(NOTES)
                .collect(),
            traces: traces
                .map(|(name, trial)| (name, trial.recorded.trace.clone()))
                .collect(),
            trials: trials.iter().map(TrialView::new).collect(),
        };
        report.findings = findings::of(&report);
        Ok(report)
    }

    /// Places that were tried, in the order of the table.
    pub(super) fn places(&self) -> Vec<(StoreKind, u64)> {
        let mut places: Vec<(StoreKind, u64)> = Vec::new();
        for prediction in &self.predictions {
            let place = (prediction.kind, prediction.offset);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Of all runs at a place.
    pub(super) fn at(&self, (kind, offset): (StoreKind, u64)) -> impl Iterator<Item = &TrialView> {
        let at_place = move |trial: &&TrialView| trial.kind == kind && trial.offset == offset;
        self.trials.iter().filter(at_place)
    }

    /// Predicted seconds.
    pub(super) fn predicted(
        &self,
        (kind, offset): (StoreKind, u64),
        rule: Rule,
        published_writes: u64,
    ) -> Option<Spread> {
        let found = self.predictions.iter().find(|one| {
            let of = (one.kind, one.offset, one.rule, one.published_writes);
            of == (kind, offset, rule, published_writes)
        });
        found.and_then(|one| one.seconds)
    }

    /// Measured seconds on the emulated drive, scaled to the most published writes, for which all
    /// of ours stand; nothing when it was not live.
    pub(super) fn measured(&self, place: (StoreKind, u64)) -> Option<Spread> {
        self.live?;
        let scale = crate::human::ratio(most_published(), self.count)?;
        Spread::of(
            self.at(place)
                .map(|trial| trial.wall_seconds * scale)
                .collect(),
        )
    }

    /// Predicted time from byte 3584 over that from byte 0: of the medians, and the least and the
    /// largest that any two runs give.
    pub(super) fn ratio(
        &self,
        kind: StoreKind,
        rule: Rule,
        published_writes: u64,
    ) -> Option<Spread> {
        let odd = self.predicted((kind, ODD_OFFSET), rule, published_writes)?;
        let even = self.predicted((kind, 0), rule, published_writes)?;
        Some(Spread {
            median: odd.median / even.median,
            min: odd.min / even.max,
            max: odd.max / even.min,
        })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "{} direct writes of {} bytes to a new file{}",
            self.count,
            self.block,
            if self.hugepool { ", huge pages" } else { "" }
        )];
        lines.extend(text::figures(&self.requests()));
        lines.push(String::new());
        lines.push(format!(
            "{}: seconds, scaled to the published writes",
            self.drive
        ));
        lines.extend(text::figures(&self.times()));
        lines.push(String::new());
        lines.extend(text::findings(&self.findings));
        lines.push(String::new());
        lines.push(format!("{} runs; {}", self.runs, self.machine));
        lines.extend(live::lateness(
            self.trials.iter().filter_map(|one| one.emulated.as_ref()),
        ));
        lines.extend(self.notes.iter().map(|note| format!("- {note}")));
        lines.push(String::new());
        lines.join("\n")
    }
}

/// Value of a run in a row.
type Of = fn(&TrialView) -> i128;
/// The rows of the table of requests.
pub(super) const ROWS: [(&str, Of); 12] = [
    ("writes to the disk", |t| {
        i128::from(t.counted.own_writes.requests)
    }),
    ("of less than 8 sectors", |t| i128::from(t.counted.small)),
    ("sectors written", |t| {
        i128::from(t.counted.own_writes.sectors)
    }),
    ("beyond the payload", |t| i128::from(t.padding)),
    (
        "begin 1 to 8 sectors before the end of the write before",
        |t| i128::from(t.counted.overlaps),
    ),
    ("rewritten blocks", |t| {
        i128::from(t.counted.sub_block_rewrites)
    }),
    ("reads", |t| i128::from(t.counted.own_reads.requests)),
    ("flushes", |t| i128::from(t.counted.flushes)),
    ("seeks of more than 4 KiB", |t| {
        i128::from(t.counted.seeks.beyond(8))
    }),
    ("by the file system: reads", |t| {
        i128::from(t.counted.other_reads.requests)
    }),
    ("by the file system: writes", |t| {
        i128::from(t.counted.other_writes.requests)
    }),
    ("requests that were not seen", |t| {
        i128::from(t.trust.missing)
    }),
];

/// One number when all runs agree, else the range.
pub(in crate::studies::seeds) fn range(values: impl Iterator<Item = i128>) -> String {
    let values: Vec<i128> = values.collect();
    match (values.iter().min(), values.iter().max()) {
        (Some(min), Some(max)) if min == max => min.to_string(),
        (Some(min), Some(max)) => format!("{min}..{max}"),
        _ => text::dash(),
    }
}

/// `xfs from 3584`.
pub(super) fn place(kind: StoreKind, offset: u64) -> String {
    format!("{} from {offset}", kind.name())
}

impl TrialView {
    fn new(trial: &Trial) -> TrialView {
        let counted = Counted::of(&trial.recorded.trace);
        let half = Counted::of(&trial.first(trial.program.count / 2));
        TrialView {
            kind: trial.kind,
            offset: trial.program.offset,
            run: trial.run,
            wall_seconds: trial.wall.as_secs_f64(),
            padding: counted.padding(trial.program.payload()),
            of_half: Half {
                sectors: half.own_writes.sectors,
                overlaps: half.overlaps,
            },
            trust: trial.recorded.trust(),
            emulated: trial.emulated.clone(),
            counted,
        }
    }
}

/// The most writes that were published.
pub(super) fn most_published() -> u64 {
    DISKBENCHI.iter().map(|row| row.0).max().unwrap_or(1)
}

/// All rules and all published numbers of writes at one place.
fn predict_place(
    trials: &[&Trial],
    drive: &Drive,
    count: u64,
    predictions: &mut Vec<Prediction>,
) -> anyhow::Result<()> {
    let Some(first) = trials.first() else {
        return Ok(());
    };
    let most = most_published();
    for (published_writes, ..) in DISKBENCHI {
        let writes = (count * published_writes / most).max(1);
        for rule in Rule::ALL {
            let mut seconds = Vec::new();
            for trial in trials {
                let trace = trial.first(writes);
                let scale = crate::human::ratio(published_writes, writes).unwrap_or(1.0);
                seconds.push(scale * predict::seconds(&trace, drive, rule)?);
            }
            predictions.push(Prediction {
                kind: first.kind,
                offset: first.program.offset,
                rule,
                writes,
                published_writes,
                seconds: Spread::of(seconds),
            });
        }
    }
    Ok(())
}
