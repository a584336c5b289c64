//! Finds the store on a device or in a file (FORMAT.md section 2).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::copies::{CheckedCopy, FoundCopy, ProvenHeader};
use crate::format::{DecodeError, Geometry, Header, header, minfs};
use crate::options::Layout;
use crate::signature::{Signature, SignatureKind, blkid, list_of};
use crate::units::{ByteLen, ByteOffset};

/// Bytes at the start of a target that show what it is: they hold the lusf header of either
/// layout, and are a multiple of every logical block size there is.
pub(crate) const HEAD_LEN: usize = 64 * 1024;

/// Bits of a header that may differ from its copy when not even its magic is there: more are
/// taken for the bytes of somebody else.
const MOST_ROTTED_BITS: u32 = 8;

const _: () = assert!(minfs::FILE_OFFSET + header::HEADER_LEN as u64 <= HEAD_LEN as u64);

/// Content of the first [`HEAD_LEN`] bytes of a target that is no usable store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// Neither layout is there.
    #[error("neither a lusf header nor a minfs superblock is at its start")]
    NoStore,
    /// A minfs without an image.
    #[error(
        "there is a minfs, but no lusf image at byte {} in it: a format was interrupted",
        minfs::FILE_OFFSET
    )]
    NoImage,
    /// A header that cannot be used.
    #[error("the store at byte {base} cannot be opened: {source}")]
    Header {
        /// First byte of the image.
        base: ByteOffset,
        /// Which field is wrong.
        source: DecodeError,
    },
}

/// Finds the header in the first [`HEAD_LEN`] bytes of a target (fewer when it is shorter).
pub(crate) fn recognise(head: &[u8]) -> Result<(Layout, ByteOffset, ProvenHeader), HeadError> {
    let is_image = |base| has_magic(head, base) || has_copy(head, base);
    let (layout, base) = if minfs::Superblock::decode(head).is_ok() {
        if !is_image(minfs::FILE_OFFSET) {
            return Err(HeadError::NoImage);
        }
        (Layout::Minfs, ByteOffset(minfs::FILE_OFFSET))
    } else if is_image(0) {
        (Layout::Lusf, ByteOffset(0))
    } else {
        return Err(HeadError::NoStore);
    };
    let header = ProvenHeader::decode(at(head, base.0))
        .map_err(|source| HeadError::Header { base, source })?;
    Ok((layout, base, header))
}

/// True: a header with a damaged magic is here, as its checked copy tells.
fn has_copy(head: &[u8], base: u64) -> bool {
    let differs = |copy: &CheckedCopy| {
        let bytes = at(head, base).iter().zip(copy.header.encode());
        bytes
            .map(|(stands, by_copy)| (stands ^ by_copy).count_ones())
            .sum::<u32>()
    };
    let copy = FoundCopy::of_block(at(head, base)).intact();
    copy.is_some_and(|copy| differs(&copy) <= MOST_ROTTED_BITS)
}

/// Content of a target that is no store, in words, for a message.
pub(crate) fn describe_other(path: &Path) -> String {
    describe(&blkid::signatures(path).unwrap_or_default())
}

/// A store that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detected {
    /// How the image lies on its target.
    pub layout: Layout,
    /// Header of the image.
    pub header: Header,
    /// Where the regions lie; offsets count from the start of the device or file.
    pub geometry: Geometry,
}

/// Why a path cannot be opened as a store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LayoutError {
    /// There is something else, or nothing.
    #[error(
        "{path} holds no store: {}; `lumpscope format` makes one",
        describe(found)
    )]
    NotAStore {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Recognised signatures; empty: none.
        found: Vec<Signature>,
    },
    /// There is a minfs without a lusf image in it.
    #[error(
        "{path} holds a minfs, but no lusf image at byte {}: a format was interrupted; run \
         `lumpscope format` again",
        minfs::FILE_OFFSET
    )]
    NoImage {
        /// Device or file, as it was given.
        path: PathBuf,
    },
    /// There is a store whose header cannot be used.
    #[error("{path}: the store at byte {base} cannot be opened: {source}")]
    Header {
        /// Device or file, as it was given.
        path: PathBuf,
        /// First byte of the image.
        base: ByteOffset,
        /// Which field is wrong.
        #[source]
        source: DecodeError,
    },
    /// The block device ends before the store does.
    #[error(
        "{path} has {device_len} bytes, but its store ends at byte {store_end}: this is not the \
         whole device it was made on"
    )]
    Truncated {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Bytes of the device.
        device_len: ByteLen,
        /// First byte after the store.
        store_end: ByteOffset,
    },
    /// The path cannot be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: Arc<io::Error>,
    },
}

fn describe(found: &[Signature]) -> String {
    if found.is_empty() {
        "nothing known is on it".to_owned()
    } else {
        list_of(found)
    }
}

/// Finds the store at `path`, which need not be writable.
///
/// # Errors
/// [`LayoutError`].
pub fn detect_path(path: &Path) -> Result<Detected, LayoutError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    detect(&file, path)
}

/// Finds the store in an open device or file; works with and without `O_DIRECT`. `path` is for
/// messages, and for a look at what else there may be.
///
/// # Errors
/// [`LayoutError`].
pub fn detect(file: &File, path: &Path) -> Result<Detected, LayoutError> {
    let head = read_head(file).map_err(|source| io_error(path, source))?;
    let (layout, base, header) = recognise(&head).map_err(|error| {
        let path = path.to_owned();
        match error {
            HeadError::NoStore => not_a_store(&path, &head),
            HeadError::NoImage => LayoutError::NoImage { path },
            HeadError::Header { base, source } => LayoutError::Header { path, base, source },
        }
    })?;
    let header = header.header;
    let geometry = Geometry::new(base, &header);
    check_device_len(file, path, &geometry)?;
    Ok(Detected {
        layout,
        header,
        geometry,
    })
}

/// The signatures of this engine in the first bytes of a target, intact or not.
#[must_use]
pub(crate) fn own_signatures(head: &[u8]) -> Vec<Signature> {
    let mut found = Vec::new();
    let mut add = |kind: &str, offset: u64, len: usize| {
        found.push(Signature {
            kind: kind.to_owned(),
            class: SignatureKind::Store,
            offset: Some(ByteOffset(offset)),
            magic_len: len,
        });
    };
    if head.starts_with(&minfs::MAGIC.to_le_bytes()) {
        add("minfs", 0, size_of_val(&minfs::MAGIC));
    }
    for base in [0, minfs::FILE_OFFSET] {
        if has_magic(head, base) {
            add("lusf", base, header::MAGIC.len());
        }
    }
    found
}

/// UUID of the store in the first bytes of a target.
pub(crate) fn uuid_in(head: &[u8]) -> Option<[u8; 16]> {
    let (_, _, proven) = recognise(head).ok()?;
    Some(proven.header.uuid)
}

/// Header block of the store in the first bytes of a target, and what follows it.
pub(crate) fn header_block(head: &[u8]) -> Option<&[u8]> {
    let (_, base, _) = recognise(head).ok()?;
    Some(at(head, base.0))
}

/// The first bytes of a device or file, fewer when it is shorter.
pub(crate) fn read_head(file: &File) -> io::Result<Vec<u8>> {
    // O_DIRECT wants an aligned buffer; the length is the largest alignment there is.
    let mut space = vec![0_u8; 2 * HEAD_LEN];
    let start = space.as_ptr().align_offset(HEAD_LEN).min(HEAD_LEN);
    let buffer = space.get_mut(start..start + HEAD_LEN).unwrap_or_default();
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, u64::try_from(len).unwrap_or(u64::MAX)) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A direct read that continues after a short one is unaligned: the file ends there.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && len > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(buffer.get(..len).unwrap_or_default().to_vec())
}

fn at(head: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| head.get(offset..))
        .unwrap_or_default()
}

fn has_magic(head: &[u8], base: u64) -> bool {
    at(head, base).starts_with(&header::MAGIC)
}

fn not_a_store(path: &Path, head: &[u8]) -> LayoutError {
    let mut found = own_signatures(head);
    // What else is there is told when it can be found out; that it is no store is certain.
    found.extend(blkid::signatures(path).unwrap_or_default());
    LayoutError::NotAStore {
        path: path.to_owned(),
        found,
    }
}

fn check_device_len(file: &File, path: &Path, geometry: &Geometry) -> Result<(), LayoutError> {
    use std::os::unix::fs::FileTypeExt;
    let metadata = file.metadata().map_err(|source| io_error(path, source))?;
    // A file may be shorter: its missing end has never been written.
    if !metadata.file_type().is_block_device() {
        return Ok(());
    }
    let device_len = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
        .map_err(|source| io_error(path, source.into()))?;
    if geometry.end().0 > device_len {
        return Err(LayoutError::Truncated {
            path: path.to_owned(),
            device_len: ByteLen(device_len),
            store_end: geometry.end(),
        });
    }
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> LayoutError {
    LayoutError::Io {
        path: path.to_owned(),
        source: Arc::new(source),
    }
}
