use plotters::style::text_anchor::{HPos, VPos};

use super::*;

#[test]
fn text_keeps_its_quotes_and_markup_is_made_smaller() {
    let svg = canvas((100, 50), |area| {
        let style = text(palette::INK.rgb(), HPos::Left, VPos::Top);
        let said = area.draw_text(" opacity=\"1\" <x>", &style, (1, 2));
        said.map_err(super::said)?;
        let path = PathElement::new([(0, 0), (5, 5)], line(&palette::KINDS[1], 3));
        area.draw(&path).map_err(super::said)
    });
    let inner = svg.expect("it can be drawn").inner;
    assert!(
        inner.contains(" opacity=&quot;1&quot; &lt;x&gt;"),
        "{inner}"
    );
    assert!(
        !inner.contains("opacity=\"") && !inner.contains("<svg"),
        "{inner}"
    );
    assert!(inner.contains("stroke=\"#"), "{inner}");
}

#[test]
fn long_names_are_cut() {
    assert_eq!(cut("short", 200.0), "short");
    let long = cut("a name that is far too long for its place", 200.0);
    assert!(long.ends_with('…') && width_of(&long) <= 214.0, "{long}");
    assert_eq!(cut("anything", 0.0), "…");
}

#[test]
fn words_at_the_edge_of_a_chart_are_moved_inside() {
    let word = "200 ms";
    let half = whole(width_of(word) / 2.0);
    assert!(half > 36, "wider than the margin on the right");
    assert_eq!(inside(500, word, 1000), 500);
    assert_eq!(inside(990, word, 1000), 1000 - half);
    assert_eq!(inside(3, word, 1000), half);
}
