//! Replay of recorded requests on the disk of the published tables.

use std::borrow::Cow;

use anyhow::{Context as _, anyhow};
use lumpscope_platter::disk::{CachePolicy, PartialSectors, Policy};
use lumpscope_platter::drive::{self, Drive};
use lumpscope_platter::replay::{self, WhatIf};
use lumpscope_platter::trace::{Trace, Traced};
use serde::Serialize;

use crate::human;

/// Assumption about the disk's firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    /// Mechanics and a write cache that merges whatever it can.
    Ideal,
    /// An ideal cache, but a rewritten end costs a revolution after each 3 MiB of a stream: a
    /// hypothesis with one fitted parameter.
    Overlap,
    /// No write cache, and a part of a physical sector costs a revolution.
    WriteThrough,
}

impl Rule {
    pub(super) const ALL: [Rule; 3] = [Rule::Ideal, Rule::Overlap, Rule::WriteThrough];

    pub(super) fn name(self) -> &'static str {
        match self {
            Rule::Ideal => "ideal cache",
            Rule::Overlap => "overlap rule",
            Rule::WriteThrough => "write-through, 512e",
        }
    }

    /// Policy of the drive under this rule.
    pub(super) fn policy(self) -> Policy {
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
pub(super) fn drive_named(name: &str) -> anyhow::Result<Drive> {
    drive::by_name(name).ok_or_else(|| {
        let known: Vec<Cow<'static, str>> = drive::DRIVES
            .iter()
            .map(|drive| drive.name.clone())
            .collect();
        anyhow!("there is no drive {name}; known are: {}", known.join(", "))
    })
}

/// Longest time from one event of a recording to the next, an issue or an end, that is believed to
/// be the program's own. The published times are those of the calls alone, and what is longer is a
/// machine that had other things to do.
const LONGEST_PAUSE_NS: u64 = 100_000;

/// Seconds that the drive takes for the trace under a rule, from the first request to the end of
/// the last. Between two events of the recording count at most 0.1 ms.
pub(super) fn seconds(trace: &Trace, drive: &Drive, rule: Rule) -> anyhow::Result<f64> {
    let what_if = WhatIf::new(rule.name(), drive.clone(), rule.policy());
    let predicted = replay::replay(&without_long_pauses(trace), &what_if)
        .context("the recorded requests cannot be replayed")?;
    Ok(human::as_float(predicted.elapsed_ns) / 1e9)
}

/// The events in their order, none of them long after the one before. The times of the fast disk do
/// not matter for a replay, only which requests had ended when one was issued, and how soon after.
fn without_long_pauses(trace: &Trace) -> Trace {
    let events = |request: &Traced| [request.issue_ns, request.done_ns.max(request.issue_ns)];
    let mut times: Vec<u64> = trace.requests.iter().flat_map(events).collect();
    times.sort_unstable();
    times.dedup();
    let (mut now_ns, mut before) = (0, None);
    let mut moved = Vec::with_capacity(times.len());
    for time in &times {
        let step = before.map_or(0, |before| time - before);
        now_ns += step.min(LONGEST_PAUSE_NS);
        moved.push(now_ns);
        before = Some(*time);
    }
    let at = |time: u64| {
        let found = times.binary_search(&time).ok();
        let found = found.and_then(|index| moved.get(index));
        found.copied().unwrap_or(time)
    };
    let moved = |request: &Traced| {
        let [issue_ns, done_ns] = events(request).map(at);
        Traced {
            queue_ns: issue_ns,
            issue_ns,
            done_ns,
            ..*request
        }
    };
    Trace {
        requests: trace.requests.iter().map(moved).collect(),
        missing: trace.missing,
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::trace::Op;

    use super::*;

    #[test]
    fn long_pauses_are_cut_and_the_order_stays() {
        const MS: u64 = 1_000_000;
        const CUT: u64 = LONGEST_PAUSE_NS;
        let write = |issue_ns: u64, done_ns: u64| Traced {
            op: Op::Write,
            fua: false,
            sector: issue_ns / MS * 8,
            sectors: 8,
            queue_ns: issue_ns,
            issue_ns,
            done_ns,
            own: true,
        };
        let trace = Trace::new(
            vec![
                write(MS, 2 * MS),
                write(2 * MS, 20 * MS),
                write(15 * MS, 16 * MS),
                write(29 * MS, 30 * MS),
                write(30 * MS + 5, 31 * MS),
            ],
            0,
        );
        let cut = without_long_pauses(&trace);
        let times: Vec<(u64, u64)> = cut
            .requests
            .iter()
            .map(|request| (request.issue_ns, request.done_ns))
            .collect();
        let expected = [
            (0, CUT),
            (CUT, 4 * CUT),
            (2 * CUT, 3 * CUT),
            (5 * CUT, 6 * CUT),
            (6 * CUT + 5, 7 * CUT + 5),
        ];
        assert_eq!(times, expected);
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
