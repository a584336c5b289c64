//! Looks for bytes that nothing has told of: data without a signature, and the backups of
//! signatures that are gone.
//!
//! What libblkid finds stands at a few places. A disk without any of it can be full: encrypted
//! without a header, part of a RAID that knows its members by other means, or a file system whose
//! first block was erased by accident. So [`find`] reads both ends, the places where file systems
//! have their backups, and a thousand places in between.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::{Signature, SignatureKind};
use crate::buffer::{AlignedBuf, BufferPool};
use crate::error::is_bad_spot;
use crate::format::copies;
use crate::format::header;
use crate::units::{ByteOffset, to_usize};

/// Bytes of one read.
const READ_LEN: u64 = 64 << 10;
/// Bytes at both ends that are read whole.
const END_LEN: u64 = 1 << 20;
/// Places in between: data that covers 1 % of a device is missed once in 20,000 times.
const PLACES: u64 = 1000;
/// Kinds of findings at most: one is enough to leave the device alone.
const MOST_KINDS: usize = 4;
/// Places that the medium may refuse to read: a disk with some bad ones is a disk.
const MOST_UNREADABLE: usize = 16;
/// Unit in which structures begin.
const SECTOR: usize = 512;

/// A structure that is known by bytes at a place in its first sector.
type Magic = (&'static str, SignatureKind, usize, &'static [u8]);

/// What can be left of something whose first signature is gone.
const MAGICS: [Magic; 12] = [
    ("xfs", SignatureKind::FileSystem, 0, b"XFSB"),
    ("xfs", SignatureKind::FileSystem, 0, b"XAGF"),
    ("btrfs", SignatureKind::FileSystem, 64, b"_BHRfS_M"),
    ("gpt", SignatureKind::PartitionTable, 0, b"EFI PART"),
    ("LVM2_member", SignatureKind::Raid, 0, b"LABELONE"),
    ("LVM2_member", SignatureKind::Raid, 4, b" LVM2 x[5A%r0N*>"),
    (
        "linux_raid_member",
        SignatureKind::Raid,
        0,
        b"\xfc\x4e\x2b\xa9",
    ),
    ("crypto_LUKS", SignatureKind::Crypto, 0, b"LUKS\xba\xbe"),
    ("crypto_LUKS", SignatureKind::Crypto, 0, b"SKUL\xba\xbe"),
    ("lusf", SignatureKind::Store, 0, &header::MAGIC),
    (
        "lusf",
        SignatureKind::Store,
        copies::COPY_OFFSET,
        &copies::MAGIC,
    ),
    (
        "lusf",
        SignatureKind::Store,
        copies::COPY_OFFSET,
        &copies::OLD_MAGIC,
    ),
];

/// What is on a device of `len` bytes, which is open for direct I/O in units of `unit` bytes: of
/// each kind the first that is met. Empty: every place that was read has nothing but zeros, or
/// nothing but ones.
///
/// # Errors
/// Too much cannot be read: nothing may be concluded.
pub(crate) fn find(file: &File, len: u64, unit: u64) -> io::Result<Vec<Signature>> {
    let mut reader = Reader {
        file,
        buf: BufferPool::new(4096).get(to_usize(READ_LEN)),
        unreadable: 0,
    };
    let mut found = Vec::new();
    for at in likely(len, unit) {
        reader.look(at, &mut found)?;
        if found.len() >= MOST_KINDS {
            break;
        }
    }
    for at in spread(len, unit) {
        if !found.is_empty() {
            break;
        }
        reader.look(at, &mut found)?;
    }
    // A name says more than what the bytes look like.
    let named = |it: &Signature| it.class != SignatureKind::Data;
    if found.iter().any(named) {
        found.retain(named);
    }
    Ok(found)
}

/// Both ends, and where backups are, in ascending order.
fn likely(len: u64, unit: u64) -> Vec<u64> {
    let whole = |range: std::ops::Range<u64>| range.step_by(usize::try_from(READ_LEN).unwrap_or(1));
    let mut all: Vec<u64> = whole(0..END_LEN.min(len)).collect();
    all.extend(whole(len.saturating_sub(END_LEN)..len));
    all.extend(backups(len));
    all.retain(|at| *at < len);
    for at in &mut all {
        *at -= *at % unit;
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Where file systems and encrypted volumes have the backups of their first bytes.
fn backups(len: u64) -> Vec<u64> {
    const MIB: u64 = 1 << 20;
    // btrfs, LUKS2.
    let mut all = vec![64 * MIB, 256 << 30, MIB, 2 * MIB, 4 * MIB];
    // ext: the first block of some groups, of eight bitmaps of blocks each.
    for block in [1 << 10, 2 << 10, 4 << 10, 64 << 10] {
        let first = if block == 1 << 10 { block } else { 0 };
        let groups = [1, 3, 5, 7, 9, 25, 27, 49].into_iter();
        all.extend(groups.map(|group| first + group * 8 * block * block));
    }
    // xfs: a quarter of the device, at most 1 TiB, is an allocation group.
    for block in [512, 1 << 10, 4 << 10] {
        let group = (len / block).div_ceil(4) * block;
        all.extend((1..4).map(|number| number * group.min(1 << 40)));
    }
    all
}

/// The places in between.
fn spread(len: u64, unit: u64) -> impl Iterator<Item = u64> {
    let step = (len / PLACES).max(READ_LEN).next_multiple_of(unit);
    (0..len).step_by(to_usize(step))
}

struct Reader<'a> {
    file: &'a File,
    buf: AlignedBuf,
    unreadable: usize,
}

impl Reader<'_> {
    /// Reads one place, and adds what is there.
    fn look(&mut self, at: u64, found: &mut Vec<Signature>) -> io::Result<()> {
        let len = match self.file.read_at(&mut self.buf[..], at) {
            Err(error) if is_bad_spot(&error) && self.unreadable < MOST_UNREADABLE => {
                self.unreadable += 1;
                return Ok(());
            }
            read => read?,
        };
        let bytes = &self.buf[..len];
        if let Some(signature) = recognise(bytes, at)
            && found.iter().all(|known| known.kind != signature.kind)
        {
            found.push(signature);
        }
        Ok(())
    }
}

/// What these bytes are; `None`: a place that nobody has written.
fn recognise(bytes: &[u8], at: u64) -> Option<Signature> {
    let blank = |value: u8| bytes.iter().all(|byte| *byte == value);
    if blank(0) || blank(u8::MAX) {
        return None;
    }
    let sectors = bytes.chunks(SECTOR).zip((at..).step_by(SECTOR));
    for (sector, start) in sectors {
        if let Some((kind, class, offset, len)) = name_of(sector) {
            return Some(Signature {
                kind: kind.to_owned(),
                class,
                offset: Some(ByteOffset(start + offset as u64)),
                magic_len: len,
            });
        }
    }
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
    Some(Signature {
        kind: describe(bytes).to_owned(),
        class: SignatureKind::Data,
        offset: Some(ByteOffset(at + first as u64)),
        magic_len: 0,
    })
}

/// Name, kind, and the place of the magic in a sector.
fn name_of(sector: &[u8]) -> Option<(&'static str, SignatureKind, usize, usize)> {
    if is_ext_superblock(sector) {
        return Some(("ext2/3/4", SignatureKind::FileSystem, 56, 2));
    }
    let here = |(_, _, offset, magic): &&Magic| {
        let bytes = sector.get(*offset..);
        bytes.is_some_and(|bytes| bytes.starts_with(magic))
    };
    let (kind, class, offset, magic) = MAGICS.iter().find(here)?;
    Some((kind, *class, *offset, magic.len()))
}

/// The magic of ext has two bytes only; so some fields must make sense, too.
fn is_ext_superblock(sector: &[u8]) -> bool {
    let word = |at: usize| {
        let bytes = sector.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let magic = sector.get(56..58) == Some(&[0x53, 0xef]);
    let (inodes, blocks, block_size) = (word(0), word(4), word(24));
    magic && inodes > Some(0) && blocks > Some(0) && block_size.is_some_and(|log| log <= 6)
}

/// What bytes without a name look like.
fn describe(bytes: &[u8]) -> &'static str {
    let written = || bytes.iter().filter(|byte| **byte != 0);
    if written().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        return "text";
    }
    let mut counts = [0_usize; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    // Of random bytes, each value comes about equally often.
    let most = bytes.len() / 256 * 2;
    if bytes.len() >= 16 << 10 && counts.iter().all(|count| *count > 0 && *count <= most) {
        return "random bytes (encrypted or compressed)";
    }
    "data"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_aligned_ascending_within_the_device_and_bounded() {
        for len in [512, 4096, 1 << 20, (1 << 20) + 512, 100 << 20, 18 << 40] {
            let likely = likely(len, 512);
            assert!(likely.len() <= 100, "{len}: {}", likely.len());
            assert!(likely.is_sorted() && likely.first() == Some(&0), "{len}");
            assert!(likely.iter().all(|at| *at < len && at % 512 == 0), "{len}");
            assert!(spread(len, 512).count() as u64 <= PLACES + 1, "{len}");
            assert!(spread(len, 4096).all(|at| at % 4096 == 0), "{len}");
            let last = likely.last().map(|at| at + READ_LEN);
            assert!(last >= Some(len), "{len}: its end is not read");
        }
    }

    #[test]
    fn bytes_are_named_by_what_they_are() {
        let mut random = crate::random::Random::new(1);
        let mut noise = vec![0; 64 << 10];
        noise
            .iter_mut()
            .for_each(|byte| *byte = random.next().to_le_bytes()[3]);
        assert_eq!(describe(&noise), "random bytes (encrypted or compressed)");
        assert_eq!(describe(b"a line\nand another\0\0"), "text");
        assert_eq!(describe(&[1, 2, 3]), "data");
        assert_eq!(recognise(&[0; 1024], 0), None);
        assert_eq!(recognise(&[255; 1024], 0), None);
        let mut store = vec![0; 1024];
        store[512 + copies::COPY_OFFSET..][..4].copy_from_slice(&copies::MAGIC);
        let found = recognise(&store, 65_536).unwrap();
        let text = "lusf lump store (signature at byte 66176)";
        assert_eq!(found.to_string(), text);
        store[700] = 1;
        store[512 + copies::COPY_OFFSET] = 0;
        let found = recognise(&store, 4096).unwrap().to_string();
        assert!(found.starts_with("data at byte "), "{found}");
    }
}
