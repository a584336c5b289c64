//! Distributions, as cumulative curves.

use plotters::element::PathElement;

use super::axis::Laid;
use super::{Drawn, Picture, WIDE, framed, kind, line, marks, said};
use crate::experiment::report::chart::{Axis, Cdf, Curve};
use crate::experiment::report::data::{Cell, Table};
use crate::experiment::report::unit::Unit;
use crate::human;

/// Percentiles in the table below the chart, each as long as it leaves out a value at least.
const PERCENTILES: [(&str, f64); 5] = [
    ("50 %", 0.5),
    ("90 %", 0.9),
    ("99 %", 0.99),
    ("99.9 %", 0.999),
    ("largest", 1.0),
];

/// `None`: there is nothing to draw.
pub(crate) fn cdf(chart: &Cdf) -> Result<Option<Drawn>, String> {
    let curves: Vec<&Curve> = chart.curves.iter().filter(|one| one.count() > 0).collect();
    let values = curves.iter().flat_map(|one| one.steps.iter());
    let Some(x) = Laid::over(&chart.x, values.map(|(value, _)| *value)) else {
        return Ok(None);
    };
    let y = Axis::linear("Share that is no larger", Unit::Share);
    let mut y = Laid::over(&y, [0.0, 1.0]).ok_or("no range")?;
    y.to = 1.0;
    let mut svg = framed(WIDE, (&x, &y), |area| {
        for (number, curve) in curves.iter().enumerate() {
            let plot = area.plotting_area();
            let mut places = places(curve, &x, &y);
            // What falls onto the same unit of the canvas is one point.
            places.dedup_by_key(|place| plot.map_coordinate(place));
            let path = PathElement::new(places, line(kind(number), 4));
            plot.draw(&path).map_err(said)?;
        }
        Ok(())
    })?;
    svg.dashed = true;
    let mut drawn = Drawn {
        pictures: vec![Picture {
            name: String::new(),
            description: describe(&curves, chart.x.unit),
            svg,
        }],
        table: Some(percentiles(&curves, chart)),
        ..Drawn::default()
    };
    for (number, curve) in curves.iter().enumerate() {
        drawn
            .legend
            .push((marks::line_key(number)?, curve.name.clone()));
    }
    let left_out: u64 = curves.iter().map(|one| one.left_out).sum();
    if left_out > 0 {
        drawn.notes.push(format!(
            "Thinned: 1,000 points at equal distances in rank and the 100 largest values of each \
             curve are drawn; {} values between them are counted but have no point of their own.",
            human::count(left_out)
        ));
    }
    Ok(Some(drawn))
}

/// Stairs: the share changes where a value is.
fn places(curve: &Curve, x: &Laid, y: &Laid) -> Vec<(f64, f64)> {
    let all = human::as_float(curve.count()).max(1.0);
    let mut places = Vec::with_capacity(curve.steps.len() * 2);
    let (mut seen, mut share) = (0, 0.0);
    for (value, count) in &curve.steps {
        let at = x.place(*value);
        places.push((at, y.place(share)));
        seen += count;
        share = human::as_float(seen) / all;
        places.push((at, y.place(share)));
    }
    places
}

fn describe(curves: &[&Curve], unit: Unit) -> String {
    let one = |curve: &&Curve| {
        let at = |share| {
            curve
                .at(share)
                .map_or_else(String::new, |value| unit.text(value))
        };
        format!(
            "{}: {} values, half up to {}, 99 % up to {}, the largest {}",
            curve.name,
            human::count(curve.count()),
            at(0.5),
            at(0.99),
            at(1.0)
        )
    };
    let said: Vec<String> = curves.iter().map(one).collect();
    format!("Cumulative distribution. {}.", said.join("; "))
}

fn percentiles(curves: &[&Curve], chart: &Cdf) -> Table {
    let mut columns = vec!["count"];
    columns.extend(PERCENTILES.map(|(name, _)| name));
    let mut table = Table::new(format!("Percentiles: {}", chart.caption), &columns);
    for curve in curves {
        let mut cells = vec![Cell::Value(human::as_float(curve.count()), Unit::Count)];
        let count = human::as_float(curve.count());
        cells.extend(PERCENTILES.map(|(_, share)| {
            let enough = share >= 1.0 || count * (1.0 - share) >= 1.0 - 1e-9;
            Cell::value(curve.at(share).filter(|_| enough), chart.x.unit)
        }));
        table.row(&curve.name, cells);
    }
    table
}
