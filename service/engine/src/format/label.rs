//! The store's name in its image (FORMAT.md section 4.4), in bytes of both header blocks that
//! CannyLS does not look at.
//!
//! By the name a service knows that a path leads to the store that it was configured for, although
//! the kernel has given the path to another disk.

use super::bytes::FieldReader;
use super::copies::COPY_OFFSET;
use super::error::Structure;
use super::header::HEADER_LEN;
use crate::crc32c;

/// The first bytes of a label.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsNm";
/// Where a label begins in its block: behind the header's fields.
pub const LABEL_OFFSET: usize = 48;
/// Most bytes of a name.
pub const MOST: usize = 64;

const MAGIC_LEN: usize = 4;
const CRC_LEN: usize = 4;

/// Bytes of a label.
pub const LABEL_LEN: usize = MAGIC_LEN + MOST + CRC_LEN;

const _: () = assert!(LABEL_LEN == 72, "FORMAT.md section 4.4");
const _: () = assert!(HEADER_LEN <= LABEL_OFFSET && LABEL_OFFSET + LABEL_LEN <= COPY_OFFSET);

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[("magic", MAGIC_LEN), ("name", MOST), ("CRC32C", CRC_LEN)];

/// True: a store can be given this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    is_readable(name) && !name.starts_with('-') && ![".", ".."].contains(&name)
}

/// True: an image can have this name. Earlier versions gave names that look like an option or a folder.
fn is_readable(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MOST).contains(&name.len()) && name.bytes().all(good)
}

/// Why no store can have this name.
#[must_use]
pub fn wrong_name(name: &str) -> String {
    format!(
        "{name:?} is no store name: use 1 to {MOST} letters, digits, '-', '_' or '.', no '-' first, \
         and neither \".\" nor \"..\""
    )
}

/// Reads the label of a block. `None`: there is none, or none that is intact.
#[must_use]
pub fn decode(block: &[u8]) -> Option<String> {
    let bytes = block.get(LABEL_OFFSET..)?;
    let mut fields = FieldReader::new(Structure::Header, bytes);
    let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
    let name: [u8; MOST] = fields.array("name").ok()?;
    let covered = bytes.get(..fields.position())?;
    let intact = magic == MAGIC && fields.u32_be("CRC32C").ok()? == crc32c::of(covered);
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(MOST);
    let name = std::str::from_utf8(name.get(..len)?).ok()?;
    (intact && is_readable(name)).then(|| name.to_owned())
}

/// Writes a name to its place in a block; without one, nothing.
pub fn put_into(block: &mut [u8], name: Option<&str>) {
    let Some(name) = name else { return };
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(LABEL_LEN - CRC_LEN, 0);
    bytes.extend_from_slice(&crc32c::of(&bytes).to_be_bytes());
    if let Some(label) = block.get_mut(LABEL_OFFSET..LABEL_OFFSET + LABEL_LEN) {
        label.copy_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_damage_makes_it_none() {
        let mut block = vec![0; 512];
        put_into(&mut block, None);
        assert_eq!(block, vec![0; 512]);
        assert_eq!(decode(&block), None);
        for name in ["a", "fast-1.b_C", &"x".repeat(MOST)] {
            put_into(&mut block, Some(name));
            assert_eq!(decode(&block).as_deref(), Some(name));
        }
        for at in LABEL_OFFSET..LABEL_OFFSET + LABEL_LEN {
            block[at] ^= 1;
            assert_eq!(decode(&block), None, "byte {at}");
            block[at] ^= 1;
        }
        assert_eq!(decode(&block[..100]), None);
        put_into(&mut block, Some("a name"));
        assert_eq!(decode(&block), None, "no store has such a name");
    }

    #[test]
    fn a_name_that_an_earlier_version_gave_is_read() {
        let mut block = vec![0; 512];
        for name in ["--help", "..", "."] {
            put_into(&mut block, Some(name));
            assert_eq!(decode(&block).as_deref(), Some(name));
        }
        for name in ["a-", "...", ".a", "_"] {
            assert!(is_name(name), "{name:?}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        let long = "x".repeat(MOST + 1);
        for name in [
            "", "a b", "a=b", "\u{e4}", "a/b", "a\n", &long, "-", "--help", ".", "..",
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
