//! Text for people. On a terminal it has 80 columns, which every terminal has: no word is cut, no
//! number parted from its unit. Anywhere else a record is one line, for programs that read lines.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::LazyLock;

use crate::escape::escaped;

/// Columns that every terminal has.
pub const COLUMNS: usize = 80;
/// Columns by which the further lines of a row are indented.
const INDENT: usize = 4;
/// Least columns of a last cell that is broken where it stands.
const LEAST: usize = 24;
const UNITS: [&str; 14] = [
    "B", "KiB", "MiB", "GiB", "TiB", "MB", "ns", "us", "µs", "ms", "s", "min", "%", "bytes",
];

/// Most columns of a line on standard output: 80 on a terminal, no limit elsewhere.
#[must_use]
pub fn width() -> usize {
    static WIDTH: LazyLock<usize> = LazyLock::new(|| width_of(&io::stdout()));
    *WIDTH
}

/// Likewise, elsewhere.
#[must_use]
pub fn width_of(out: &impl IsTerminal) -> usize {
    match out.is_terminal() {
        true => COLUMNS,
        false => usize::MAX,
    }
}

/// The text without blanks at the ends of its lines.
#[must_use]
pub fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The text with each line of more columns broken between words; what is broken off begins two columns
/// behind the beginning of its line.
#[must_use]
pub fn fitted(text: &str, columns: usize) -> String {
    let lines = text.lines().map(|line| match length(line) <= columns {
        true => format!("{line}\n"),
        false => broken(line, columns) + "\n",
    });
    lines.collect()
}

/// One long line as several.
fn broken(line: &str, columns: usize) -> String {
    let begin = line.chars().take_while(|c| *c == ' ').count();
    let lines = words(line, columns - begin.min(columns / 2) - 2);
    " ".repeat(begin) + &lines.join(&format!("\n{}", " ".repeat(begin + 2)))
}

/// The words of a text in lines of at most so many columns; a longer word has a line of its own.
#[must_use]
pub fn words(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in bound(text) {
        match lines.last_mut() {
            Some(line) if length(line) + 1 + length(&word) <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// The words, a number and its unit as one, and what is on both sides of an equals sign.
fn bound(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        match found.last_mut() {
            Some(name) if word == "=" || name.ends_with(" =") => {
                name.push(' ');
                name.push_str(word);
            }
            Some(number)
                if UNITS.contains(&unit) && number.ends_with(|c: char| c.is_ascii_digit()) =>
            {
                number.push(' ');
                number.push_str(word);
            }
            _ => found.push(word.to_owned()),
        }
    }
    found
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A table without lines. One that is too wide has less between its columns, then a last column in
/// several lines, then rows of several lines. Without a limit each row is one line.
#[derive(Clone, Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    columns: usize,
}

impl Table {
    /// A table with this head, for standard output. Its cells, and those of rows, are [`escaped`].
    pub fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let head = cells(head);
        Self {
            right: vec![false; head.len()],
            head,
            rows: Vec::new(),
            columns: width(),
        }
    }

    /// Sets the width that rows must fit; `usize::MAX`: no limit.
    #[must_use]
    pub fn within(mut self, columns: usize) -> Self {
        self.columns = columns;
        self
    }

    /// A row of a single cell may be wider than its column. Without a limit it ends the row before.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(self::cells(cells));
    }

    /// Aligns a column of numbers to the right.
    pub fn right(&mut self, column: usize) {
        if let Some(right) = self.right.get_mut(column) {
            *right = true;
        }
    }

    /// Its lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let all = widths.len();
        let fits = |gap| span(&widths, gap) <= self.columns;
        let gap = if fits(2) { 2 } else { 1 };
        if fits(gap) {
            return self.each(|row| vec![self.part(row, &widths, (0, all), gap)]);
        }
        let before = span(&widths[..all - 1], 2) + 2;
        let words_last = self.right.last() == Some(&false);
        if words_last && before + LEAST <= self.columns {
            return self.each(|row| self.hanging(row, &widths, before));
        }
        let groups = groups(&widths, self.columns);
        self.each(|row| {
            let lines = groups.iter().enumerate().map(|(at, group)| {
                let indent = " ".repeat(if at == 0 { 0 } else { INDENT });
                indent + &self.part(row, &widths, *group, 2)
            });
            let shown = lines.filter(|line| !line.trim().is_empty());
            let fitted = shown.map(|line| match length(&line) <= self.columns {
                true => line,
                false => broken(&line, self.columns),
            });
            fitted.collect()
        })
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|cell| length(cell)).collect();
        for row in self.rows.iter().filter(|row| row.len() > 1) {
            for (most, cell) in widths.iter_mut().zip(row) {
                *most = (*most).max(length(cell));
            }
        }
        widths
    }

    /// Head and rows as lines.
    fn each(&self, lines: impl Fn(&[String]) -> Vec<String>) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            match (&row[..], all.last_mut()) {
                ([note], Some(before)) if self.head.len() > 1 && self.columns == usize::MAX => {
                    before.push_str("  ");
                    before.push_str(note.trim_start());
                }
                ([heading], _) if self.head.len() > 1 => all.push(format!(" {heading}")),
                (row, _) => {
                    let text = lines(row).join("\n");
                    all.extend(text.lines().map(|line| line.trim_end().to_owned()));
                }
            }
        }
        all
    }

    /// Some columns of a row.
    fn part(
        &self,
        row: &[String],
        widths: &[usize],
        (from, to): (usize, usize),
        gap: usize,
    ) -> String {
        let mut line = String::new();
        for (column, most) in widths.iter().enumerate().take(to).skip(from) {
            let cell = row.get(column).map_or("", String::as_str);
            let blanks = " ".repeat(most - length(cell));
            let begin = if column == from { 1 } else { gap };
            line.push_str(&" ".repeat(begin));
            match self.right.get(column) {
                Some(true) => line.extend([blanks.as_str(), cell]),
                _ => line.extend([cell, blanks.as_str()]),
            }
        }
        line
    }

    /// A row with its last cell in several lines, one below the other.
    fn hanging(&self, row: &[String], widths: &[usize], before: usize) -> Vec<String> {
        let last = widths.len() - 1;
        let begin = self.part(row, widths, (0, last), 2) + "  ";
        let cell = row.get(last).map_or("", String::as_str);
        let said = words(cell, self.columns - before);
        vec![begin + &said.join(&format!("\n{}", " ".repeat(before)))]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

fn cells(cells: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let cells = cells.into_iter().map(Into::into);
    cells
        .map(|cell: String| escaped(&cell).into_owned())
        .collect()
}

/// Columns of a row with so much between its cells.
fn span(widths: &[usize], gap: usize) -> usize {
    1 + widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1)
}

/// The columns of each line of a row, from and to.
fn groups(widths: &[usize], columns: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut from = 0;
    for column in 0..widths.len() {
        let room = columns - if from == 0 { 0 } else { INDENT };
        if column > from && span(&widths[from..=column], 2) > room {
            found.push((from, column));
            from = column;
        }
    }
    found.push((from, widths.len()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = format!("  a {}end\nshort\n", "word ".repeat(30));
        let shown = fitted(&text, COLUMNS);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4, "{shown}");
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{shown}");
        assert!(lines[1].starts_with("    word"), "{shown}");
        assert!(lines[3] == "short", "{shown}");
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&shown), words(&text));
        let long = "x".repeat(100);
        let expected = format!("a\n  {long}\n  b\n");
        assert_eq!(fitted(&format!("a {long} b"), COLUMNS), expected);
        assert_eq!(fitted(&long, COLUMNS), format!("{long}\n"));
    }

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(words("took 2.21 ms, and", 11), ["took", "2.21 ms,", "and"]);
        let expected = ["4 MiB/s", "(12 %) 7", "men"];
        assert_eq!(words("4 MiB/s (12 %) 7 men", 8), expected);
        let expected = ["50% = 1.5ms,", "90% = 2ms"];
        assert_eq!(words("50% = 1.5ms, 90% = 2ms", 13), expected);
    }

    #[test]
    fn a_table_that_is_too_wide_is_stacked_or_hangs() {
        let mut table = Table::new(["name", "size"]).within(COLUMNS);
        table.right(1);
        table.add_row(["a", "10"]);
        table.add_row(["a heading that is wide"]);
        let expected = " name  size\n a       10\n a heading that is wide";
        assert_eq!(table.to_string(), expected);
        let mut hangs = Table::new(["name", "found"]).within(COLUMNS);
        hangs.add_row(["a".to_owned(), "word ".repeat(20)]);
        let lines = hangs.lines();
        assert_eq!(lines.len(), 3, "{hangs}");
        assert!(lines[2].starts_with("       word"), "{hangs}");
        let lines = hangs.within(usize::MAX).lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let wide = "x".repeat(30);
        let mut stacked = Table::new(["a", "b", "c", "d"]).within(COLUMNS);
        stacked.right(3);
        stacked.add_row([wide.as_str(), &wide, &wide, "1"]);
        let lines = stacked.lines();
        assert_eq!(lines.len(), 4, "{stacked}");
        assert!(lines[3].starts_with("     x"), "{stacked}");
        assert!(lines[3].ends_with(" 1"), "{stacked}");
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{stacked}");
        stacked.add_row(["  a note"]);
        let lines = stacked.within(usize::MAX).lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].ends_with(" 1  a note"), "{lines:?}");
    }
}
