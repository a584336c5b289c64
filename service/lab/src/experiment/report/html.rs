//! A report as one HTML file: its data as JSON, and the script that shows them.

use serde::Serialize;

use super::setup::{Fact, command_line, now};
use super::write::MARK;
use super::{Findings, Part, Report, Section};

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
    sections: Vec<Section>,
    notes: &'a [String],
}

impl Report {
    /// The whole file.
    ///
    /// # Errors
    /// The data cannot be written as JSON.
    pub fn html(&self) -> anyhow::Result<String> {
        let view = View {
            title: &self.title,
            summary: &self.summary,
            command: command_line(std::env::args()),
            made: now(),
            facts: &self.facts,
            findings: &self.findings,
            sections: self.sections.iter().map(with_pictures).collect(),
            notes: &self.notes,
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

/// Tables that are drawn follow their pictures.
fn with_pictures(section: &Section) -> Section {
    let parts = section.parts.iter().flat_map(|part| {
        let picture = match part {
            Part::Table(table) => table.ranges().map(Part::Ranges),
            _ => None,
        };
        picture.into_iter().chain([part.clone()])
    });
    Section {
        parts: parts.collect(),
        ..section.clone()
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
    use crate::experiment::report::{Cell, Table, Unit};

    /// Markup that would do something if it were not escaped.
    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&{{echarts}}";

    #[test]
    fn texts_stay_data_and_nothing_comes_from_elsewhere() {
        let mut report = Report::new(HOSTILE);
        let mut table = Table::new(HOSTILE, &[HOSTILE]);
        table.row(HOSTILE, vec![Cell::text(HOSTILE)]);
        report.section(HOSTILE).say(HOSTILE).add(table);
        let html = report.html().unwrap();
        let plain = Report::new("plain").html().unwrap();
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
    }

    #[test]
    fn a_table_of_ratios_is_drawn_and_has_verdicts() {
        let mut table = Table::compared("Ours beside a peer's.");
        let pairs = [
            (Some(2.0), Some(1.0)),
            (Some(3.0), Some(1.0)),
            (Some(1.0), None),
        ];
        table.pair("get", Unit::BytesPerSecond, Some(1.5), &pairs);
        let mut report = Report::new("One");
        report.section("Ratios").add(table);
        report.finish(None);
        assert_eq!(
            report.summary,
            ["0 of 1 figures are within their limits, 1 are not decided."]
        );
        let section = with_pictures(&report.sections[0]);
        let json = serde_json::to_value(&section).unwrap();
        let [ranges, table] = [0, 1].map(|at| &json["parts"][at]);
        assert_eq!(
            (&ranges["part"], &ranges["rows"][0]["goal"]),
            (&"ranges".into(), &1.5.into())
        );
        assert_eq!(
            table["columns"],
            serde_json::json!(["ours", "peer", "ratio", "goal", "verdict"])
        );
        let cells = &table["rows"][0]["cells"][1];
        assert_eq!(
            cells[2],
            serde_json::json!({ "text": "2.50", "range": ["2.00", "3.00"] })
        );
        assert_eq!(
            cells[4],
            serde_json::json!({ "text": "not decided", "met": null })
        );
        let document =
            serde_json::to_value(report.document(&serde_json::json!({ "runs": 7 }))).unwrap();
        assert_eq!(
            (&document["runs"], &document["figures"][2]["median"]),
            (&7.into(), &2.5.into())
        );
        assert_eq!(document["figures"][0]["runs"].as_array().unwrap().len(), 3);
    }
}
