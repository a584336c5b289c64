//! The checked copies of header and ring head (FORMAT.md section 4.1), in bytes that CannyLS does
//! not look at: one in the header block, one in the journal header block.
//!
//! Header and ring head have no checksum in `lusf`. With the copies one of them that rots is known
//! and told from what another engine has written.

use super::bytes::FieldReader;
use super::error::{DecodeError, Structure};
use super::header::{HEADER_LEN, Header};
use super::journal_header::{JournalHeader, ScrubMark};
use super::label;
use super::seal::{LogSum, SUM_LEN, Seal};
use crate::crc32c;
use crate::units::RingPosition;

/// The first bytes of a copy.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsHe";
/// Those of a copy whose log end may not have been durable: of versions before 0.3.
pub const OLD_MAGIC: [u8; MAGIC_LEN] = *b"LsHd";
/// Where a copy begins in its block: within the first sector of 512 bytes.
pub const COPY_OFFSET: usize = 128;

const MAGIC_LEN: usize = 4;
const NUMBER_LEN: usize = 8;
const CRC_LEN: usize = 4;

/// Bytes of a copy.
pub const COPY_LEN: usize = MAGIC_LEN + HEADER_LEN + 6 * NUMBER_LEN + SUM_LEN + CRC_LEN;

const _: () = assert!(COPY_LEN == 104, "FORMAT.md section 4.1");
const _: () = assert!(
    COPY_OFFSET + COPY_LEN <= 510,
    "no signature of others there"
);

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("header", HEADER_LEN),
    ("ring head", NUMBER_LEN),
    ("log head", NUMBER_LEN),
    ("epoch", NUMBER_LEN),
    ("log end", NUMBER_LEN),
    ("foreign end", NUMBER_LEN),
    ("sum at", NUMBER_LEN),
    ("log sum", SUM_LEN),
    ("CRC32C", CRC_LEN),
];

/// Header and ring head as they were when the copy was written, and the end of the journal then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedCopy {
    /// The header.
    pub header: Header,
    /// Ring position of the first record to replay.
    pub ring_head: RingPosition,
    /// Its log offset.
    pub log_head: u64,
    /// The seal of the journal's end; its epoch is 0 when there was none.
    pub seal: Seal,
    /// A sum of the log, at the head or behind it. `None`: an older version has written the copy, and
    /// its log end may not have been durable.
    pub sums: Option<LogSum>,
}

/// The bytes of a block where a copy can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundCopy {
    /// Nothing but zeros: nobody has written one, or another engine has written the block since.
    Absent,
    /// Other bytes.
    Damaged,
    /// A copy.
    Intact(CheckedCopy),
}

impl FoundCopy {
    /// Looks into a block (at least its first 512 bytes).
    #[must_use]
    pub fn of_block(block: &[u8]) -> Self {
        let bytes = block.get(COPY_OFFSET..COPY_OFFSET + COPY_LEN);
        let bytes = bytes.unwrap_or_default();
        match CheckedCopy::decode(bytes) {
            Ok(Some(copy)) => Self::Intact(copy),
            _ if bytes.iter().all(|&byte| byte == 0) => Self::Absent,
            _ => Self::Damaged,
        }
    }

    /// The copy, if there is one.
    #[must_use]
    pub fn intact(self) -> Option<CheckedCopy> {
        match self {
            Self::Intact(copy) => Some(copy),
            Self::Absent | Self::Damaged => None,
        }
    }
}

impl CheckedCopy {
    /// Reads a copy; `None`: its magic or checksum is wrong.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are too few, or a header with a fitting checksum is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut fields = FieldReader::new(Structure::HeaderCopy, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic")?;
        let header: [u8; HEADER_LEN] = fields.array("header")?;
        let ring_head = RingPosition(fields.u64_be("ring head")?);
        let log_head = fields.u64_be("log head")?;
        let seal = Seal {
            epoch: fields.u64_be("epoch")?,
            log_end: fields.u64_be("log end")?,
            foreign_end: fields.u64_be("foreign end")?,
            log_sum: None,
        };
        let sums = match magic {
            MAGIC => Some(LogSum {
                at: fields.u64_be("sum at")?,
                sum: fields.u32_be("log sum")?,
            }),
            _ => None,
        };
        let covered = bytes.get(..fields.position()).unwrap_or_default();
        if ![MAGIC, OLD_MAGIC].contains(&magic) || fields.u32_be("CRC32C")? != crc32c::of(covered) {
            return Ok(None);
        }
        Ok(Some(Self {
            header: Header::decode(&header)?,
            ring_head,
            log_head,
            seal,
            sums,
        }))
    }

    /// The copy as bytes, to stand at [`COPY_OFFSET`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let magic = self.sums.map_or(OLD_MAGIC, |_| MAGIC);
        let Seal {
            epoch,
            log_end,
            foreign_end,
            ..
        } = self.seal;
        let numbers = [self.ring_head.0, self.log_head, epoch, log_end, foreign_end];
        let numbers = numbers.map(u64::to_be_bytes);
        let mut bytes = [
            &magic,
            self.header.encode().as_slice(),
            numbers.as_flattened(),
        ]
        .concat();
        if let Some(LogSum { at, sum }) = self.sums {
            bytes.extend(at.to_be_bytes());
            bytes.extend(sum.to_be_bytes());
        }
        bytes.extend(crc32c::of(&bytes).to_be_bytes());
        bytes
    }

    /// Writes the copy to its place in a block.
    pub fn put_into(&self, block: &mut [u8]) {
        let bytes = self.encode();
        if let Some(place) = block.get_mut(COPY_OFFSET..COPY_OFFSET + bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    }

    /// The header block and the journal header block, both with this copy.
    #[must_use]
    pub fn blocks(&self, name: Option<&str>, mark: ScrubMark) -> [Vec<u8>; 2] {
        let ring_head = self.ring_head;
        let mut head = JournalHeader { ring_head }.encode().to_vec();
        if mark != ScrubMark::default() {
            head.extend(mark.encode());
        }
        [self.header.encode().to_vec(), head].map(|mut block| {
            block.resize(self.header.block_size.get().into(), 0);
            self.put_into(&mut block);
            label::put_into(&mut block, name);
            block
        })
    }

    /// The seal that stood behind the end of the journal at `tail`, which is `used` bytes behind
    /// the head, if nothing was appended since the copy was written.
    #[must_use]
    pub fn seal_at(&self, used: u64) -> Option<Seal> {
        let fits =
            self.seal.epoch != 0 && self.seal.log_end.checked_sub(self.log_head) == Some(used);
        fits.then_some(self.seal)
    }
}

/// A header with what proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenHeader {
    /// The header: as it stands, or as the copy in its block says.
    pub header: Header,
    /// The copy in its block.
    pub copy: FoundCopy,
    /// True: the header is not what it should be.
    pub damaged: bool,
}

impl ProvenHeader {
    /// Reads the first 512 bytes of an image.
    ///
    /// # Errors
    /// [`DecodeError`]: neither the header nor its copy can be used.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let (own, copy) = (Header::decode(block), FoundCopy::of_block(block));
        let (header, damaged) = match (own, copy.intact()) {
            (Ok(own), None) => (own, false),
            // CannyLS writes its own minor version into a header of an older one.
            (Ok(own), Some(copy)) => {
                let minor = own.minor.max(copy.header.minor);
                let same = own
                    == Header {
                        minor,
                        ..copy.header
                    };
                (if same { own } else { copy.header }, !same)
            }
            (Err(_), Some(copy)) => (copy.header, true),
            (Err(error), None) => return Err(error),
        };
        Ok(Self {
            header,
            copy,
            damaged,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BlockSize, ByteLen};

    const HEADER: Header = Header {
        minor: 1,
        block_size: BlockSize::MIN,
        uuid: [7; 16],
        journal_len: ByteLen(512 * 9),
        data_len: ByteLen(512 * 70),
    };

    fn copy() -> CheckedCopy {
        let seal = Seal {
            epoch: 77,
            log_end: 9000,
            foreign_end: 5,
            log_sum: None,
        };
        CheckedCopy {
            header: HEADER,
            ring_head: RingPosition(28),
            log_head: 8900,
            seal,
            sums: Some(LogSum { at: 8900, sum: 3 }),
        }
    }

    fn block() -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..HEADER_LEN].copy_from_slice(&HEADER.encode());
        copy().put_into(&mut block);
        block
    }

    #[test]
    fn every_bit_of_a_header_is_proved_and_every_bit_of_the_copy_is_checked() {
        let sound = ProvenHeader::decode(&block()).unwrap();
        assert_eq!((sound.header, sound.damaged), (HEADER, false));
        assert_eq!(sound.copy, FoundCopy::Intact(copy()));
        for bit in 0..8 * 512 {
            let mut block = block();
            block[bit / 8] ^= 1 << (bit % 8);
            let found = ProvenHeader::decode(&block).unwrap();
            let in_header = bit / 8 < HEADER_LEN;
            let in_copy = (COPY_OFFSET..COPY_OFFSET + COPY_LEN).contains(&(bit / 8));
            assert_eq!(found.header, HEADER, "bit {bit}");
            assert_eq!(found.damaged, in_header, "bit {bit}");
            assert_eq!(found.copy == FoundCopy::Damaged, in_copy, "bit {bit}");
        }
    }

    #[test]
    fn a_seal_fits_the_end_it_was_written_for() {
        assert_eq!(copy().seal_at(100), Some(copy().seal));
        assert_eq!(copy().seal_at(99), None);
        let unsealed = CheckedCopy {
            seal: Seal {
                epoch: 0,
                ..copy().seal
            },
            ..copy()
        };
        assert_eq!(unsealed.seal_at(100), None);
        let mut zeros = vec![0; 512];
        assert_eq!(FoundCopy::of_block(&zeros), FoundCopy::Absent);
        assert_eq!(FoundCopy::of_block(&zeros[..100]), FoundCopy::Absent);
        zeros[COPY_OFFSET] = 1;
        assert_eq!(FoundCopy::of_block(&zeros), FoundCopy::Damaged);
    }
}
