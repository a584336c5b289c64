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

/// Values that a curve has at least: of fewer, each stair is chance, and a line pretends to more.
const FEWEST: u64 = 20;

/// `None`: there is nothing to draw.
pub(crate) fn cdf(chart: &Cdf) -> Result<Option<Drawn>, String> {
    let curves: Vec<&Curve> = chart.curves.iter().filter(|one| one.count() > 0).collect();
    if curves.is_empty() {
        return Ok(None);
    }
    let numbered = || curves.iter().enumerate();
    // A store keeps its colour where another has no curve.
    let enough: Vec<_> = numbered()
        .filter(|(_, one)| one.count() >= FEWEST)
        .map(|(number, one)| (number, *one))
        .collect();
    let mut drawn = picture(&enough, chart)?;
    drawn.table = Some(percentiles(&curves, chart));
    let few = curves.iter().filter(|one| one.count() < FEWEST);
    let few: Vec<String> = few
        .map(|one| format!("{} ({})", one.name, human::count(one.count())))
        .collect();
    if !few.is_empty() {
        drawn.notes.push(format!(
            "Too few values to draw, less than {FEWEST}: {}.",
            few.join(", ")
        ));
    }
    let left_out: u64 = enough.iter().map(|(_, one)| one.left_out).sum();
    if left_out > 0 {
        drawn.notes.push(format!(
            "Thinned: 1,000 points at equal distances in rank and the 100 largest values of each \
             curve are drawn; {} values between them are counted but have no point of their own.",
            human::count(left_out)
        ));
    }
    Ok(Some(drawn))
}

/// The curves with their legend; empty without curves.
fn picture(curves: &[(usize, &Curve)], chart: &Cdf) -> Result<Drawn, String> {
    let values = curves.iter().flat_map(|(_, one)| one.steps.iter());
    let Some(x) = Laid::over(&chart.x, values.map(|(value, _)| *value)) else {
        return Ok(Drawn::default());
    };
    let y = Axis::linear("Share that is no larger", Unit::Share);
    let mut y = Laid::over(&y, [0.0, 1.0]).ok_or("no range")?;
    y.to = 1.0;
    let mut svg = framed(WIDE, (&x, &y), |area| {
        for (number, curve) in curves {
            let plot = area.plotting_area();
            let mut places = places(curve, &x, &y);
            // What falls onto the same unit of the canvas is one point.
            places.dedup_by_key(|place| plot.map_coordinate(place));
            let path = PathElement::new(places, line(kind(*number), 4));
            plot.draw(&path).map_err(said)?;
        }
        Ok(())
    })?;
    svg.dashed = true;
    let mut drawn = Drawn {
        pictures: vec![Picture {
            name: String::new(),
            description: describe(curves, chart.x.unit),
            svg,
        }],
        ..Drawn::default()
    };
    for (number, curve) in curves {
        let key = marks::line_key(*number)?;
        drawn.legend.push((key, curve.name.clone()));
    }
    Ok(drawn)
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

fn describe(curves: &[(usize, &Curve)], unit: Unit) -> String {
    let one = |(_, curve): &(usize, &Curve)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts: [u64; 3]) -> Drawn {
        let curves = ["raw", "ext4", "xfs"].into_iter().zip(counts);
        let chart = Cdf {
            caption: "Latencies.".to_owned(),
            x: Axis::log("Latency", Unit::Nanoseconds),
            curves: curves
                .map(|(name, count)| Curve::of(name, 1..=count))
                .collect(),
        };
        cdf(&chart)
            .expect("it can be drawn")
            .expect("there are values")
    }

    #[test]
    fn a_curve_of_few_values_is_named_and_not_drawn() {
        let names = |drawn: &Drawn| -> Vec<String> {
            drawn.legend.iter().map(|(_, name)| name.clone()).collect()
        };
        let one_short = drawn([FEWEST - 1, FEWEST, 100]);
        assert_eq!(names(&one_short), ["ext4", "xfs"]);
        assert_eq!(
            one_short.notes,
            ["Too few values to draw, less than 20: raw (19)."]
        );
        assert!(!one_short.pictures[0].description.contains("raw"));
        assert_eq!(one_short.table.map(|table| table.rows.len()), Some(3));
        // It has the colour that it has beside the other.
        let all = drawn([FEWEST; 3]);
        assert!(all.notes.is_empty());
        assert_eq!(all.legend[1].0.inner, one_short.legend[0].0.inner);

        let none = drawn([1, 2, 19]);
        assert!(none.pictures.is_empty() && none.legend.is_empty());
        assert!(none.notes[0].ends_with("raw (1), ext4 (2), xfs (19)."));
    }
}
