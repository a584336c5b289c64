//! Heatmaps: how often two values came together.

use plotters::element::Rectangle;
use plotters::style::Color as _;

use super::axis::Laid;
use super::{Drawn, NARROW, Picture, WIDE, framed, marks, said};
use crate::experiment::report::chart::{Heat, HeatCell, HeatPanel, as_count};
use crate::experiment::report::palette::SHADES;
use crate::human;

/// Cells of a picture that are drawn at most; of more, those with the largest counts.
const MOST_CELLS: usize = 4000;

/// `None`: there is nothing to draw.
pub(crate) fn heat(chart: &Heat) -> Result<Option<Drawn>, String> {
    let counted = |panel: &HeatPanel| -> Vec<HeatCell> {
        let cells = panel.cells.iter().filter(|cell| cell.count > 0);
        cells.copied().collect()
    };
    let panels: Vec<(&HeatPanel, Vec<HeatCell>)> = chart
        .panels
        .iter()
        .map(|panel| (panel, counted(panel)))
        .collect();
    let cells = || panels.iter().flat_map(|(_, cells)| cells);
    let x = Laid::over(&chart.x, cells().flat_map(|cell| [cell.x.0, cell.x.1]));
    let y = Laid::over(&chart.y, cells().flat_map(|cell| [cell.y.0, cell.y.1]));
    let (Some(x), Some(y)) = (x, y) else {
        return Ok(None);
    };
    let most = cells().map(|cell| cell.count).max().unwrap_or(1);
    let limits = shade_limits(most);
    let size = if chart.panels.len() > 1 { NARROW } else { WIDE };
    let mut drawn = Drawn {
        legend_title: format!("{} in a cell:", capital(&chart.counted)),
        legend: legend(&limits, most)?,
        ..Drawn::default()
    };
    let mut beside = Vec::new();
    for (panel, mut cells) in panels {
        let mut description = describe(chart, panel, &cells);
        // In an order of its own, so that the same page gives the same bytes.
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.count));
        let beyond = cells.len().saturating_sub(MOST_CELLS);
        if beyond > 0 {
            let text = format!(
                "{}: {} cells with the smallest counts are left out of the picture.",
                panel.name,
                human::count_of(beyond)
            );
            description.push_str(&text);
            drawn.notes.push(text);
            cells.truncate(MOST_CELLS);
        }
        if panel.left_out > 0 {
            beside.push(format!("{} {}", panel.name, human::count(panel.left_out)));
        }
        // The largest counts are drawn last, over others.
        cells.reverse();
        let svg = framed(size, (&x, &y), |area| {
            for cell in &cells {
                let ((left, right), (low, high)) = (x.places(cell.x), y.places(cell.y));
                let shade = limits.iter().rposition(|limit| cell.count >= *limit);
                let colour = &SHADES[shade.unwrap_or(0)];
                let rectangle = Rectangle::new([(left, high), (right, low)], colour.rgb().filled());
                area.plotting_area().draw(&rectangle).map_err(said)?;
            }
            Ok(())
        })?;
        drawn.pictures.push(Picture {
            name: panel.name.clone(),
            description,
            svg,
        });
    }
    if !beside.is_empty() {
        drawn.notes.push(format!(
            "Not shown, because they have no place on these axes: {} {}.",
            beside.join(", "),
            chart.counted
        ));
    }
    Ok(Some(drawn))
}

/// Lowest count of every shade: equal steps of the logarithm, all different.
fn shade_limits(most: u64) -> [u64; SHADES.len()] {
    let top = human::as_float(most).ln();
    let mut limits = [1; SHADES.len()];
    for index in 1..limits.len() {
        let part = human::as_float(as_count(index)) / human::as_float(as_count(SHADES.len()));
        let limit = human::whole((top * part).exp().ceil());
        limits[index] = limit.max(limits[index - 1] + 1);
    }
    limits
}

fn legend(limits: &[u64], most: u64) -> Result<Vec<(super::Svg, String)>, String> {
    let used: Vec<u64> = limits
        .iter()
        .copied()
        .filter(|limit| *limit <= most)
        .collect();
    let mut legend = Vec::new();
    for (index, from) in used.iter().enumerate() {
        let to = used.get(index + 1).map_or(most, |next| next - 1);
        let words = if to == *from {
            human::count(*from)
        } else {
            format!("{} to {}", human::count(*from), human::count(to))
        };
        legend.push((marks::area_key(&SHADES[index])?, words));
    }
    Ok(legend)
}

fn describe(chart: &Heat, panel: &HeatPanel, cells: &[HeatCell]) -> String {
    let sum: u64 = cells.iter().map(|cell| cell.count).sum();
    let Some(most) = cells.iter().max_by_key(|cell| cell.count) else {
        return format!("{}: nothing was counted.", panel.name);
    };
    let range = |unit: crate::experiment::report::Unit, (from, to): (f64, f64)| {
        format!("{} to {}", unit.text(from), unit.text(to))
    };
    format!(
        "{}: {} {} in {} cells. Most of them, {}, at {} {} and {} {}.",
        panel.name,
        human::count(sum),
        chart.counted,
        human::count_of(cells.len()),
        human::count(most.count),
        chart.x.title,
        range(chart.x.unit, most.x),
        chart.y.title,
        range(chart.y.unit, most.y),
    )
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}
