//! The result: for programs, and as a table for people.

use serde::Serialize;

use super::pattern::Pattern;
use super::trial::Trial;
use crate::experiment::report::{Findings, Spread, Undecided, together};
use crate::experiment::{Machine, text};
use crate::human;

/// A live disk is to be no further from its model, as a share.
pub(super) const LIVE_GOAL: f64 = 0.05;
/// A replay is to be no further from the live disk, as a share.
pub(super) const REPLAY_GOAL: f64 = 0.03;

/// How to read the numbers.
pub(super) const NOTES: [&str; 4] = [
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

/// One pattern, over its rounds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Requests of a run.
    pub(super) requests: usize,
    /// Seconds by the model.
    pub(super) model_seconds: f64,
    /// Seconds on the live disk.
    pub(super) live_seconds: Option<Spread>,
    /// Live over model, less one.
    pub(super) live_over_model: Option<Spread>,
    /// Replay over what was recorded live, less one.
    pub(super) replay_over_live: Option<Spread>,
    /// Mean, 99th percentile and largest lateness in nanoseconds, the worst of the rounds.
    pub(super) late_ns: [u64; 3],
    /// Every request reached the disk as it was asked for, and the probes saw it.
    pub(super) all_seen: bool,
    /// In every round the disk's threads ran before ordinary ones.
    pub(super) runs_first: bool,
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) drive: String,
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
    pub(super) trials: Vec<Trial>,
    pub(super) findings: Findings,
}

impl Row {
    fn new(pattern: &Pattern, trials: &[Trial]) -> Row {
        let of: Vec<&Trial> = trials
            .iter()
            .filter(|trial| trial.pattern == pattern.name)
            .collect();
        let seconds = |ns: u64| human::as_float(ns) / 1e9;
        let less_one = |spread: Spread| Spread {
            median: spread.median - 1.0,
            min: spread.min - 1.0,
            max: spread.max - 1.0,
        };
        let over = |pair: fn(&Trial) -> (u64, u64)| {
            let pairs = of.iter().map(|trial| pair(trial));
            Spread::of_ratios(pairs.map(|(one, other)| (seconds(one), seconds(other))))
                .map(less_one)
        };
        let late = |of_one: fn(&Trial) -> u64| of.iter().map(|one| of_one(one)).max().unwrap_or(0);
        let seen = |trial: &&Trial| {
            let (asked, trust) = (trial.asked, trial.trust);
            asked == trial.taken && asked == trial.seen && trust.complete
        };
        Row {
            name: pattern.name,
            title: pattern.title,
            requests: of.first().map_or(0, |trial| trial.asked),
            model_seconds: of.first().map_or(0.0, |trial| seconds(trial.model_ns)),
            live_seconds: Spread::of(of.iter().map(|trial| seconds(trial.live_ns)).collect()),
            live_over_model: over(|trial| (trial.live_ns, trial.model_ns)),
            replay_over_live: over(|trial| (trial.replayed_ns, trial.recorded_ns)),
            late_ns: [
                late(|trial| trial.lateness.mean_ns),
                late(|trial| trial.lateness.p99_ns),
                late(|trial| trial.lateness.max_ns),
            ],
            all_seen: of.iter().all(seen),
            runs_first: of.iter().all(|trial| trial.runs_first),
        }
    }

    /// One line that says whether the goals are met by every round, or by none.
    fn finding(&self, rounds: usize) -> (String, Result<bool, Undecided>) {
        let judged = |spread: Option<Spread>, goal: f64| {
            spread.map_or(Ok(false), |spread| spread.judged(rounds, &(-goal..=goal)))
        };
        let judged = together([
            judged(self.live_over_model, LIVE_GOAL),
            judged(self.replay_over_live, REPLAY_GOAL),
            Ok(self.all_seen),
        ]);
        let mut line = format!(
            "{} ({}): live {} of the model, replay {} of live",
            self.name,
            self.title,
            off(self.live_over_model),
            off(self.replay_over_live)
        );
        if !self.all_seen {
            line.push_str("; not every request reached the disk as it was asked for and was seen");
        }
        (line, judged)
    }
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        drive: String,
        rounds: usize,
        patterns: &[Pattern],
        trials: &[Trial],
    ) -> Report {
        let rows: Vec<Row> = patterns
            .iter()
            .map(|pattern| Row::new(pattern, trials))
            .collect();
        let mut findings = Findings::default();
        for row in &rows {
            let (line, judged) = row.finding(rounds);
            findings.file(line, judged);
        }
        if rows.iter().any(|row| !row.runs_first) {
            findings.differs.push(
                "The disk's threads have no real-time priority (CAP_SYS_NICE): on a busy machine \
                 the figures are the machine's."
                    .to_owned(),
            );
        }
        Report {
            machine,
            drive,
            rounds,
            rows,
            trials: trials.to_vec(),
            findings,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "{}, at its own speed, {} rounds",
            self.drive, self.rounds
        )];
        lines.extend(text::figures(&self.table()));
        lines.push(String::new());
        for (name, said) in [
            ("WITHIN THE GOALS (5 % and 3 %)", &self.findings.agrees),
            ("NOT WITHIN THE GOALS", &self.findings.differs),
            ("NOT DECIDED", &self.findings.undecided),
        ] {
            if !said.is_empty() {
                lines.push(name.to_owned());
                lines.extend(said.iter().map(|line| format!("- {line}")));
            }
        }
        lines.push(String::new());
        lines.push(self.machine.to_string());
        lines.extend(NOTES.map(|note| format!("- {note}")));
        lines.join("\n")
    }
}

/// A difference with its sign, in percent: `+0.8 % (+0.4..+1.1)`.
pub(super) fn off(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| {
        let [median, min, max] = [spread.median, spread.min, spread.max].map(|one| one * 100.0);
        format!("{median:+.1} % ({min:+.1}..{max:+.1})")
    })
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::live::Lateness;

    use super::super::pattern::PATTERNS;
    use super::*;
    use crate::blocks::Trust;

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

    fn report(trials: &[Trial]) -> Report {
        Report::new(
            Machine::before(),
            "a drive".to_owned(),
            trials.len(),
            &PATTERNS[..1],
            trials,
        )
    }

    #[test]
    fn goals_are_of_every_round_and_of_both_comparisons() {
        let good = trial(1_040_000_000, 1_030_000_000);
        let slow = trial(1_200_000_000, 1_190_000_000);
        let filed = |trials: &[Trial]| {
            let Findings {
                agrees,
                differs,
                undecided,
                ..
            } = report(trials).findings;
            (agrees.len(), differs.len(), undecided.len())
        };
        assert_eq!(filed(&vec![good.clone(); 3]), (1, 0, 0));
        assert_eq!(filed(&vec![slow.clone(); 3]), (0, 1, 0));
        assert_eq!(filed(&vec![good.clone(); 2]), (0, 0, 1));
        let one_slow = [good.clone(), slow, good.clone()];
        assert_eq!(filed(&one_slow), (0, 0, 1));
        let text = report(&one_slow).text();
        assert!(text.contains("+4.0 % (+4.0..+20.0)"), "{text}");
        // Live is near the model, the replay is not near what was live.
        assert_eq!(
            filed(&vec![trial(1_000_000_000, 960_000_000); 3]),
            (0, 1, 0)
        );
        let unseen = Trial { seen: 399, ..good };
        let missed = report(&[unseen]);
        assert!(missed.findings.differs[0].contains("not every request"));
        assert!(missed.text().contains("NO\n"), "{}", missed.text());
    }
}
