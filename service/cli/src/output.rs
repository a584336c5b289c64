//! Output for people and for programs.

use lumpscope_units::columns;
pub(super) use lumpscope_units::columns::Table;

/// A table without lines.
pub(super) fn table(head: &[&str]) -> Table {
    Table::new(head.iter().copied())
}

/// Lines that a terminal has room for, each begun by two blanks.
pub(super) fn indented(text: &str) -> String {
    let lines = columns::words(text, columns::room() - 2).into_iter();
    lines.map(|line| format!("  {line}\n")).collect()
}

/// Prints for people: on a terminal, no line is wider than it.
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

/// Says on standard error why a command ends.
pub(super) fn complain(text: &str) {
    let room = columns::room_on(&std::io::stderr());
    eprintln!("{}", columns::fitted_to(text, room).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_lines_are_words() {
        assert_eq!(indented("a\n b"), "  a b\n");
    }
}
