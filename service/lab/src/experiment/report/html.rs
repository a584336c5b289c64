//! A report as one HTML file: its data as JSON, and the script that shows them.

use serde::Serialize;

use super::data::{Findings, Page, Section};
use super::setup::Fact;
use super::write::MARK;

/// Style and script. Names in double braces stand for what is put there.
const TEMPLATE: &str = include_str!("report.html");
/// The charts are drawn by the library that the service's page has.
const ECHARTS: &str = include_str!("../../../../server/page/vendor/echarts.esm.min.js");
/// Numbers with their units, as on that page.
const UNITS: &str = include_str!("../../../../server/page/js/units.js");

/// What the script reads.
#[derive(Serialize)]
struct View<'a> {
    title: &'a str,
    summary: &'a [String],
    command: String,
    made: Option<String>,
    facts: &'a [Fact],
    findings: &'a Findings,
    sections: &'a [Section],
}

impl Page {
    /// The whole file. Equal pages give equal bytes.
    ///
    /// # Errors
    /// The data cannot be written as JSON.
    pub fn html(&self) -> anyhow::Result<String> {
        let view = View {
            title: &self.title,
            summary: &self.summary,
            command: self.setup.command_line(),
            made: self.setup.date(),
            facts: &self.setup.facts,
            findings: &self.findings,
            sections: &self.sections,
        };
        // No text of a report can end the element that holds it.
        let data = serde_json::to_string(&view)?.replace('<', "\\u003c");
        let mut html = MARK.to_owned();
        let mut rest = TEMPLATE;
        for (name, text) in [
            ("{{report}}", data),
            ("{{echarts}}", drawing_library()),
            ("{{units}}", UNITS.replace("\nexport ", "\n")),
        ] {
            let (before, after) = rest.split_once(name).unwrap_or((rest, ""));
            html.push_str(before);
            html.push_str(&text);
            rest = after;
        }
        html.push_str(rest);
        Ok(html)
    }
}

/// ECharts as a part of another module: what it exports becomes a value named `echarts`.
fn drawing_library() -> String {
    let (code, exports) = ECHARTS.rsplit_once("export{").unwrap_or((ECHARTS, ""));
    let (exports, _) = exports.rsplit_once('}').unwrap_or((exports, ""));
    let mut all = exports.split(',').map(|one| one.split_once(" as "));
    let init = all.find_map(|one| one.filter(|(_, name)| *name == "init"));
    let (local, _) = init.unwrap_or(("undefined", ""));
    format!("{code}const echarts={{init:{local}}};")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::{Cell, Setup, Table};

    /// Markup that would do something if it were not escaped.
    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&{{echarts}}";

    #[test]
    fn texts_stay_data_and_nothing_comes_from_elsewhere() {
        let mut page = Page::new(HOSTILE, Setup::default());
        let mut table = Table::new(HOSTILE, &[HOSTILE]);
        table.row(HOSTILE, vec![Cell::text(HOSTILE)]);
        page.section(HOSTILE).say(HOSTILE).add(table);
        let html = page.html().unwrap();
        let plain = Page::new("plain", Setup::default()).html().unwrap();
        for markup in ["<script", "</script"] {
            let counts = [&html, &plain].map(|html| html.matches(markup).count());
            assert_eq!(counts[0], counts[1], "{markup}");
        }
        assert!(html.contains("const echarts={init:") && !html.contains("{init:undefined"));
        assert!(!html.contains("export{") && !html.contains("\nexport "));
        for outside in ["src=\"", "href=\"", "url(", "@import", "<link"] {
            let own = TEMPLATE.contains(outside)
                || html.matches(outside).count() > ECHARTS.matches(outside).count();
            assert!(!own, "{outside}");
        }
        assert_eq!(html, page.html().unwrap());
    }

    #[test]
    fn cells_are_told_as_people_read_them() {
        use crate::experiment::report::{Spread, Unit};
        let spread = Spread::of(vec![1.0, 2.0, 4.0]);
        let shown = |cell: Cell| serde_json::to_value(cell).unwrap();
        let cell = shown(Cell::spread(spread, Unit::Ratio));
        assert_eq!(
            (&cell["text"], &cell["range"]),
            (&"2.00".into(), &"1.00 .. 4.00".into())
        );
        assert_eq!(shown(Cell::Nothing)["text"], "–");
        assert_eq!(
            shown(Cell::Verdict("missed".to_owned(), Some(false)))["met"],
            false
        );
        assert!(shown(Cell::Verdict("open".to_owned(), None))["met"].is_null());
        assert!(shown(Cell::text("a")).get("met").is_none());
    }
}
