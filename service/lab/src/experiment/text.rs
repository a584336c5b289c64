//! A report as text, in 80 columns wherever it goes. A terminal shows the end of what is printed, so the
//! sections come in reverse, and what follows from them comes last. Names of programs, files and disks do
//! nothing to it: only this file colours.

use lumpscope_units::columns::{COLUMNS, Table, fitted, words};
use lumpscope_units::escape::{escaped, escaped_lines};
use lumpscope_units::human;

use super::report::{Findings, Heat, HeatPanel, Part, Report, Row, Section, Table as Figures};

/// Shades by rising count, and the 256-colour palette's entries for the same.
const SHADES: [(char, u8); 4] = [('░', 24), ('▒', 37), ('▓', 220), ('█', 196)];
/// Columns of the numbers left of a heatmap.
const LABEL: usize = 10;

/// The whole text, ending with a line feed. `colour`: the reader is a terminal.
pub(crate) fn report(report: &Report, colour: bool) -> String {
    if let Some(screen) = &report.screen {
        return format!("{screen}\n");
    }
    let mut lines = vec![title(&report.title, colour)];
    let facts = report.facts.iter();
    lines.extend(facts.map(|fact| format!("{}: {}", escaped(&fact.name), escaped(&fact.value))));
    lines.extend(
        report
            .notes
            .iter()
            .map(|note| format!("- {}", escaped(note))),
    );
    let printed = |section: &&Section| {
        let charts =
            |part: &Part| !matches!(part, Part::Table(_) | Part::Verbatim(_) | Part::Heat(_));
        !section.text.is_empty() || !section.parts.iter().all(charts)
    };
    for section in report.sections.iter().rev().filter(printed) {
        lines.push(String::new());
        self::section(section, colour, &mut lines);
    }
    lines.push(String::new());
    lines.extend(findings(&report.findings));
    lines.extend(report.summary.iter().map(|line| {
        let lines = words(&format!("=> {}", escaped(line)), COLUMNS - 3);
        lines.join("\n   ")
    }));
    let mut text = String::new();
    for line in lines.join("\n").lines() {
        // What is coloured looks longer than it is.
        match line.is_empty() || line.contains('\x1b') {
            true => text.push_str(&format!("{line}\n")),
            false => text.push_str(&fitted(line, COLUMNS)),
        }
    }
    text
}

fn title(text: &str, colour: bool) -> String {
    let text = escaped(text);
    match colour {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => format!("{text}\n{}", "─".repeat(text.chars().count().min(COLUMNS))),
    }
}

fn section(section: &Section, colour: bool, lines: &mut Vec<String>) {
    lines.push(title(&section.title, colour));
    lines.extend(
        section
            .text
            .iter()
            .map(|text| words(&escaped_lines(text), COLUMNS).join("\n")),
    );
    for part in &section.parts {
        match part {
            Part::Table(table) => {
                lines.push(String::new());
                lines.extend(figures(table));
                lines.extend(
                    table
                        .notes
                        .iter()
                        .map(|note| words(&escaped_lines(note), COLUMNS).join("\n")),
                );
            }
            Part::Verbatim(verbatim) => {
                lines.push(String::new());
                lines.push(escaped(&verbatim.caption).into_owned());
                lines.push(escaped_lines(&verbatim.text).into_owned());
            }
            Part::Heat(heat) => heatmap(heat, colour, lines),
            // Pictures of what the tables say.
            Part::Ranges(_) | Part::Cdf(_) | Part::Scatter(_) | Part::Bars(_) => {}
        }
    }
}

/// A table whose first column is text and whose others are numbers.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new(header.iter().copied()).within(COLUMNS);
    for column in 1..header.len() {
        table.right(column);
    }
    table
}

/// A table of a report. Columns for limits and verdicts are added where a figure has one.
pub(crate) fn figures(figures: &Figures) -> Vec<String> {
    let titles = figures.titles();
    let header: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = table(&header);
    let grouped = figures.rows.iter().any(|row| matches!(row, Row::Group(_)));
    let indent = if grouped { "  " } else { "" };
    for row in &figures.rows {
        match row {
            Row::Group(name) => {
                table.add_row([""]);
                table.add_row([name]);
            }
            Row::Cells(name, cells) => {
                let mut shown = vec![format!("{indent}{name}")];
                shown.extend(cells.iter().map(|cell| cell.shown().line()));
                shown.resize(figures.columns.len() + 1, String::new());
                shown.extend(figures.verdicts(cells).into_iter().map(|cell| cell.text));
                table.add_row(shown);
            }
        }
    }
    table.lines()
}

/// Figures that are not as they should be, and hypotheses.
fn findings(findings: &Findings) -> Vec<String> {
    let groups = [
        ("DOES NOT AGREE", &findings.differs),
        ("HYPOTHESIS", &findings.hypotheses),
    ];
    let mut lines = Vec::new();
    for (name, said) in groups.into_iter().filter(|(_, said)| !said.is_empty()) {
        lines.push(name.to_owned());
        lines.extend(said.iter().map(|line| format!("- {}", escaped(line))));
    }
    lines
}

/// One character a cell: to the right the steps of x, upwards those of y.
fn heatmap(heat: &Heat, colour: bool, lines: &mut Vec<String>) {
    let cells = || heat.panels.iter().flat_map(|panel| &panel.cells);
    let Some(most) = cells().map(|cell| cell.count).max() else {
        return;
    };
    let steps = |of: fn(&super::report::HeatCell) -> (f64, f64)| {
        let mut steps: Vec<(f64, f64)> = cells().map(of).collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        steps.dedup();
        steps
    };
    let (columns, rows) = (steps(|cell| cell.x), steps(|cell| cell.y));
    let shade = |count: u64| {
        let share = human::as_float(count).ln() / human::as_float(most).ln().max(1e-9);
        let at = usize::try_from(human::whole(share * 4.0)).unwrap_or(0);
        let (character, palette) = SHADES[at.min(3)];
        match colour {
            true => format!("\x1b[38;5;{palette}m{character}\x1b[0m"),
            false => character.to_string(),
        }
    };
    lines.push(format!(
        "\n{} To the right: {}; upwards: {}; from 1 ({}) to {} {} ({}).",
        escaped(&heat.caption),
        escaped(&heat.x.title),
        escaped(&heat.y.title),
        shade(1),
        human::count(most),
        escaped(&heat.counted),
        shade(most)
    ));
    let line = |panel: &HeatPanel, y: &(f64, f64)| {
        let cell = |x: &(f64, f64)| {
            let found = panel
                .cells
                .iter()
                .filter(|cell| cell.x == *x && cell.y == *y);
            let count: u64 = found.map(|cell| cell.count).sum();
            if count == 0 {
                " ".to_owned()
            } else {
                shade(count)
            }
        };
        let row: String = columns.iter().map(cell).collect();
        format!("{:>LABEL$} │{}", heat.y.unit.text(y.0), row.trim_end())
    };
    for panel in heat.panels.iter().filter(|panel| !panel.cells.is_empty()) {
        lines.push(format!("\n{}", escaped(&panel.name)));
        lines.extend(rows.iter().rev().map(|y| line(panel, y)));
        let ends = [columns.first(), columns.last()].map(|end| {
            let end = end.map_or(0.0, |(from, to)| if *from < 0.0 { *from } else { *to });
            heat.x.unit.text(end)
        });
        lines.push(format!("{:>LABEL$} └{}", "", "─".repeat(columns.len())));
        let room = columns.len().saturating_sub(ends[1].chars().count() + 1);
        lines.push(format!("{:>LABEL$}  {:<room$} {}", "", ends[0], ends[1]));
    }
}

/// 0.0123 as `1.2 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use lumpscope_units::escape::is_hostile;

    use super::super::report::{Axis, Cell, HeatCell, Limit, Unit};
    use super::*;

    fn squeezed(lines: &[String]) -> Vec<String> {
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.iter().map(words).collect()
    }

    #[test]
    fn a_table_has_limits_and_verdicts_where_figures_have_them() {
        let mut shown = Figures::new("not shown", &["seconds", "ratio"]);
        shown.corner = "disk".to_owned();
        shown.group("seq1");
        let ratio =
            |runs: &[f64], limit| Cell::runs(Unit::Ratio, runs.iter().copied()).within(limit);
        let goal = Some(Limit::AtLeast(1.5));
        shown.row(
            "raw",
            vec![
                Cell::value(Some(2.0), Unit::Plain),
                ratio(&[1.0, 1.1, 1.4], goal),
            ],
        );
        shown.row("xfs", vec![Cell::Nothing, ratio(&[1.4, 1.6, 1.6], goal)]);
        shown.row("ext4", vec![Cell::text("-"), ratio(&[2.0, 2.0, 2.0], None)]);
        let wanted = [
            "disk seconds ratio goal verdict",
            "",
            "seq1",
            "raw 2.00 1.10 (1.00..1.40) ≥ 1.5 MISSED",
            "xfs – 1.60 (1.40..1.60) ≥ 1.5 not decided",
            "ext4 - 2.00",
        ];
        assert_eq!(squeezed(&figures(&shown)), wanted);
    }

    #[test]
    fn the_answer_comes_last() {
        let mut all = Report::new("A study");
        all.summary.push("It follows. ".repeat(12));
        all.fact("Drive", "one");
        all.section("The answer").say("First on a page.");
        let cell = |x: (f64, f64), count| HeatCell {
            x,
            y: (1e6, 2e6),
            count,
        };
        let axis = |title: &str, unit| Axis::linear(title, unit);
        all.section("Details").add(Heat {
            caption: "Seeks.".to_owned(),
            x: axis("distance", Unit::Bytes),
            y: axis("time", Unit::Nanoseconds),
            counted: "requests".to_owned(),
            panels: vec![HeatPanel {
                name: "raw".to_owned(),
                cells: vec![cell((-2048.0, -1024.0), 1), cell((0.0, 0.0), 100)],
                left_out: 0,
            }],
        });
        let text = report(&all, false);
        let at = |words: &str| {
            text.find(words)
                .unwrap_or_else(|| panic!("no {words}: {text}"))
        };
        assert!(at("Drive: one") < at("Details") && at("1.00 ms │░█") < at("The answer"));
        assert!(at("The answer") < at("=> It follows."));
        assert!(!text.contains('\x1b') && report(&all, true).contains("\x1b[38;5;196m█"));
        // Without a terminal each of them is one line.
        let summary = text.lines().filter(|line| line.starts_with("=> "));
        assert_eq!(summary.count(), 1, "{text}");
    }

    #[test]
    fn names_from_outside_colour_nothing() {
        const NAME: &str = "sd\x1b[2Ja\u{202e}\nforged";
        let mut all = Report::new(NAME);
        all.summary.push(NAME.to_owned());
        all.fact(NAME, NAME);
        all.note(&[NAME]);
        all.findings.differs.push(NAME.to_owned());
        let mut table = Figures::new(NAME, &[NAME]);
        table.row(NAME, vec![Cell::text(NAME)]);
        table.notes.push(NAME.to_owned());
        all.section(NAME).say(NAME).add(table);
        let text = report(&all, true);
        let text = text.replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert!(!text.contains(|c| c != '\n' && is_hostile(c)), "{text:?}");
    }
}
