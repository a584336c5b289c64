//! Tables and numbers for a terminal.

use lumpscope_units::columns::Table;

use super::report::{Cell as Figure, Findings, Row, Spread, Table as Figures};

/// A table whose first column is text and whose others are numbers.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new(header.iter().copied());
    for column in 1..header.len() {
        table.right(column);
    }
    table
}

/// A table of a report, as the terminal shows it.
pub(crate) fn figures(figures: &Figures) -> Vec<String> {
    let columns = figures.columns.iter().map(|column| column.title.as_str());
    let header: Vec<&str> = [figures.corner.as_str()]
        .into_iter()
        .chain(columns)
        .collect();
    let mut table = table(&header);
    for row in &figures.rows {
        match row {
            Row::Group(name) => table.add_row([name]),
            Row::Cells(name, cells) => {
                table.add_row([name.clone()].into_iter().chain(cells.iter().map(cell)))
            }
        };
    }
    table.lines()
}

fn cell(cell: &Figure) -> String {
    match cell {
        Figure::Nothing => dash(),
        Figure::Text(words) | Figure::Verdict(words, Some(true)) => words.clone(),
        Figure::Verdict(words, _) => words.to_uppercase(),
        Figure::Value(value, unit) => unit.text(*value),
        Figure::Spread(Spread { median, min, max }, unit) => {
            let [median, min, max] = [median, min, max].map(|value| unit.text(*value));
            match min == max {
                true => median,
                false => format!("{median} ({min}..{max})"),
            }
        }
    }
}

/// In place of a number that was not measured.
pub(crate) fn dash() -> String {
    "–".to_owned()
}

/// Four digits or so: `5.679`, `775.55`, `37595.5`.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 1000.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

/// 0.0123 as `1.2 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A range of shares as `-0.3..1.2 %`.
pub(crate) fn percents(spread: Spread) -> String {
    format!("{:.1}..{:.1} %", spread.min * 100.0, spread.max * 100.0)
}

/// Median and range with two digits: `1.62 (1.60..1.65)`; one number when they are the same.
pub(crate) fn spread(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    let shown = [median, min, max].map(|value| format!("{value:.2}"));
    if shown[1] == shown[2] {
        let [median, ..] = shown;
        return median;
    }
    format!("{} ({}..{})", shown[0], shown[1], shown[2])
}

/// Agreement, disagreement, figures that decide neither, and hypotheses.
pub(crate) fn findings(findings: &Findings) -> Vec<String> {
    let groups = [
        ("AGREES", &findings.agrees),
        ("DOES NOT AGREE", &findings.differs),
        ("NOT DECIDED", &findings.undecided),
        ("HYPOTHESIS", &findings.hypotheses),
    ];
    let mut lines = Vec::new();
    for (name, said) in groups.into_iter().filter(|(_, said)| !said.is_empty()) {
        lines.push(name.to_owned());
        lines.extend(said.iter().map(|line| format!("- {line}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::report::Unit;
    use super::*;

    #[test]
    fn a_table_of_a_report_reads_well_on_a_terminal() {
        let mut shown = Figures::new("not shown", &["seconds", "goal"]);
        shown.corner = "disk".to_owned();
        shown.group("seq1");
        let spread = Spread::of(vec![1.0, 2.0, 4.0]);
        let missed = Figure::Verdict("missed".to_owned(), Some(false));
        shown.row("raw", vec![Figure::spread(spread, Unit::Ratio), missed]);
        shown.row("xfs", vec![Figure::Nothing, Figure::text("-")]);
        let read: Vec<String> = figures(&shown)
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let wanted = [
            "disk seconds goal",
            "seq1",
            "raw 2.00 (1.00..4.00) MISSED",
            "xfs – -",
        ];
        assert_eq!(read, wanted);
    }

    #[test]
    fn numbers_are_as_long_as_they_say_something() {
        assert_eq!(number(5.6789), "5.679");
        assert_eq!(number(775.554), "775.55");
        assert_eq!(number(37_595.505_1), "37595.5");
        assert_eq!(percent(0.0501), "5.0 %");
        let of = |values: &[f64]| Spread::of(values.to_vec()).expect("values");
        assert_eq!(spread(of(&[1.6, 1.62, 1.65])), "1.62 (1.60..1.65)");
        assert_eq!(spread(of(&[1.001, 1.002])), "1.00");
        assert_eq!(percents(of(&[-0.003, 0.012])), "-0.3..1.2 %");
    }
}
