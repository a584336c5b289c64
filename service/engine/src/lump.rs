//! The name of a lump.

use std::fmt;
use std::str::FromStr;

/// The id of a lump: 128 bits. Byte order, number order and text order are the same.
///
/// As text: 32 lower-case hexadecimal digits. Parsing takes 1 to 32 digits of either case, with
/// or without a leading `0x`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LumpId(pub u128);

/// Text that is not a lump id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no lump id: 1 to 32 hexadecimal digits are needed")]
pub struct ParseLumpIdError {
    /// The text given.
    pub text: String,
}

impl LumpId {
    /// Bytes of an id on disk and on the wire.
    pub const LEN: usize = 16;
    /// The smallest id.
    pub const MIN: Self = Self(0);
    /// The largest id. No half-open range of the format can include it.
    pub const MAX: Self = Self(u128::MAX);

    /// The id as the format stores it: big-endian.
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }

    /// The id of 16 big-endian bytes.
    #[must_use]
    pub const fn from_be_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The next larger id; `None` after the largest.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for LumpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for LumpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LumpId({self})")
    }
}

impl serde::Serialize for LumpId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for LumpId {
    type Err = ParseLumpIdError;

    fn from_str(text: &str) -> Result<Self, ParseLumpIdError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let error = || ParseLumpIdError {
            text: text.to_owned(),
        };
        // `from_str_radix` alone would take a sign.
        if digits.is_empty() || digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(error());
        }
        u128::from_str_radix(digits, 16)
            .map(Self)
            .map_err(|_| error())
    }
}

/// Where the bytes of a lump live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Data region: one contiguous portion of whole blocks.
    #[default]
    Data,
    /// Inside the journal record itself; at most 65,535 bytes.
    Embedded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for id in [LumpId(0), LumpId(0xabc), LumpId(1 << 127), LumpId::MAX] {
            assert_eq!(id.to_string().len(), 32);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(LumpId::from_be_bytes(id.to_be_bytes()), id);
        }
        assert_eq!("0xFF".parse(), Ok(LumpId(255)));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "0x",
            "+1",
            "-1",
            "g",
            " 1",
            "1 ",
            "000000000000000000000000000000000",
        ] {
            let parsed: Result<LumpId, _> = text.parse();
            assert_eq!(
                parsed,
                Err(ParseLumpIdError {
                    text: text.to_owned()
                })
            );
        }
    }
}
