//! Records of which a bit has flipped (FORMAT.md section 5.4).
//!
//! Adler-32 tells one flipped bit from every other one in a record, so such a record can be read all
//! the same. That holds for its data, too, if it has some; but data is never made good by a
//! checksum of 32 bits: the lump is known, and known to be damaged.

use super::record::{
    CHECKSUM_LEN, DELETE_RANGE_LEN, Decoded, EMBED_PREFIX_LEN, Record, TAG_EMBED, checksum,
    claimed_len,
};

/// Modulus of Adler-32.
const MODULUS: u64 = 65521;

/// A damaged record that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// Bytes of a record that decodes. Of one whose data is damaged the data is that damaged one.
    pub record: Vec<u8>,
    /// The byte that is wrong, and its flipped bit; `None`: one somewhere in the data.
    pub flipped: Option<(usize, u8)>,
}

/// The damaged record at the front of `bytes` as it was; `None`: more than a bit of it has rotted.
/// `bytes` holds all of the record, with more behind it or not.
#[must_use]
pub fn mend(bytes: &[u8]) -> Option<Mended> {
    let fixed = bytes.len().min(DELETE_RANGE_LEN);
    let mut tried = bytes.to_vec();
    let mut found: Option<Mended> = None;
    for bit in 0..fixed * 8 {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        *tried.get_mut(at)? ^= mask;
        if let Ok(Decoded::Record { record, len }) = Record::decode(&tried) {
            let in_data = matches!(record, Record::Embed { .. }) && at >= EMBED_PREFIX_LEN;
            if at < len && !in_data {
                let record = tried.get(..len)?.to_vec();
                let flipped = Some((at, mask));
                // Two answers are none.
                if found.replace(Mended { record, flipped }).is_some() {
                    return None;
                }
            }
        }
        *tried.get_mut(at)? ^= mask;
    }
    found.or_else(|| damaged_data(bytes))
}

/// An `Embed` of which one bit of the data has flipped.
fn damaged_data(bytes: &[u8]) -> Option<Mended> {
    let len = claimed_len(bytes)?;
    let record = bytes.get(..len)?;
    if *record.get(CHECKSUM_LEN)? != TAG_EMBED {
        return None;
    }
    let stored = u32::from_be_bytes(*record.first_chunk()?);
    let computed = checksum(record);
    let halves = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
    let ((a, b), (other_a, other_b)) = (halves(stored), halves(computed));
    let minus = |from: u64, what: u64| (from + MODULUS - what % MODULUS) % MODULUS;
    // A byte that is larger by d, with n bytes from it to the end, adds d to one half and n * d to
    // the other.
    let (lacks, lacks_n) = (minus(a, other_a), minus(b, other_b));
    let is_it = |(n, byte): (u64, u8)| {
        (0..8).any(|bit| {
            let d = 1_u64 << bit;
            let lacking = if byte & (1 << bit) == 0 {
                d
            } else {
                MODULUS - d
            };
            lacks == lacking && lacks_n == lacking * (n % MODULUS) % MODULUS
        })
    };
    let data = record.get(EMBED_PREFIX_LEN..)?;
    if !(1_u64..).zip(data.iter().rev().copied()).any(is_it) {
        return None;
    }
    let mut record = record.to_vec();
    let sum = computed.to_be_bytes();
    record.first_chunk_mut()?.clone_from(&sum);
    Some(Mended {
        record,
        flipped: None,
    })
}

/// Makes the bytes of an `Embed` with damaged data a record that [`mend`] knows as that, however
/// much of the data is damaged.
pub fn condemn(record: &mut [u8]) {
    let Some(first) = record.get_mut(EMBED_PREFIX_LEN) else {
        return;
    };
    *first ^= 1;
    let sum = checksum(record).to_be_bytes();
    if let Some(first) = record.get_mut(EMBED_PREFIX_LEN) {
        *first ^= 1;
    }
    if let Some(field) = record.first_chunk_mut() {
        *field = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Portion;
    use crate::format::record::EmbeddedData;
    use crate::lump::LumpId;
    use crate::units::{BlockCount, BlockIndex};

    fn records(data: &[u8]) -> Vec<Record<'_>> {
        let (start, end) = (LumpId(7), LumpId(1 << 90));
        let portion = Portion::new(BlockIndex(9), BlockCount(3)).unwrap();
        vec![
            Record::EndOfRecords,
            Record::GoToFront,
            Record::Put { id: end, portion },
            Record::Embed {
                id: end,
                data: EmbeddedData::new(data).unwrap(),
            },
            Record::Delete { id: start },
            Record::DeleteRange { start, end },
        ]
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let data: Vec<u8> = (0..=255).chain(0..44).collect();
        for record in records(&data) {
            let sound = record.to_bytes();
            for bit in 0..sound.len() * 8 {
                let mut rotted = sound.clone();
                rotted[bit / 8] ^= 1 << (bit % 8);
                rotted.extend([0x5a; 64]);
                let found = mend(&rotted).unwrap_or_else(|| panic!("{record:?}, bit {bit}"));
                if bit / 8 >= EMBED_PREFIX_LEN && matches!(record, Record::Embed { .. }) {
                    assert_eq!(found.flipped, None);
                    assert_eq!(
                        found.record[4..EMBED_PREFIX_LEN],
                        sound[4..EMBED_PREFIX_LEN]
                    );
                    assert_eq!(found.record.len(), sound.len());
                } else {
                    assert_eq!(found.flipped, Some((bit / 8, 1 << (bit % 8))));
                    assert_eq!(found.record, sound);
                }
            }
        }
    }

    #[test]
    fn a_condemned_record_stays_known_as_damaged() {
        for len in [1, 2, 400, 65535] {
            let data = vec![0xff; len];
            let record = Record::Embed {
                id: LumpId(5),
                data: EmbeddedData::new(&data).unwrap(),
            };
            let mut bytes = record.to_bytes();
            condemn(&mut bytes);
            assert!(Record::decode(&bytes).is_err());
            let found = mend(&bytes).unwrap();
            assert_eq!(found.flipped, None, "{len}");
            assert_eq!(found.record, record.to_bytes());
        }
    }
}
