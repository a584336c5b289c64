//! minfs, the file system around a store on a raw block device (FORMAT.md section 9).
//!
//! Its one file has its blocks one after the other from byte 61,440 to the end of the device, so
//! the file's bytes can be used without the file system. The integers are little-endian.

use super::bytes::{FieldReader, hex};
use super::error::{DecodeError, DecodeErrorKind, Structure};

/// Bytes of a block of minfs, whatever the store's block size is.
pub const BLOCK_LEN: u64 = 4096;
/// First bytes of the superblock, as a little-endian number of 64 bits.
pub const MAGIC: u64 = 0xDEAD_F00D;
/// The version that is written and read.
pub const VERSION: u8 = 1;
/// Blocks that making a minfs zeroes.
pub const ZEROED_BLOCKS: u64 = 128;
/// Number of the root directory's inode.
pub const ROOT_INODE: u32 = 0;
/// Number of the one file's inode.
pub const FILE_INODE: u32 = 1;
/// First byte of the inode table.
pub const INODES_OFFSET: u64 = BLOCK_LEN;
/// First byte of the root directory.
pub const DIRECTORY_OFFSET: u64 = 2 * BLOCK_LEN;
/// First byte of the one file: of the lusf image.
pub const FILE_OFFSET: u64 = (FIRST_FILE_BLOCK + BLOCKS_PER_INODE * FILE_INODE as u64) * BLOCK_LEN;
/// Name of the file in the root directory.
pub const FILE_NAME: &str = "lusf";

const FIRST_FILE_BLOCK: u64 = 10;
const BLOCKS_PER_INODE: u64 = 5;
const ROOT_DATA_BLOCK: u16 = 2;
const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_FILE: u32 = 0o100_644;

const MAGIC_LEN: usize = 8;
const VERSION_LEN: usize = 1;
const SUPERBLOCK_PAD_LEN: usize = 7;
const BITMAP_LEN: usize = 8;
/// Bytes of the superblock that carry fields.
pub const SUPERBLOCK_LEN: usize = MAGIC_LEN + VERSION_LEN + SUPERBLOCK_PAD_LEN + BITMAP_LEN;

const MODE_LEN: usize = 4;
const UID_LEN: usize = 4;
const GID_LEN: usize = 4;
const SIZE_LEN: usize = 4;
const DATA_BLOCK_LEN: usize = 2;
const INODE_PAD_LEN: usize = 2;
/// Bytes of an inode.
pub const INODE_LEN: usize =
    MODE_LEN + UID_LEN + GID_LEN + SIZE_LEN + DATA_BLOCK_LEN + INODE_PAD_LEN;

const INO_LEN: usize = 4;
/// Most bytes of a file name; a name of this length has no terminating zero.
pub const NAME_LEN: usize = 16;
/// Bytes of a directory entry.
pub const DIR_ENTRY_LEN: usize = INO_LEN + NAME_LEN;

const _: () = assert!(SUPERBLOCK_LEN == 24, "FORMAT.md section 9");
const _: () = assert!(INODE_LEN == 20, "FORMAT.md section 9");
const _: () = assert!(DIR_ENTRY_LEN == 20, "FORMAT.md section 9");
const _: () = assert!(FILE_OFFSET == 61_440, "FORMAT.md section 9");

/// Name and length of the superblock's fields, for FORMAT.md's test.
pub const SUPERBLOCK_FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("version", VERSION_LEN),
    ("padding", SUPERBLOCK_PAD_LEN),
    ("inode bitmap", BITMAP_LEN),
];
/// Name and length of an inode's fields, for FORMAT.md's test.
pub const INODE_FIELDS: &[(&str, usize)] = &[
    ("mode", MODE_LEN),
    ("uid", UID_LEN),
    ("gid", GID_LEN),
    ("size", SIZE_LEN),
    ("data block", DATA_BLOCK_LEN),
    ("padding", INODE_PAD_LEN),
];
/// Name and length of a directory entry's fields, for FORMAT.md's test.
pub const DIR_ENTRY_FIELDS: &[(&str, usize)] = &[("inode", INO_LEN), ("name", NAME_LEN)];

/// The superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bit `n` is set when inode `n` is in use. The kernel module never writes it back, so a
    /// clear bit means nothing.
    pub inode_bitmap: u64,
}

impl Superblock {
    /// A superblock of a minfs that has its file.
    pub const WITH_FILE: Self = Self {
        inode_bitmap: (1 << ROOT_INODE) | (1 << FILE_INODE),
    };

    /// Reads the first [`SUPERBLOCK_LEN`] bytes of a device.
    ///
    /// # Errors
    /// [`DecodeError`] when the magic or the version is another.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::MinfsSuperblock, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic")?;
        if magic != MAGIC.to_le_bytes() {
            let expected = hex(&MAGIC.to_le_bytes());
            let kind = DecodeErrorKind::Constant {
                expected,
                found: hex(&magic),
            };
            return Err(fields.error("magic", 0, kind));
        }
        let at = fields.position();
        let [version] = fields.array("version")?;
        if version != VERSION {
            let kind = DecodeErrorKind::Version {
                expected: "1",
                found: u64::from(version),
            };
            return Err(fields.error("version", at, kind));
        }
        let _: [u8; SUPERBLOCK_PAD_LEN] = fields.array("padding")?;
        let inode_bitmap = fields.array("inode bitmap").map(u64::from_le_bytes)?;
        Ok(Self { inode_bitmap })
    }

    /// The superblock as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_LEN] {
        concat(&[
            &MAGIC.to_le_bytes(),
            &[VERSION],
            &[0; SUPERBLOCK_PAD_LEN],
            &self.inode_bitmap.to_le_bytes(),
        ])
    }
}

/// An inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// File type and permissions, as in `stat`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of the file modulo 2^32: the lusf header knows the true size.
    pub size: u32,
    /// Block of a directory's entries; of no meaning for the file.
    pub data_block: u16,
}

impl Inode {
    /// The root directory's inode, as mkfs writes it.
    pub const ROOT: Self = Self {
        mode: MODE_DIRECTORY,
        uid: 0,
        gid: 0,
        size: 0,
        data_block: ROOT_DATA_BLOCK,
    };

    /// The inode of the one file with `len` bytes, as the kernel module would write it.
    #[must_use]
    pub fn of_file(len: u64) -> Self {
        let [.., a, b, c, d] = len.to_be_bytes();
        let size = u32::from_be_bytes([a, b, c, d]);
        Self {
            mode: MODE_FILE,
            uid: 0,
            gid: 0,
            size,
            data_block: ROOT_DATA_BLOCK + 1,
        }
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// [`DecodeError`] when there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::MinfsInode, bytes);
        let mode = fields.array("mode").map(u32::from_le_bytes)?;
        let uid = fields.array("uid").map(u32::from_le_bytes)?;
        let gid = fields.array("gid").map(u32::from_le_bytes)?;
        let size = fields.array("size").map(u32::from_le_bytes)?;
        let data_block = fields.array("data block").map(u16::from_le_bytes)?;
        let _: [u8; INODE_PAD_LEN] = fields.array("padding")?;
        Ok(Self {
            mode,
            uid,
            gid,
            size,
            data_block,
        })
    }

    /// The inode as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; INODE_LEN] {
        concat(&[
            &self.mode.to_le_bytes(),
            &self.uid.to_le_bytes(),
            &self.gid.to_le_bytes(),
            &self.size.to_le_bytes(),
            &self.data_block.to_le_bytes(),
            &[0; INODE_PAD_LEN],
        ])
    }
}

/// An entry of the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode number; 0: the entry is free.
    pub ino: u32,
    /// File name, filled up with zeros.
    pub name: [u8; NAME_LEN],
}

impl DirEntry {
    /// The entry of the one file.
    #[must_use]
    pub fn of_file() -> Self {
        Self {
            ino: FILE_INODE,
            name: concat(&[FILE_NAME.as_bytes()]),
        }
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`DecodeError`] when there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::MinfsDirEntry, bytes);
        let ino = fields.array("inode").map(u32::from_le_bytes)?;
        let name = fields.array("name")?;
        Ok(Self { ino, name })
    }

    /// The entry as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; DIR_ENTRY_LEN] {
        concat(&[&self.ino.to_le_bytes(), &self.name])
    }

    /// The name up to its first zero.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default()
    }
}

/// The first three blocks of a device whose file has `file_len` bytes: superblock, inodes,
/// directory.
#[must_use]
pub fn encode_metadata(file_len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut block = |parts: &[&[u8]]| {
        bytes.extend(parts.iter().copied().flatten());
        let end = bytes
            .len()
            .next_multiple_of(usize::try_from(BLOCK_LEN).unwrap_or(usize::MAX));
        bytes.resize(end, 0);
    };
    block(&[&Superblock::WITH_FILE.encode()]);
    block(&[&Inode::ROOT.encode(), &Inode::of_file(file_len).encode()]);
    block(&[&DirEntry::of_file().encode()]);
    bytes
}

/// `parts` one after the other; what is left of the array stays zero.
fn concat<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    bytes
}
