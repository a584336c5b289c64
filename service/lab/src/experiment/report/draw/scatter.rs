//! Single things by two of their properties.

use std::collections::BTreeSet;

use super::axis::Laid;
use super::{Drawn, NARROW, Picture, Svg, WIDE, framed, marks};
use crate::experiment::report::chart::{Dots, Scatter, ScatterPanel, as_count};
use crate::human;

/// Dots of a picture that are drawn at most.
const MOST_DOTS: usize = 3000;
/// Side of the first square of which one dot is drawn, in units: two pixels.
const FIRST_SQUARE: i32 = 4;

/// `None`: there is nothing to draw.
pub(crate) fn scatter(chart: &Scatter) -> Result<Option<Drawn>, String> {
    let points = || {
        let groups = chart.panels.iter().flat_map(|panel| &panel.groups);
        groups.flat_map(|group| group.points.iter().copied())
    };
    let x = Laid::over(&chart.x, points().map(|point| point.0));
    let y = Laid::over(&chart.y, points().map(|point| point.1));
    let (Some(x), Some(y)) = (x, y) else {
        return Ok(None);
    };
    let mut names: Vec<&str> = Vec::new();
    for group in chart.panels.iter().flat_map(|panel| &panel.groups) {
        if !group.points.is_empty() && !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    let mut drawn = Drawn::default();
    for (number, name) in names.iter().enumerate() {
        drawn
            .legend
            .push((marks::dot_key(number)?, (*name).to_owned()));
    }
    let size = if chart.panels.len() > 1 { NARROW } else { WIDE };
    let mut told = Vec::new();
    for panel in &chart.panels {
        let (svg, shown, square) = picture(panel, &names, size, (&x, &y))?;
        let all: usize = panel.groups.iter().map(|group| group.points.len()).sum();
        if shown < all {
            told.push(format!(
                "{}{} of {}, squares of {} pixels, {} left out",
                prefix(&panel.name),
                human::count_of(shown),
                human::count_of(all),
                square / 2,
                human::count_of(all - shown)
            ));
        }
        drawn.pictures.push(Picture {
            name: panel.name.clone(),
            description: describe(chart, panel),
            svg,
        });
    }
    if !told.is_empty() {
        drawn.notes.push(format!(
            "Thinned: of the {} of one kind within a square the first is drawn. {}.",
            chart.counted,
            told.join("; ")
        ));
    }
    Ok(Some(drawn))
}

/// The picture, how many dots it has, and the side of the square of which one is drawn.
fn picture(
    panel: &ScatterPanel,
    names: &[&str],
    size: (u32, u32),
    (x, y): (&Laid, &Laid),
) -> Result<(Svg, usize, i32), String> {
    let (mut shown, mut square) = (0, FIRST_SQUARE);
    let svg = framed(size, (x, y), |chart| {
        let area = chart.plotting_area();
        let at = |(px, py): (f64, f64)| area.map_coordinate(&(x.place(px), y.place(py)));
        let mut groups = thinned(panel, square, &at);
        while count(&groups) > MOST_DOTS {
            square *= 2;
            groups = thinned(panel, square, &at);
        }
        shown = count(&groups);
        let flat = area.strip_coord_spec();
        let (left, top) = area.get_base_pixel();
        for (group, dots) in panel.groups.iter().zip(groups) {
            let number = names
                .iter()
                .position(|name| *name == group.name)
                .unwrap_or(0);
            for (px, py) in dots {
                marks::dot(&flat, number, (px - left, py - top))?;
            }
        }
        Ok(())
    })?;
    Ok((svg, shown, square))
}

/// A name with a colon, where there is one.
fn prefix(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    format!("{name}: ")
}

fn count(groups: &[Vec<(i32, i32)>]) -> usize {
    groups.iter().map(Vec::len).sum()
}

/// Of the dots of one kind within a square, the first.
fn thinned(
    panel: &ScatterPanel,
    square: i32,
    at: &impl Fn((f64, f64)) -> (i32, i32),
) -> Vec<Vec<(i32, i32)>> {
    let group = |group: &Dots| {
        let mut taken = BTreeSet::new();
        let finite = group
            .points
            .iter()
            .filter(|(px, py)| px.is_finite() && py.is_finite());
        let places = finite.map(|point| at(*point));
        places
            .filter(|(px, py)| taken.insert((px.div_euclid(square), py.div_euclid(square))))
            .collect()
    };
    panel.groups.iter().map(group).collect()
}

fn describe(chart: &Scatter, panel: &ScatterPanel) -> String {
    let range =
        |of: fn(&(f64, f64)) -> f64, unit: crate::experiment::report::Unit, group: &Dots| {
            let values = || {
                group
                    .points
                    .iter()
                    .map(of)
                    .filter(|value| value.is_finite())
            };
            let (low, high) = (
                values().fold(f64::INFINITY, f64::min),
                values().fold(f64::NEG_INFINITY, f64::max),
            );
            format!("{} to {}", unit.text(low), unit.text(high))
        };
    let one = |group: &Dots| {
        format!(
            "{} of {}, {} {}, {} {}",
            human::count(as_count(group.points.len())),
            group.name,
            chart.x.title,
            range(|point| point.0, chart.x.unit, group),
            chart.y.title,
            range(|point| point.1, chart.y.unit, group)
        )
    };
    let said: Vec<String> = panel
        .groups
        .iter()
        .filter(|group| !group.points.is_empty())
        .map(one)
        .collect();
    if said.is_empty() {
        return format!("{}: no {}.", panel.name, chart.counted);
    }
    format!("{} {}: {}.", panel.name, chart.counted, said.join("; "))
}
