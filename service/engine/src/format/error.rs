//! Damage in bytes that were read.

use std::fmt;

/// A structure of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// The header region (FORMAT.md section 3).
    Header,
    /// A checked copy of header and ring head (FORMAT.md section 4.1).
    HeaderCopy,
    /// The journal header block (FORMAT.md section 4).
    JournalHeader,
    /// A record of the journal's ring (FORMAT.md section 5).
    Record,
    /// The seal behind the journal's end (FORMAT.md section 5.3).
    Seal,
    /// A checkpoint of the index (FORMAT.md section 12).
    Checkpoint,
    /// A portion of the data region (FORMAT.md section 6).
    Portion,
    /// The last bytes of a lump (FORMAT.md section 7).
    LumpEnd,
    /// The superblock of a minfs (FORMAT.md section 9).
    MinfsSuperblock,
    /// An inode of a minfs (FORMAT.md section 9).
    MinfsInode,
    /// A directory entry of a minfs (FORMAT.md section 9).
    MinfsDirEntry,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "lusf header",
            Self::HeaderCopy => "checked copy of the header",
            Self::JournalHeader => "journal header",
            Self::Record => "journal record",
            Self::Seal => "seal of the journal",
            Self::Checkpoint => "checkpoint of the index",
            Self::Portion => "portion",
            Self::LumpEnd => "end of the lump",
            Self::MinfsSuperblock => "minfs superblock",
            Self::MinfsInode => "minfs inode",
            Self::MinfsDirEntry => "minfs directory entry",
        })
    }
}

/// Bytes that are not what the format allows. The message says which field of which structure,
/// at which byte of that structure, what was expected there and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: {field} (byte {offset}): {kind}")]
pub struct DecodeError {
    /// The structure.
    pub structure: Structure,
    /// The field of the structure.
    pub field: &'static str,
    /// First byte of the field, from the start of the structure.
    pub offset: usize,
    /// Expected and found.
    pub kind: DecodeErrorKind,
}

/// Expected and actual state, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// Fewer bytes than the structure has.
    #[error("expected {expected} bytes, found {found}")]
    TooShort {
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Bytes that must have one certain value have another.
    #[error("expected {expected}, found {found}")]
    Constant {
        /// Expected bytes, in hexadecimal.
        expected: String,
        /// Actual bytes, in hexadecimal.
        found: String,
    },
    /// A version that this code does not know.
    #[error("expected {expected}, found {found}")]
    Version {
        /// Values that this code reads.
        expected: &'static str,
        /// Actual value.
        found: u64,
    },
    /// A number outside its range.
    #[error("expected {expected}, found {found}")]
    Range {
        /// The range, in words.
        expected: &'static str,
        /// Actual value.
        found: u64,
    },
    /// A number that is larger than its bound, which depends on other fields.
    #[error("expected at most {max}, found {found}")]
    TooLarge {
        /// Largest value allowed.
        max: u64,
        /// Actual value.
        found: u64,
    },
    /// A checksum that does not fit the bytes.
    #[error("expected checksum {computed:#010x}, found {stored:#010x}")]
    Checksum {
        /// Computed from the bytes.
        computed: u32,
        /// Stored with the bytes.
        stored: u32,
    },
}

impl DecodeError {
    pub(super) fn new(
        structure: Structure,
        field: &'static str,
        offset: usize,
        kind: DecodeErrorKind,
    ) -> Self {
        Self {
            structure,
            field,
            offset,
            kind,
        }
    }
}
