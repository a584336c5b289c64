//! The seal behind the end of the journal (FORMAT.md section 5.3): says that this engine wrote the
//! last record.
//!
//! CannyLS ignores the bytes behind an `EndOfRecords` and overwrites them when it appends. So a
//! seal that fits its place is there if and only if the last append was ours, and what the engine
//! knows beyond the format (how far the log has come, which records are somebody else's) holds.
//!
//! A seal covers the bytes of its sector of 512 bytes before the `EndOfRecords`, and the two never
//! straddle a sector, whatever the device's logical blocks are: so an image can move to a device
//! with other logical blocks.
//!
//! A version before 0.3 may have left an [`UnsettledSeal`] there: the data of the last puts may have
//! been in the device's cache, and it says how to find out whether a power cut has taken some of it.

use super::Portion;
use super::bytes::{FieldReader, join, with_bit_flipped};
use super::error::Structure;
use super::proof;
use super::record::END_OF_RECORDS_LEN;
use crate::crc32c;
use crate::lump::LumpId;
use crate::units::{RingPosition, SECTOR_LEN};

/// The first bytes of a seal.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsSe";
/// Those of one without a sum of the log: of versions before 0.3.
pub const OLD_MAGIC: [u8; MAGIC_LEN] = *b"LsSl";
pub(super) const MAGIC_LEN: usize = 4;
const EPOCH_LEN: usize = 4;
const OLD_EPOCH_LEN: usize = 8;
const LOG_END_LEN: usize = 8;
const FOREIGN_END_LEN: usize = 8;
const FIELDS_LEN: usize = EPOCH_LEN + SUM_LEN + LOG_END_LEN + FOREIGN_END_LEN;
pub(super) const SUM_LEN: usize = 4;
const CRC_LEN: usize = 4;

/// Bytes of a seal.
pub const SEAL_LEN: usize =
    MAGIC_LEN + EPOCH_LEN + LOG_END_LEN + FOREIGN_END_LEN + SUM_LEN + CRC_LEN;
/// Bytes of an `EndOfRecords` and the seal behind it.
pub const SEALED_END_LEN: usize = END_OF_RECORDS_LEN + SEAL_LEN;

/// The first bytes of an unsettled seal.
pub const UNSETTLED_MAGIC: [u8; MAGIC_LEN] = *b"LsSu";
const BEGIN_LEN: usize = 8;
const PUTS_LEN: usize = 2;
const PROOF_LEN: usize = 8;

/// Bytes of an unsettled seal.
pub const UNSETTLED_SEAL_LEN: usize = SEAL_LEN + BEGIN_LEN + PUTS_LEN + PROOF_LEN;

const _: () = assert!(SEAL_LEN == 32, "FORMAT.md section 5.3");
const _: () = assert!(UNSETTLED_SEAL_LEN == 50, "FORMAT.md section 5.5");
const _: () = assert!(SEALED_END_LEN as u64 <= SECTOR_LEN, "FORMAT.md section 5.3");

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("epoch", EPOCH_LEN),
    ("log sum", SUM_LEN),
    ("log end", LOG_END_LEN),
    ("foreign end", FOREIGN_END_LEN),
    ("CRC32C", CRC_LEN),
];

/// Name and length of each field of an unsettled seal, for FORMAT.md's test.
pub const UNSETTLED_FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("epoch", OLD_EPOCH_LEN),
    ("log end", LOG_END_LEN),
    ("foreign end", FOREIGN_END_LEN),
    ("begin", BEGIN_LEN),
    ("puts", PUTS_LEN),
    ("proof", PROOF_LEN),
    ("CRC32C", CRC_LEN),
];

/// Where a seal stands. One that was made for another place does not fit.
#[derive(Clone, Copy, Debug)]
pub struct SealPlace<'a> {
    /// Instance UUID of the store.
    pub uuid: [u8; 16],
    /// Ring position of the `EndOfRecords` before the seal.
    pub tail: RingPosition,
    /// The bytes of the ring from the start of the tail's sector to the tail: `tail` modulo
    /// [`SECTOR_LEN`] of them.
    pub before: &'a [u8],
}

/// Knowledge of the journal's end by the engine that wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// Names an unbroken run of appends by this engine: random, drawn anew at creation and when
    /// another engine, or a version before 0.3, has appended. Less than 2^32 with a sum.
    pub epoch: u64,
    /// Log offset of the `EndOfRecords`: bytes of the ring that were ever passed, those left unused
    /// at its end included. Modulo the length of the ring it is the ring position.
    pub log_end: u64,
    /// Records at log offsets below this may come from another engine; not more than `log_end`.
    pub foreign_end: u64,
    /// The [running sum](LogSum) of the log at its end; `None`: the seal has none.
    pub log_sum: Option<u32>,
}

/// The sum of the log up to one of its offsets: a CRC32C over the bytes of its records, from some
/// offset on at which it was 0.
///
/// The sums of two places prove every byte between them, so older bytes there do not pass for records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSum {
    /// A log offset where a record begins.
    pub at: u64,
    /// The sum there.
    pub sum: u32,
}

impl Seal {
    /// The bytes to be written directly behind the `EndOfRecords`.
    #[must_use]
    pub fn encode(&self, place: SealPlace<'_>) -> [u8; SEAL_LEN] {
        let magic = if self.log_sum.is_some() {
            MAGIC
        } else {
            OLD_MAGIC
        };
        let fields = self.fields();
        let crc = crc32c::append(place.crc(self.log_sum.map(|_| magic)), &fields);
        join(&[&magic, &fields, &crc.to_be_bytes()])
    }

    /// Epoch, sum, log end and foreign end; without a sum the epoch takes its bytes, too.
    pub(super) fn fields(&self) -> [u8; FIELDS_LEN] {
        let epoch = self.epoch.to_be_bytes();
        let epoch = match self.log_sum {
            Some(sum) => join(&[
                epoch.last_chunk::<EPOCH_LEN>().unwrap_or(&[0; EPOCH_LEN]),
                &sum.to_be_bytes(),
            ]),
            None => epoch,
        };
        join(&[
            &epoch,
            &self.log_end.to_be_bytes(),
            &self.foreign_end.to_be_bytes(),
        ])
    }

    /// Reads what [`fields`](Self::fields) makes.
    pub(super) fn of_fields(fields: &mut FieldReader<'_>, has_sum: bool) -> Option<Self> {
        let (epoch, log_sum) = if has_sum {
            let epoch = fields.u32_be("epoch").ok()?;
            (epoch.into(), Some(fields.u32_be("log sum").ok()?))
        } else {
            (fields.u64_be("epoch").ok()?, None)
        };
        let seal = Self {
            epoch,
            log_end: fields.u64_be("log end").ok()?,
            foreign_end: fields.u64_be("foreign end").ok()?,
            log_sum,
        };
        (seal.foreign_end <= seal.log_end).then_some(seal)
    }

    /// The seal in the bytes behind an `EndOfRecords`; `None`: there is none that fits the place,
    /// so another engine wrote the end, or an older version of this one.
    #[must_use]
    pub fn decode(bytes: &[u8], place: SealPlace<'_>) -> Option<Self> {
        let mut fields = FieldReader::new(Structure::Seal, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
        let seal = Self::of_fields(&mut fields, magic == MAGIC)?;
        bytes.starts_with(&seal.encode(place)).then_some(seal)
    }

    /// The seal when one bit of it, or of the bytes before the tail that it covers, has flipped. A
    /// flip shows in the CRC32C like no other one, and anything else fits by chance once in 2^19
    /// times.
    #[must_use]
    pub fn decode_mended(bytes: &[u8], place: SealPlace<'_>) -> Option<Self> {
        let bytes = bytes.get(..SEAL_LEN)?;
        let mended = |magic| mended(bytes, magic, place, Self::decode);
        mended(MAGIC).or_else(|| mended(OLD_MAGIC))
    }
}

impl SealPlace<'_> {
    /// CRC32C of UUID, tail, the bytes before the tail, and the magic of a seal with a sum: it goes on
    /// with the fields.
    pub(super) fn crc(&self, magic: Option<[u8; MAGIC_LEN]>) -> u32 {
        let tail = self.tail.0.to_be_bytes();
        let parts = [self.uuid.as_slice(), &tail, self.before];
        let parts = parts
            .into_iter()
            .chain(magic.as_ref().map(<[u8; MAGIC_LEN]>::as_slice));
        parts.fold(0, crc32c::append)
    }
}

/// A seal with one bit of it, or of the bytes that it covers, flipped back.
pub(super) fn mended<S>(
    bytes: &[u8],
    magic: [u8; MAGIC_LEN],
    place: SealPlace<'_>,
    decode: impl Fn(&[u8], SealPlace<'_>) -> Option<S>,
) -> Option<S> {
    let in_seal = with_bit_flipped(bytes, |bytes, _| decode(bytes, place));
    if in_seal.is_some() || !bytes.starts_with(&magic) {
        return in_seal;
    }
    with_bit_flipped(place.before, |before, _| {
        decode(bytes, SealPlace { before, ..place })
    })
}

/// What the data of the last puts of a batch must be, if no write of them was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The last so many records of kind Put in the batch are meant.
    pub puts: u16,
    /// The sum, modulo 2^64, of a number for each that no later record of the batch makes void: its
    /// token and the hash of its place.
    pub sum: u64,
}

impl Proof {
    /// With the number of one put more. `token`: its [nonce and samples](super::proof::token).
    #[must_use]
    pub fn with(self, token: u64, (id, portion): (LumpId, Portion)) -> Self {
        let number = token.wrapping_add(proof::hash(id, portion));
        Self {
            sum: self.sum.wrapping_add(number),
            ..self
        }
    }
}

/// A seal behind a batch whose puts count only if their data is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsettledSeal {
    /// What the seal says when the batch is settled.
    pub seal: Seal,
    /// Log offset where the batch begins: everything before it is settled.
    pub begin: u64,
    /// Which puts are meant, and the proof of their data.
    pub proof: Proof,
}

impl UnsettledSeal {
    /// The unsettled seal in the bytes behind an `EndOfRecords`; `None`: there is none that fits
    /// the place.
    #[must_use]
    pub fn decode(bytes: &[u8], place: SealPlace<'_>) -> Option<Self> {
        let mut fields = FieldReader::new(Structure::Seal, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
        if magic != UNSETTLED_MAGIC {
            return None;
        }
        let seal = Seal::of_fields(&mut fields, false)?;
        let begin = fields.u64_be("begin").ok()?;
        let proof = Proof {
            puts: fields.u16_be("puts").ok()?,
            sum: fields.u64_be("proof").ok()?,
        };
        let unsettled = Self { seal, begin, proof };
        let len = seal.log_end.checked_sub(begin)?;
        let fits = fields.u32_be("CRC32C").ok()? == unsettled.crc(place)
            && seal.foreign_end <= begin
            && len <= place.tail.0
            && proof.puts > 0;
        fits.then_some(unsettled)
    }

    /// As [`Seal::decode_mended`].
    #[must_use]
    pub fn decode_mended(bytes: &[u8], place: SealPlace<'_>) -> Option<Self> {
        let bytes = bytes.get(..UNSETTLED_SEAL_LEN)?;
        mended(bytes, UNSETTLED_MAGIC, place, Self::decode)
    }

    /// The seal of the journal without the batch.
    #[must_use]
    pub fn without_batch(&self) -> Seal {
        Seal {
            log_end: self.begin,
            ..self.seal
        }
    }

    /// As [`Seal::crc`], and then begin, puts and proof.
    fn crc(&self, place: SealPlace<'_>) -> u32 {
        let crc = crc32c::append(place.crc(None), &self.seal.fields());
        let crc = crc32c::append(crc, &self.begin.to_be_bytes());
        let crc = crc32c::append(crc, &self.proof.puts.to_be_bytes());
        crc32c::append(crc, &self.proof.sum.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: SealPlace<'static> = SealPlace {
        uuid: [7; 16],
        tail: RingPosition(515),
        before: b"abc",
    };
    const SEAL: Seal = Seal {
        epoch: 0x0102_0304,
        log_end: 9000,
        foreign_end: 9000,
        log_sum: Some(0x1234_5678),
    };

    #[test]
    fn a_seal_fits_its_own_place_only() {
        let bytes = SEAL.encode(PLACE);
        assert_eq!(Seal::decode(&bytes, PLACE), Some(SEAL));
        let tail = RingPosition(516);
        let others = [
            SealPlace {
                uuid: [8; 16],
                ..PLACE
            },
            SealPlace { tail, ..PLACE },
            SealPlace {
                before: b"abd",
                ..PLACE
            },
        ];
        for place in others {
            assert_eq!(Seal::decode(&bytes, place), None, "{place:?}");
        }
        // Of the bytes before, one bit may have flipped: "c" and "d" differ in three.
        assert_eq!(Seal::decode_mended(&bytes, others[2]), None);
        let place = SealPlace {
            before: b"abb",
            ..PLACE
        };
        assert_eq!(Seal::decode_mended(&bytes, place), Some(SEAL));
    }

    #[test]
    fn no_other_bytes_are_a_seal() {
        let good = SEAL.encode(PLACE);
        for at in 0..SEAL_LEN {
            for bit in 0..8 {
                let mut bytes = good;
                bytes[at] ^= 1 << bit;
                assert_eq!(Seal::decode(&bytes, PLACE), None, "byte {at}, bit {bit}");
                assert_eq!(Seal::decode_mended(&bytes, PLACE), Some(SEAL));
                bytes[(at + 7) % SEAL_LEN] ^= 1;
                assert_eq!(Seal::decode_mended(&bytes, PLACE), None);
            }
            assert_eq!(Seal::decode(&good[..at], PLACE), None, "{at} bytes");
        }
        let impossible = Seal {
            foreign_end: 9001,
            ..SEAL
        };
        assert_eq!(Seal::decode(&impossible.encode(PLACE), PLACE), None);
    }
}
