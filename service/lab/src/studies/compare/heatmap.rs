//! The histogram seek distance x device time as a picture of characters.
//!
//! ```text
//!  33.6 ms │       ░
//!  16.8 ms │ ▒     ░        ░  ▓
//!          └──────────────────────
//!           -1G  -4M   0   4M   1G
//! ```

use std::collections::BTreeMap;

use lumpscope_proto::v1::HeatCell;

use crate::human;

/// Characters a cell is wide.
const CELL_WIDTH: usize = 3;
/// Characters left of the cells.
const LABEL_WIDTH: usize = 10;
/// Most columns on either side of the one for "no seek": 10 + 3 * (2 * 11 + 1) = 79 characters.
const MOST_COLUMNS_A_SIDE: u32 = 11;
/// Most rows.
const MOST_ROWS: u32 = 16;
/// Distances below one sector do not exist.
const LEAST_EXPONENT: u32 = 9;
/// Shades by rising count, and the 256-colour palette's entries for the same.
const SHADES: [(char, u8); 4] = [('░', 24), ('▒', 37), ('▓', 220), ('█', 196)];

/// Axes and shades. Pictures that shall be compared share one.
pub(super) struct Scale {
    low_row: u32,
    row_step: u32,
    rows: u32,
    column_step: u32,
    columns_a_side: u32,
    shade_limits: [u64; 4],
}

/// Requests by row of device time and column of distance.
type Counts = BTreeMap<(u32, i64), u64>;

/// The lines of the picture, at most 80 characters wide.
pub(super) fn render(heat: &[HeatCell], scale: &Scale, colour: bool) -> Vec<String> {
    let counts = scale.sum_up(heat);
    let mut lines = Vec::new();
    for row in (0..scale.rows).rev() {
        let from_ns = 1_u64 << (scale.low_row + row * scale.row_step).min(63);
        let label = human::duration_ns(from_ns);
        let mut line = format!("{label:>width$} │", width = LABEL_WIDTH - 2);
        for column in scale.columns() {
            let count = counts.get(&(row, column)).copied().unwrap_or(0);
            line.push_str(&cell(count, &scale.shade_limits, colour));
        }
        lines.push(line.trim_end().to_owned());
    }
    let width = scale.columns().count() * CELL_WIDTH;
    lines.push(format!(
        "{}└{}",
        " ".repeat(LABEL_WIDTH - 1),
        "─".repeat(width)
    ));
    lines.push(scale.axis_labels());
    lines
}

/// Reads and writes; nothing else has a distance.
fn data(heat: &[HeatCell]) -> impl Iterator<Item = &HeatCell> {
    heat.iter()
        .filter(|cell| cell.count > 0 && matches!(cell.operation.as_str(), "read" | "write"))
}

impl Scale {
    /// For all these pictures together; `None` when there is nothing to show.
    pub(super) fn new<'a>(pictures: impl Iterator<Item = &'a [HeatCell]>) -> Option<Scale> {
        let pictures: Vec<&[HeatCell]> = pictures.collect();
        let cells = || pictures.iter().flat_map(|heat| data(heat));
        let low_row = cells().map(row_exponent).min()?;
        let high_row = cells().map(row_exponent).max()?;
        let farthest = cells()
            .map(|cell| signed_exponent(cell).unsigned_abs())
            .max()?;
        let farthest = u32::try_from(farthest).ok()?.max(LEAST_EXPONENT + 3);
        let row_step = (high_row - low_row + 1).div_ceil(MOST_ROWS);
        let exponents = farthest - LEAST_EXPONENT + 1;
        let column_step = exponents.div_ceil(MOST_COLUMNS_A_SIDE);
        let mut scale = Scale {
            low_row,
            row_step,
            rows: (high_row - low_row) / row_step + 1,
            column_step,
            columns_a_side: exponents.div_ceil(column_step),
            shade_limits: [1; 4],
        };
        let most = pictures
            .iter()
            .flat_map(|heat| scale.sum_up(heat).into_values())
            .max();
        scale.shade_limits = shade_limits(most.unwrap_or(1));
        Some(scale)
    }

    fn sum_up(&self, heat: &[HeatCell]) -> Counts {
        let mut counts = Counts::new();
        for cell in data(heat) {
            let row = (row_exponent(cell) - self.low_row) / self.row_step;
            let column = column_of(signed_exponent(cell), self.column_step);
            *counts.entry((row, column)).or_insert(0) += cell.count;
        }
        counts
    }

    fn columns(&self) -> impl Iterator<Item = i64> {
        let side = i64::from(self.columns_a_side);
        -side..=side
    }

    /// Every column shows its distance nearest to zero, as far as there is room.
    fn axis_labels(&self) -> String {
        let mut line = " ".repeat(LABEL_WIDTH);
        // Labels are up to five characters wide with their sign and need a space: every other
        // column gets one, counted from the middle so that both sides match.
        for column in self.columns().filter(|column| column % 2 == 0) {
            let position = usize::try_from(column + i64::from(self.columns_a_side)).unwrap_or(0);
            let start = LABEL_WIDTH + position * CELL_WIDTH;
            let label = self.label(column);
            let begin = (start + 1).saturating_sub(label.chars().count() / 2);
            while line.chars().count() < begin {
                line.push(' ');
            }
            line.push_str(&label);
        }
        line
    }

    fn label(&self, column: i64) -> String {
        if column == 0 {
            return "0".to_owned();
        }
        let steps = u32::try_from(column.unsigned_abs() - 1).unwrap_or(0);
        let distance = human::power_of_two(LEAST_EXPONENT + steps * self.column_step);
        if column < 0 {
            format!("-{distance}")
        } else {
            distance
        }
    }
}

/// Power of two of the device time.
fn row_exponent(cell: &HeatCell) -> u32 {
    let middle = cell.device_from_ns / 2 + cell.device_to_ns / 2;
    middle.max(1).ilog2()
}

/// Power of two of the distance, at least `LEAST_EXPONENT`, with its sign; 0 for "no seek".
fn signed_exponent(cell: &HeatCell) -> i64 {
    if cell.seek_from_bytes <= 0 && cell.seek_to_bytes > 0 {
        return 0;
    }
    let middle = cell.seek_from_bytes / 2 + cell.seek_to_bytes / 2;
    let exponent = i64::from(middle.unsigned_abs().max(1).ilog2().max(LEAST_EXPONENT));
    exponent * middle.signum()
}

fn column_of(signed_exponent: i64, step: u32) -> i64 {
    if signed_exponent == 0 {
        return 0;
    }
    let steps = signed_exponent.unsigned_abs() - u64::from(LEAST_EXPONENT);
    let column = i64::try_from(steps / u64::from(step)).unwrap_or(i64::MAX - 1) + 1;
    column * signed_exponent.signum()
}

/// Lowest count of every shade: equal steps of the logarithm.
fn shade_limits(most: u64) -> [u64; 4] {
    let top = human::as_float(most).ln();
    let mut limits = [1; 4];
    for (index, limit) in limits.iter_mut().enumerate().skip(1) {
        let part = human::as_float(u64::try_from(index).unwrap_or(0)) / 4.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and `most`"
        )]
        let value = (top * part).exp().ceil() as u64;
        *limit = value;
    }
    // With few counts the steps may coincide; keep them apart.
    for index in 1..limits.len() {
        limits[index] = limits[index].max(limits[index - 1] + 1);
    }
    limits
}

fn cell(count: u64, limits: &[u64; 4], colour: bool) -> String {
    let Some(shade) = limits.iter().rposition(|limit| count >= *limit) else {
        return " ".repeat(CELL_WIDTH);
    };
    paint(shade, CELL_WIDTH, colour)
}

fn paint(shade: usize, width: usize, colour: bool) -> String {
    let (character, palette) = SHADES[shade];
    let text = character.to_string().repeat(width);
    if colour {
        format!("\x1b[38;5;{palette}m{text}\x1b[0m")
    } else {
        text
    }
}

/// Legend of the shades, in one line.
pub(super) fn legend(scale: &Scale, colour: bool) -> String {
    let mut line = "Requests:".to_owned();
    let limits = scale.shade_limits;
    for (shade, limit) in limits.iter().enumerate() {
        let more = if shade + 1 == limits.len() {
            " or more"
        } else {
            ""
        };
        line.push_str(&format!(
            "  {} {}{more}",
            paint(shade, 2, colour),
            human::count(*limit)
        ));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(seek: (i64, i64), device_ns: u64, count: u64) -> HeatCell {
        HeatCell {
            owner: "request".to_owned(),
            operation: "write".to_owned(),
            seek_from_bytes: seek.0,
            seek_to_bytes: seek.1,
            device_from_ns: device_ns,
            device_to_ns: device_ns * 2,
            count,
        }
    }

    fn picture(heat: &[HeatCell], colour: bool) -> Vec<String> {
        let scale = Scale::new([heat].into_iter()).unwrap();
        render(heat, &scale, colour)
    }

    #[test]
    fn cells_land_where_they_belong() {
        let cells = [
            heat((0, 1), 1 << 17, 1000),
            heat((1 << 30, 1 << 31), 1 << 23, 5),
            heat((-(1 << 31) + 1, -(1 << 30) + 1), 1 << 20, 1),
        ];
        let lines = picture(&cells, false);
        // 131 µs to 8.39 ms in powers of two, axis, labels.
        assert_eq!(lines.len(), 7 + 2, "{}", lines.join("\n"));
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{}",
            lines.join("\n")
        );
        let top: Vec<char> = lines[0].chars().collect();
        assert!(lines[0].starts_with(" 8.39 ms │"), "{}", lines[0]);
        assert_eq!(top.iter().rposition(|c| *c == '░'), Some(top.len() - 1));
        assert!(lines[6].starts_with("  131 µs │"), "{}", lines[6]);
        let middle = lines[6].chars().position(|c| c == '█').unwrap();
        let zero = lines[8].chars().position(|c| c == '0').unwrap();
        assert_eq!(
            middle + 1,
            zero,
            "the cell for no seek stands over its label"
        );
        assert!(
            lines[3].trim_start().starts_with("1.05 ms │░░░"),
            "{}",
            lines[3]
        );
        assert!(!lines.concat().contains('\x1b'));
        assert!(picture(&cells, true).concat().contains("\x1b[38;5;196m███"));
    }

    #[test]
    fn the_widest_range_fits_into_80_columns() {
        let cells = [
            heat((1 << 61, 1 << 62), 1, 1),
            heat((-512, -511), 1 << 40, u64::MAX),
        ];
        let lines = picture(&cells, false);
        assert!(lines.len() <= 16 + 2);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{}",
            lines.join("\n")
        );
    }

    #[test]
    fn flushes_have_no_distance_and_are_left_out() {
        let mut flush = heat((0, 1), 1 << 20, 7);
        flush.operation = "flush".to_owned();
        assert!(Scale::new([[flush].as_slice(), &[]].into_iter()).is_none());
    }

    #[test]
    fn pictures_of_one_scale_can_be_compared() {
        let (slow, fast) = (
            [heat((0, 1), 1 << 24, 100)],
            [heat((1 << 20, 1 << 21), 1 << 20, 1)],
        );
        let scale = Scale::new([slow.as_slice(), &fast].into_iter()).unwrap();
        let (slow, fast) = (render(&slow, &scale, false), render(&fast, &scale, false));
        assert_eq!(slow.len(), fast.len());
        assert_eq!(slow.last(), fast.last());
        assert!(slow[0].contains('█') && fast[4].contains('░'));
        assert!(legend(&scale, false).starts_with("Requests:  ░░ 1  ▒▒ 4"));
    }
}
