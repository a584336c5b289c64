//! Colours, dashes and shapes.
//!
//! Plotters writes fixed colours into its SVG, which would be wrong in one of light and dark. So it
//! is given the colours for light, and the page's style sheet replaces each by its partner for dark
//! with a rule for exactly that colour. Whatever a colour says is said a second time, by a dash, a
//! shape, a place or a word.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// A colour on light ground, and the one that takes its place on dark ground.
pub(super) struct Colour {
    light: (u8, u8, u8),
    dark: (u8, u8, u8),
}

impl Colour {
    const fn new(light: (u8, u8, u8), dark: (u8, u8, u8)) -> Colour {
        Colour { light, dark }
    }

    /// For plotters.
    pub(super) const fn rgb(&self) -> RGBColor {
        RGBColor(self.light.0, self.light.1, self.light.2)
    }
}

/// Ground of a chart.
pub(super) const GROUND: Colour = Colour::new((255, 255, 255), (24, 28, 33));
/// Text.
pub(super) const INK: Colour = Colour::new((28, 33, 40), (226, 230, 235));
/// Text of less weight: the numbers at an axis.
pub(super) const SOFT: Colour = Colour::new((84, 92, 102), (160, 168, 178));
/// Lines of the grid.
pub(super) const GRID: Colour = Colour::new((225, 228, 232), (48, 54, 62));
/// Axes, and lines to compare with.
pub(super) const AXIS: Colour = Colour::new((139, 147, 157), (110, 119, 130));

/// Kinds of things, in the order in which they are given out. Found by a search for colours at least
/// 3 to 1 from the ground of which any two are far apart for people with normal sight and for those
/// with protanopia, deuteranopia and tritanopia (distance in OKLab of colours simulated after Machado
/// et al., 2009). The last three are for the stages of a request, of which there are eleven.
pub(super) const KINDS: [Colour; 11] = [
    Colour::new((60, 111, 200), (37, 168, 255)),
    Colour::new((226, 101, 1), (219, 132, 24)),
    Colour::new((0, 86, 65), (46, 128, 145)),
    Colour::new((148, 68, 150), (224, 192, 182)),
    Colour::new((132, 44, 0), (222, 206, 84)),
    Colour::new((0, 162, 162), (112, 205, 232)),
    Colour::new((90, 42, 125), (152, 74, 231)),
    Colour::new((32, 47, 62), (191, 255, 230)),
    Colour::new((114, 114, 100), (143, 159, 138)),
    Colour::new((163, 122, 254), (254, 249, 41)),
    Colour::new((91, 2, 243), (180, 77, 12)),
];

/// Counts, from few to many: from near the ground to far from it, in light and in dark.
pub(super) const SHADES: [Colour; 5] = [
    Colour::new((206, 224, 241), (31, 58, 82)),
    Colour::new((148, 188, 222), (34, 94, 138)),
    Colour::new((79, 146, 199), (52, 140, 194)),
    Colour::new((24, 98, 159), (120, 190, 230)),
    Colour::new((8, 48, 92), (214, 238, 250)),
];

/// Text on filled areas of the kinds: what stands out from each, in light and in dark.
pub(super) const ON_KINDS: [&Colour; 11] = [
    &GROUND, &BLACK, &WHITE, &GROUND, &GROUND, &BLACK, &WHITE, &GROUND, &GROUND, &BLACK, &WHITE,
];
/// Black on light and on dark ground.
const BLACK: Colour = Colour::new((1, 1, 1), (1, 1, 1));
/// White on both.
const WHITE: Colour = Colour::new((254, 254, 254), (254, 254, 254));

/// Dashes of the lines of the kinds, in SVG's notation for charts drawn at two units a pixel.
const DASHES: [&str; 8] = [
    "none", "14 7", "4 6", "18 6 4 6", "28 8", "4 4 14 4", "8 4", "2 4",
];

fn hex((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

fn all() -> impl Iterator<Item = &'static Colour> {
    [&GROUND, &INK, &SOFT, &GRID, &AXIS]
        .into_iter()
        .chain(&KINDS)
        .chain(&SHADES)
}

/// Rules that turn the colours of charts to those for dark ground. To be put into a media query.
pub(super) fn dark_rules() -> String {
    let mut rules = String::new();
    for colour in all() {
        let (light, dark) = (hex(colour.light), hex(colour.dark));
        // Writing to a string cannot fail.
        let _ = write!(
            rules,
            "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}"
        );
    }
    rules
}

/// Rules that dash the lines of each kind.
pub(super) fn dash_rules() -> String {
    let mut rules = String::new();
    for (kind, dash) in KINDS.iter().zip(DASHES).skip(1) {
        // Writing to a string cannot fail.
        let _ = write!(
            rules,
            "svg.dashed polyline[stroke=\"{0}\"],svg.dashed line[stroke=\"{0}\"]{{stroke-dasharray:{dash}}}",
            hex(kind.light)
        );
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2's relative luminance.
    fn luminance((red, green, blue): (u8, u8, u8)) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    fn contrast(one: (u8, u8, u8), other: (u8, u8, u8)) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn kinds_and_text_stand_out_from_the_ground() {
        for (colours, least) in [(&KINDS[..], 3.0), (&[INK, SOFT][..], 4.5)] {
            for colour in colours {
                assert!(
                    contrast(colour.light, GROUND.light) >= least,
                    "{}",
                    hex(colour.light)
                );
                assert!(
                    contrast(colour.dark, GROUND.dark) >= least,
                    "{}",
                    hex(colour.light)
                );
            }
        }
    }

    #[test]
    fn text_on_kinds_can_be_read() {
        for (kind, text) in KINDS.iter().zip(ON_KINDS) {
            for (kind, text) in [(kind.light, text.light), (kind.dark, text.dark)] {
                let found = contrast(kind, text);
                assert!(found >= 4.5, "{text:?} on {kind:?}: {found}");
            }
        }
    }

    #[test]
    fn shades_rise_with_the_count() {
        for pair in SHADES.windows(2) {
            let light = pair.iter().map(|shade| contrast(shade.light, GROUND.light));
            let dark = pair.iter().map(|shade| contrast(shade.dark, GROUND.dark));
            assert!(light.is_sorted() && dark.is_sorted());
        }
    }

    #[test]
    fn no_colour_has_two_meanings() {
        let mut lights: Vec<String> = all().map(|one| hex(one.light)).collect();
        let count = lights.len();
        lights.sort();
        lights.dedup();
        assert_eq!(lights.len(), count);
    }
}
