//! Axes: position of a value, and labelled ticks.
//!
//! Plotters is given places on a line of equal steps, whatever the scale: so ticks and their words
//! are the same for all charts.

use crate::experiment::report::chart::{Axis, Scale};
use crate::experiment::report::unit::Unit;
use crate::human;

/// Width of the place of "0" on an axis to both sides, in powers of two.
const ZERO_HALF: f64 = 0.5;
/// Doublings of the smallest distance below which there is no tick beside that of 0.
const NEAREST_TICK: i32 = 5;
/// Share of a linear axis left free at an end where the data ends.
const PADDING: f64 = 0.04;
/// Ticks of an axis of ratios that fewer would leave without a measure.
const LEAST_TICKS: usize = 3;
/// Largest power of two that a tick is looked for at: beyond any 64-bit number.
const MOST_DOUBLINGS: i32 = 64;

/// An axis whose range is known.
#[derive(Debug, Clone)]
pub(super) struct Laid {
    scale: Scale,
    unit: Unit,
    /// Title with what a reader needs to know of the unit.
    pub(super) title: String,
    /// Place of the low end.
    pub(super) from: f64,
    /// Place of the high end.
    pub(super) to: f64,
}

impl Laid {
    /// Over all of these values; `None` when there is none that can be shown.
    pub(super) fn over(axis: &Axis, values: impl IntoIterator<Item = f64>) -> Option<Laid> {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let positive = |value: &f64| axis.scale != Scale::Log || *value > 0.0;
        let (low, high) = finite.filter(positive).fold(None, |range, value| {
            let (low, high): (f64, f64) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        })?;
        let (mut from, mut to) = (place(axis.scale, low), place(axis.scale, high));
        match axis.scale {
            Scale::Linear => {
                // From zero, unless that is far from everything there is.
                if from > 0.0 && from < to * 0.7 {
                    from = 0.0;
                }
                let padding = (to - from) * PADDING;
                if from != 0.0 {
                    from -= padding;
                }
                to += padding;
            }
            Scale::Log => {
                let padding = (to - from) * PADDING / 2.0;
                from -= padding;
                to += padding;
            }
            Scale::SignedLog(_) => {
                // The same to both sides: a picture that leans says so itself.
                let most = from.abs().max(to.abs()).max(2.0) + ZERO_HALF;
                (from, to) = (-most, most);
            }
        }
        if to - from < 1e-9 {
            let half = if axis.scale == Scale::Linear {
                (from.abs() * 0.5).max(0.5)
            } else {
                0.5
            };
            (from, to) = (from - half, to + half);
        }
        Some(Laid {
            scale: axis.scale,
            unit: axis.unit,
            title: title(axis),
            from,
            to,
        })
    }

    /// Where a value lies; at the end of the axis when it lies beyond.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = place(self.scale, value);
        if place.is_finite() {
            place.clamp(self.from, self.to)
        } else {
            self.from
        }
    }

    /// Where a range lies. That of no distance at all is as wide as the others.
    pub(super) fn places(&self, (from, to): (f64, f64)) -> (f64, f64) {
        let (from, to) = (self.place(from), self.place(to));
        if matches!(self.scale, Scale::SignedLog(_)) && from == 0.0 && to == 0.0 {
            return (-ZERO_HALF, ZERO_HALF);
        }
        (from, to)
    }

    /// Places of the ticks with their words, at most so many.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => linear_ticks(self.from, self.to, self.unit, most),
            Scale::Log if self.unit == Unit::Bytes => {
                doublings((0, 0), most, |power| self.holds(2_f64.powi(power)))
            }
            Scale::Log => {
                let ticks = self.log_ticks(most);
                if ticks.len() < LEAST_TICKS {
                    let (from, to) = (10_f64.powf(self.from), 10_f64.powf(self.to));
                    linear_ticks(from, to, self.unit, most)
                } else {
                    ticks
                }
            }
            Scale::SignedLog(least) => self.signed_ticks(least, most),
        };
        let inside = values.into_iter().filter(|value| self.holds(*value));
        inside
            .map(|value| (place(self.scale, value), self.unit.tick(value)))
            .collect()
    }

    fn holds(&self, value: f64) -> bool {
        let (slack, place) = ((self.to - self.from) * 1e-9, place(self.scale, value));
        place >= self.from - slack && place <= self.to + slack
    }

    /// 1, 2, 5, 10 and so on where there is room, else powers of ten, else every few of them.
    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let decades = (floor(self.from), floor(self.to) + 1);
        let of = |digits: &'static [f64], step: i32| -> Vec<f64> {
            let exponents = (decades.0..=decades.1).filter(move |exponent| exponent % step == 0);
            exponents
                .flat_map(|exponent| {
                    digits
                        .iter()
                        .map(move |digit| digit * 10_f64.powi(exponent))
                })
                .filter(|value| self.holds(*value))
                .collect()
        };
        let choices: [(&'static [f64], i32); 7] = [
            (
                &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
                1,
            ),
            (&[1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0], 1),
            (&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], 1),
            (&[1.0, 2.0, 5.0], 1),
            (&[1.0, 3.0], 1),
            (&[1.0], 1),
            (&[1.0], 3),
        ];
        let fitting = choices
            .iter()
            .map(|(digits, step)| of(digits, *step))
            .find(|ticks| ticks.len() <= most);
        fitting.unwrap_or_default()
    }

    fn signed_ticks(&self, least: f64, most: usize) -> Vec<f64> {
        let side = most.saturating_sub(1) / 2;
        // One doubling of a sector is 1 KiB: with steps of ten come MiB and GiB. What is nearer than
        // the first is too near for words beside that of 0.
        let right = doublings((NEAREST_TICK, 1), side, |power| {
            self.holds(least * 2_f64.powi(power))
        });
        let right: Vec<f64> = right.iter().map(|value| value * least).collect();
        let left = right.iter().rev().map(|value| -value);
        left.chain([0.0]).chain(right.iter().copied()).collect()
    }
}

/// Powers of two that are inside, every so many of them that there are at most `most`.
/// `round` is one that falls on a round number.
fn doublings((first, round): (i32, i32), most: usize, inside: impl Fn(i32) -> bool) -> Vec<f64> {
    let powers: Vec<i32> = (first..MOST_DOUBLINGS)
        .filter(|power| inside(*power))
        .collect();
    // 10 doublings are a unit of bytes: steps of 1, 2, 5, 10 of them fall on round numbers.
    let steps = [1, 2, 5, 10, 20, 40];
    let chosen = steps.iter().find(|step| {
        let fitting = powers
            .iter()
            .filter(|power| (**power - round) % **step == 0);
        fitting.count() <= most.max(1)
    });
    let step = chosen.copied().unwrap_or(MOST_DOUBLINGS);
    let kept = powers
        .into_iter()
        .filter(|power| (power - round) % step == 0);
    kept.map(|power| 2_f64.powi(power)).collect()
}

/// The title, with the direction and unit that the ticks do not tell.
fn title(axis: &Axis) -> String {
    match axis.unit {
        Unit::PerSecond => format!("{} (per second)", axis.title),
        _ => axis.title.clone(),
    }
}

/// Where a value lies on a line of equal steps.
fn place(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => value.log10(),
        Scale::SignedLog(least) if value.abs() < least => 0.0,
        Scale::SignedLog(least) => ((value.abs() / least).log2() + 1.0) * value.signum(),
    }
}

/// Round numbers at equal steps: 1, 2, 2.5 or 5 times a power of ten; of two for bytes.
fn linear_ticks(from: f64, to: f64, unit: Unit, most: usize) -> Vec<f64> {
    let most = human::as_float(u64::try_from(most.max(2)).unwrap_or(2));
    let wanted = (to - from) / most;
    let step = if matches!(unit, Unit::Bytes | Unit::BytesPerSecond) {
        2_f64.powf(wanted.log2().ceil())
    } else {
        let power = 10_f64.powf(wanted.log10().floor());
        let digit = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .find(|digit| digit * power >= wanted * (1.0 - 1e-9));
        digit.unwrap_or(10.0) * power
    };
    let whole = matches!(unit, Unit::Count | Unit::Sectors | Unit::Nanoseconds);
    let step = if whole { step.max(1.0).ceil() } else { step };
    let first = (from / step).ceil();
    (0..=100)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|value| *value <= to + step * 1e-9)
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the logarithm of a float is small"
)]
fn floor(value: f64) -> i32 {
    value.floor() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(axis: &Axis, values: [f64; 2], most: usize) -> Vec<String> {
        let laid = Laid::over(axis, values).expect("values");
        laid.ticks(most).into_iter().map(|(_, word)| word).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        let log = Axis::log("latency", Unit::Nanoseconds);
        assert_eq!(
            words(&log, [1e5, 1e8], 8),
            [
                "100 µs", "300 µs", "1 ms", "3 ms", "10 ms", "30 ms", "100 ms"
            ]
        );
        assert_eq!(
            words(&log, [1e3, 1e10], 8),
            [
                "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"
            ]
        );
        let linear = Axis::linear("time", Unit::Nanoseconds);
        assert_eq!(
            words(&linear, [0.0, 9.7e9], 6),
            ["0", "2 s", "4 s", "6 s", "8 s", "10 s"]
        );
        let bytes = Axis::linear("place", Unit::Bytes);
        assert_eq!(
            words(&bytes, [0.0, 1e9], 5),
            ["0", "256 MiB", "512 MiB", "768 MiB"]
        );
        let seeks = Axis::seeks("seek distance");
        let words = words(&seeks, [-1e6, 1e9], 7);
        assert!(
            words.contains(&"0".to_owned()) && words.len() <= 7,
            "{words:?}"
        );
        assert_eq!(
            words
                .first()
                .map(|word| format!("\u{2212}{}", words[words.len() - 1]) == *word),
            Some(true)
        );
    }

    #[test]
    fn every_range_of_every_scale_has_a_width_and_few_ticks() {
        let scales = [Scale::Linear, Scale::Log, Scale::SignedLog(512.0)];
        let ranges = [
            [0.0, 0.0],
            [5.0, 5.0],
            [1e-3, 1e18],
            [-3e9, 2.0],
            [1e18, 1e18],
            [0.0, 1.0],
        ];
        for scale in scales {
            for unit in [
                Unit::Bytes,
                Unit::Nanoseconds,
                Unit::Ratio,
                Unit::Count,
                Unit::Share,
            ] {
                for range in ranges {
                    let axis = Axis {
                        title: String::new(),
                        unit,
                        scale,
                    };
                    let Some(laid) = Laid::over(&axis, range) else {
                        assert!(scale == Scale::Log && range[1] <= 0.0);
                        continue;
                    };
                    assert!(laid.to > laid.from, "{axis:?} {range:?}");
                    let ticks = laid.ticks(7).len();
                    assert!(ticks <= 12, "{axis:?} {range:?}: {ticks}");
                }
            }
        }
        let axis = Axis::log("", Unit::Count);
        assert!(Laid::over(&axis, [0.0, f64::NAN]).is_none());
    }
}
