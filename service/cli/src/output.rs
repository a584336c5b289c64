//! Standard output and standard error. Nothing else in this crate writes to either.

use std::io::{self, Write as _};

use anyhow::Result;
use lumpscope_units::columns;
pub(super) use lumpscope_units::columns::{COLUMNS, Table, width};
use lumpscope_units::escape::escaped_lines;
pub(super) use lumpscope_units::escape::{escaped, escaped_json};
pub(super) use lumpscope_units::tell;
use serde::Serialize;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
pub(crate) struct Unwritten(io::Error);

/// Writes bytes at once; `false`: the reader has closed the pipe.
pub(super) fn write(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Ok(()) => Ok(true),
        Err(error) => closed(error).map(|()| false),
    }
}

/// A reader that has closed the pipe has seen enough: that is no error.
pub(super) fn closed(error: io::Error) -> Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Unwritten(error).into()),
    }
}

/// Standard output for bytes that are no text.
pub(super) fn stdout() -> impl io::Write + Send {
    io::stdout()
}

/// A table without lines.
pub(super) fn table(head: &[&str]) -> Table {
    Table::new(head.iter().copied())
}

/// A table of facts: a word and its value each.
pub(super) fn facts<'a>(
    head: [&str; 2],
    rows: impl IntoIterator<Item = (&'a str, String)>,
) -> Table {
    let mut table = table(&head);
    for (what, value) in rows {
        table.add_row([what.to_owned(), value]);
    }
    table
}

/// Lines that fit the width, each begun by two blanks.
pub(super) fn indented(text: &str) -> String {
    let lines = columns::words(text, width() - 2).into_iter();
    lines.map(|line| format!("  {line}\n")).collect()
}

/// The text for people in lines that fit the width, except for longer words. It does nothing to a
/// terminal. A value from outside that could have line breaks is to be [`escaped`] before.
pub(super) fn fitted(text: &str) -> String {
    columns::fitted(&columns::trimmed(&escaped_lines(text)), width())
}

/// Prints for people.
pub(super) fn print(text: &str) -> Result<()> {
    print_as_is(&columns::trimmed(&fitted(text)))
}

/// Prints lines for programs.
pub(super) fn print_as_is(text: &str) -> Result<()> {
    write(format!("{}\n", escaped_lines(text.trim_end())).as_bytes()).map(drop)
}

/// Prints JSON in one line.
pub(super) fn print_json(value: &impl Serialize) -> Result<()> {
    write((json(value)? + "\n").as_bytes()).map(drop)
}

/// A value as JSON in one line that does nothing to a terminal: what programs read stays the same.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    Ok(escaped_json(&serde_json::to_string(value)?))
}

/// Many lines on standard output, written in large pieces.
pub(super) struct Lines {
    json: bool,
    waiting: String,
}

impl Lines {
    /// Bytes that are written at once.
    const PIECE: usize = 64 << 10;

    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            waiting: String::new(),
        }
    }

    /// Adds a line; `false`: the reader has closed the pipe.
    pub(super) fn add<T: Serialize>(
        &mut self,
        item: &T,
        text: impl Fn(&T) -> String,
    ) -> Result<bool> {
        if self.json {
            self.waiting += &json(item)?;
            self.waiting.push('\n');
        } else {
            self.waiting += &fitted(&text(item));
        }
        match self.waiting.len() {
            ..Self::PIECE => Ok(true),
            _ => self.flush(),
        }
    }

    /// Writes what has been added; `false`: the reader has closed the pipe.
    pub(super) fn flush(&mut self) -> Result<bool> {
        write(std::mem::take(&mut self.waiting).as_bytes())
    }
}

/// Says on standard error why a command ends, or what is missing in its output: a line for programs,
/// lines of 80 columns on a terminal.
pub(super) fn complain(text: &str) {
    tell(&escaped(text.trim_end()));
}

#[cfg(test)]
mod tests {
    use lumpscope_units::escape::is_hostile;

    use super::*;

    #[test]
    fn indented_lines_are_words() {
        assert_eq!(indented("a\n b"), "  a b\n");
    }

    #[test]
    fn json_does_nothing_to_a_terminal_and_says_the_same() {
        let value = serde_json::json!({"name": "a\n\x1b[2J\u{9b}\u{202e}µ"});
        let shown = json(&value).unwrap();
        assert!(!shown.contains(is_hostile), "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, value);
    }
}
