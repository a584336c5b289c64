//! Medians with their ranges, one below the other.

use plotters::element::{Circle, PathElement, Polygon};
use plotters::style::Color as _;

use super::axis::Laid;
use super::{Area, Drawn, KIND_OURS, Picture, canvas_key, framed_rows, line, said, whole};
use crate::experiment::report::chart::{Goal, Range, Ranges};
use crate::experiment::report::palette::{AXIS, INK, KINDS};

/// Height of a row, in units.
const ROW: u32 = 52;

/// `None`: there is nothing to draw.
pub(crate) fn ranges(chart: &Ranges) -> Result<Option<Drawn>, String> {
    if chart
        .rows
        .iter()
        .all(|row| row.spread.is_none() && row.published.is_none())
    {
        return Ok(None);
    }
    let of_row = |row: &Range| {
        let spread = row.spread.map(|spread| [spread.min, spread.max]);
        let goal = row.goal.map(|goal| limit(goal).0);
        let values = spread
            .into_iter()
            .flatten()
            .chain(goal)
            .chain(row.published);
        values.collect::<Vec<f64>>()
    };
    let reference = chart.reference.as_ref().map(|(at, _)| *at);
    let values = chart.rows.iter().flat_map(of_row).chain(reference);
    let Some(x) = Laid::over(&chart.x, values) else {
        return Ok(None);
    };
    let names: Vec<&str> = chart.rows.iter().map(|row| row.name.as_str()).collect();
    let height = i32::try_from(names.len())
        .unwrap_or(i32::MAX)
        .saturating_mul(52);
    let svg = framed_rows(&names, ROW, &x, |area, place| {
        if let Some(at) = reference {
            let at = whole(place(at));
            let path = PathElement::new([(at, 0), (at, height)], line(&AXIS, 3));
            area.draw(&path).map_err(said)?;
        }
        let mut middle = 26;
        for row in &chart.rows {
            draw_row(area, row, middle, &|value| whole(place(value)))?;
            middle += 52;
        }
        Ok(())
    })?;
    let mut drawn = Drawn {
        legend: legend(chart)?,
        ..Drawn::default()
    };
    if let Some((at, meaning)) = &chart.reference {
        let at = chart.x.unit.text(*at);
        drawn
            .notes
            .push(format!("The vertical line at {at}: {meaning}."));
    }
    drawn.pictures.push(Picture {
        name: String::new(),
        description: describe(chart),
        svg,
    });
    Ok(Some(drawn))
}

/// The limit of a goal, and whether more is good.
fn limit(goal: Goal) -> (f64, bool) {
    match goal {
        Goal::AtLeast(limit) => (limit, true),
        Goal::AtMost(limit) => (limit, false),
    }
}

fn draw_row(
    area: &Area<'_>,
    row: &Range,
    middle: i32,
    place: &dyn Fn(f64) -> i32,
) -> Result<(), String> {
    if let Some((at, more_is_good)) = row.goal.map(limit) {
        draw_goal(area, (place(at), middle), more_is_good)?;
    }
    if let Some(spread) = row.spread {
        let (from, to) = (place(spread.min), place(spread.max));
        draw_spread(area, (from, place(spread.median), to), middle)?;
    }
    if let Some(at) = row.published {
        draw_published(area, (place(at), middle))?;
    }
    Ok(())
}

/// A line with ends, and a dot at the median.
fn draw_spread(area: &Area<'_>, (from, at, to): (i32, i32, i32), y: i32) -> Result<(), String> {
    let style = line(&KINDS[KIND_OURS], 4);
    if from < to {
        for path in [
            [(from, y), (to, y)],
            [(from, y - 8), (from, y + 8)],
            [(to, y - 8), (to, y + 8)],
        ] {
            area.draw(&PathElement::new(path, style)).map_err(said)?;
        }
    }
    let dot = Circle::new((at, y), 9, KINDS[KIND_OURS].rgb().filled());
    area.draw(&dot).map_err(said)
}

/// A bracket that opens to where the goal is met.
fn draw_goal(area: &Area<'_>, (x, y): (i32, i32), more_is_good: bool) -> Result<(), String> {
    let arm = if more_is_good { 10 } else { -10 };
    let path = [
        (x + arm, y - 18),
        (x, y - 18),
        (x, y + 18),
        (x + arm, y + 18),
    ];
    let path = PathElement::new(path, line(&INK, 3));
    area.draw(&path).map_err(said)
}

/// A diamond.
fn draw_published(area: &Area<'_>, (x, y): (i32, i32)) -> Result<(), String> {
    let corners = vec![(x, y - 13), (x + 13, y), (x, y + 13), (x - 13, y)];
    let diamond = Polygon::new(corners, KINDS[1].rgb().filled());
    area.draw(&diamond).map_err(said)
}

fn legend(chart: &Ranges) -> Result<Vec<(super::Svg, String)>, String> {
    let mut legend = Vec::new();
    if chart.rows.iter().any(|row| row.spread.is_some()) {
        let key = canvas_key(|area| draw_spread(area, (6, 28, 50), 14))?;
        legend.push((key, "median, and the range of all pairs".to_owned()));
    }
    if chart.rows.iter().any(|row| row.published.is_some()) {
        let key = canvas_key(|area| draw_published(area, (28, 14)))?;
        legend.push((key, "published".to_owned()));
    }
    let goals = || chart.rows.iter().filter_map(|row| row.goal).map(limit);
    for (more_is_good, words) in [(true, "goal: no less"), (false, "goal: no more")] {
        if goals().any(|(_, more)| more == more_is_good) {
            let key = canvas_key(|area| draw_goal(area, (28, 14), more_is_good))?;
            legend.push((key, words.to_owned()));
        }
    }
    Ok(legend)
}

fn describe(chart: &Ranges) -> String {
    let unit = chart.x.unit;
    let one = |row: &Range| {
        let mut said = vec![row.name.clone()];
        said.extend(row.spread.map(|spread| {
            let [median, min, max] = [spread.median, spread.min, spread.max];
            format!(
                "median {} from {} to {}",
                unit.text(median),
                unit.text(min),
                unit.text(max)
            )
        }));
        said.extend(
            row.published
                .map(|at| format!("published {}", unit.text(at))),
        );
        said.join(", ")
    };
    let said: Vec<String> = chart.rows.iter().map(one).collect();
    format!("{}.", said.join("; "))
}
