//! Sizes in bytes as people write them: `4096`, `64M`, `1G`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes. Suffixes K, M, G and T are powers of 1024; `KiB` and `B` are understood too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid size {text:?}: use bytes or a suffix K, M, G, T (e.g. 64M)")]
pub struct SizeError {
    text: String,
}

/// A parser for an argument of `min` to `max` bytes, both included.
pub fn size_within(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    move |text| {
        let Size(bytes) = text.parse().map_err(|error: SizeError| error.to_string())?;
        if (min..=max).contains(&bytes) {
            return Ok(bytes);
        }
        let (min, max) = (Size(min), Size(max));
        Err(format!("{text:?} is out of range ({min} to {max})"))
    }
}

impl Size {
    /// Bytes in 32 bits; `u32::MAX` from 4 GiB on.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// Bytes as the machine counts memory.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let wrong = || SizeError {
            text: text.to_owned(),
        };
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = trimmed[..digits].parse().map_err(|_| wrong())?;
        let unit = match trimmed[digits..].trim().to_ascii_uppercase().as_str() {
            "" | "B" => 1,
            "K" | "KIB" => 1 << 10,
            "M" | "MIB" => 1 << 20,
            "G" | "GIB" => 1 << 30,
            "T" | "TIB" => 1 << 40,
            _ => return Err(wrong()),
        };
        number.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [
            (1_u64 << 40, "T"),
            (1 << 30, "G"),
            (1 << 20, "M"),
            (1 << 10, "K"),
        ] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a text such as \"64M\"")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Size, E> {
                u64::try_from(value)
                    .map(Size)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Size, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64M", 64 << 20),
            ("1g", 1 << 30),
            (" 2 KiB ", 2048),
            ("3T", 3 << 40),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "1.5G", "-1", "1X", "99999999999T"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        let small = size_within(512, 16 << 20);
        assert_eq!(small("16M"), Ok(16 << 20));
        for text in ["", "511", "17M", "1G"] {
            assert!(small(text).is_err(), "{text}");
        }
        assert_eq!(Size(64 << 20).to_string(), "64M");
        assert_eq!(Size(4097).to_string(), "4097");
    }
}
