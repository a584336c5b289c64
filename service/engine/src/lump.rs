//! The id of a lump.

use std::fmt;

/// Identifies a lump: 128 bits, ordered as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LumpId(pub u128);

impl fmt::Display for LumpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
