//! A figure: a number that was measured in several runs, and its limit.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::unit::{Spread, Undecided, Unit};

/// A number that was measured in some runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Unit of the runs.
    pub unit: Unit,
    /// One value a run. Empty: nothing was measured.
    pub runs: Vec<f64>,
    /// What it is judged by.
    pub limit: Option<Limit>,
}

/// What a figure is judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A goal.
    AtLeast(f64),
    /// A goal.
    AtMost(f64),
    /// A goal: this value, and how far from it is near enough.
    Near(f64, f64),
    /// A published value, and how far from it agrees; `None`: only shown.
    Published(f64, Option<f64>),
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// There is nothing to show: a dash.
    Nothing,
    /// Text.
    Text(String),
    /// A number.
    Figure(Figure),
}

/// A cell as it is shown.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// The range of the runs, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<(String, String)>,
    /// Of a verdict alone: whether it is a good one; null: it cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<Option<bool>>,
}

impl Shown {
    /// In one line.
    pub(crate) fn line(self) -> String {
        match self.range {
            Some((low, high)) => format!("{} ({low}..{high})", self.text),
            None => self.text,
        }
    }
}

impl Figure {
    /// Median and range.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(self.runs.clone())
    }

    /// Whether its runs are within the limit; `None`: it has none, or was not measured.
    #[must_use]
    pub fn judged(&self) -> Option<Result<bool, Undecided>> {
        let within = match self.limit? {
            Limit::AtLeast(least) => least..=f64::INFINITY,
            Limit::AtMost(most) => f64::NEG_INFINITY..=most,
            Limit::Near(value, by) | Limit::Published(value, Some(by)) => value - by..=value + by,
            Limit::Published(_, None) => return None,
        };
        Some(self.spread()?.judged(self.runs.len(), &within))
    }

    /// The limit in words.
    pub(super) fn limit_text(&self) -> Option<String> {
        Some(match self.limit? {
            Limit::AtLeast(least) => format!("≥ {}", self.short(least)),
            Limit::AtMost(most) => format!("≤ {}", self.short(most)),
            Limit::Near(value, by) => format!("{} ± {}", self.short(value), self.short(by)),
            Limit::Published(value, _) => self.unit.text(value),
        })
    }

    fn short(&self, value: f64) -> String {
        match self.unit {
            Unit::Ratio => value.to_string(),
            unit => unit.text(value),
        }
    }

    /// The verdict in a word.
    pub(super) fn verdict(&self) -> Option<Shown> {
        let published = matches!(self.limit?, Limit::Published(..));
        let (text, met) = match self.judged()? {
            Ok(true) if published => ("agrees", Some(true)),
            Ok(false) if published => ("DIFFERS", Some(false)),
            Ok(true) => ("met", Some(true)),
            Ok(false) => ("MISSED", Some(false)),
            Err(_) => ("not decided", None),
        };
        Some(Shown {
            text: text.to_owned(),
            met: Some(met),
            ..Shown::default()
        })
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let spread = self.spread();
        let met = self.judged().and_then(Result::ok);
        let mut map = serializer.serialize_struct("Figure", 7)?;
        map.serialize_field("unit", &self.unit)?;
        map.serialize_field("median", &spread.map(|spread| spread.median))?;
        map.serialize_field("min", &spread.map(|spread| spread.min))?;
        map.serialize_field("max", &spread.map(|spread| spread.max))?;
        map.serialize_field("runs", &self.runs)?;
        map.serialize_field("limit", &self.limit_text())?;
        map.serialize_field("met", &met)?;
        map.end()
    }
}

impl Cell {
    /// A number that was measured in some runs. Those that are not finite count as not measured.
    #[must_use]
    pub fn runs(unit: Unit, runs: impl IntoIterator<Item = f64>) -> Cell {
        let runs = runs.into_iter().filter(|value| value.is_finite()).collect();
        let limit = None;
        Cell::Figure(Figure { unit, runs, limit })
    }

    /// A number, or a dash when there is none.
    #[must_use]
    pub fn value(value: Option<f64>, unit: Unit) -> Cell {
        Cell::runs(unit, value)
    }

    /// A number of things.
    #[must_use]
    pub fn count(count: u64) -> Cell {
        Cell::counts([count])
    }

    /// Numbers of things, one a run.
    #[must_use]
    pub fn counts(runs: impl IntoIterator<Item = u64>) -> Cell {
        Cell::runs(Unit::Count, runs.into_iter().map(crate::human::as_float))
    }

    /// Text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// The same, to be judged.
    #[must_use]
    pub fn within(self, limit: impl Into<Option<Limit>>) -> Cell {
        match self {
            Cell::Figure(figure) => Cell::Figure(Figure {
                limit: limit.into(),
                ..figure
            }),
            other => other,
        }
    }

    pub(crate) fn figure(&self) -> Option<&Figure> {
        match self {
            Cell::Figure(figure) => Some(figure),
            _ => None,
        }
    }

    pub(crate) fn shown(&self) -> Shown {
        let text = match self {
            Cell::Nothing => "–".to_owned(),
            Cell::Text(text) => text.clone(),
            Cell::Figure(Figure { unit, .. }) => {
                let Some(spread) = self.figure().and_then(Figure::spread) else {
                    return Cell::Nothing.shown();
                };
                let [median, low, high] =
                    [spread.median, spread.min, spread.max].map(|value| unit.text(value));
                let range = (low != high).then_some((low, high));
                return Shown {
                    text: median,
                    range,
                    met: None,
                };
            }
        };
        Shown {
            text,
            ..Shown::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_limit() {
        let figure =
            |runs: &[f64], limit| match Cell::runs(Unit::Ratio, runs.to_vec()).within(limit) {
                Cell::Figure(figure) => figure,
                other => panic!("{other:?}"),
            };
        let met = |limit| figure(&[0.95, 1.0, 1.05], limit).judged();
        assert_eq!(met(Limit::AtLeast(0.9)), Some(Ok(true)));
        assert_eq!(met(Limit::AtMost(0.9)), Some(Ok(false)));
        assert_eq!(met(Limit::Near(1.0, 0.06)), Some(Ok(true)));
        assert_eq!(
            met(Limit::Published(1.04, Some(0.05))),
            Some(Err(Undecided::WideRange))
        );
        assert_eq!(met(Limit::Published(1.04, None)), None);
        assert_eq!(figure(&[], Limit::AtLeast(1.0)).judged(), None);
        let one = figure(&[2.0], Limit::AtLeast(1.3));
        assert_eq!(one.judged(), Some(Err(Undecided::FewRuns(1))));
        let json = serde_json::to_value(&one).unwrap();
        assert_eq!(
            (&json["median"], &json["limit"]),
            (&2.0.into(), &"≥ 1.3".into())
        );
        assert!(json["met"].is_null());
        assert_eq!(
            Cell::Figure(figure(&[1.0, f64::NAN, 3.0], Limit::AtMost(1.0)))
                .shown()
                .line(),
            "2.00 (1.00..3.00)"
        );
    }
}
