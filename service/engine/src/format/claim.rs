//! The claim of the machine that has the store open (FORMAT.md section 4.5), in bytes of the header
//! block that CannyLS leaves alone.

use super::bytes::{FieldReader, join};
use super::error::Structure;
use super::unfinished;
use crate::crc32c;

/// The first bytes of a claim.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsCl";
/// Where a claim begins in the header block: behind the mark of an unfinished copy.
pub const CLAIM_OFFSET: usize = 440;
/// Most bytes of a host name; a longer one is cut off.
pub const HOST_LEN: usize = 24;

const MAGIC_LEN: usize = 4;
const NUMBER_LEN: usize = 8;
const CRC_LEN: usize = 4;

/// Bytes of a claim.
pub const CLAIM_LEN: usize = MAGIC_LEN + 4 * NUMBER_LEN + HOST_LEN + CRC_LEN;

const _: () = assert!(CLAIM_LEN == 64, "FORMAT.md section 4.5");
const _: () = assert!(
    unfinished::MARK_OFFSET + unfinished::MARK_LEN <= CLAIM_OFFSET
        && CLAIM_OFFSET + CLAIM_LEN <= 510,
    "behind the mark, and no signature of others there"
);

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("machine", NUMBER_LEN),
    ("boot", NUMBER_LEN),
    ("nonce", NUMBER_LEN),
    ("since", NUMBER_LEN),
    ("host", HOST_LEN),
    ("CRC32C", CRC_LEN),
];

/// A machine's claim to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Hash of the machine's id; 0: it has none.
    pub machine: u64,
    /// Hash of the id of its kernel's boot; 0: unknown.
    pub boot: u64,
    /// Random, drawn for each opening.
    pub nonce: u64,
    /// Time of the opening, in seconds since 1970.
    pub since: u64,
    /// Host name, at most [`HOST_LEN`] bytes.
    pub host: String,
}

/// Reads the claim of a header block. `None`: there is none, or none that is intact.
///
/// A claim is written in one sector, and flushed before its store is used: nobody has served the
/// store under a claim that was torn.
#[must_use]
pub fn decode(block: &[u8]) -> Option<Claim> {
    let bytes = block.get(CLAIM_OFFSET..)?;
    let mut fields = FieldReader::new(Structure::Header, bytes);
    let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
    let machine = fields.u64_be("machine").ok()?;
    let boot = fields.u64_be("boot").ok()?;
    let nonce = fields.u64_be("nonce").ok()?;
    let since = fields.u64_be("since").ok()?;
    let host: [u8; HOST_LEN] = fields.array("host").ok()?;
    let covered = bytes.get(..fields.position())?;
    let intact = magic == MAGIC && fields.u32_be("CRC32C").ok()? == crc32c::of(covered);
    let host = host.into_iter().filter(u8::is_ascii_graphic);
    intact.then(|| Claim {
        machine,
        boot,
        nonce,
        since,
        host: host.map(char::from).collect(),
    })
}

/// Writes a claim to its place in a header block; without one, zeros.
pub fn put_into(block: &mut [u8], claim: Option<&Claim>) {
    if let Some(place) = block.get_mut(CLAIM_OFFSET..CLAIM_OFFSET + CLAIM_LEN) {
        place.copy_from_slice(&claim.map_or([0; CLAIM_LEN], Claim::encode));
    }
}

impl Claim {
    fn encode(&self) -> [u8; CLAIM_LEN] {
        let numbers = [self.machine, self.boot, self.nonce, self.since].map(u64::to_be_bytes);
        let mut host = [0; HOST_LEN];
        let bytes = self.host.bytes();
        host.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        let covered: [u8; CLAIM_LEN - CRC_LEN] = join(&[&MAGIC, numbers.as_flattened(), &host]);
        join(&[&covered, &crc32c::of(&covered).to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_back_and_damage_makes_it_none() {
        let mut claim = Claim {
            machine: 1,
            boot: 2,
            nonce: 3,
            since: 4,
            host: "a-host.example.org-and-more".to_owned(),
        };
        let mut block = vec![0; 512];
        assert_eq!(decode(&block), None);
        put_into(&mut block, Some(&claim));
        claim.host.truncate(HOST_LEN);
        assert_eq!(decode(&block), Some(claim));
        for at in CLAIM_OFFSET..CLAIM_OFFSET + CLAIM_LEN {
            block[at] ^= 1;
            assert_eq!(decode(&block), None, "byte {at}");
            block[at] ^= 1;
        }
        assert_eq!(decode(&block[..500]), None);
        put_into(&mut block, None);
        assert_eq!(block, vec![0; 512]);
    }
}
