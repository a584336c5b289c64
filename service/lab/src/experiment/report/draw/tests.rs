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
fn words_take_no_more_than_is_reckoned() {
    // Widths in DejaVu Sans, the font of machines that have no other, in sizes.
    let measured = [
        ("10 ms", 3.085),
        ("20 %", 2.54),
        ("512 MiB", 4.053),
        ("\u{2212}8 GiB", 3.531),
    ];
    for (word, sizes) in measured {
        assert!(width_of(word) >= sizes * TEXT, "{word}");
    }
}

#[test]
fn words_at_the_edge_of_a_chart_are_moved_inside() {
    let takes = width_of("200 ms");
    let half = whole(takes / 2.0);
    assert!(half > 36, "wider than the margin on the right");
    let alone = |at| Written::default().place(at, takes, 1000);
    assert_eq!(alone(500), Some(500));
    assert_eq!(alone(990), Some(1000 - half));
    assert_eq!(alone(3), Some(half));
}

#[test]
fn no_word_of_an_axis_lies_on_another_wherever_its_data_ends() {
    use crate::experiment::report::chart::{Axis, Scale};
    use crate::experiment::report::unit::Unit;

    let units = [Unit::Nanoseconds, Unit::Bytes, Unit::Ratio, Unit::Count];
    let scales = [Scale::Linear, Scale::Log, Scale::SignedLog(512.0)];
    let mut left_out = 0;
    for (unit, scale, step) in units
        .iter()
        .flat_map(|unit| scales.iter().map(move |scale| (*unit, *scale)))
        .flat_map(|(unit, scale)| (1..400).map(move |step| (unit, scale, step)))
    {
        let axis = Axis {
            title: "an axis".to_owned(),
            unit,
            scale,
        };
        let most = 900_000.0 * 1.013_f64.powi(step);
        let Some(x) = Laid::over(&axis, [0.0, most / 3.0, most]) else {
            continue;
        };
        let names = ["raw, put", "ext4, a longer name"];
        let svg = framed_rows(&names, 76, &x, |_, _| Ok(())).expect("it can be drawn");
        let (ticks, words) = (svg.inner.matches("<polyline").count() - 1, below(&svg));
        left_out += ticks - words.len();
        for pair in words.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{axis:?} to {most}: {words:?}");
        }
        let last = words.last().expect("an axis has words");
        assert!(last.1 <= f64::from(WIDE.0) + 1.0, "{axis:?}: {words:?}");
    }
    assert!(left_out > 0, "no data has ended where it matters");
}

/// From where to where the words below a chart's rows reach, from left to right.
fn below(svg: &Svg) -> Vec<(f64, f64)> {
    let inner = svg.inner.split("<text ").skip(1);
    let middles = inner
        .filter(|text| text.contains("text-anchor=\"middle\"") && text.contains("dy=\"0.76em\""));
    middles
        .map(|text| {
            let (tag, rest) = text.split_once('>').expect("an element");
            let word = rest.split('<').next().expect("a word").trim();
            let x = tag.split('"').nth(1).expect("x comes first");
            let x: f64 = x.parse().expect("a number");
            let half = width_of(word) / 2.0;
            (x - half, x + half)
        })
        .collect()
}
