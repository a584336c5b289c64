//! A table of figures, and the picture of its columns.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::chart::{Axis, Range, Ranges};
use super::figure::{Cell, Figure, Limit, Shown};
use super::unit::Unit;

/// A table. Its first column names the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// Title of the column that names the rows; may be empty.
    pub corner: String,
    /// Titles of the other columns.
    pub columns: Vec<String>,
    /// Rows, in this order.
    pub rows: Vec<Row>,
    /// Notes needed to judge it; paragraphs under the table.
    pub notes: Vec<String>,
    /// Columns that are drawn, too.
    pub picture: Option<Picture>,
}

/// Of more rows, those without a limit are not drawn: the picture has to fit on a page.
const MOST_ROWS: usize = 40;

/// How columns of a table are drawn: medians with their ranges, one below the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Numbers of the columns, which have one unit.
    pub columns: Vec<usize>,
    /// A value to compare with, and its meaning.
    pub reference: (f64, &'static str),
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    /// A heading for the rows below it.
    Group(String),
    /// Name and cells. Missing cells are empty.
    Cells(String, Vec<Cell>),
}

/// Our value of a run, and the peer's; `None`: it was not measured.
pub(crate) type Pair = (Option<f64>, Option<f64>);

impl Table {
    /// A table to be filled row by row.
    #[must_use]
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Table {
        Table {
            caption: caption.into(),
            columns: columns.iter().map(|&title| title.to_owned()).collect(),
            ..Table::default()
        }
    }

    /// A table of figures of ours beside a peer's, with a picture of their ratios.
    #[must_use]
    pub fn compared(caption: impl Into<String>) -> Table {
        Table {
            picture: Some(Picture {
                columns: vec![2],
                reference: (1.0, "both are the same"),
            }),
            ..Table::new(caption, &["ours", "peer", "ratio"])
        }
    }

    /// Adds a row to such a table: the values of each round. The goal is a least ratio where more is
    /// better, else a greatest one.
    pub(crate) fn pair(
        &mut self,
        name: impl Into<String>,
        unit: Unit,
        goal: Option<f64>,
        pairs: &[Pair],
    ) {
        let limit = goal.map(|goal| match unit.more_is_better() {
            true => Limit::AtLeast(goal),
            false => Limit::AtMost(goal),
        });
        let ratios = pairs
            .iter()
            .filter_map(|(ours, peer)| Some((*ours)? / (*peer)?));
        let cells = vec![
            Cell::runs(unit, pairs.iter().filter_map(|pair| pair.0)),
            Cell::runs(unit, pairs.iter().filter_map(|pair| pair.1)),
            Cell::runs(Unit::Ratio, ratios).within(limit),
        ];
        self.row(name, cells);
    }

    /// Adds a row.
    pub fn row(&mut self, name: impl Into<String>, cells: Vec<Cell>) {
        self.rows.push(Row::Cells(name.into(), cells));
    }

    /// Adds a heading for the rows that follow.
    pub fn group(&mut self, name: impl Into<String>) {
        self.rows.push(Row::Group(name.into()));
    }

    /// Its figures with row and column.
    pub(super) fn figures(&self) -> impl Iterator<Item = (&str, &str, &Figure)> {
        self.placed()
            .map(|(_, name, column, figure)| (name, column, figure))
    }

    /// Its figures with group, row and column.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&str, &str, &str, &Figure)> {
        let mut group = "";
        let rows = self.rows.iter().filter_map(move |row| match row {
            Row::Group(name) => {
                group = name;
                None
            }
            Row::Cells(name, cells) => Some((group, name.as_str(), cells)),
        });
        rows.flat_map(move |(group, name, cells)| {
            let cells = self.columns.iter().zip(cells);
            cells.filter_map(move |(column, cell)| {
                Some((group, name, column.as_str(), cell.figure()?))
            })
        })
    }

    fn has(&self, wanted: fn(&Limit) -> bool) -> bool {
        self.figures()
            .any(|(.., figure)| figure.limit.as_ref().is_some_and(wanted))
    }

    fn has_goals(&self) -> bool {
        self.has(|limit| !matches!(limit, Limit::Published(..)))
    }

    fn has_published(&self) -> bool {
        self.has(|limit| matches!(limit, Limit::Published(..)))
    }

    /// Titles of all columns, with those of limits and verdicts.
    pub(crate) fn titles(&self) -> Vec<String> {
        let mut titles = vec![self.corner.clone()];
        titles.extend(self.columns.iter().cloned());
        let limits = [
            (self.has_goals(), "goal"),
            (self.has_published(), "published"),
        ];
        titles.extend(
            limits
                .iter()
                .filter(|(has, _)| *has)
                .map(|(_, title)| (*title).to_owned()),
        );
        titles.extend(self.has(|_| true).then(|| "verdict".to_owned()));
        titles
    }

    /// What a row has in the columns of limits and verdicts.
    pub(crate) fn verdicts(&self, cells: &[Cell]) -> Vec<Shown> {
        let limited = || {
            cells
                .iter()
                .filter_map(Cell::figure)
                .filter(|figure| figure.limit.is_some())
        };
        let joined = |published: bool| {
            let of = limited()
                .filter(|figure| matches!(figure.limit, Some(Limit::Published(..))) == published);
            let words: Vec<String> = of.filter_map(Figure::limit_text).collect();
            Shown {
                text: words.join(", "),
                ..Shown::default()
            }
        };
        let mut shown = Vec::new();
        shown.extend(self.has_goals().then(|| joined(false)));
        shown.extend(self.has_published().then(|| joined(true)));
        if self.has(|_| true) {
            let all: Vec<Shown> = limited().filter_map(Figure::verdict).collect();
            let met =
                all.iter()
                    .filter_map(|one| one.met)
                    .reduce(|one, other| match (one, other) {
                        (Some(false), _) | (_, Some(false)) => Some(false),
                        (Some(true), Some(true)) => Some(true),
                        _ => None,
                    });
            let mut words: Vec<String> = all.into_iter().map(|one| one.text).collect();
            words.dedup();
            shown.push(Shown {
                text: words.join(", "),
                met,
                range: None,
            });
        }
        shown
    }

    /// The picture of its columns.
    pub(super) fn ranges(&self) -> Option<Ranges> {
        let Picture { columns, reference } = self.picture.as_ref()?;
        let wanted: Vec<&String> = columns
            .iter()
            .filter_map(|at| self.columns.get(*at))
            .collect();
        let mut unit = Unit::Ratio;
        let of = |(group, name, column, figure): (&str, &str, &str, &Figure)| {
            if !wanted.iter().any(|wanted| wanted.as_str() == column) {
                return None;
            }
            unit = figure.unit;
            let column = if wanted.len() > 1 { column } else { "" };
            let words = [group, name, column].into_iter();
            let name: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            Some(Range {
                name: name.join(": "),
                spread: figure.spread(),
                goal: figure.limit.and_then(|limit| match limit {
                    Limit::AtLeast(value) | Limit::AtMost(value) | Limit::Near(value, _) => {
                        Some(value)
                    }
                    Limit::Published(..) => None,
                }),
                published: figure.limit.and_then(|limit| match limit {
                    Limit::Published(value, _) => Some(value),
                    _ => None,
                }),
            })
        };
        let mut rows: Vec<Range> = self.placed().filter_map(of).collect();
        let limited = |row: &Range| row.goal.or(row.published).is_some();
        if rows.len() > MOST_ROWS && rows.iter().any(limited) {
            rows.retain(limited);
        }
        let titles: Vec<&str> = wanted.iter().map(|title| title.as_str()).collect();
        let title = titles.join(", ");
        Some(Ranges {
            caption: format!("{} Drawn: {title}.", self.caption),
            x: match unit {
                Unit::Ratio => Axis::log(title, unit),
                _ => Axis::linear(title, unit),
            },
            reference: Some((reference.0, reference.1.to_owned())),
            rows,
        })
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = |row: &Row| match row {
            Row::Group(name) => serde_json::json!({ "group": name }),
            Row::Cells(name, cells) => {
                let mut all: Vec<Shown> = cells.iter().map(Cell::shown).collect();
                all.resize_with(self.columns.len(), Shown::default);
                all.extend(self.verdicts(cells));
                serde_json::json!({ "cells": (name, all) })
            }
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("caption", &self.caption)?;
        map.serialize_entry("corner", &self.corner)?;
        map.serialize_entry("columns", &self.titles()[1..])?;
        map.serialize_entry("rows", &self.rows.iter().map(shown).collect::<Vec<_>>())?;
        map.serialize_entry("notes", &self.notes)?;
        map.end()
    }
}
