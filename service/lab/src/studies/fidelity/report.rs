//! The figures as a table.

use serde::Serialize;

use super::pattern::Pattern;
use super::trial::Trial;
use crate::experiment::report::{Cell, Limit, Picture, Report, Table, Unit};
use crate::human;

/// A live disk is to be no further from its model, as a share.
const LIVE_GOAL: f64 = 0.05;
/// A replay is to be no further from the live disk, as a share.
const REPLAY_GOAL: f64 = 0.03;

/// How to read the numbers.
const NOTES: [&str; 4] = [
    "A program that waits for each request ran on a live disk at its own speed, through the \
     kernel. Model: the same requests, one right after the other, in virtual time. Replay: what \
     the probes recorded of the live disk, through the model. Time counts from the end of the \
     first request.",
    "Live/model: seconds of the live disk over those of the model. Replay/live: predicted seconds \
     over those that the probes saw. Medians and ranges over the rounds, which ask the same each \
     time.",
    "Late: how long after its time an answer was given, in the worst round. What a request waits \
     for in the kernel before the disk's process sees it is not in it, but is in live; a machine \
     that does other things as well makes both long.",
    "No request is larger than 512 KiB, so that the disk gets what the program asks for.",
];

/// The data behind the figures.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FidelityTrials {
    pub(super) trials: Vec<Trial>,
}

const COLUMNS: [&str; 9] = [
    "requests",
    "model, s",
    "live, s",
    "live/model",
    "replay/live",
    "late: mean",
    "p99",
    "max",
    "all seen",
];

/// One row a pattern, over its rounds.
pub(super) fn report(patterns: &[Pattern], trials: &[Trial]) -> Report {
    let caption = "Medians and ranges over the rounds; the latest answers of all.";
    let mut table = Table::new(caption, &COLUMNS);
    table.corner = "pattern".to_owned();
    table.picture = Some(Picture {
        columns: vec![3, 4],
        reference: (1.0, "the same"),
    });
    let mut report = Report::new("A live emulated disk beside its model");
    for pattern in patterns {
        let of = || trials.iter().filter(|trial| trial.pattern == pattern.name);
        let seconds = |ns: u64| human::as_float(ns) / 1e9;
        let ratio = |(one, other): (u64, u64)| seconds(one) / seconds(other);
        let late = |of_one: fn(&Trial) -> u64| {
            let latest = of().map(of_one).max().unwrap_or(0);
            Cell::value(Some(human::as_float(latest)), Unit::Nanoseconds)
        };
        let all_seen = of().all(|trial| {
            let (asked, trust) = (trial.asked, trial.trust);
            asked == trial.taken && asked == trial.seen && trust.complete
        });
        let live = of().map(|trial| ratio((trial.live_ns, trial.model_ns)));
        let replay = of().map(|trial| ratio((trial.replayed_ns, trial.recorded_ns)));
        let first = of().next();
        table.row(
            format!("{}: {}", pattern.name, pattern.title),
            vec![
                Cell::count(first.map_or(0, |trial| trial.asked as u64)),
                Cell::value(first.map(|trial| seconds(trial.model_ns)), Unit::Plain),
                Cell::runs(Unit::Plain, of().map(|trial| seconds(trial.live_ns))),
                Cell::runs(Unit::Ratio, live).within(Limit::Near(1.0, LIVE_GOAL)),
                Cell::runs(Unit::Ratio, replay).within(Limit::Near(1.0, REPLAY_GOAL)),
                late(|trial| trial.lateness.mean_ns),
                late(|trial| trial.lateness.p99_ns),
                late(|trial| trial.lateness.max_ns),
                Cell::text(if all_seen { "yes" } else { "NO" }),
            ],
        );
        if !all_seen {
            let name = pattern.name;
            report.findings.differs.push(format!(
                "{name}: not every request reached the disk as it was asked for and was seen."
            ));
        }
    }
    if trials.iter().any(|trial| !trial.runs_first) {
        report.findings.differs.push(
            "The disk's threads have no real-time priority (CAP_SYS_NICE): on a busy machine the \
             figures are the machine's."
                .to_owned(),
        );
    }
    report.section("Live, model and replay").add(table);
    report.note(&NOTES);
    report
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::live::Lateness;

    use super::super::pattern::PATTERNS;
    use super::*;
    use crate::blocks::Trust;
    use crate::experiment::report::{Part, Row, Undecided};

    fn trial(live_ns: u64, replayed_ns: u64) -> Trial {
        Trial {
            pattern: PATTERNS[0].name,
            live_ns,
            model_ns: 1_000_000_000,
            recorded_ns: live_ns,
            replayed_ns,
            asked: 400,
            taken: 400,
            seen: 400,
            trust: Trust {
                missing: 0,
                kernel_requests: 400,
                complete: true,
            },
            lateness: Lateness::default(),
            runs_first: true,
        }
    }

    #[test]
    fn goals_are_of_every_round_and_of_both_comparisons() {
        let judged = |trials: &[Trial]| {
            let report = report(&PATTERNS[..1], trials);
            let Part::Table(table) = &report.sections[0].parts[0] else {
                panic!("a table");
            };
            let Row::Cells(_, cells) = &table.rows[0] else {
                panic!("a row");
            };
            [3, 4].map(|at| {
                cells[at]
                    .figure()
                    .expect("a figure")
                    .judged()
                    .expect("a goal")
            })
        };
        let good = trial(1_040_000_000, 1_030_000_000);
        let slow = trial(1_200_000_000, 1_190_000_000);
        assert_eq!(judged(&vec![good.clone(); 3]), [Ok(true); 2]);
        assert_eq!(judged(&vec![slow.clone(); 3]), [Ok(false), Ok(true)]);
        assert_eq!(
            judged(&[good.clone(), good.clone()])[0],
            Err(Undecided::FewRuns(2))
        );
        let one_slow = [good.clone(), slow, good.clone()];
        assert_eq!(judged(&one_slow)[0], Err(Undecided::WideRange));
        // Live is near the model, the replay is not near what was live.
        assert_eq!(
            judged(&vec![trial(1_000_000_000, 960_000_000); 3]),
            [Ok(true), Ok(false)]
        );
        let unseen = report(&PATTERNS[..1], &[Trial { seen: 399, ..good }]);
        assert!(unseen.findings.differs[0].contains("not every request"));
    }
}
