//! Runs: stretches of blocks whose puts are durable before their records (FORMAT.md section 8.2).
//!
//! While a run is open, the end of the journal has a [`RunSeal`], and each put in the run carries a
//! [`Link`]: it says which lump this is, its number in the run, and that it belongs to this run
//! and to no other one. So opening finds the puts that have no record yet.

use super::bytes::{FieldReader, join, with_bit_flipped};
use super::error::Structure;
use super::record::END_OF_RECORDS_LEN;
use super::seal::{MAGIC_LEN, SEAL_LEN, Seal, SealPlace, mended};
use super::sums::CRC_LEN;
use super::trailer::OVERHEAD_LEN;
use crate::crc32c;
use crate::lump::LumpId;
use crate::mutant::{self, Mutant};
use crate::units::SECTOR_LEN;

/// The first bytes of a seal with a run.
pub const SEAL_MAGIC: [u8; MAGIC_LEN] = *b"LsSt";
/// Those of one without a sum of the log: of versions before 0.3.
pub const OLD_SEAL_MAGIC: [u8; MAGIC_LEN] = *b"LsSr";
/// The first bytes of a link.
pub const LINK_MAGIC: [u8; MAGIC_LEN] = *b"LsRn";
/// Those of one behind an [`Annex`].
pub const ANNEX_LINK_MAGIC: [u8; MAGIC_LEN] = *b"LsRa";

const NUMBER_LEN: usize = 8;
const ID_LEN: usize = 16;
const BLOCKS_LEN: usize = 2;

/// Bytes of a seal with a run.
pub const RUN_SEAL_LEN: usize = SEAL_LEN + 3 * NUMBER_LEN + BLOCKS_LEN;
/// Bytes of an `EndOfRecords` and the seal with a run behind it.
pub const RUN_END_LEN: usize = END_OF_RECORDS_LEN + RUN_SEAL_LEN;
/// Bytes of a link.
pub const LINK_LEN: usize = MAGIC_LEN + ID_LEN + BLOCKS_LEN + 5 * NUMBER_LEN + CRC_LEN;
/// Bytes of an annex behind its records.
pub const ANNEX_LEN: usize = CONDITION_LEN + RECORDS_LEN + CRC_LEN;
const CONDITION_LEN: usize = 1;
const RECORDS_LEN: usize = 2;
/// Bytes from the end of a lump within which its link must lie.
const REACH: usize = 512;

const _: () = assert!(RUN_SEAL_LEN == 58, "FORMAT.md section 5.6");
const _: () = assert!(LINK_LEN == 66 && REACH as u64 == SECTOR_LEN);

/// Name and length of each field of a seal with a run, for FORMAT.md's test.
pub const SEAL_FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("epoch", NUMBER_LEN / 2),
    ("log sum", NUMBER_LEN / 2),
    ("log end", NUMBER_LEN),
    ("foreign end", NUMBER_LEN),
    ("key", NUMBER_LEN),
    ("start", NUMBER_LEN),
    ("blocks", BLOCKS_LEN),
    ("number", NUMBER_LEN),
    ("CRC32C", CRC_LEN),
];

/// Name and length of each field of a link, for FORMAT.md's test.
pub const LINK_FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("key", NUMBER_LEN),
    ("lump id", ID_LEN),
    ("blocks", BLOCKS_LEN),
    ("number", NUMBER_LEN),
    ("durable", NUMBER_LEN),
    ("log end", NUMBER_LEN),
    ("samples", NUMBER_LEN),
    ("CRC32C", CRC_LEN),
];

/// A run, and which of its puts have no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRun {
    /// Random, drawn for this run, and never handed out.
    pub key: u64,
    /// Its first block.
    pub start: u64,
    /// Its blocks.
    pub blocks: u16,
    /// Number of the first put without a record.
    pub number: u64,
}

/// A seal at the end of a journal beside which a run is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSeal {
    /// What the seal says without the run.
    pub seal: Seal,
    /// The run.
    pub run: OpenRun,
}

impl RunSeal {
    /// The bytes to be written directly behind the `EndOfRecords`.
    #[must_use]
    pub fn encode(&self, place: SealPlace<'_>) -> [u8; RUN_SEAL_LEN] {
        let Self { seal, run } = self;
        let magic = seal.log_sum.map_or(OLD_SEAL_MAGIC, |_| SEAL_MAGIC);
        let fields: [u8; RUN_SEAL_LEN - MAGIC_LEN - CRC_LEN] = join(&[
            &seal.fields(),
            &run.key.to_be_bytes(),
            &run.start.to_be_bytes(),
            &run.blocks.to_be_bytes(),
            &run.number.to_be_bytes(),
        ]);
        let crc = crc32c::append(place.crc(seal.log_sum.map(|_| magic)), &fields);
        join(&[&magic, &fields, &crc.to_be_bytes()])
    }

    /// The seal in the bytes behind an `EndOfRecords`; `None`: there is none that fits the place.
    #[must_use]
    pub fn decode(bytes: &[u8], place: SealPlace<'_>) -> Option<Self> {
        let mut fields = FieldReader::new(Structure::Seal, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
        let seal = Seal::of_fields(&mut fields, magic == SEAL_MAGIC)?;
        let run = OpenRun {
            key: fields.u64_be("key").ok()?,
            start: fields.u64_be("start").ok()?,
            blocks: fields.u16_be("blocks").ok()?,
            number: fields.u64_be("number").ok()?,
        };
        let found = Self { seal, run };
        bytes.starts_with(&found.encode(place)).then_some(found)
    }

    /// As [`Seal::decode_mended`].
    #[must_use]
    pub fn decode_mended(bytes: &[u8], place: SealPlace<'_>) -> Option<Self> {
        let bytes = bytes.get(..RUN_SEAL_LEN)?;
        let mended = |magic| mended(bytes, magic, place, Self::decode);
        mended(SEAL_MAGIC).or_else(|| mended(OLD_SEAL_MAGIC))
    }
}

/// Ties a put to its run. It stands directly before the chunk table, or before the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Of the run.
    pub key: u64,
    /// The lump.
    pub id: LumpId,
    /// Blocks of the lump, whose last one has the link.
    pub blocks: u16,
    /// Number of this put in the run, from 0.
    pub number: u64,
    /// The puts below this number were durable when this one was placed.
    pub durable: u64,
    /// Log offset of the end of the journal when this one was placed: the put is later.
    pub log_end: u64,
    /// Sum of the [samples](super::proof::samples) of the payload.
    pub samples: u64,
    /// True: an [`Annex`] stands before it.
    pub annexed: bool,
}

impl Link {
    /// The bytes on the disk.
    #[must_use]
    pub fn encode(&self) -> [u8; LINK_LEN] {
        let magic = if self.annexed {
            ANNEX_LINK_MAGIC
        } else {
            LINK_MAGIC
        };
        let mut bytes: [u8; LINK_LEN] = join(&[
            &magic,
            &self.key.to_be_bytes(),
            &self.id.to_be_bytes(),
            &self.blocks.to_be_bytes(),
            &self.number.to_be_bytes(),
            &self.durable.to_be_bytes(),
            &self.log_end.to_be_bytes(),
            &self.samples.to_be_bytes(),
            &[0; CRC_LEN],
        ]);
        let (covered, crc) = bytes.split_at_mut(LINK_LEN - CRC_LEN);
        crc.copy_from_slice(&crc32c::of(covered).to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(Structure::LumpEnd, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
        let key = fields.u64_be("key").ok()?;
        let id: [u8; ID_LEN] = fields.array("lump id").ok()?;
        let link = Self {
            key,
            id: LumpId::from_be_bytes(id),
            blocks: fields.u16_be("blocks").ok()?,
            number: fields.u64_be("number").ok()?,
            durable: fields.u64_be("durable").ok()?,
            log_end: fields.u64_be("log end").ok()?,
            samples: fields.u64_be("samples").ok()?,
            annexed: magic == ANNEX_LINK_MAGIC,
        };
        let crc = crc32c::of(bytes.get(..LINK_LEN - CRC_LEN)?);
        let is_known = magic == LINK_MAGIC || link.annexed;
        let fits = is_known && fields.u32_be("CRC32C").ok()? == crc;
        (fits && link.blocks > 0).then_some(link)
    }

    /// The link of this run at the end of a block, also when one bit of it has flipped, and the bytes
    /// from its first one to the end. Where it stands depends on the length of the chunk table, so each length is tried.
    #[must_use]
    pub fn find(block: &[u8], key: u64) -> Option<(Self, usize)> {
        let end = block.last_chunk::<REACH>()?;
        let key_bytes = key.to_be_bytes();
        let mut at = REACH - OVERHEAD_LEN - LINK_LEN;
        loop {
            let bytes = end.get(at..at + LINK_LEN)?;
            let (head, rest) = bytes.split_at(MAGIC_LEN);
            let magics = [LINK_MAGIC, ANNEX_LINK_MAGIC];
            let of_magic = magics.map(|magic| wrong_bits(head, &magic));
            let [plain, annexed] = of_magic;
            let wrong = plain.min(annexed) + wrong_bits(rest, &key_bytes);
            if wrong <= 1 || mutant::is(Mutant::ForgetsKeys) && plain.min(annexed) == 0 {
                let fits = |link: &Self| link.key == key || mutant::is(Mutant::ForgetsKeys);
                let mended = || with_bit_flipped(bytes, |bytes, _| Self::decode(bytes));
                let link = Self::decode(bytes).or_else(mended);
                if let Some(link) = link.filter(fits) {
                    return Some((link, REACH - at));
                }
            }
            at = at.checked_sub(CRC_LEN)?;
        }
    }
}

/// The rest of a put in a run, if it is more than one lump that replaces whatever there is. Stands
/// directly before the link: records, condition, their length, CRC32C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annex {
    /// True: the put is void where there is a lump of this id.
    pub if_absent: bool,
    /// Records, encoded, that follow that of the data.
    pub records: Vec<u8>,
}

impl Annex {
    /// Bytes that it takes with records of so many bytes.
    #[must_use]
    pub const fn len_with(records: usize) -> usize {
        records + ANNEX_LEN
    }

    /// The bytes on the disk, before this link; `None`: there are too many records.
    #[must_use]
    pub fn encode(&self, link: &Link) -> Option<Vec<u8>> {
        let len = u16::try_from(self.records.len()).ok()?;
        let mut bytes = self.records.clone();
        bytes.push(self.if_absent.into());
        bytes.extend_from_slice(&len.to_be_bytes());
        let crc = Self::crc(&bytes, link);
        bytes.extend_from_slice(&crc.to_be_bytes());
        Some(bytes)
    }

    /// The annex that ends where this link begins, with one bit flipped back if need be. `before`: the
    /// bytes of the lump before the link. `None`: it is not what was written.
    #[must_use]
    pub fn decode(before: &[u8], link: &Link) -> Option<Self> {
        let exact = |bytes: &[u8]| {
            let (rest, crc) = bytes.split_last_chunk::<CRC_LEN>()?;
            let (_, len) = rest.split_last_chunk::<RECORDS_LEN>()?;
            let whole = usize::from(u16::from_be_bytes(*len)) + CONDITION_LEN + RECORDS_LEN;
            let covered = rest.get(rest.len().checked_sub(whole)?..)?;
            let records = covered.get(..whole - CONDITION_LEN - RECORDS_LEN)?;
            let condition = *covered.get(records.len())?;
            let fits = Self::crc(covered, link).to_be_bytes() == *crc && condition <= 1;
            fits.then(|| Self {
                if_absent: condition == 1,
                records: records.to_vec(),
            })
        };
        exact(before).or_else(|| with_bit_flipped(before, |bytes, _| exact(bytes)))
    }

    /// CRC32C of run, number and id, and of what is covered: it fits this put and no other one.
    fn crc(covered: &[u8], link: &Link) -> u32 {
        let put: [u8; 2 * NUMBER_LEN + ID_LEN] = join(&[
            &link.key.to_be_bytes(),
            &link.number.to_be_bytes(),
            &link.id.to_be_bytes(),
        ]);
        crc32c::append(crc32c::of(&put), covered)
    }
}

/// True: a lump with so many bytes behind its payload, of which it needs `overhead`, has room for a
/// link.
#[must_use]
pub fn has_room_for_link(tail_len: u64, overhead: u64) -> bool {
    let needed = overhead + LINK_LEN as u64;
    needed <= tail_len && needed <= REACH as u64
}

/// Bits in which the front of `bytes` differs.
fn wrong_bits(bytes: &[u8], expected: &[u8]) -> u32 {
    let pairs = bytes.iter().zip(expected);
    pairs
        .map(|(byte, expected)| (byte ^ expected).count_ones())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::RingPosition;

    const LINK: Link = Link {
        key: 0x0123_4567_89ab_cdef,
        id: LumpId(7),
        blocks: 3,
        number: 900,
        durable: 890,
        log_end: 5000,
        samples: 99,
        annexed: false,
    };

    fn block(tables: usize) -> Vec<u8> {
        let mut block = vec![0; 1536];
        let at = block.len() - OVERHEAD_LEN - tables * CRC_LEN - LINK_LEN;
        block[at..at + LINK_LEN].copy_from_slice(&LINK.encode());
        block
    }

    #[test]
    fn a_link_is_found_wherever_the_table_ends() {
        for tables in [0, 1, 16, 105] {
            let found = Link::find(&block(tables), LINK.key).map(|it| it.0);
            assert_eq!(found, Some(LINK), "{tables}");
            assert_eq!(
                Link::find(&block(tables), LINK.key ^ 0xf0),
                None,
                "{tables}"
            );
        }
        assert!(has_room_for_link(600, 446) && !has_room_for_link(600, 447));
        assert!(has_room_for_link(90, 24) && !has_room_for_link(89, 24));
        assert_eq!(Link::find(&[0; 100], LINK.key), None);
    }

    #[test]
    fn an_annex_fits_its_own_put_and_one_flipped_bit_is_made_good() {
        let link = Link {
            annexed: true,
            ..LINK
        };
        let annex = Annex {
            if_absent: true,
            records: vec![7; 90],
        };
        let mut bytes = vec![3; 40];
        bytes.extend(annex.encode(&link).unwrap());
        assert_eq!(bytes.len(), 40 + Annex::len_with(90));
        assert_eq!(Annex::decode(&bytes, &link).as_ref(), Some(&annex));
        let other = Link {
            number: 901,
            ..link
        };
        assert_eq!(Annex::decode(&bytes, &other), None);
        for bit in 40 * 8..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = Annex::decode(&bytes, &link);
            assert_eq!(found.as_ref(), Some(&annex), "bit {bit}");
        }
        assert_eq!(Annex::decode(&[], &link), None);
        let block = |link: Link| {
            let mut block = block(0);
            let at = block.len() - OVERHEAD_LEN - LINK_LEN;
            block[at..at + LINK_LEN].copy_from_slice(&link.encode());
            block
        };
        let from_end = OVERHEAD_LEN + LINK_LEN;
        assert_eq!(Link::find(&block(link), LINK.key), Some((link, from_end)));
    }

    #[test]
    fn one_flipped_bit_of_a_link_is_made_good_and_two_are_not() {
        let at = 1536 - OVERHEAD_LEN - LINK_LEN;
        for bit in 0..LINK_LEN * 8 {
            let mut block = block(0);
            block[at + bit / 8] ^= 1 << (bit % 8);
            let found = Link::find(&block, LINK.key).map(|it| it.0);
            assert_eq!(found, Some(LINK), "bit {bit}");
            block[at + (bit / 8 + 5) % LINK_LEN] ^= 1;
            assert_eq!(
                Link::find(&block, LINK.key),
                None,
                "bit {bit} and another one"
            );
        }
    }

    #[test]
    fn a_seal_with_a_run_fits_its_own_place_only() {
        let place = |tail, before| SealPlace {
            uuid: [7; 16],
            tail: RingPosition(tail),
            before,
        };
        let seal = RunSeal {
            seal: Seal {
                epoch: 5,
                log_end: 9000,
                foreign_end: 9000,
                log_sum: Some(7),
            },
            run: OpenRun {
                key: LINK.key,
                start: 1 << 36,
                blocks: 8192,
                number: 7,
            },
        };
        let here = place(515, b"abc");
        let bytes = seal.encode(here);
        assert_eq!(RunSeal::decode(&bytes, here), Some(seal));
        assert_eq!(RunSeal::decode(&bytes, place(516, b"abc")), None);
        assert_eq!(RunSeal::decode(&bytes, place(515, b"abd")), None);
        for bit in 0..RUN_SEAL_LEN * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RunSeal::decode(&bytes, here), None, "bit {bit}");
            let expected = Some(seal);
            assert_eq!(RunSeal::decode_mended(&bytes, here), expected, "bit {bit}");
        }
    }
}
