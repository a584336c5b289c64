//! docs/platter.md says what the code has.

use std::fmt::Write as _;

use lumpscope_platter::disk::{Overlap, Policy};
use lumpscope_platter::drive::DRIVES;
use lumpscope_platter::figures::Figures;

const DOCUMENT: &str = include_str!("../../../../docs/platter.md");

/// Hundredths of a millisecond.
fn ms(ns: u64) -> String {
    let hundredths = (ns + 5000) / 10_000;
    format!("{}.{:02} ms", hundredths / 100, hundredths % 100)
}

fn figures() -> String {
    let mut table =
        "| drive | what it is | size | revolution | mean seek | full stroke | outer, inner | \
                     4 KiB anywhere |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for drive in DRIVES {
        let figures = Figures::of(drive).unwrap();
        writeln!(
            table,
            "| `{}` | {} | {} GB | {} | {} | {} | {}, {} MB/s | {} |",
            drive.name,
            drive.title,
            drive.bytes() / 1_000_000_000,
            ms(figures.revolution_ns),
            ms(figures.average_seek_ns),
            ms(figures.full_stroke_ns),
            figures.outer_rate / 1_000_000,
            figures.inner_rate / 1_000_000,
            ms(figures.random_read_ns),
        )
        .unwrap();
    }
    table
}

#[test]
fn the_table_of_the_document_is_that_of_the_code() {
    let want = figures();
    assert!(
        DOCUMENT.contains(&want),
        "docs/platter.md should have this table:\n{want}"
    );
}

#[test]
fn the_defaults_of_the_document_are_those_of_the_code() {
    let window = Overlap::default().window_bytes >> 20;
    assert!(DOCUMENT.contains(&format!("window is {window} MiB")));
    let policy = serde_json::to_value(Policy::default()).unwrap();
    let line = format!("Default: `{policy}`.");
    assert!(
        DOCUMENT.contains(&line),
        "docs/platter.md should say: {line}"
    );
}
