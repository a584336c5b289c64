//! The published times beside their repetition, and what the disks were asked for.

use lumpscope_platter::drive::Drive;
use serde::Serialize;

use super::ODD_OFFSET;
use super::trial::Trial;
use crate::blocks::{TraceCounts, Trust};
use crate::disks::StoreKind;
use crate::experiment::report::{Cell, Limit, Picture, Report, Table, Unit};
use crate::human;
use crate::studies::predict::{self, Rule};
use crate::studies::seeds::published::DISKBENCHI;

const NOTES: [&str; 4] = [
    "Requests are those that the running kernel sent to a fast loop disk, recorded by our probes; \
     every run has a new file system, and the program neither reads nor flushes.",
    "Times are predicted: the recorded requests, replayed through a mechanical model of the drive, \
     each waiting for everything that had completed before it was sent. They are scaled to the \
     published number of writes.",
    "Whether a drive behaves as one of the rules is not known: nobody here has this drive. The \
     window of the overlap rule, 3 MiB, was fitted to the published tables.",
    "Beyond the payload: sectors that were written although the program did not write them, or \
     not so often. A rewritten block: of 4 KiB, covered in part by a write after something in it \
     was written before.",
];
const HYPOTHESES: [&str; 2] = [
    "That a drive loses a revolution for a rewritten end after each 3 MiB of a stream is supposed: \
     one parameter, fitted to the published tables. It gives a ratio that does not grow with the \
     number of writes.",
    "That the last published run is so much slower (4000 writes, 1.43) is not in the requests, \
     which stay the same to the last write. It must be the drive, such as a cache that works \
     differently when it is full of parts of physical sectors, or chance: each was run once.",
];

/// Figures that are no further apart agree: ratios, and shares of a time.
const NEAR: f64 = 0.05;

/// The data behind the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskbenchTrials {
    trials: Vec<TrialView>,
}

/// One run on a disk.
#[derive(Clone, Debug, Serialize)]
struct TrialView {
    kind: StoreKind,
    offset: u64,
    run: usize,
    counted: TraceCounts,
    /// Sectors beyond the payload.
    padding: i64,
    trust: Trust,
}

impl TrialView {
    fn of(trial: &Trial) -> TrialView {
        let counted = TraceCounts::of(&trial.recorded.trace);
        TrialView {
            kind: trial.kind,
            offset: trial.program.offset,
            run: trial.run,
            padding: counted.padding(trial.program.payload()),
            trust: trial.recorded.trust(),
            counted,
        }
    }
}

impl DiskbenchTrials {
    pub(super) fn of(trials: &[Trial]) -> DiskbenchTrials {
        DiskbenchTrials {
            trials: trials.iter().map(TrialView::of).collect(),
        }
    }
}

/// The report of all runs.
pub(super) fn report(
    kinds: &[StoreKind],
    (trials, data): (&[Trial], &DiskbenchTrials),
    drive: &Drive,
) -> anyhow::Result<Report> {
    let mut report = Report::new("Direct writes to a new file, from byte 0 and 3584");
    report.section("Times").add(times(kinds, trials, drive)?);
    report.section("Requests").add(requests(kinds, data));
    report.findings.hypotheses = HYPOTHESES.map(str::to_owned).to_vec();
    report.note(&NOTES);
    Ok(report)
}

/// Seconds that each run at a place is predicted to take under a rule for its first writes, which
/// stand for so many published ones.
fn seconds(
    trials: &[Trial],
    (kind, offset): (StoreKind, u64),
    (drive, rule): (&Drive, Rule),
    published: u64,
) -> anyhow::Result<Vec<f64>> {
    let most = DISKBENCHI.iter().map(|row| row.0).max().unwrap_or(1);
    let at_place = |trial: &&Trial| (trial.kind, trial.program.offset) == (kind, offset);
    let of = trials
        .iter()
        .filter(at_place)
        .map(|trial| -> anyhow::Result<f64> {
            let writes = (trial.program.count * published / most).max(1);
            let scale = human::ratio(published, writes).unwrap_or(1.0);
            Ok(scale * predict::seconds(&trial.first(writes), drive, rule)?)
        });
    of.collect()
}

fn times(kinds: &[StoreKind], trials: &[Trial], drive: &Drive) -> anyhow::Result<Table> {
    let columns = ["writes", "from 0, s", "from 3584, s", "ratio"];
    let caption =
        "Predicted seconds, scaled to the published writes, on an xfs beside the published.";
    let mut table = Table::new(caption, &columns);
    table.picture = Some(Picture {
        columns: vec![3],
        reference: (1.0, "as from byte 0"),
    });
    table.group("published, xfs");
    for (writes, even, odd) in DISKBENCHI {
        let cells = vec![
            Cell::count(writes),
            Cell::value(Some(even), Unit::Plain),
            Cell::value(Some(odd), Unit::Plain),
            Cell::value(Some(odd / even), Unit::Ratio),
        ];
        table.row("published", cells);
    }
    for kind in kinds {
        table.group(kind.name());
        for rule in Rule::ALL {
            for (writes, even, odd) in DISKBENCHI {
                let at = |offset| seconds(trials, (*kind, offset), (drive, rule), writes);
                let (ours, odd_ours) = (at(0)?, at(ODD_OFFSET)?);
                let ratios = std::iter::zip(&odd_ours, &ours).map(|(odd, even)| odd / even);
                let xfs = *kind == StoreKind::Xfs;
                let near =
                    |published: f64, by: f64| xfs.then_some(Limit::Published(published, Some(by)));
                let absolute = near(even, even * NEAR).filter(|_| rule == Rule::Ideal);
                let cells = vec![
                    Cell::count(writes),
                    Cell::runs(Unit::Plain, ours.clone()).within(absolute),
                    Cell::runs(Unit::Plain, odd_ours.clone()),
                    Cell::runs(Unit::Ratio, ratios).within(near(odd / even, NEAR)),
                ];
                table.row(rule.name(), cells);
            }
        }
    }
    Ok(table)
}

fn requests(kinds: &[StoreKind], data: &DiskbenchTrials) -> Table {
    let of = |kind: &StoreKind| [0, ODD_OFFSET].map(|offset| (*kind, offset));
    let places: Vec<(StoreKind, u64)> = kinds.iter().flat_map(of).collect();
    let names = places
        .iter()
        .map(|(kind, at)| format!("{} from {at}", kind.name()));
    let names: Vec<String> = names.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = Table::new("What the disk was asked for.", &names);
    for (name, of) in ROWS {
        let cell = |place: &(StoreKind, u64)| {
            let at_place = |trial: &&TrialView| (trial.kind, trial.offset) == *place;
            Cell::counts(data.trials.iter().filter(at_place).map(of))
        };
        table.row(name, places.iter().map(cell).collect());
    }
    table
}

/// Value of a run in a row.
type Of = fn(&TrialView) -> u64;
/// The rows of the table of requests.
const ROWS: [(&str, Of); 12] = [
    ("writes to the disk", |t| t.counted.own_writes.requests),
    ("of less than 8 sectors", |t| t.counted.small),
    ("sectors written", |t| t.counted.own_writes.sectors),
    ("beyond the payload", |t| {
        u64::try_from(t.padding).unwrap_or(0)
    }),
    (
        "begin 1 to 8 sectors before the end of the write before",
        |t| t.counted.overlaps,
    ),
    ("rewritten blocks", |t| t.counted.sub_block_rewrites),
    ("reads", |t| t.counted.own_reads.requests),
    ("flushes", |t| t.counted.flushes),
    ("seeks of more than 4 KiB", |t| t.counted.far_seeks),
    ("by the file system: reads", |t| {
        t.counted.other_reads.requests
    }),
    ("by the file system: writes", |t| {
        t.counted.other_writes.requests
    }),
    ("requests that were not seen", |t| t.trust.missing),
];
