//! Lines over time.

use plotters::element::{Circle, PathElement};
use plotters::style::Color as _;

use super::axis::Laid;
use super::{Drawn, Picture, WIDE, framed, kind, line, marks, said};
use crate::experiment::report::chart::{Line, Lines, Scale};
use crate::human;

/// Points of a line that are drawn at most.
const MOST_POINTS: usize = 1200;

/// `None`: there is nothing to draw.
pub(crate) fn lines(chart: &Lines) -> Result<Option<Drawn>, String> {
    let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
    let points = || {
        let all = chart.lines.iter().flat_map(|one| one.points.iter());
        all.filter(|point| finite(point))
    };
    let x = Laid::over(&chart.x, points().map(|point| point.0));
    let y = Laid::over(&chart.y, points().map(|point| point.1));
    let (Some(x), Some(mut y)) = (x, y) else {
        return Ok(None);
    };
    if chart.y.scale == Scale::Linear && y.from > 0.0 {
        y.from = 0.0;
    }
    let mut drawn = Drawn::default();
    let mut left_out = 0;
    let mut svg = framed(WIDE, (&x, &y), |area| {
        for (number, one) in chart.lines.iter().enumerate() {
            let thinned = thinned(&one.points);
            left_out += one.points.len() - thinned.len();
            for run in thinned.split(|point| !finite(point)) {
                let places = run.iter().map(|point| (x.place(point.0), y.place(point.1)));
                let places: Vec<(f64, f64)> = places.collect();
                let plot = area.plotting_area();
                if let [alone] = places.as_slice() {
                    let dot = Circle::new(*alone, 5, kind(number).rgb().filled());
                    plot.draw(&dot).map_err(said)?;
                } else if !places.is_empty() {
                    let path = PathElement::new(places, line(kind(number), 4));
                    plot.draw(&path).map_err(said)?;
                }
            }
        }
        Ok(())
    })?;
    svg.dashed = true;
    for (number, one) in chart.lines.iter().enumerate() {
        drawn
            .legend
            .push((marks::line_key(number)?, one.name.clone()));
    }
    if left_out > 0 {
        drawn.notes.push(format!(
            "Thinned: of the points that fall into the same of {} steps of a line, the lowest and \
             the highest are drawn; {} are left out.",
            human::count_of(MOST_POINTS / 2),
            human::count_of(left_out)
        ));
    }
    drawn.pictures.push(Picture {
        name: String::new(),
        description: describe(chart),
        svg,
    });
    Ok(Some(drawn))
}

/// Of every group of neighbours the lowest and the highest, in their order: peaks stay.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let size = points.len().div_ceil(MOST_POINTS / 2);
    let mut kept = Vec::with_capacity(MOST_POINTS);
    for group in points.chunks(size) {
        let by_height = |a: &usize, b: &usize| group[*a].1.total_cmp(&group[*b].1);
        let (low, high) = (
            (0..group.len()).min_by(by_height).unwrap_or(0),
            (0..group.len()).max_by(by_height).unwrap_or(0),
        );
        kept.push(group[low.min(high)]);
        if low != high {
            kept.push(group[low.max(high)]);
        }
    }
    kept
}

fn describe(chart: &Lines) -> String {
    let one = |line: &Line| {
        let heights = || {
            line.points
                .iter()
                .map(|point| point.1)
                .filter(|y| y.is_finite())
        };
        let (low, high) = (
            heights().fold(f64::INFINITY, f64::min),
            heights().fold(f64::NEG_INFINITY, f64::max),
        );
        let unit = chart.y.unit;
        format!(
            "{}: {} points, between {} and {}",
            line.name,
            human::count_of(line.points.len()),
            unit.text(low),
            unit.text(high)
        )
    };
    let said: Vec<String> = chart.lines.iter().map(one).collect();
    format!(
        "{} over {}. {}.",
        chart.y.title,
        chart.x.title,
        said.join("; ")
    )
}
