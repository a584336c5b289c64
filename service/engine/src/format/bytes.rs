//! Cutting fixed fields out of byte slices without a panic.

use super::error::{DecodeError, DecodeErrorKind, Structure};

/// The fields of one structure, one after the other; they must fill it exactly.
pub(super) fn join<const N: usize>(fields: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut rest = bytes.as_mut_slice();
    for field in fields {
        let (head, tail) = rest.split_at_mut(field.len());
        head.copy_from_slice(field);
        rest = tail;
    }
    debug_assert!(rest.is_empty(), "the fields of a structure fill it");
    bytes
}

/// Reads the fields of one structure in order.
pub(super) struct FieldReader<'a> {
    structure: Structure,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(structure: Structure, bytes: &'a [u8]) -> Self {
        Self {
            structure,
            bytes,
            position: 0,
        }
    }

    /// Offset of the next field in the structure.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some(array) = rest.first_chunk::<N>() else {
            return Err(DecodeError::new(
                self.structure,
                field,
                self.position,
                DecodeErrorKind::TooShort {
                    expected: N,
                    found: rest.len(),
                },
            ));
        };
        self.position += N;
        Ok(*array)
    }

    pub(super) fn u16_be(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(super) fn u32_be(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(super) fn u64_be(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_be_bytes)
    }

    pub(super) fn u128_be(&mut self, field: &'static str) -> Result<u128, DecodeError> {
        self.array(field).map(u128::from_be_bytes)
    }

    /// A big-endian integer of five bytes.
    pub(super) fn u40_be(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let [a, b, c, d, e] = self.array(field)?;
        Ok(u64::from_be_bytes([0, 0, 0, a, b, c, d, e]))
    }

    /// An error about the field at `offset`.
    pub(super) fn error(
        &self,
        field: &'static str,
        offset: usize,
        kind: DecodeErrorKind,
    ) -> DecodeError {
        DecodeError::new(self.structure, field, offset, kind)
    }
}

/// Result of `find` for the bytes with one bit flipped, from the last bit on until it finds something.
/// It is told the byte and its flipped bit, too.
pub(crate) fn with_bit_flipped<T>(
    bytes: &[u8],
    mut find: impl FnMut(&[u8], (usize, u8)) -> Option<T>,
) -> Option<T> {
    let mut flipped = bytes.to_vec();
    (0..bytes.len() * 8).rev().find_map(|bit| {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        *flipped.get_mut(at)? ^= mask;
        let found = find(&flipped, (at, mask));
        *flipped.get_mut(at)? ^= mask;
        found
    })
}

/// `bytes` in hexadecimal, for error messages.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
