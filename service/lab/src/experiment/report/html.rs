//! A report as HTML.

use maud::{Markup, PreEscaped, html};

use super::data::{Cell, Findings, Page, Part, Row, Section, Table};
use super::draw::{self, Drawn, Picture, Svg};
use super::palette;
use super::setup::Setup;
use super::unit::Spread;
use super::write::MARK;

/// Style of the page; colours of charts are added.
const STYLE: &str = include_str!("style.css");

/// Rows of a table that is kept on one sheet of paper.
const SHORT: usize = 16;

impl Page {
    /// The whole file.
    ///
    /// # Errors
    /// A chart cannot be drawn; which, and what plotters says.
    pub fn html(&self) -> anyhow::Result<String> {
        let mut numbers = Numbers::default();
        let mut sections = Vec::new();
        for (number, section) in self.sections.iter().enumerate() {
            sections.push(numbers.section(section, number + 1)?);
        }
        let page = html! {
            (PreEscaped(MARK))
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="generator" content=(concat!("lumpscope ", env!("CARGO_PKG_VERSION")));
                    title { (self.title) }
                    style { (PreEscaped(style())) }
                }
                body {
                    header {
                        p.kicker { "Lumpscope report" @if let Some(date) = self.setup.date() { " · " (date) } }
                        h1 { (self.title) }
                        @for line in &self.summary { p.summary { (line) } }
                    }
                    main {
                        @if !self.findings.is_empty() {
                            section aria-labelledby="findings" {
                                h2 #findings { "What the figures say" }
                                (findings(&self.findings))
                            }
                        }
                        @for section in &sections { (section) }
                        (setup(&self.setup))
                    }
                }
            }
        };
        Ok(page.into_string())
    }
}

fn style() -> String {
    format!(
        "{STYLE}{}@media screen and (prefers-color-scheme:dark){{{}}}",
        palette::dash_rules(),
        palette::dark_rules()
    )
}

fn setup(setup: &Setup) -> Markup {
    html! {
        section aria-labelledby="setup" {
            h2 #setup { "How it was measured" }
            @if !setup.command.is_empty() {
                p.label { "Command" }
                pre.command tabindex="0" role="region" aria-label="Command" { code { (setup.command_line()) } }
            }
            dl.facts {
                @if let Some(date) = setup.date() { div { dt { "Made" } dd { (date) } } }
                @for fact in &setup.facts {
                    div { dt { (fact.name) } dd { (fact.value) } }
                }
            }
        }
    }
}

fn findings(findings: &Findings) -> Markup {
    let list = |class: &str, sign: &str, title: &str, lines: &[String]| {
        html! {
            @if !lines.is_empty() {
                div.finding.(class) {
                    h3 { span.sign aria-hidden="true" { (sign) } " " (title) }
                    ul { @for line in lines { li { (line) } } }
                }
            }
        }
    };
    let (agrees, differs, undecided) = match findings.of_goals {
        true => (
            "Goals that were met",
            "Goals that were missed",
            "Goals that this does not decide",
        ),
        false => ("Agrees", "Does not agree", "Not decided"),
    };
    html! {
        div.findings {
            (list("agrees", "✓", agrees, &findings.agrees))
            (list("differs", "≠", differs, &findings.differs))
            (list("undecided", "±", undecided, &findings.undecided))
            (list("supposed", "?", "Hypothesis, not shown here", &findings.hypotheses))
        }
    }
}

/// Numbers of tables and figures, and from them the names that elements are referred to by.
#[derive(Debug, Default)]
struct Numbers {
    tables: usize,
    figures: usize,
    pictures: usize,
}

impl Numbers {
    fn section(&mut self, section: &Section, number: usize) -> anyhow::Result<Markup> {
        let mut parts = Vec::new();
        for part in &section.parts {
            parts.push(self.part(part)?);
        }
        let id = format!("section-{number}");
        Ok(html! {
            section aria-labelledby=(id) {
                h2 id=(id) { (section.title) }
                @for line in &section.text { p { (line) } }
                @for part in &parts { (part) }
            }
        })
    }

    fn part(&mut self, part: &Part) -> anyhow::Result<Markup> {
        let (caption, drawn) = match part {
            Part::Table(table) => return Ok(self.table(table)),
            Part::Findings(all) => return Ok(findings(all)),
            Part::Verbatim(text) => {
                return Ok(html! {
                    p.label { (text.caption) }
                    pre.verbatim tabindex="0" role="region" aria-label=(text.caption) { (text.text) }
                });
            }
            Part::Ranges(chart) => (&chart.caption, draw::ranges(chart)),
            Part::Cdf(chart) => (&chart.caption, draw::cdf(chart)),
            Part::Heat(chart) => (&chart.caption, draw::heat(chart)),
            Part::Scatter(chart) => (&chart.caption, draw::scatter(chart)),
            Part::Bars(chart) => (&chart.caption, draw::bars(chart)),
            Part::Lines(chart) => (&chart.caption, draw::lines(chart)),
        };
        let drawn =
            drawn.map_err(|why| anyhow::anyhow!("cannot draw the chart \"{caption}\": {why}"))?;
        Ok(self.figure(caption, drawn.as_ref()))
    }

    fn figure(&mut self, caption: &str, drawn: Option<&Drawn>) -> Markup {
        self.figures += 1;
        let number = self.figures;
        let Some(drawn) = drawn else {
            return html! {
                figure {
                    figcaption { b { "Figure " (number) "." } " " (caption) }
                    p.nothing { "There is no data for this figure." }
                }
            };
        };
        let mut pictures = Vec::new();
        for picture in &drawn.pictures {
            pictures.push(self.picture(picture, number));
        }
        let several = pictures.len() > 1;
        html! {
            figure {
                figcaption { b { "Figure " (number) "." } " " (caption) }
                @if !drawn.legend.is_empty() {
                    div.legend {
                        @if !drawn.legend_title.is_empty() { span { (drawn.legend_title) } }
                        ul { @for (key, words) in &drawn.legend { li { (key_svg(key)) " " (words) } } }
                    }
                }
                div.pictures.several[several] { @for picture in &pictures { (picture) } }
                @for note in &drawn.notes { p.note { (note) } }
            }
            @if let Some(table) = &drawn.table { (self.table(table)) }
        }
    }

    fn picture(&mut self, picture: &Picture, figure: usize) -> Markup {
        self.pictures += 1;
        let id = format!("picture-{}", self.pictures);
        let name = if picture.name.is_empty() {
            format!("Figure {figure}")
        } else {
            format!("Figure {figure}: {}", picture.name)
        };
        let Svg {
            size,
            inner,
            dashed,
        } = &picture.svg;
        html! {
            div.picture {
                @if !picture.name.is_empty() { p.name { (picture.name) } }
                div.scroll tabindex="0" role="region" aria-label=(name) {
                    svg.dashed[*dashed] viewBox={"0 0 " (size.0) " " (size.1)} role="img"
                        aria-labelledby={(id) "-title " (id) "-desc"} {
                        title id={(id) "-title"} { (name) }
                        desc id={(id) "-desc"} { (picture.description) }
                        (PreEscaped(inner))
                    }
                }
            }
        }
    }

    fn table(&mut self, table: &Table) -> Markup {
        self.tables += 1;
        let (number, columns) = (self.tables, table.columns.len());
        let id = format!("table-{number}");
        html! {
            div.table.short[table.rows.len() <= SHORT] {
                p.caption id=(id) { b { "Table " (number) "." } " " (table.caption) }
                @if table.rows.is_empty() {
                    p.nothing { "There is no data for this table." }
                } @else {
                    div.scroll tabindex="0" role="region" aria-labelledby=(id) {
                        table aria-labelledby=(id) {
                            thead { tr {
                                th scope="col" { (table.corner) @if table.corner.is_empty() { span.unseen { "What" } } }
                                @for column in &table.columns {
                                    th.text[column.text] scope="col" { (column.title) @if column.title.is_empty() { span.unseen { "Verdict" } } }
                                }
                            } }
                            (body(table, columns))
                        }
                    }
                }
                @for note in &table.notes { p.note { (note) } }
            }
        }
    }
}

/// Rows below a heading are a body of their own, so that the heading names them.
fn body(table: &Table, columns: usize) -> Markup {
    let mut bodies: Vec<(Option<&str>, Vec<Markup>)> = vec![(None, Vec::new())];
    for row in &table.rows {
        match row {
            Row::Group(name) => bodies.push((Some(name), Vec::new())),
            Row::Cells(name, cells) => {
                let row = html! {
                    tr {
                        th scope="row" { (name) }
                        @for index in 0..columns {
                            (cell(cells.get(index), table.columns[index].text))
                        }
                    }
                };
                if let Some((_, rows)) = bodies.last_mut() {
                    rows.push(row);
                }
            }
        }
    }
    html! {
        @for (name, rows) in bodies.iter().filter(|(name, rows)| name.is_some() || !rows.is_empty()) {
            tbody {
                @if let Some(name) = name {
                    tr.group { th scope="rowgroup" colspan=(columns + 1) { (name) } }
                }
                @for row in rows { (row) }
            }
        }
    }
}

fn cell(cell: Option<&Cell>, text: bool) -> Markup {
    match cell {
        None => html! { td {} },
        Some(Cell::Nothing) => html! { td { "–" } },
        Some(Cell::Text(words)) => html! { td.text[text] { (words) } },
        Some(Cell::Value(value, unit)) => html! { td { (unit.text(*value)) } },
        Some(Cell::Spread(spread, unit)) => {
            let Spread { median, min, max } = *spread;
            html! {
                td {
                    (unit.text(median))
                    @if !spread.is_single() {
                        span.range { (unit.text(min)) " .. " (unit.text(max)) }
                    }
                }
            }
        }
        Some(Cell::Verdict(words, good)) => {
            let (class, sign) = match good {
                Some(true) => ("good", "✓"),
                Some(false) => ("bad", "✗"),
                None => ("unsure", "?"),
            };
            html! {
                td.text[text] {
                    @if !words.is_empty() {
                        span.verdict.(class) { span aria-hidden="true" { (sign) } " " (words) }
                    }
                }
            }
        }
    }
}

fn key_svg(svg: &Svg) -> Markup {
    html! {
        svg.key.dashed[svg.dashed] viewBox={"0 0 " (svg.size.0) " " (svg.size.1)} aria-hidden="true" {
            (PreEscaped(&svg.inner))
        }
    }
}

#[cfg(test)]
mod tests;
