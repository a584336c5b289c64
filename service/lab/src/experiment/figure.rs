//! A figure of ours beside a peer's, round by round: median, range, goal and verdict.

use serde::Serialize;

use super::report::{Compared, Goal, Spread, Unit};
use super::text;

/// Unit of a figure, and which direction is better.
pub(crate) trait Measure: Copy {
    /// How they are written.
    fn unit(self) -> Unit;

    /// True: more is better, and a goal is a least ratio.
    fn higher_is_better(self) -> bool;
}

/// Our value of a round, and the peer's; `None`: it was not measured.
pub(crate) type Pair = (Option<f64>, Option<f64>);

/// One line of a result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure<M> {
    pub(crate) name: String,
    pub(crate) unit: M,
    pub(crate) higher_is_better: bool,
    pub(crate) ours: Option<Spread>,
    pub(crate) peer: Option<Spread>,
    /// Ours to the peer's, round by round.
    pub(crate) ratio: Option<Spread>,
    /// Least or greatest ratio.
    pub(crate) goal: Option<f64>,
    /// True: every round meets it; false: none does.
    pub(crate) met: Option<bool>,
}

impl<M: Measure> Figure<M> {
    /// Of pairs, one a round. A value that is not finite counts as not measured.
    pub(crate) fn of(name: String, unit: M, goal: Option<f64>, pairs: &[Pair]) -> Figure<M> {
        let spread = |of: fn(&Pair) -> Option<f64>| {
            let values = pairs.iter().filter_map(of);
            Spread::of(values.filter(|value| value.is_finite()).collect())
        };
        let ratio = spread(|(ours, peer)| Some((*ours)? / (*peer)?));
        let higher_is_better = unit.higher_is_better();
        let rounds = pairs
            .iter()
            .filter(|(ours, peer)| ours.is_some() && peer.is_some());
        let met = ratio.zip(goal).and_then(|(ratio, goal)| {
            let within = match higher_is_better {
                true => goal..=f64::INFINITY,
                false => f64::NEG_INFINITY..=goal,
            };
            ratio.judged(rounds.count(), &within).ok()
        });
        Figure {
            name,
            unit,
            higher_is_better,
            ours: spread(|pair| pair.0),
            peer: spread(|pair| pair.1),
            ratio,
            goal,
            met,
        }
    }

    /// All of them as a table for a terminal.
    pub(crate) fn lines(all: &[Figure<M>]) -> Vec<String> {
        let all = Figure::compared(all);
        text::figures(&Compared::table(&all, "peer", ""))
    }

    /// All of them for the page.
    pub(crate) fn compared(all: &[Figure<M>]) -> Vec<Compared> {
        let one = |figure: &Figure<M>| {
            let goal = if figure.higher_is_better {
                Goal::AtLeast
            } else {
                Goal::AtMost
            };
            Compared {
                name: figure.name.clone(),
                unit: figure.unit.unit(),
                ours: figure.ours,
                peer: figure.peer,
                ratio: figure.ratio,
                goal: figure.goal.map(goal),
                met: figure.met,
            }
        };
        all.iter().map(one).collect()
    }
}

/// How a verdict is printed.
pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
