//! A report: the figures of a study, and what follows from them. A study fills it with plain data.
//! What it looks like is decided in one place each: as text in [`super::text`], as JSON in
//! [`Report::document`], and as one HTML file that refers to nothing outside in `report.html`.

mod chart;
mod figure;
mod html;
mod setup;
mod table;
mod unit;
mod write;

use serde::Serialize;

pub use chart::{
    Axis, Bar, Bars, Cdf, Curve, Dots, Heat, HeatCell, HeatPanel, Range, Ranges, Scale, Scatter,
    ScatterPanel,
};
pub use figure::{Cell, Figure, Limit};
pub(crate) use setup::load_average;
pub use setup::{Fact, disk};
pub use table::{Picture, Row, Table};
pub use unit::{Spread, Undecided, Unit};
pub use write::{MARK, check};

/// A whole report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The measurement in a few words.
    pub title: String,
    /// The answer: a few sentences.
    pub summary: Vec<String>,
    /// Where, when and how it was measured: enough to do it again.
    pub facts: Vec<Fact>,
    /// Conclusions that the verdicts of the tables do not say.
    pub findings: Findings,
    /// The figures, the most important first.
    pub sections: Vec<Section>,
    /// Shown on standard output in place of everything; the other forms have everything.
    pub screen: Option<String>,
    /// How to read them, and what is compared with what.
    pub notes: Vec<String>,
}

/// Measured figures that are not as they should be, and hypotheses, apart so that none is taken for the
/// other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Measured, and does not agree.
    pub differs: Vec<String>,
    /// Possible explanations that no measurement here shows.
    pub hypotheses: Vec<String>,
}

/// Figures that belong together, under a heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Explanation of the figures; paragraphs.
    pub text: Vec<String>,
    /// The figures, in this order.
    pub parts: Vec<Part>,
}

/// A table, a chart or a piece of text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is what its type says")]
pub enum Part {
    Table(Table),
    Ranges(Ranges),
    Cdf(Cdf),
    Heat(Heat),
    Scatter(Scatter),
    Bars(Bars),
    Verbatim(Verbatim),
}

/// Text as a program printed it, with its line breaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verbatim {
    /// Caption.
    pub caption: String,
    /// The text.
    pub text: String,
}

/// A figure of the JSON document: where it stands, its runs, and its verdict.
#[derive(Debug, Serialize)]
struct FigureEntry<'a> {
    section: &'a str,
    group: &'a str,
    name: &'a str,
    column: &'a str,
    #[serde(flatten)]
    figure: &'a Figure,
}

/// The JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, D> {
    title: &'a str,
    summary: &'a [String],
    command: Vec<String>,
    facts: &'a [Fact],
    figures: Vec<FigureEntry<'a>>,
    findings: &'a Findings,
    notes: &'a [String],
    #[serde(flatten)]
    data: &'a D,
}

impl Report {
    /// A report with nothing in it yet.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Report {
        Report {
            title: title.into(),
            ..Report::default()
        }
    }

    /// Adds a fact at the end.
    pub fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.push(Fact {
            name: name.into(),
            value: value.into(),
        });
    }

    /// Adds a section at the end, to be filled.
    pub fn section(&mut self, title: impl Into<String>) -> &mut Section {
        self.sections.push(Section {
            title: title.into(),
            ..Section::default()
        });
        let last = self.sections.len() - 1;
        &mut self.sections[last]
    }

    /// Adds notes.
    pub fn note(&mut self, notes: &[&str]) {
        self.notes.extend(notes.iter().map(|&note| note.to_owned()));
    }

    fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.sections.iter().flat_map(|section| {
            let parts = section.parts.iter();
            parts.filter_map(move |part| match part {
                Part::Table(table) => Some((section.title.as_str(), table)),
                _ => None,
            })
        })
    }

    /// Adds the machine, and how many of the goals were met. `load`: load average before.
    pub(crate) fn finish(&mut self, load: Option<f64>) {
        setup::machine(self, load);
        let figures = || self.tables().flat_map(|(_, table)| table.figures());
        let judged = figures().filter_map(|(_, _, figure)| figure.judged());
        let judged: Vec<_> = judged.collect();
        if judged.is_empty() {
            return;
        }
        let count =
            |of: fn(&Result<bool, Undecided>) -> bool| judged.iter().filter(|one| of(one)).count();
        let undecided = match count(Result::is_err) {
            0 => String::new(),
            some => format!(", {some} are not decided"),
        };
        self.summary.push(format!(
            "{} of {} figures are within their limits{undecided}.",
            count(|one| *one == Ok(true)),
            judged.len()
        ));
    }

    /// As one JSON document, with the data behind the figures.
    pub(crate) fn document<'a, D>(&'a self, data: &'a D) -> Document<'a, D> {
        let listed = |(section, table): (&'a str, &'a Table)| {
            table
                .placed()
                .map(move |(group, name, column, figure)| FigureEntry {
                    section,
                    group,
                    name,
                    column,
                    figure,
                })
        };
        Document {
            title: &self.title,
            summary: &self.summary,
            command: std::env::args().collect(),
            facts: &self.facts,
            figures: self.tables().flat_map(listed).collect(),
            findings: &self.findings,
            notes: &self.notes,
            data,
        }
    }
}

impl Section {
    /// Adds a paragraph of text.
    pub fn say(&mut self, text: impl Into<String>) -> &mut Section {
        self.text.push(text.into());
        self
    }

    /// Adds a figure at the end.
    pub fn add(&mut self, part: impl Into<Part>) -> &mut Section {
        self.parts.push(part.into());
        self
    }
}

macro_rules! part_from {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Part {
            fn from(part: $kind) -> Part {
                Part::$kind(part)
            }
        }
    )*};
}

part_from!(Table, Ranges, Cdf, Heat, Scatter, Bars, Verbatim);
