//! Makes a store on a block device or in a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::format::Geometry;
use crate::guard::{FormatError, Signature};
use crate::options::Layout;
use crate::units::ByteLen;

/// How the bytes of a file are had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prealloc {
    /// Allocated and written with zeros, so that no later put makes the file system convert
    /// unwritten extents (a write of its metadata per put).
    #[default]
    Zero,
    /// Allocated only: quick, but the file system writes metadata at the first put to a block.
    Fallocate,
    /// Not even allocated: the file system may run out of space later.
    Sparse,
}

/// What to make.
#[derive(Clone, Copy)]
pub struct CreateOptions<'a> {
    /// Bytes of the store; `None`: the whole device, or the present size of the file.
    pub capacity: Option<u64>,
    /// Bytes of a block: a multiple of 512 from 512 to 65,024.
    pub block_size: u16,
    /// Share of the journal, 0 to 1.
    pub journal_ratio: f64,
    /// How the bytes of a file are had; of no meaning on a block device.
    pub prealloc: Prealloc,
    /// Overwrite what is there. Never overrules "in use", "read-only" or "too small".
    pub force: bool,
    /// Called with (bytes done, bytes in all) while zeros are written.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl Default for CreateOptions<'_> {
    fn default() -> Self {
        Self {
            capacity: None,
            block_size: 4096,
            journal_ratio: 0.01,
            prealloc: Prealloc::Zero,
            force: false,
            progress: None,
        }
    }
}

/// What was made.
#[derive(Clone, Debug)]
pub struct FormatReport {
    /// The device or file.
    pub path: PathBuf,
    /// How the image lies on it.
    pub layout: Layout,
    /// Where the regions lie.
    pub geometry: Geometry,
    /// Instance UUID, new.
    pub uuid: uuid::Uuid,
    /// Most bytes of one lump.
    pub max_lump_bytes: u64,
    /// What was there before and is erased (with `force`).
    pub erased: Vec<Signature>,
    /// Bytes that were written.
    pub written: ByteLen,
    /// Time it took.
    pub elapsed: Duration,
}

/// Makes a store at `path` (FORMAT.md sections 2 and 8): on a block device inside a minfs, in a
/// regular file from byte 0. A file that is not there is created.
///
/// When it fails, what is there does not open as a store, unless nothing was written: see
/// [`FormatError`].
///
/// # Errors
/// [`FormatError`].
pub fn format(path: &Path, options: &CreateOptions<'_>) -> Result<FormatReport, FormatError> {
    let _ = options;
    Err(FormatError::CapacityRequired {
        path: path.to_owned(),
    })
}
