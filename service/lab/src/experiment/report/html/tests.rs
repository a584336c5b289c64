use crate::experiment::report::chart::*;
use crate::experiment::report::data::*;
use crate::experiment::report::{Fact, Setup, Spread, Unit};

/// Markup that would do something if it were not escaped.
const HOSTILE: &str = "<script>alert(1)</script>\"'&<b>";

/// A page with one part of each kind, whose every text is `text`.
fn page(text: &str) -> Page {
    let named = || text.to_owned();
    let mut page = Page::new(
        text,
        Setup {
            command: vec![named()],
            made_at: Some(0),
            facts: vec![Fact {
                name: named(),
                value: named(),
            }],
        },
    );
    page.summary.push(named());
    let findings = Findings {
        agrees: vec![named()],
        differs: vec![named()],
        undecided: vec![named()],
        hypotheses: vec![named()],
        of_goals: false,
    };
    page.findings = findings.clone();
    let mut table = Table::new(text, &[text]);
    table.corner = named();
    table.notes.push(named());
    table.group(text);
    table.row(text, vec![Cell::text(text)]);
    table.row(text, vec![Cell::Verdict(named(), Some(false))]);
    let axis = || Axis::log(text, Unit::Nanoseconds);
    let section = page.section(text);
    section.say(text).add(table).add(findings).add(Verbatim {
        caption: named(),
        text: named(),
    });
    section.add(Cdf {
        caption: named(),
        x: axis(),
        curves: vec![Curve::of(text, 1000..=2000)],
    });
    section.add(Heat {
        caption: named(),
        x: axis(),
        y: axis(),
        counted: named(),
        panels: vec![HeatPanel {
            name: named(),
            cells: vec![HeatCell {
                x: (1.0, 2.0),
                y: (1.0, 2.0),
                count: 3,
            }],
            left_out: 1,
        }],
    });
    more_charts(section, text);
    page
}

fn more_charts(section: &mut Section, text: &str) {
    let named = || text.to_owned();
    let axis = || Axis::log(text, Unit::Nanoseconds);
    section.add(Scatter {
        caption: named(),
        x: axis(),
        y: axis(),
        counted: named(),
        panels: vec![ScatterPanel {
            name: named(),
            groups: vec![Dots {
                name: named(),
                points: vec![(1.0, 2.0), (1.0, 2.0)],
            }],
        }],
    });
    section.add(Bars {
        caption: named(),
        title: named(),
        unit: Unit::Nanoseconds,
        parts: vec![named()],
        bars: vec![Bar {
            name: named(),
            values: vec![2.0],
        }],
    });
    section.add(Lines {
        caption: named(),
        x: axis(),
        y: axis(),
        lines: vec![Line {
            name: named(),
            points: vec![(1.0, 2.0), (3.0, 4.0)],
        }],
    });
    section.add(Ranges {
        caption: named(),
        x: axis(),
        reference: Some((1.0, named())),
        rows: vec![Range {
            name: named(),
            spread: Some(Spread::once(2.0)),
            goal: Some(Goal::AtLeast(1.5)),
            published: Some(1.2),
        }],
    });
}

#[test]
fn no_text_becomes_markup() {
    let html = page(HOSTILE).html().unwrap();
    assert!(!html.contains("<script") && !html.contains("<b>alert"));
    // Of the same length: names take room from the rows beside them.
    let plain = page(&"x".repeat(HOSTILE.len())).html().unwrap();
    for markup in ["<b>", "<script", "<text", "<svg", "<tr", "</"] {
        let (hostile, plain) = (html.matches(markup), plain.matches(markup));
        assert_eq!(hostile.count(), plain.count(), "{markup}");
    }
    assert!(html.matches("&lt;script&gt;").count() > 30);
}

#[test]
fn nothing_comes_from_elsewhere() {
    let html = page("plain").html().unwrap();
    for outside in [
        "http:", "https:", "src=", "href=", "url(", "@import", "<link", "<script",
    ] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn the_same_page_gives_the_same_bytes_also_by_way_of_json() {
    let page = page("plain");
    let html = page.html().unwrap();
    assert_eq!(html, page.html().unwrap());
    let again: Page = serde_json::from_str(&serde_json::to_string(&page).unwrap()).unwrap();
    assert_eq!(html, again.html().unwrap());
}

#[test]
fn what_is_empty_says_so() {
    let mut page = Page::new("empty", Setup::default());
    let axis = || Axis::log("latency", Unit::Nanoseconds);
    let section = page.section("nothing");
    section.add(Table::new("t", &["a"]));
    section.add(Cdf {
        caption: "c".to_owned(),
        x: axis(),
        curves: vec![Curve::of("none", [])],
    });
    section.add(Heat {
        caption: "h".to_owned(),
        x: axis(),
        y: axis(),
        counted: "requests".to_owned(),
        panels: vec![HeatPanel::default()],
    });
    section.add(Scatter {
        caption: "s".to_owned(),
        x: axis(),
        y: axis(),
        counted: "requests".to_owned(),
        panels: vec![ScatterPanel::default()],
    });
    section.add(Bars {
        caption: "b".to_owned(),
        title: "time".to_owned(),
        unit: Unit::Nanoseconds,
        parts: vec!["part".to_owned()],
        bars: vec![Bar::default()],
    });
    section.add(Lines {
        caption: "l".to_owned(),
        x: axis(),
        y: axis(),
        lines: vec![Line::default()],
    });
    section.add(Ranges {
        caption: "r".to_owned(),
        x: axis(),
        reference: None,
        rows: vec![Range::default()],
    });
    let html = page.html().unwrap();
    assert!(!html.contains("<svg"));
    assert_eq!(html.matches("There is no data for this figure.").count(), 6);
    assert_eq!(html.matches("There is no data for this table.").count(), 1);
}

#[test]
fn a_million_points_stay_small() {
    // Spread over the whole picture: the worst case for thinning.
    let points = |step: u64| {
        let point = |index: u64| {
            let at = |factor: u64| f64::from(u32::try_from(index * factor % 1_000_003).unwrap());
            (at(7919), at(104_729))
        };
        (0..500_000)
            .map(move |index| point(index * 2 + step))
            .collect()
    };
    let axis = |title: &str| Axis::linear(title, Unit::Count);
    let mut page = Page::new("many", Setup::default());
    let section = page.section("many");
    section.add(Scatter {
        caption: "a million".to_owned(),
        x: axis("x"),
        y: axis("y"),
        counted: "requests".to_owned(),
        panels: vec![ScatterPanel {
            name: "all".to_owned(),
            groups: [0, 1]
                .map(|step| Dots {
                    name: format!("group {step}"),
                    points: points(step),
                })
                .to_vec(),
        }],
    });
    section.add(Cdf {
        caption: "a million".to_owned(),
        x: Axis::log("x", Unit::Nanoseconds),
        curves: vec![Curve::of("all", 1..=1_000_000)],
    });
    section.add(Lines {
        caption: "a million".to_owned(),
        x: axis("x"),
        y: axis("y"),
        lines: vec![Line {
            name: "all".to_owned(),
            points: (0..1_000_000)
                .map(|x| (f64::from(x), f64::from(x % 977)))
                .collect(),
        }],
    });
    let html = page.html().unwrap();
    assert!(html.len() < 400 << 10, "{} bytes", html.len());
    assert!(html.contains("of 1,000,000, squares of"));
    assert_eq!(html.matches("Thinned: ").count(), 3);
}
