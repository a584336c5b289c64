//! Charts, drawn by plotters as SVG.
//!
//! Canvases have two units to a pixel of the page, because plotters places by whole numbers.

mod axis;
mod bars;
mod cdf;
mod heat;
mod lines;
mod marks;
mod ranges;
mod scatter;

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::PathElement;
use plotters::prelude::{Cartesian2d, ChartBuilder, DrawingArea, IntoDrawingArea as _, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontStyle, IntoFont as _, RGBColor, ShapeStyle, TextStyle};

use super::data::Table;
use super::palette::{self, Colour};
use axis::Laid;

pub(super) use bars::bars;
pub(super) use cdf::cdf;
pub(super) use heat::heat;
pub(super) use lines::lines;
use marks::key as canvas_key;
pub(super) use ranges::ranges;
pub(super) use scatter::scatter;

/// Canvas of a chart that stands alone, in units.
const WIDE: (u32, u32) = (1440, 680);
/// Canvas of one of several charts side by side.
const NARROW: (u32, u32) = (880, 640);
/// Size of text, in units.
const TEXT: f64 = 24.0;
/// Plotters divides sizes by this before it writes them.
const TEXT_FACTOR: f64 = 1.24;
/// Width of a character of the page's font, in sizes, taken large: "10 ms" in DejaVu Sans takes 3.09 for its five.
const CHARACTER: f64 = 0.64;
/// Room left of a chart for the numbers of its axis, and below.
const LEFT: u32 = 130;
const BELOW: u32 = 92;
/// Largest share of a chart that names on the left may take.
const MOST_NAME: f64 = 0.52;
/// The kind of what was measured here, where there is only one.
const KIND_OURS: usize = 0;
/// Between a frame and the words below it: lower than half of the word that stands beside its lower
/// left corner, which the first of them may reach below.
const BELOW_FRAME: i32 = 20;
/// Room above, for the title of the axis on the left.
const ABOVE: u32 = 44;

/// A chart, ready to be put on the page.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    /// Pictures, one beside the other.
    pub(super) pictures: Vec<Picture>,
    /// Legend: colours, dashes and shapes.
    pub(super) legend: Vec<(Svg, String)>,
    /// Title before the legend, where it is not plain.
    pub(super) legend_title: String,
    /// Notes on omissions, with the rule.
    pub(super) notes: Vec<String>,
    /// The most telling numbers of the chart.
    pub(super) table: Option<Table>,
}

/// One picture of a chart.
#[derive(Debug)]
pub(super) struct Picture {
    /// Name of the panel; empty: that of the chart.
    pub(super) name: String,
    /// Description for readers who do not see it.
    pub(super) description: String,
    pub(super) svg: Svg,
}

/// The content of an `svg` element.
#[derive(Debug)]
pub(super) struct Svg {
    pub(super) size: (u32, u32),
    pub(super) inner: String,
    /// Lines of the kinds are told apart by their dashes.
    pub(super) dashed: bool,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Message of plotters when it cannot draw.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Draws on an empty canvas.
fn canvas(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), String>,
) -> Result<Svg, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area)?;
        area.present().map_err(said)?;
    }
    Ok(Svg {
        size,
        inner: smaller(&text),
        dashed: false,
    })
}

/// The picture in fewer bytes: without the element around it, and without default attributes.
/// Quotes in text are escaped by plotters, so that no text is changed.
fn smaller(text: &str) -> String {
    let begin = text.find('>').map_or(0, |at| at + 1);
    let end = text.rfind("</svg>").unwrap_or(text.len());
    let inner = text.get(begin..end).unwrap_or_default();
    let font = format!(" font-size=\"{TEXT}\"");
    let mut inner = inner.replace(" \"/>\n", "\"/>").replace("/>\n", "/>");
    for needless in [
        " opacity=\"1\"",
        " stroke=\"none\"",
        " font-family=\"sans-serif\"",
        " text-anchor=\"start\"",
        font.as_str(),
    ] {
        inner = inner.replace(needless, "");
    }
    // Nothing has both a fill and a stroke of one unit.
    inner.replace(" stroke-width=\"1\"", "")
}

/// A frame with both axes, their ticks and titles; what is drawn into it is given places of the
/// axes, not values.
fn framed(
    size: (u32, u32),
    (x, y): (&Laid, &Laid),
    draw: impl FnOnce(&mut Chart<'_, '_>) -> Result<(), String>,
) -> Result<Svg, String> {
    canvas(size, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(ABOVE)
            .margin_right(36)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(x.from..x.to, y.from..y.to)
            .map_err(said)?;
        grid(area, &chart, (x, y))?;
        draw(&mut chart)
    })
}

/// Lines at the ticks with their words, and the titles of the axes.
fn grid(area: &Area<'_>, chart: &Chart<'_, '_>, (x, y): (&Laid, &Laid)) -> Result<(), String> {
    let soft = |h, v| text(palette::SOFT.rgb(), h, v);
    let (width, height) = area.dim_in_pixel();
    let plot = chart.plotting_area();
    let at = |place: (f64, f64)| plot.map_coordinate(&place);
    let path = |from: (f64, f64), to: (f64, f64), colour: &Colour| {
        let path = PathElement::new([from, to], line(colour, 2));
        plot.draw(&path).map_err(said)
    };
    let (mut below, mut beside) = (Written::default(), Written::default());
    for (place, word) in x.ticks(size_in(width, 150)) {
        path((place, y.from), (place, y.to), &palette::GRID)?;
        let (at, low) = at((place, y.from));
        if let Some(middle) = below.place(at, width_of(&word), width) {
            let style = soft(HPos::Center, VPos::Top);
            area.draw_text(&word, &style, (middle, low + BELOW_FRAME))
                .map_err(said)?;
        }
    }
    // From below: places on a canvas grow downwards.
    for (place, word) in y.ticks(size_in(height, 76)) {
        path((x.from, place), (x.to, place), &palette::GRID)?;
        let (left, level) = at((x.from, place));
        let above = i32::try_from(height).unwrap_or(i32::MAX) - level;
        if beside.place(above, TEXT, height).is_some() {
            let style = soft(HPos::Right, VPos::Center);
            area.draw_text(&word, &style, (left - 12, level))
                .map_err(said)?;
        }
    }
    path((x.from, y.from), (x.to, y.from), &palette::AXIS)?;
    path((x.from, y.from), (x.from, y.to), &palette::AXIS)?;
    let (middle, low) = at((f64::midpoint(x.from, x.to), y.from));
    area.draw_text(&x.title, &soft(HPos::Center, VPos::Top), (middle, low + 58))
        .map_err(said)?;
    area.draw_text(&y.title, &soft(HPos::Left, VPos::Top), (6, 4))
        .map_err(said)
}

/// Rows below each other with their names on the left, and an axis below. What is drawn is given the
/// area of the rows alone, and where a value lies in it.
fn framed_rows(
    names: &[&str],
    row: u32,
    x: &Laid,
    draw: impl FnOnce(&Area<'_>, &dyn Fn(f64) -> f64) -> Result<(), String>,
) -> Result<Svg, String> {
    let rows = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let height = row.saturating_mul(rows);
    let longest = names.iter().map(|name| width_of(name)).fold(0.0, f64::max);
    let left = (longest + 24.0).min(f64::from(WIDE.0) * MOST_NAME);
    let (begin, width) = (whole(left), f64::from(WIDE.0) - left - 48.0);
    let place = |value: f64| (x.place(value) - x.from) / (x.to - x.from) * width;
    canvas((WIDE.0, height.saturating_add(BELOW)), |area| {
        let bottom = i32::try_from(height).unwrap_or(i32::MAX);
        let soft = |h, v| text(palette::SOFT.rgb(), h, v);
        let mut written = Written::default();
        for (at, word) in x.ticks(size_in(whole_units(width), 110)) {
            let at = begin + whole((at - x.from) / (x.to - x.from) * width);
            let path = PathElement::new([(at, 0), (at, bottom)], line(&palette::GRID, 2));
            area.draw(&path).map_err(said)?;
            if let Some(middle) = written.place(at, width_of(&word), WIDE.0) {
                let style = soft(HPos::Center, VPos::Top);
                area.draw_text(&word, &style, (middle, bottom + 10))
                    .map_err(said)?;
            }
        }
        let path = PathElement::new(
            [(begin, bottom), (begin + whole(width), bottom)],
            line(&palette::AXIS, 2),
        );
        area.draw(&path).map_err(said)?;
        let middle = (begin + whole(width / 2.0), bottom + 88);
        area.draw_text(&x.title, &soft(HPos::Center, VPos::Bottom), middle)
            .map_err(said)?;
        let style = text(palette::INK.rgb(), HPos::Right, VPos::Center);
        let mut y = i32::try_from(row / 2).unwrap_or(0);
        for name in names {
            area.draw_text(&cut(name, left - 20.0), &style, (begin - 16, y))
                .map_err(said)?;
            y += i32::try_from(row).unwrap_or(0);
        }
        let rows = area.margin(0, 0, begin, 0);
        draw(&rows, &place)
    })
}

/// How many labels of so many units fit.
fn size_in(size: u32, label: u32) -> usize {
    usize::try_from(size / label).unwrap_or(4)
}

fn line(colour: &Colour, width: u32) -> ShapeStyle {
    colour.rgb().stroke_width(width)
}

fn text(colour: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let font = ("sans-serif", TEXT * TEXT_FACTOR).into_font();
    let mut style = TextStyle::from(font.style(FontStyle::Normal));
    style.color = colour.to_backend_color();
    style.pos(Pos::new(horizontal, vertical))
}

/// Units that a text takes, taken large.
fn width_of(text: &str) -> f64 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(characters) * TEXT * CHARACTER
}

/// How far the words of an axis are written, from its low end.
#[derive(Debug, Default)]
struct Written(Option<i32>);

impl Written {
    /// Where the middle of the next word is written that takes so many units and belongs to a place
    /// on a canvas of so many: moved inside where an edge would cut it. `None`: there it would lie
    /// on the word before it, as ticks are not equally far apart on every scale, and a word moved
    /// inside comes nearer to its neighbour. A line without a word is still a tick.
    fn place(&mut self, at: i32, takes: f64, size: u32) -> Option<i32> {
        let half = whole(takes / 2.0);
        let size = i32::try_from(size).unwrap_or(i32::MAX);
        let middle = at.min(size - half).max(half);
        if self.0.is_some_and(|end| middle - half <= end) {
            return None;
        }
        self.0 = Some(middle + half);
        Some(middle)
    }
}

/// As much of a text as fits, with an ellipsis where it is cut.
fn cut(text: &str, units: f64) -> String {
    if width_of(text) <= units {
        return text.to_owned();
    }
    let fitting = (1..).take_while(|count| f64::from(*count) * TEXT * CHARACTER <= units);
    let kept: String = text
        .chars()
        .take(fitting.count().saturating_sub(1))
        .collect();
    format!("{}…", kept.trim_end())
}

/// A canvas's whole number, for what was rounded to it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "places on a canvas are small; what is not saturates"
)]
fn whole(units: f64) -> i32 {
    units.round() as i32
}

/// Whole units of a size.
fn whole_units(units: f64) -> u32 {
    u32::try_from(whole(units)).unwrap_or(0)
}

/// The colour of the kind with this number; they begin again after the last.
fn kind(number: usize) -> &'static Colour {
    &palette::KINDS[number % palette::KINDS.len()]
}

#[cfg(test)]
mod tests;
