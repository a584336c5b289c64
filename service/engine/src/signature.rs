//! Signatures on a device or file that may be in use.

pub(crate) mod blkid;
pub(crate) mod samples;

use std::fmt;

use crate::units::ByteOffset;

/// Kind of the owner of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureKind {
    /// A file system.
    FileSystem,
    /// A member of a RAID or a volume group.
    Raid,
    /// An encrypted volume.
    Crypto,
    /// A swap area, a journal or a cache of something else.
    Other,
    /// A table of partitions.
    PartitionTable,
    /// A store of this engine or of CannyLS, or the minfs around one.
    Store,
    /// Several signatures that exclude each other.
    Ambiguous,
    /// Bytes without a signature.
    Data,
}

impl fmt::Display for SignatureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FileSystem => "file system",
            Self::Raid => "RAID or volume group member",
            Self::Crypto => "encrypted volume",
            Self::Other => "signature",
            Self::PartitionTable => "partition table",
            Self::Store => "lump store",
            Self::Ambiguous => "contradictory signatures",
            Self::Data => "data",
        })
    }
}

/// A signature that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name, as `blkid` gives it: "ext4", "`LVM2_member`", "gpt".
    pub kind: String,
    /// Kind of the owner.
    pub class: SignatureKind,
    /// First byte of its magic; `None` when it has no single place.
    pub offset: Option<ByteOffset>,
    /// Bytes of its magic; 0 when unknown.
    pub magic_len: usize,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (SignatureKind::Data, Some(offset)) = (self.class, self.offset) {
            return write!(f, "{} at byte {offset}", self.kind);
        }
        write!(f, "{} {}", self.kind, self.class)?;
        match self.offset {
            Some(offset) => write!(f, " (signature at byte {offset})"),
            None => Ok(()),
        }
    }
}

/// "ext4 file system (signature at byte 1080), gpt partition table (...)".
pub(crate) fn list_of(found: &[Signature]) -> String {
    found
        .iter()
        .map(Signature::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
