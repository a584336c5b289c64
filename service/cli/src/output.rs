//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// A table without lines; the first row is its head.
pub(super) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(head);
    table
}

/// Aligns a column of numbers to the right.
pub(super) fn right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Prints without the blanks that fill the last column. A closed pipe is no error: its reader has
/// seen enough.
pub(super) fn print(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    for line in text.lines() {
        if writeln!(out, "{}", line.trim_end()).is_err() {
            return;
        }
    }
}
