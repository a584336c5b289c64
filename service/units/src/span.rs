//! Lengths of time as people write them: `5ms`, `2s`, `5m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time of at most 2^64 nanoseconds, which is 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// The text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {text:?}: use a whole number with ns, us, ms, s, m or h (e.g. 5ms)")]
pub struct SpanError {
    text: String,
}

/// The nanoseconds in each unit, the largest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Nanoseconds in 64 bits; `u64::MAX` from 584 years on.
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Span {
    /// Nanoseconds; `u64::MAX` from 584 years on.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        nanoseconds(self.0)
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let wrong = || SpanError {
            text: text.to_owned(),
        };
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = trimmed[..digits].parse().map_err(|_| wrong())?;
        let unit = match trimmed[digits..].trim() {
            "" if number == 0 => 1,
            "µs" => 1_000,
            word => UNITS
                .iter()
                .find_map(|(name, ns)| (*name == word).then_some(*ns))
                .ok_or_else(wrong)?,
        };
        let ns = number.checked_mul(unit).ok_or_else(wrong)?;
        Ok(Self(Duration::from_nanos(ns)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.nanoseconds();
        for (name, unit) in UNITS {
            if ns > 0 && ns.is_multiple_of(unit) {
                return write!(f, "{}{name}", ns / unit);
            }
        }
        f.write_str("0s")
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_people_write() {
        for (text, ns) in [
            ("0", 0),
            ("0s", 0),
            ("5ms", 5_000_000),
            ("250 us", 250_000),
            ("3µs", 3_000),
            ("2s", 2_000_000_000),
            (" 5m ", 300_000_000_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().nanoseconds(), ns, "{text}");
        }
        for text in ["", "5", "ms", "1.5s", "-1s", "1d", "99999999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["0s", "5ms", "90s", "2h", "7ns"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("60s".parse::<Span>().unwrap().to_string(), "1m");
    }
}
