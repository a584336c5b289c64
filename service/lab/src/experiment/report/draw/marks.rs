//! Shapes of dots, lines and shades, in charts and in the legends beside them.

use plotters::element::{Circle, PathElement, Polygon, Rectangle, TriangleMarker};
use plotters::style::{Color as _, ShapeStyle};

use super::{Area, Svg, canvas, kind, line, said};
use crate::experiment::report::palette::Colour;

/// Size of a dot from its middle, in units.
const DOT: i32 = 4;
/// Canvas of a mark in a legend.
const KEY: (u32, u32) = (56, 28);
/// That of a dot, which is shown as large.
const DOT_KEY: (u32, u32) = (32, 16);

/// Draws the mark of the kind with this number at a place of the canvas. Eight kinds have eight
/// shapes.
pub(super) fn dot(area: &Area<'_>, number: usize, (x, y): (i32, i32)) -> Result<(), String> {
    let full: ShapeStyle = kind(number).rgb().filled();
    let thin = line(kind(number), 2);
    let square = [(x - DOT, y - DOT), (x + DOT, y + DOT)];
    let diamond = vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)];
    let drawn = match number % 8 {
        0 => area.draw(&Circle::new((x, y), DOT, full)),
        1 => area.draw(&TriangleMarker::new((x, y), DOT + 2, full)),
        2 => area.draw(&Rectangle::new(square, full)),
        // One line over the middle is smaller than two.
        3 => area.draw(&PathElement::new(
            [(-5, -5), (5, 5), (0, 0), (-5, 5), (5, -5)].map(|(dx, dy)| (x + dx, y + dy)),
            thin,
        )),
        4 => area.draw(&Polygon::new(diamond, full)),
        5 => area.draw(&Circle::new((x, y), DOT, thin)),
        6 => area.draw(&Rectangle::new(square, thin)),
        _ => area.draw(&PathElement::new([(x, y - 6), (x, y + 6)], thin)),
    };
    drawn.map_err(said)
}

/// Anything for a legend, on a small canvas.
pub(super) fn key(draw: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Result<Svg, String> {
    canvas(KEY, draw)
}

/// A dot for a legend, larger than in the chart.
pub(super) fn dot_key(number: usize) -> Result<Svg, String> {
    canvas(DOT_KEY, |area| dot(area, number, (16, 8)))
}

/// A line for a legend.
pub(super) fn line_key(number: usize) -> Result<Svg, String> {
    let mut svg = key(|area| {
        let path = PathElement::new([(0, 14), (56, 14)], line(kind(number), 4));
        area.draw(&path).map_err(said)
    })?;
    svg.dashed = true;
    Ok(svg)
}

/// A filled rectangle for a legend.
pub(super) fn area_key(colour: &Colour) -> Result<Svg, String> {
    key(|area| {
        let rectangle = Rectangle::new([(4, 2), (52, 26)], colour.rgb().filled());
        area.draw(&rectangle).map_err(said)
    })
}
