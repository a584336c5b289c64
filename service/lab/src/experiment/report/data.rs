//! A report as data: text and tables. Charts are in [`super::chart`].

use serde::{Serialize, Serializer};

use super::chart::{Bars, Cdf, Heat, Lines, Ranges, Scatter};
use super::setup::Setup;
use super::unit::{Spread, Undecided, Unit};

/// A whole report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Page {
    /// Title: the measurement in a few words.
    pub title: String,
    /// The answer, before everything else: a few sentences, one an entry. May be empty.
    pub summary: Vec<String>,
    /// Where, when and how it was measured.
    pub setup: Setup,
    /// Conclusions from the figures.
    pub findings: Findings,
    /// The figures.
    pub sections: Vec<Section>,
}

/// Agreement with expectations, disagreement, measurements that decide neither, and hypotheses. They
/// are kept apart so that none is taken for another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Measured, and agrees.
    pub agrees: Vec<String>,
    /// Measured, and does not agree.
    pub differs: Vec<String>,
    /// Measured, too seldom or too differently to say.
    pub undecided: Vec<String>,
    /// Possible explanations that no measurement here shows.
    pub hypotheses: Vec<String>,
    /// True: they are about goals, which are met or missed.
    pub of_goals: bool,
}

/// Figures that belong together, under a heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Explanation of the figures and how to read them; paragraphs.
    pub text: Vec<String>,
    /// The figures, in this order.
    pub parts: Vec<Part>,
}

/// One figure or piece of text.
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
    Lines(Lines),
    Verbatim(Verbatim),
    Findings(Findings),
}

/// A table. Its first column names the rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Table {
    /// Caption; complete enough to be read alone.
    pub caption: String,
    /// Title of the column that names the rows; may be empty.
    pub corner: String,
    /// The other columns.
    pub columns: Vec<Column>,
    /// Rows, in this order.
    pub rows: Vec<Row>,
    /// Notes needed to judge it; paragraphs under the table.
    pub notes: Vec<String>,
}

/// A column.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Title, with the unit where the cells do not have it.
    pub title: String,
    /// True: text, to the left; false: numbers, to the right.
    pub text: bool,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// A heading for the rows below it.
    Group(String),
    /// Name and cells. Cells beyond the columns are not shown; missing ones are empty.
    Cells(String, Vec<Cell>),
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// There is nothing to show: a dash.
    Nothing,
    /// Text.
    Text(String),
    /// A number.
    Value(f64, Unit),
    /// Median, and the range below it where there is one.
    Spread(Spread, Unit),
    /// A judgement: its words, and whether it is a good one; absent: it cannot be judged.
    Verdict(String, Option<bool>),
}

/// Text as a program printed it, with its line breaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verbatim {
    /// Caption.
    pub caption: String,
    /// The text.
    pub text: String,
}

impl Page {
    /// A page with a title and where it was measured, and nothing else yet.
    #[must_use]
    pub fn new(title: impl Into<String>, setup: Setup) -> Page {
        Page {
            title: title.into(),
            setup,
            ..Page::default()
        }
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

impl Findings {
    /// True: nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Findings {
            agrees,
            differs,
            undecided,
            hypotheses,
            of_goals: _,
        } = self;
        [agrees, differs, undecided, hypotheses]
            .iter()
            .all(|said| said.is_empty())
    }

    /// Puts a line where its judgement ([`Spread::judged`]) belongs.
    pub fn file(&mut self, line: impl Into<String>, judged: Result<bool, Undecided>) {
        let line = line.into();
        match judged {
            Ok(true) => self.agrees.push(line),
            Ok(false) => self.differs.push(line),
            Err(why) => self.undecided.push(format!("{line} ({why})")),
        }
    }
}

impl Table {
    /// A table of numbers, to be filled row by row.
    #[must_use]
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Table {
        let column = |title: &&str| Column {
            title: (*title).to_owned(),
            text: false,
        };
        Table {
            caption: caption.into(),
            columns: columns.iter().map(column).collect(),
            ..Table::default()
        }
    }

    /// Adds a row.
    pub fn row(&mut self, name: impl Into<String>, cells: Vec<Cell>) {
        self.rows.push(Row::Cells(name.into(), cells));
    }

    /// Adds a heading for the rows that follow.
    pub fn group(&mut self, name: impl Into<String>) {
        self.rows.push(Row::Group(name.into()));
    }
}

/// A cell as it is shown.
#[derive(Serialize)]
struct Shown {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    /// Of a judgement alone: whether it is a good one; null: it cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<Option<bool>>,
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut range, mut met) = (None, None);
        let text = match self {
            Cell::Nothing => "–".to_owned(),
            Cell::Text(words) => words.clone(),
            Cell::Value(value, unit) => unit.text(*value),
            Cell::Spread(spread, unit) => {
                let [low, high] = [spread.min, spread.max].map(|value| unit.text(value));
                range = (!spread.is_single()).then(|| format!("{low} .. {high}"));
                unit.text(spread.median)
            }
            Cell::Verdict(words, good) => {
                met = Some(*good);
                words.clone()
            }
        };
        Shown { text, range, met }.serialize(serializer)
    }
}

impl Cell {
    /// A number, or a dash when there is none.
    #[must_use]
    pub fn value(value: Option<f64>, unit: Unit) -> Cell {
        value.map_or(Cell::Nothing, |value| Cell::Value(value, unit))
    }

    /// Median and range, or a dash when nothing was measured.
    #[must_use]
    pub fn spread(spread: Option<Spread>, unit: Unit) -> Cell {
        spread.map_or(Cell::Nothing, |spread| Cell::Spread(spread, unit))
    }

    /// Text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
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

part_from!(
    Table, Ranges, Cdf, Heat, Scatter, Bars, Lines, Verbatim, Findings
);
