//! How long the disk of the published tables would have taken for what was recorded.

use std::borrow::Cow;

use lumpscope_platter::disk::{CachePolicy, PartialSectors, Policy};
use lumpscope_platter::drive::{self, Drive};
use lumpscope_platter::replay::{self, WhatIf};
use lumpscope_platter::trace::{Trace, Traced};
use serde::Serialize;

use super::error::SeedsError;
use crate::human;

/// What is supposed about the firmware of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    /// Mechanics and a write cache that merges whatever it can.
    Ideal,
    /// The same, and a rewritten end costs a revolution after each 3 MiB of a stream: a hypothesis
    /// with one fitted parameter.
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

    /// What it says of the drive.
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
pub(super) fn drive_named(name: &str) -> Result<Drive, SeedsError> {
    drive::by_name(name).ok_or_else(|| {
        let known: Vec<Cow<'static, str>> = drive::DRIVES
            .iter()
            .map(|drive| drive.name.clone())
            .collect();
        SeedsError::NoDrive {
            name: name.to_owned(),
            known: known.join(", "),
        }
    })
}

/// Longest pause in which nothing is asked of the disk that is believed to be the program's own.
/// The published times are those of the calls alone, and a pause that is longer is a machine that
/// had other things to do.
const LONGEST_PAUSE_NS: u64 = 200_000;

/// Seconds that the drive takes for the trace under a rule, from the first request to the end of
/// the last. Pauses of the program count as at most 0.2 ms.
pub(super) fn seconds(trace: &Trace, drive: &Drive, rule: Rule) -> Result<f64, SeedsError> {
    let what_if = WhatIf::new(rule.name(), drive.clone(), rule.policy());
    let predicted = replay::replay(&without_long_pauses(trace), &what_if)?;
    Ok(human::as_float(predicted.elapsed_ns) / 1e9)
}

/// The same with every time in which nothing was under way cut.
fn without_long_pauses(trace: &Trace) -> Trace {
    let (mut cut, mut busy_until) = (0_u64, None::<u64>);
    let mut requests = Vec::with_capacity(trace.requests.len());
    for request in &trace.requests {
        let pause = busy_until.map_or(0, |end| request.issue_ns.saturating_sub(end));
        cut += pause.saturating_sub(LONGEST_PAUSE_NS);
        busy_until = Some(busy_until.unwrap_or(0).max(request.done_ns));
        requests.push(Traced {
            queue_ns: request.queue_ns.saturating_sub(cut),
            issue_ns: request.issue_ns.saturating_sub(cut),
            done_ns: request.done_ns.saturating_sub(cut),
            ..*request
        });
    }
    Trace {
        requests,
        missing: trace.missing,
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::trace::Op;

    use super::*;

    #[test]
    fn long_pauses_are_cut_and_nothing_else_moves() {
        const MS: u64 = 1_000_000;
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
        // One that is under way all the time hides the first pause; then 9 ms of nothing.
        let trace = Trace::new(
            vec![
                write(MS, 2 * MS),
                write(2 * MS, 20 * MS),
                write(15 * MS, 16 * MS),
                write(29 * MS, 30 * MS),
                write(30 * MS + 100_000, 31 * MS),
            ],
            0,
        );
        let cut = without_long_pauses(&trace);
        let issued: Vec<u64> = cut
            .requests
            .iter()
            .map(|request| request.issue_ns)
            .collect();
        let moved = 9 * MS - LONGEST_PAUSE_NS;
        let expected = [
            MS,
            2 * MS,
            15 * MS,
            29 * MS - moved,
            30 * MS + 100_000 - moved,
        ];
        assert_eq!(issued, expected);
        let took = |trace: &Trace| -> Vec<u64> {
            let requests = trace.requests.iter();
            requests.map(|one| one.done_ns - one.issue_ns).collect()
        };
        assert_eq!(took(&cut), took(&trace));
    }

    #[test]
    fn the_rules_order_as_they_should() {
        let drive = drive_named(crate::seeds::DRIVE).expect("it is there");
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
