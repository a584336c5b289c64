//! Units of numbers, and their text.

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::human;

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A duration in nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Events a second.
    PerSecond,
    /// A number of things.
    Count,
    /// One number over another of its kind: `1.65`.
    Ratio,
    /// A part of a whole, 0 to 1, written in percent.
    Share,
    /// Sectors of 512 bytes, counted from the beginning of the disk.
    Sectors,
    /// Milliseconds, with fractions.
    Milliseconds,
    /// Seconds of processor time for a GiB.
    SecondsPerGib,
    /// A number without a unit, with three digits.
    Plain,
}

impl Unit {
    /// False of times and costs.
    pub(super) fn more_is_better(self) -> bool {
        !matches!(
            self,
            Unit::Nanoseconds | Unit::Milliseconds | Unit::SecondsPerGib
        )
    }

    /// The number with its unit, as a person reads it; `–` for what is not a number.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        if value < 0.0 {
            let text = self.text(-value);
            return format!("\u{2212}{text}");
        }
        let whole = human::whole(value);
        match self {
            Unit::Nanoseconds => human::duration_ns(whole),
            Unit::Bytes => human::bytes(whole),
            Unit::BytesPerSecond => format!("{}/s", human::bytes(whole)),
            Unit::PerSecond if value < 100.0 => format!("{value:.1}/s"),
            Unit::PerSecond => format!("{}/s", human::count(whole)),
            Unit::Count | Unit::Sectors => human::count(whole),
            Unit::Ratio => format!("{value:.2}"),
            Unit::Share => human::percent(value),
            Unit::Milliseconds => format!("{value:.3} ms"),
            Unit::SecondsPerGib => format!("{value:.2} s/GiB"),
            Unit::Plain => human::three_digits(value),
        }
    }
}

/// Runs that a judgement takes at least: of fewer, chance makes too large a part.
const ENOUGH_RUNS: usize = 3;

/// Reason not to judge a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// It was measured in so many runs, too few.
    FewRuns(usize),
    /// Some runs are within the limits and some are not, or they lie on both sides.
    WideRange,
}

/// Median and range of a number that was measured again and again. For a ratio: of the ratios of
/// the pairs that were measured one after the other, not the ratio of two medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the values are no larger.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; `None` when there is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Spread { median, min, max })
    }

    /// Whether a figure lies within limits: true if all of its runs do, false if all lie on one
    /// side of them.
    ///
    /// # Errors
    /// Runs that decide nothing.
    pub fn judged(self, runs: usize, within: &RangeInclusive<f64>) -> Result<bool, Undecided> {
        if runs < ENOUGH_RUNS {
            return Err(Undecided::FewRuns(runs));
        }
        let inside = [self.min, self.max].map(|value| within.contains(&value));
        let beyond = self.max < *within.start() || self.min > *within.end();
        match (inside, beyond) {
            ([true, true], _) => Ok(true),
            (_, true) => Ok(false),
            _ => Err(Undecided::WideRange),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_unit() {
        assert_eq!(Unit::Nanoseconds.text(12_470_000.0), "12.5 ms");
        assert_eq!(Unit::Bytes.text(-1_048_576.0), "\u{2212}1.00 MiB");
        assert_eq!(Unit::BytesPerSecond.text(2_097_152.0), "2.00 MiB/s");
        assert_eq!(Unit::Ratio.text(1.654), "1.65");
        assert_eq!(Unit::Share.text(0.5), "50.0 %");
        assert_eq!(Unit::PerSecond.text(12.34), "12.3/s");
        assert_eq!(Unit::Count.text(f64::NAN), "–");
    }

    #[test]
    fn a_spread_is_median_and_range() {
        assert_eq!(Spread::of(vec![]), None);
        let odd = Spread::of(vec![3.0, 1.0, 2.0]).expect("values");
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        let even = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).expect("values");
        assert!((even.median - 2.5).abs() < f64::EPSILON);
    }

    #[test]
    fn a_figure_is_judged_by_all_of_at_least_three_runs() {
        let judged = |values: &[f64]| {
            let spread = Spread::of(values.to_vec()).expect("values");
            spread.judged(values.len(), &(0.95..=1.05))
        };
        assert_eq!(judged(&[0.95, 1.0, 1.05]), Ok(true));
        assert_eq!(judged(&[1.06, 1.1, 2.0]), Ok(false));
        assert_eq!(judged(&[0.1, 0.2, 0.94]), Ok(false));
        assert_eq!(judged(&[1.0, 1.0, 1.06]), Err(Undecided::WideRange));
        // Never near it, but on both sides.
        assert_eq!(judged(&[0.5, 0.6, 1.5]), Err(Undecided::WideRange));
        assert_eq!(judged(&[1.0]), Err(Undecided::FewRuns(1)));
        assert_eq!(judged(&[2.0, 2.0]), Err(Undecided::FewRuns(2)));
    }
}
