//! Bytes of records: numbers of few bytes, texts, pairs of texts.

/// Bytes that are no record: the expected item at the place where they end or differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no record: {0}")]
pub struct RecordError(pub &'static str);

type Result<T> = std::result::Result<T, RecordError>;

/// Seven bits of a number in each byte, the lowest first; the top bit says that more follow.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// A difference of two numbers: small ones of either sign take few bytes.
pub(crate) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    put_number(
        out,
        ((difference << 1) ^ (difference >> 63)).cast_unsigned(),
    );
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_pairs(out: &mut Vec<u8>, pairs: &[(String, String)]) {
    put_number(out, pairs.len() as u64);
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, value);
    }
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(RecordError("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes
            .try_into()
            .map_err(|_| RecordError("it ends too early"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(RecordError("a number is too large"))
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        T::try_from(self.number()?).map_err(|_| RecordError("a number is too large"))
    }

    pub(crate) fn difference(&mut self, from: u64) -> Result<u64> {
        let coded = self.number()?;
        let difference = (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed());
        Ok(from.wrapping_add(difference.cast_unsigned()))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let len = self.small()?;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| RecordError("a text is not UTF-8"))
    }

    pub(crate) fn pairs(&mut self) -> Result<Vec<(String, String)>> {
        let count: usize = self.small()?;
        // A pair has at least its two lengths, so the memory is bounded by the bytes.
        if count > self.0.len() / 2 {
            return Err(RecordError("it ends too early"));
        }
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            pairs.push((self.text()?.to_owned(), self.text()?.to_owned()));
        }
        Ok(pairs)
    }

    /// Nothing may follow.
    pub(crate) fn end(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(RecordError("something follows it"))
        }
    }
}
