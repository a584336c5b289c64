//! Charts as data. What does not fit onto a screen is thinned by stated rules, and the chart says
//! how much was left out.

use std::collections::BTreeSet;

use serde::Serialize;

use super::unit::{Spread, Unit};
use crate::human;

/// Steps that a curve keeps of its values, and as many of the slowest beside them.
const CURVE_STEPS: usize = 300;
/// Places of a picture of dots in either direction.
const PLACES: f64 = 200.0;
/// How many of the largest values a curve keeps, each.
const CURVE_TAIL: usize = 100;

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// Name of the axis; the unit is added.
    pub title: String,
    /// Unit of the values.
    pub unit: Unit,
    /// How values are laid out.
    pub scale: Scale,
}

/// How values are laid out along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal steps are equally far apart.
    Linear,
    /// Equal ratios are equally far apart.
    Log,
}

/// How values are distributed: the share of them that is no larger, by value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cdf {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// The values; [`Scale::Log`] for latencies.
    pub x: Axis,
    /// One curve each.
    pub curves: Vec<Curve>,
}

/// Values of one kind, sorted and thinned.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Curve {
    /// Name of the series.
    pub name: String,
    /// Value, and how many values there are up to this one from the entry before. Ascending.
    pub steps: Vec<(f64, u64)>,
}

/// How often two things came together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heat {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Name of the counted things: "requests".
    pub counted: String,
    /// One picture each, all with the same axes and shades.
    pub panels: Vec<HeatPanel>,
}

/// One picture.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HeatPanel {
    /// Name.
    pub name: String,
    /// Cells; those that overlap are drawn over each other.
    pub cells: Vec<HeatCell>,
    /// Items that could not be shown, such as flushes, which have no distance.
    pub left_out: u64,
}

/// A count in a rectangle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HeatCell {
    /// From, to.
    pub x: (f64, f64),
    /// From, to.
    pub y: (f64, f64),
    /// How many; 0 is not drawn.
    pub count: u64,
}

/// Single things by two of their properties.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scatter {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Name of the dots: "requests".
    pub counted: String,
    /// One picture each, all with the same axes.
    pub panels: Vec<ScatterPanel>,
}

/// One picture.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ScatterPanel {
    /// Name.
    pub name: String,
    /// One colour and shape each; groups of one name look the same in all panels.
    pub groups: Vec<Dots>,
}

/// Things of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Dots {
    /// Name.
    pub name: String,
    /// x and y, in any order.
    pub points: Vec<(f64, f64)>,
}

/// One bar a whole, its parts side by side in the bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bars {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// Name of the axis; the unit is added.
    pub title: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Names of the parts, in order.
    pub parts: Vec<String>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Bar {
    /// Name.
    pub name: String,
    /// One value a part, 0 or more; missing ones are 0.
    pub values: Vec<f64>,
}

/// Medians with their ranges, one below the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranges {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// The values; [`Scale::Log`] for ratios, so that half and double are equally far from 1.
    pub x: Axis,
    /// A line to compare with, such as 1 for ratios, and what it means.
    pub reference: Option<(f64, String)>,
    /// One row each, in this order.
    pub rows: Vec<Range>,
}

/// A median with its range.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Range {
    /// Name.
    pub name: String,
    /// The measured spread; absent: nothing was measured.
    pub spread: Option<Spread>,
    /// The goal.
    pub goal: Option<f64>,
    /// The published value.
    pub published: Option<f64>,
}

impl Axis {
    /// With equal steps.
    #[must_use]
    pub fn linear(title: impl Into<String>, unit: Unit) -> Axis {
        Axis {
            title: title.into(),
            unit,
            scale: Scale::Linear,
        }
    }

    /// With equal ratios.
    #[must_use]
    pub fn log(title: impl Into<String>, unit: Unit) -> Axis {
        Axis {
            title: title.into(),
            unit,
            scale: Scale::Log,
        }
    }
}

impl Dots {
    /// Of these points, those that do not lie on another where a picture has so many places in
    /// either direction.
    #[must_use]
    pub fn of(name: impl Into<String>, mut points: Vec<(f64, f64)>) -> Dots {
        let largest = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(1.0, f64::max);
        let (width, height) = (largest(|point| point.0), largest(|point| point.1));
        let mut taken = BTreeSet::new();
        points.retain(|(x, y)| {
            let place = [x / width, y / height].map(|share| human::whole(share * PLACES));
            taken.insert(place)
        });
        Dots {
            name: name.into(),
            points,
        }
    }
}

impl Curve {
    /// Of these values, in any order. Of many, 300 at equal distances in rank are kept, each with
    /// how many it stands for, and the 100 largest one by one.
    #[must_use]
    pub fn of(name: impl Into<String>, values: impl IntoIterator<Item = u64>) -> Curve {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        let body = values.len().saturating_sub(CURVE_TAIL);
        let stride = body.div_ceil(CURVE_STEPS).max(1);
        let mut steps: Vec<(f64, u64)> = Vec::new();
        let (body, tail) = values.split_at(body);
        for group in body.chunks(stride).chain(tail.chunks(1)) {
            let largest = group.last().copied().unwrap_or(0);
            let (value, count) = (human::as_float(largest), as_count(group.len()));
            match steps.last_mut() {
                Some((last, counted)) if last.total_cmp(&value).is_eq() => *counted += count,
                _ => steps.push((value, count)),
            }
        }
        Curve {
            name: name.into(),
            steps,
        }
    }
}

fn as_count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_the_ranks_of_its_values() {
        let few = Curve::of("a", [3, 1, 2, 2]);
        assert_eq!(few.steps, [(1.0, 1), (2.0, 2), (3.0, 1)]);
        let many = Curve::of("a", 1..=1_000_000);
        let counts = many.steps.iter().map(|(_, count)| count);
        assert_eq!(counts.sum::<u64>(), 1_000_000);
        assert_eq!(many.steps.len(), CURVE_STEPS + CURVE_TAIL);
        assert_eq!(many.steps.last(), Some(&(1_000_000.0, 1)));
    }

    #[test]
    fn dots_that_lie_on_each_other_are_one() {
        let points = (0..100_000).map(|at| (f64::from(at), f64::from(at % 7)));
        let dots = Dots::of("a", points.collect());
        assert!(
            (100..10_000).contains(&dots.points.len()),
            "{}",
            dots.points.len()
        );
    }
}
