//! Replay of recorded requests on the disk of the published tables.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use lumpscope_platter::disk::{CachePolicy, Move, PartialSectors, Policy};
use lumpscope_platter::drive::{self, Drive};
use lumpscope_platter::replay::{self, Prediction, Replayed, WhatIf};
use lumpscope_platter::trace::{Trace, Traced};
use serde::Serialize;

use crate::human;

/// Sectors of the largest physical sector: a movement of the arm goes to the begin of one.
const PHYSICAL: u64 = 8;

/// Assumption about the disk's firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(in crate::studies) enum Rule {
    /// Mechanics and a write cache that merges whatever it can.
    Ideal,
    /// An ideal cache, but a rewritten end costs a revolution after each 3 MiB of a stream: a
    /// hypothesis with one fitted parameter.
    Overlap,
    /// No write cache, and a part of a physical sector costs a revolution.
    WriteThrough,
}

impl Rule {
    pub(in crate::studies) const ALL: [Rule; 3] = [Rule::Ideal, Rule::Overlap, Rule::WriteThrough];

    pub(in crate::studies) fn name(self) -> &'static str {
        match self {
            Rule::Ideal => "ideal cache",
            Rule::Overlap => "overlap rule",
            Rule::WriteThrough => "write-through, 512e",
        }
    }

    /// Policy of the drive under this rule.
    pub(in crate::studies) fn policy(self) -> Policy {
        let ideal = Policy {
            cache: CachePolicy::WriteBack,
            overlap: None,
            partial: PartialSectors::WriteThroughOnly,
            ..Policy::default()
        };
        match self {
            Rule::Ideal => ideal,
            Rule::Overlap => ideal.with_overlap(),
            Rule::WriteThrough => Policy {
                partial: PartialSectors::ReadFirst,
                ..ideal.write_through()
            },
        }
    }
}

/// The drive of that name.
pub(in crate::studies) fn drive_named(name: &str) -> anyhow::Result<Drive> {
    drive::by_name(name).ok_or_else(|| {
        let known: Vec<Cow<'static, str>> = drive::DRIVES
            .iter()
            .map(|drive| drive.name.clone())
            .collect();
        anyhow!("there is no drive {name}; known are: {}", known.join(", "))
    })
}

/// Replays a trace on a drive under a rule. Every request is issued at the moment when the last one
/// ends that had ended before it was made: the time is the drive's alone, and how fast the recording
/// machine was, or what else it had to do, changes nothing but the order of events. The predicted
/// requests are in the order of the trace.
pub(in crate::studies) fn replayed(
    trace: &Trace,
    drive: &Drive,
    rule: Rule,
) -> anyhow::Result<Prediction> {
    replayed_as(
        trace,
        &WhatIf::new(rule.name(), drive.clone(), rule.policy()),
    )
}

/// Likewise, on a drive that is set in any way.
pub(in crate::studies) fn replayed_as(
    trace: &Trace,
    what_if: &WhatIf,
) -> anyhow::Result<Prediction> {
    let (ordered, places) = without_times(trace);
    let mut prediction =
        replay::replay(&ordered, what_if).context("the recorded requests cannot be replayed")?;
    let mut requests = vec![Replayed::default(); prediction.requests.len()];
    for (replayed, place) in prediction.requests.iter().zip(places) {
        requests[place] = *replayed;
    }
    prediction.requests = requests;
    Ok(prediction)
}

/// Which request of the trace each movement of the arm was for: the last that used its place. `None`:
/// none did.
pub(in crate::studies) fn movers<'a>(
    trace: &'a Trace,
    prediction: &'a Prediction,
) -> impl Iterator<Item = (Option<usize>, &'a Move)> {
    let mut users: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for (place, request) in trace.requests.iter().enumerate() {
        users.insert(request.sector, (request.end(), place));
    }
    prediction.moves.iter().map(move |moved| {
        let before = users.range(..moved.sector + PHYSICAL).next_back();
        let found = before.filter(|(_, (end, _))| *end > moved.sector);
        (found.map(|(_, (_, place))| *place), moved)
    })
}

/// Seconds that the drive takes for the trace under a rule, from the first request to the end of
/// the last.
pub(in crate::studies) fn seconds(trace: &Trace, drive: &Drive, rule: Rule) -> anyhow::Result<f64> {
    Ok(human::as_float(replayed(trace, drive, rule)?.elapsed_ns) / 1e9)
}

/// The drive of a workload at a scale: as much smaller as the workload, so that the head goes over
/// as large a part of it, but never smaller than what the trace uses.
pub(in crate::studies) fn scaled(drive: &Drive, scale: f64, trace: &Trace) -> Drive {
    let used = trace.requests.iter().map(Traced::end).max();
    let wanted = human::whole(human::as_float(drive.sectors) * scale.min(1.0));
    drive.resized(wanted.max(used.unwrap_or(0)))
}

/// The requests in the order in which they were made, with the numbers of their events for times:
/// which had ended when one was made is as it was, and between two events there is no time to speak
/// of. With each comes its place in the trace.
fn without_times(trace: &Trace) -> (Trace, Vec<usize>) {
    let events = |request: &Traced| [request.queue_ns, request.done_ns.max(request.queue_ns)];
    let mut times: Vec<u64> = trace.requests.iter().flat_map(events).collect();
    times.sort_unstable();
    times.dedup();
    let at = |time: u64| {
        let number = times.partition_point(|other| *other < time);
        u64::try_from(number).unwrap_or(u64::MAX)
    };
    let mut ordered: Vec<(Traced, usize)> = Vec::with_capacity(trace.requests.len());
    for (place, request) in trace.requests.iter().enumerate() {
        let [made, done_ns] = events(request).map(at);
        let numbered = Traced {
            queue_ns: made,
            issue_ns: made,
            done_ns,
            ..*request
        };
        ordered.push((numbered, place));
    }
    ordered.sort_by_key(|(request, _)| (request.issue_ns, request.sector));
    let (requests, places) = ordered.into_iter().unzip();
    let missing = trace.missing;
    (Trace { requests, missing }, places)
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::trace::Op;

    use super::*;

    #[test]
    fn only_the_order_of_events_stays() {
        let write = |queue_ns: u64, issue_ns: u64, done_ns: u64| Traced {
            op: Op::Write,
            fua: false,
            sector: queue_ns * 8,
            sectors: 8,
            queue_ns,
            issue_ns,
            done_ns,
            own: true,
        };
        let trace = Trace::new(
            vec![
                write(100, 110, 200),
                // Made before the first had ended, issued after it.
                write(150, 230, 2_000_000),
                write(2_000_000, 2_000_001, 9_000_000),
            ],
            3,
        );
        let (numbered, places) = without_times(&trace);
        assert_eq!(places, [0, 1, 2]);
        let times: Vec<(u64, u64)> = numbered
            .requests
            .iter()
            .map(|request| (request.issue_ns, request.done_ns))
            .collect();
        assert_eq!(times, [(0, 2), (1, 3), (3, 4)]);
        assert_eq!(numbered.missing, 3);
    }

    #[test]
    fn a_drive_is_scaled_like_its_workload() {
        let drive = drive_named(crate::studies::seeds::DRIVE).expect("it is there");
        let mut trace = Trace::default();
        let sectors = |scale, trace: &Trace| scaled(&drive, scale, trace).sectors;
        assert_eq!(sectors(0.5, &trace), drive.sectors.div_ceil(2));
        assert_eq!(sectors(7.0, &trace), drive.sectors);
        trace.requests.push(Traced {
            op: Op::Read,
            fua: false,
            sector: 1_000_000,
            sectors: 24,
            queue_ns: 0,
            issue_ns: 0,
            done_ns: 1,
            own: true,
        });
        assert_eq!(sectors(1e-9, &trace), 1_000_024);
    }

    #[test]
    fn the_rules_order_as_they_should() {
        let drive = drive_named(crate::studies::seeds::DRIVE).expect("it is there");
        let mut requests = Vec::new();
        for at in 0..400_u64 {
            // Appends that rewrite one sector of the write before.
            requests.push(Traced {
                op: Op::Write,
                fua: false,
                sector: 1_000_000 + at * 1000 + 999,
                sectors: 1001,
                queue_ns: at * 1000,
                issue_ns: at * 1000,
                done_ns: at * 1000 + 900,
                own: true,
            });
        }
        let trace = Trace::new(requests, 0);
        let [ideal, overlap, through] =
            Rule::ALL.map(|rule| seconds(&trace, &drive, rule).expect("it fits"));
        assert!(
            ideal < overlap && overlap < through,
            "{ideal} {overlap} {through}"
        );
        assert!(drive_named("none").is_err());
    }
}
