//! Numbers as people read them, in tables, reports and sentences.

/// `1.50 MiB`; exact below 1 KiB.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = as_float(bytes) / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// `+1.50 GiB`, `-512 B`, `0`: a distance on a disk, forwards or backwards.
#[must_use]
pub fn signed_bytes(distance: i64) -> String {
    signed(distance, bytes)
}

/// `1.5 GiB`, `1.0 KiB`: one decimal, rounded down, so that free space is never overstated.
#[must_use]
pub fn bytes_at_least(bytes: u64) -> String {
    match unit_of(bytes, &SIZES) {
        ("B", _) => format!("{bytes} B"),
        (name, unit) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
    }
}

/// `1.5 GiB`, `1 MiB`: at most one decimal, as a sentence needs it.
#[must_use]
pub fn short_bytes(bytes: u64) -> String {
    short(bytes, &SIZES)
}

/// `9.1 ms`, `950 ns`, `12 us`: at most one decimal and no letter beyond ASCII.
#[must_use]
pub fn short_ns(ns: u64) -> String {
    short(ns, &TIMES)
}

/// `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
#[must_use]
pub fn duration_ns(ns: u64) -> String {
    let value = as_float(ns);
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// `+4.56 ms`, `-12.3 µs`, `0`: a moment after or before another.
#[must_use]
pub fn signed_ns(ns: i64) -> String {
    signed(ns, duration_ns)
}

/// `part` of `whole` as `12.3 %`; `–` when there is no whole.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    match ratio(part, whole) {
        Some(ratio) => percent(ratio),
        None => "–".to_owned(),
    }
}

/// 0.1234 as `12.3 %`. Nothing is rounded to 100 % or to 0 %: `> 99.9 %`, `< 0.1 %`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let shown = ratio * 100.0;
    if shown > 99.9 && shown < 100.0 {
        return "> 99.9 %".to_owned();
    }
    if shown > 0.0 && shown < 0.1 {
        return "< 0.1 %".to_owned();
    }
    if shown == 0.0 || shown == 100.0 {
        return format!("{shown:.0} %");
    }
    format!("{shown:.1} %")
}

/// `part / whole`; `None` when there is no whole.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| as_float(part) / as_float(whole))
}

/// `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 lump`, `1,234 lumps`: a number and what it counts.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

/// [`count`] of a length or another `usize`.
#[must_use]
pub fn count_of(number: usize) -> String {
    count(u64::try_from(number).unwrap_or(u64::MAX))
}

/// The nearest float: exact below 2^53, and no reader sees the digits lost above.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown, never counted with")]
pub fn as_float(number: u64) -> f64 {
    number as f64
}

/// The nearest whole number, clamped to `u64`; 0 for NaN.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for display only: a float is cut off at the ends"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// `1.23`, `12.3`, `123`, `1234`: three digits, or all of a longer whole part. Not for negatives.
#[must_use]
pub fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

const SIZES: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

const TIMES: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The largest unit that is not larger than the number; the smallest for 0.
fn unit_of(number: u64, units: &[(&'static str, u64)]) -> (&'static str, u64) {
    let found = units.iter().find(|(_, unit)| number >= *unit);
    *found.unwrap_or(&units[units.len() - 1])
}

fn short(number: u64, units: &[(&'static str, u64)]) -> String {
    let (name, unit) = unit_of(number, units);
    let tenths = (u128::from(number) * 10 + u128::from(unit) / 2) / u128::from(unit);
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

fn signed(number: i64, shown: fn(u64) -> String) -> String {
    match number {
        0 => "0".to_owned(),
        ..0 => format!("-{}", shown(number.unsigned_abs())),
        _ => format!("+{}", shown(number.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1 << 30), "1.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(duration_ns(999), "999 ns");
        assert_eq!(duration_ns(12_345), "12.3 µs");
        assert_eq!(duration_ns(4_560_000), "4.56 ms");
        assert_eq!(duration_ns(1_200_000_000), "1.20 s");
        assert_eq!(share(1, 0), "–");
        assert_eq!(share(1, 2), "50.0 %");
        assert_eq!(share(99_999, 100_000), "> 99.9 %");
        assert_eq!(share(1, 100_000), "< 0.1 %");
        assert_eq!(share(5, 5), "100 %");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(counted(0, "lump"), "0 lumps");
        assert_eq!(counted(1, "block request"), "1 block request");
        assert_eq!(counted(1234, "lump"), "1,234 lumps");
    }

    #[test]
    fn distances_have_a_sign() {
        assert_eq!(signed_bytes(-(3 << 30)), "-3.00 GiB");
        assert_eq!(signed_bytes(512), "+512 B");
        assert_eq!(signed_bytes(0), "0");
        assert_eq!(signed_ns(-12_300), "-12.3 µs");
    }

    #[test]
    fn sentences_get_one_decimal() {
        assert_eq!(short_bytes(1 << 20), "1 MiB");
        assert_eq!(short_bytes(0), "0 B");
        assert_eq!(short_bytes(1_610_612_736), "1.5 GiB");
        assert_eq!(short_ns(9_100_000), "9.1 ms");
        assert_eq!(short_ns(950), "950 ns");
        assert_eq!(bytes_at_least(1 << 20), "1.0 MiB");
        assert_eq!(bytes_at_least((2 << 20) - 1), "1.9 MiB");
        assert_eq!(bytes_at_least(1023), "1023 B");
    }
}
