//! docs/platter.md says what the code has.

use std::fmt::Write as _;

use lumpscope_platter::disk::{Overlap, Policy};
use lumpscope_platter::drive::{DRIVES, Drive, Source};
use lumpscope_platter::figures::Figures;

const DOCUMENT: &str = include_str!("../../../../docs/platter.md");

/// Hundredths of a millisecond.
fn ms(ns: u64) -> String {
    let hundredths = (ns + 5000) / 10_000;
    format!("{}.{:02} ms", hundredths / 100, hundredths % 100)
}

fn figures() -> String {
    let mut table =
        "| drive | what it is | size | turn | mean seek | full stroke | outer, inner | \
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

fn parameters(drive: &Drive) -> String {
    let mut table = format!(
        "### {}\n\n| parameter | value | source | which, or why |\n|---|---|---|---|\n",
        drive.name
    );
    for parameter in drive.parameters() {
        let source = match parameter.source {
            Source::Manual => "manual",
            Source::Sibling => "sibling",
            Source::Tables => "tables",
            Source::Derived => "derived",
            Source::Guess => "guess",
        };
        writeln!(
            table,
            "| `{}` | {} | {source} | {} |",
            parameter.name, parameter.value, parameter.note
        )
        .unwrap();
    }
    table
}

#[test]
fn the_tables_of_the_document_are_those_of_the_code() {
    let mut want = vec![figures()];
    want.extend(DRIVES.iter().map(parameters));
    let missing: Vec<String> = want
        .into_iter()
        .filter(|table| !DOCUMENT.contains(table.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/platter.md should have these:\n{}",
        missing.join("\n")
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
