//! Ids of lumps as programs and people write them.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use lumpscope_proto::v1;

/// Identifier of a lump: 128 bits. Printed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LumpId(pub u128);

/// A text that is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no lump id: write 1 to 32 hexadecimal digits")]
pub struct IdError {
    text: String,
}

impl LumpId {
    /// The id in these bytes, most significant first; `None` unless there are 16.
    #[must_use]
    pub fn from_raw(raw: &[u8]) -> Option<Self> {
        raw.try_into().ok().map(u128::from_be_bytes).map(Self)
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

impl FromStr for LumpId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        // More than 32 digits do not fit 128 bits.
        (digits && text.len() <= 32)
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten()
            .map(Self)
            .ok_or_else(|| IdError {
                text: text.to_owned(),
            })
    }
}

impl From<LumpId> for v1::LumpId {
    fn from(id: LumpId) -> Self {
        let raw = Bytes::copy_from_slice(&id.0.to_be_bytes());
        Self {
            form: Some(v1::lump_id::Form::Raw(raw)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_people_write() {
        assert_eq!("00fF".parse(), Ok(LumpId(255)));
        assert_eq!("f".repeat(32).parse(), Ok(LumpId(u128::MAX)));
        for text in ["", "+1", "0x1", "g", &"0".repeat(33), "é"] {
            assert!(text.parse::<LumpId>().is_err(), "{text}");
        }
        assert_eq!(LumpId(255).to_string(), format!("{:0>32}", "ff"));
        assert_eq!(LumpId::from_raw(&[0; 15]), None);
        assert_eq!(LumpId::from_raw(&[0xff; 16]), Some(LumpId(u128::MAX)));
    }
}
