//! Stacked bars: the parts of a whole. A part has the same colour and number in all charts that name
//! the same parts.

use plotters::element::Rectangle;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Laid;
use super::{Drawn, Picture, framed_rows, kind, marks, said, text, whole, width_of};
use crate::experiment::report::chart::{Axis, Bars};
use crate::experiment::report::data::{Cell, Table};
use crate::experiment::report::palette;
use crate::human;

/// Height of a bar with the room around it, in units.
const ROW: u32 = 76;
/// Height of the bar itself.
const BAR: i32 = 48;

/// `None`: there is nothing to draw.
pub(crate) fn bars(chart: &Bars) -> Result<Option<Drawn>, String> {
    let value = |bar: usize, part: usize| {
        let value = chart.bars[bar].values.get(part).copied().unwrap_or(0.0);
        if value.is_finite() {
            value.max(0.0)
        } else {
            0.0
        }
    };
    let sum = |bar: usize| {
        (0..chart.parts.len())
            .map(|part| value(bar, part))
            .sum::<f64>()
    };
    let sums: Vec<f64> = (0..chart.bars.len()).map(sum).collect();
    let longest = sums.iter().copied().fold(0.0, f64::max);
    if longest <= 0.0 {
        return Ok(None);
    }
    let axis = Axis::linear(&chart.title, chart.unit);
    let x = Laid::over(&axis, [0.0, longest]).ok_or("no range")?;
    let names: Vec<&str> = chart.bars.iter().map(|bar| bar.name.as_str()).collect();
    let used: Vec<usize> = (0..chart.parts.len())
        .filter(|part| (0..chart.bars.len()).any(|bar| value(bar, *part) > 0.0))
        .collect();
    let svg = framed_rows(&names, ROW, &x, |area, place| {
        for bar in 0..chart.bars.len() {
            let (mut at, middle) = (0.0, i32::try_from(bar).unwrap_or(0) * 76 + 38);
            for part in &used {
                let (left, right) = (whole(place(at)), whole(place(at + value(bar, *part))));
                at += value(bar, *part);
                // A gap of two units keeps neighbours apart whatever their colours.
                let corners = [
                    (left, middle - BAR / 2),
                    ((right - 2).max(left), middle + BAR / 2),
                ];
                if right > left {
                    let filled = Rectangle::new(corners, kind(*part).rgb().filled());
                    area.draw(&filled).map_err(said)?;
                }
                let on = palette::ON_KINDS[part % palette::ON_KINDS.len()];
                let name = (part + 1).to_string();
                if f64::from(right - left) >= width_of(&name) + 12.0 {
                    let style = text(on.rgb(), HPos::Center, VPos::Center);
                    area.draw_text(&name, &style, (i32::midpoint(left, right), middle))
                        .map_err(said)?;
                }
            }
        }
        Ok(())
    })?;
    let mut drawn = Drawn::default();
    for part in used.iter().copied() {
        let name = format!("{} {}", part + 1, chart.parts[part]);
        drawn.legend.push((marks::area_key(kind(part))?, name));
    }
    drawn.table = Some(table(chart, &used, &value));
    drawn.pictures.push(Picture {
        name: String::new(),
        description: format!(
            "{} bars, the longest {}; the numbers are in the table below.",
            human::count_of(chart.bars.len()),
            chart.unit.text(longest)
        ),
        svg,
    });
    Ok(Some(drawn))
}

fn table(chart: &Bars, used: &[usize], value: &dyn Fn(usize, usize) -> f64) -> Table {
    let mut columns: Vec<&str> = used
        .iter()
        .map(|part| chart.parts[*part].as_str())
        .collect();
    columns.push("together");
    let mut table = Table::new(format!("Numbers: {}", chart.caption), &columns);
    for (number, bar) in chart.bars.iter().enumerate() {
        let values: Vec<f64> = used.iter().map(|part| value(number, *part)).collect();
        let together = values.iter().sum();
        let cells = values.into_iter().chain([together]);
        let cells = cells.map(|value| Cell::Value(value, chart.unit));
        table.row(&bar.name, cells.collect());
    }
    table
}
