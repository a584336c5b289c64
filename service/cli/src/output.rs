//! Output for people, in 80 columns, and for programs, as it is.

use lumpscope_units::columns;
pub(super) use lumpscope_units::columns::{COLUMNS, Table};

/// A table without lines.
pub(super) fn table(head: &[&str]) -> Table {
    Table::new(head.iter().copied())
}

/// Lines of at most 80 columns, each begun by two blanks.
pub(super) fn indented(text: &str) -> String {
    let lines = columns::words(text, COLUMNS - 2).into_iter();
    lines.map(|line| format!("  {line}\n")).collect()
}

/// Prints for people: no line has more than 80 columns but for a word that has.
pub(super) fn print(text: &str) {
    print_as_is(&columns::fitted(text));
}

/// Prints for programs, without the blanks at the ends of lines. A closed pipe is no error: its
/// reader has seen enough.
pub(super) fn print_as_is(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    for line in text.lines() {
        if writeln!(out, "{}", line.trim_end()).is_err() {
            return;
        }
    }
}

/// Says on standard error why a command ends: a line for programs, lines of 80 columns on a terminal.
pub(super) fn complain(text: &str) {
    use std::io::IsTerminal as _;
    let terminal = std::io::stderr().is_terminal();
    eprintln!(
        "{}",
        if terminal {
            columns::fitted(text)
        } else {
            text.to_owned()
        }
        .trim_end()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_lines_are_words() {
        assert_eq!(indented("a\n b"), "  a b\n");
    }
}
