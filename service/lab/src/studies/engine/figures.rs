//! The figures, the runs they need, and their goals.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::experiment::report::Unit;
use crate::human;
use crate::load::{Measured, Promise};

/// Sizes of lumps.
const SIZES: [u64; 4] = [4 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Requests in flight.
const DEPTHS: [usize; 2] = [1, 8];
/// Requests in flight where the slowest requests are looked at.
pub(super) const TAIL_DEPTH: usize = 4;
/// Size of a lump there and where bandwidth has a goal.
const MIB: u64 = 1 << 20;

/// Share of fio's bandwidth that 1 MiB puts and gets at depth 8 reach at least.
const FIO_GOAL: f64 = 0.95;
/// How many times as fast as the original puts and gets at depth 1 are at least.
const CANNYLS_GOAL: f64 = 1.3;
/// Goal for 8 gets at a time on a slow parallel disk.
const SLOW_GOAL: f64 = 4.0;
/// How many times fio's 99.9th percentile of durable writes ours is at most.
const TAIL_GOAL: f64 = 1.2;

/// Runs that belong together in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunGroup {
    /// Puts and gets of one size and depth.
    Plain { size: u64, depth: usize },
    /// The slowest synced puts.
    Tail,
    /// Gets on a slow parallel disk.
    Slow,
}

/// One run of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Run {
    Ours(Promise),
    FioWrite,
    FioRead,
    FioDurable,
    Cannyls(Promise),
}

impl Run {
    /// Place in a round: what is compared with each other is run one after the other.
    pub(super) fn place(self) -> u8 {
        match self {
            Run::FioRead => 0,
            Run::FioWrite | Run::FioDurable => 1,
            Run::Ours(Promise::Synced) => 2,
            Run::Cannyls(Promise::Synced) => 3,
            Run::Cannyls(Promise::Written) => 4,
            Run::Ours(Promise::Written | Promise::Buffered) => 5,
            Run::Cannyls(Promise::Buffered) => 6,
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct EngineOutcome {
    pub(super) put: Option<Measured>,
    pub(super) get: Option<Measured>,
    /// How the puts came to their promise, where the engine says it.
    pub(super) durability: Option<String>,
}

/// A number taken from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    PutRate,
    GetRate,
    /// As many puts as gets.
    MixRate,
    PutTail,
}

/// One line of the result.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) setting: RunGroup,
    pub(super) unit: Unit,
    pub(super) ours: Run,
    pub(super) peer: Run,
    pub(super) goal: Option<f64>,
    metric: Metric,
}

impl Figure {
    fn new(
        setting: RunGroup,
        what: &str,
        against: &str,
        runs: (Run, Run),
        metric: Metric,
        goal: Option<f64>,
    ) -> Figure {
        Figure {
            name: format!("{} {what} / {against}", setting.name()),
            setting,
            unit: setting.unit(),
            ours: runs.0,
            peer: runs.1,
            goal,
            metric,
        }
    }

    /// The two numbers of a round; `None`: it was not measured.
    pub(super) fn values(
        &self,
        outcomes: &BTreeMap<Run, EngineOutcome>,
    ) -> (Option<f64>, Option<f64>) {
        let value = |run| self.value(outcomes.get(run)?).filter(|value| *value > 0.0);
        (value(&self.ours), value(&self.peer))
    }

    fn value(&self, outcome: &EngineOutcome) -> Option<f64> {
        let rate = |measured: Option<Measured>| -> Option<f64> {
            let measured = measured?;
            match self.unit {
                Unit::PerSecond if measured.seconds > 0.0 => {
                    Some(human::as_float(measured.requests) / measured.seconds)
                }
                Unit::PerSecond => None,
                _ => Some(measured.bytes_per_second()),
            }
        };
        match self.metric {
            Metric::PutRate => rate(outcome.put),
            Metric::GetRate => rate(outcome.get),
            Metric::MixRate => {
                let (put, get) = (rate(outcome.put)?, rate(outcome.get)?);
                Some(2.0 / (put.recip() + get.recip()))
            }
            Metric::PutTail => Some(human::as_float(outcome.put?.latency.p999_ns)),
        }
    }
}

impl RunGroup {
    pub(super) fn name(self) -> String {
        match self {
            RunGroup::Plain { size, depth } => {
                let size = if size < MIB {
                    format!("{} KiB", size >> 10)
                } else {
                    format!("{} MiB", size >> 20)
                };
                format!("{size}, depth {depth}:")
            }
            RunGroup::Tail => format!("1 MiB, depth {TAIL_DEPTH}:"),
            RunGroup::Slow => "5 ms disk, 8 gets at a time:".to_owned(),
        }
    }

    /// Bytes of a lump.
    pub(super) fn size(self) -> u64 {
        match self {
            RunGroup::Plain { size, .. } => size,
            RunGroup::Tail => MIB,
            RunGroup::Slow => SIZES[0],
        }
    }

    fn unit(self) -> Unit {
        match self {
            RunGroup::Plain { size, .. } if size >= 256 << 10 => Unit::BytesPerSecond,
            RunGroup::Plain { .. } | RunGroup::Slow => Unit::PerSecond,
            RunGroup::Tail => Unit::Nanoseconds,
        }
    }
}

/// All figures whose name holds the pattern.
pub(super) fn chosen(only: Option<&str>) -> Vec<Figure> {
    let mut figures = all();
    if let Some(pattern) = only {
        figures.retain(|figure| figure.name.contains(pattern));
    }
    figures
}

fn all() -> Vec<Figure> {
    let mut figures = Vec::new();
    for size in SIZES {
        for depth in DEPTHS {
            figures.extend(against_fio(size, depth));
            figures.extend(against_cannyls(size, depth));
        }
    }
    let synced = Promise::Synced;
    figures.push(Figure::new(
        RunGroup::Tail,
        "99.9 % of synced puts",
        "fio",
        (Run::Ours(synced), Run::FioDurable),
        Metric::PutTail,
        Some(TAIL_GOAL),
    ));
    figures.push(Figure::new(
        RunGroup::Slow,
        "get",
        "cannyls",
        (Run::Ours(synced), Run::Cannyls(synced)),
        Metric::GetRate,
        Some(SLOW_GOAL),
    ));
    figures
}

fn against_fio(size: u64, depth: usize) -> [Figure; 3] {
    let setting = RunGroup::Plain { size, depth };
    let goal = (size == MIB && depth == 8).then_some(FIO_GOAL);
    let figure = |what, promise, peer, metric, goal| {
        Figure::new(
            setting,
            what,
            "fio",
            (Run::Ours(promise), peer),
            metric,
            goal,
        )
    };
    let (put, write) = (Metric::PutRate, Run::FioWrite);
    [
        figure("put synced", Promise::Synced, write, put, goal),
        figure("put journaled", Promise::Written, write, put, None),
        figure("get", Promise::Synced, Run::FioRead, Metric::GetRate, goal),
    ]
}

fn against_cannyls(size: u64, depth: usize) -> [Figure; 6] {
    let setting = RunGroup::Plain { size, depth };
    let goal = (depth == 1).then_some(CANNYLS_GOAL);
    let figure = |what, against, ours, peer, metric, goal| {
        let runs = (Run::Ours(ours), Run::Cannyls(peer));
        Figure::new(setting, what, against, runs, metric, goal)
    };
    let (put, mix) = (Metric::PutRate, Metric::MixRate);
    let (synced, written) = (Promise::Synced, Promise::Written);
    let weaker = "cannyls buffered (promises less)";
    [
        figure("put synced", "cannyls", synced, synced, put, goal),
        figure("put journaled", "cannyls", written, written, put, goal),
        figure(
            "put journaled",
            weaker,
            written,
            Promise::Buffered,
            put,
            None,
        ),
        figure("get", "cannyls", synced, synced, Metric::GetRate, goal),
        figure("put synced + get", "cannyls", synced, synced, mix, goal),
        figure(
            "put journaled + get",
            "cannyls",
            written,
            written,
            mix,
            goal,
        ),
    ]
}

/// Runs that the chosen figures need: settings in order, and the runs of each.
pub(super) fn needed(figures: &[Figure]) -> BTreeMap<RunGroup, BTreeSet<Run>> {
    let mut needed: BTreeMap<RunGroup, BTreeSet<Run>> = BTreeMap::new();
    for figure in figures {
        let runs = needed.entry(figure.setting).or_default();
        runs.extend([figure.ours, figure.peer]);
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_goal_is_there() {
        let figures = all();
        let names: BTreeSet<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names.len(), figures.len());
        let with_goal = |goal: f64| {
            let same = |figure: &&Figure| figure.goal == Some(goal);
            figures.iter().filter(same).count()
        };
        assert_eq!(with_goal(FIO_GOAL), 2);
        assert_eq!(with_goal(CANNYLS_GOAL), SIZES.len() * 5);
        assert_eq!((with_goal(SLOW_GOAL), with_goal(TAIL_GOAL)), (1, 1));
        let one = chosen(Some("1 MiB, depth 8: get / fio"));
        assert_eq!(one.len(), 1);
        let runs = &needed(&one)[&RunGroup::Plain {
            size: MIB,
            depth: 8,
        }];
        assert!(runs.contains(&Run::FioRead) && runs.len() == 2, "{runs:?}");
    }
}
