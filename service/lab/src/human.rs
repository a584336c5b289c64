//! Numbers for people. All helpers of this kind live here.

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

/// A power of two in at most four characters: `512`, `4K`, `256M`.
#[must_use]
pub fn power_of_two(exponent: u32) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let unit = usize::try_from(exponent / 10).unwrap_or(usize::MAX);
    format!(
        "{}{}",
        1_u32 << (exponent % 10),
        UNITS.get(unit).unwrap_or(&"?")
    )
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

/// `part` of `whole` as `12.3 %`; `–` when there is no whole.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    match ratio(part, whole) {
        Some(ratio) => percent(ratio),
        None => "–".to_owned(),
    }
}

/// 0.1234 as `12.3 %`. Only what is everything is called 100 %, only nothing 0 %.
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

/// The same for a number of things in memory.
#[must_use]
pub fn count_of(number: usize) -> String {
    count(u64::try_from(number).unwrap_or(u64::MAX))
}

/// The number as a float; digits beyond 2^53 are lost, which no reader sees.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for display only")]
pub fn as_float(number: u64) -> f64 {
    number as f64
}

/// The nearest whole number; 0 for what is below or is no number, the largest for what is above.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for display only: a float is cut off at the ends"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Three digits of a number that is not negative, or more where they stand before the point.
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
        assert_eq!(power_of_two(9), "512");
        assert_eq!(power_of_two(28), "256M");
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
    }
}
