//! Finds the image, also one whose first bytes are damaged.

use super::report::{ImageInfo, MinfsInfo};
use super::source::ImageSource;
use crate::error::Error;
use crate::finding::{Finding, FindingKind};
use crate::format::copies::{FoundCopy, ProvenHeader};
use crate::format::header::{HEADER_LEN, MAGIC};
use crate::format::label;
use crate::format::minfs::{
    DIRECTORY_OFFSET, DirEntry, FILE_INODE, FILE_OFFSET, INODE_LEN, INODES_OFFSET, Inode,
    SUPERBLOCK_LEN, Superblock,
};
use crate::format::trailer::max_payload;
use crate::format::unfinished::{self, MARK_LEN, MARK_OFFSET};
use crate::format::{Geometry, Header};
use crate::layout::{self, HEAD_LEN};
use crate::options::Layout;
use crate::storage::headers::header_finding;
use crate::units::{ByteOffset, to_usize};

/// Structures at the start of a target.
pub(super) struct ImageStart {
    pub(super) layout: Layout,
    pub(super) base: ByteOffset,
    /// The header and its copy; what is wrong with them is told. `None`: its fields cannot be used.
    pub(super) proven: Option<ProvenHeader>,
    /// Name of the store, as the header block has it.
    pub(super) name: Option<String>,
    pub(super) minfs: Option<MinfsInfo>,
    pub(super) findings: Vec<Finding>,
}

/// Looks for an image.
///
/// # Errors
/// [`Error::NotAStore`] when nothing here looks like one, [`Error::Io`].
pub(super) fn find(source: &ImageSource) -> Result<ImageStart, Error> {
    let head = source.read(0, (HEAD_LEN as u64).min(source.size.max(1)))?;
    let at = |offset: u64| {
        usize::try_from(offset)
            .ok()
            .and_then(|offset| head.get(offset..))
            .unwrap_or_default()
    };
    let superblock = Superblock::decode(at(0));
    let in_minfs = superblock.is_ok() || resembles_header(at(FILE_OFFSET));
    let mut findings = Vec::new();
    if !in_minfs && !resembles_header(at(0)) {
        return Err(Error::NotAStore {
            path: source.path.clone(),
            why: layout::describe_other(&source.path),
        });
    }
    // Where both could be, the engine's own order decides: minfs first.
    let in_minfs = in_minfs && (superblock.is_ok() || !at(0).starts_with(&MAGIC));
    let (layout, base) = if in_minfs {
        (Layout::Minfs, FILE_OFFSET)
    } else {
        (Layout::Lusf, 0)
    };
    if let (true, Err(error)) = (in_minfs, superblock) {
        findings.push(Finding::new(
            FindingKind::Minfs,
            0,
            SUPERBLOCK_LEN as u64,
            error.to_string(),
        ));
    }
    let proven = decode_header(at(base), base, &mut findings);
    if unfinished::is_marked(at(base)) {
        let (offset, len) = (base + MARK_OFFSET as u64, MARK_LEN as u64);
        let why = unfinished::WHY.to_owned();
        findings.push(Finding::new(FindingKind::Unfinished, offset, len, why));
    }
    let base = ByteOffset(base);
    if let Some(proven) = &proven {
        check_size(source, &Geometry::new(base, &proven.header), &mut findings);
    }
    Ok(ImageStart {
        layout,
        base,
        proven,
        name: label::decode(at(base.0)),
        minfs: in_minfs.then(|| minfs_info(at(INODES_OFFSET), at(DIRECTORY_OFFSET))),
        findings,
    })
}

/// The first bytes of a header with the magic that they should have.
fn with_magic(bytes: &[u8]) -> Option<[u8; HEADER_LEN]> {
    let mut header = *bytes.first_chunk::<HEADER_LEN>()?;
    header.first_chunk_mut::<4>()?.copy_from_slice(&MAGIC);
    Some(header)
}

/// True: the magic is there, or all that follows it is in order, or the checked copy is.
fn resembles_header(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
        || with_magic(bytes).is_some_and(|header| Header::decode(&header).is_ok())
        || FoundCopy::of_block(bytes).intact().is_some()
}

/// The header; when only its magic is damaged, what it says all the same.
fn decode_header(bytes: &[u8], base: u64, findings: &mut Vec<Finding>) -> Option<ProvenHeader> {
    let error = match ProvenHeader::decode(bytes) {
        Ok(proven) => {
            if proven.damaged {
                findings.push(header_finding(ByteOffset(base)));
            }
            let damaged = false;
            return Some(ProvenHeader { damaged, ..proven });
        }
        Err(error) => error,
    };
    let why = format!("{error}; the store does not open until it is repaired");
    findings.push(Finding::new(
        FindingKind::Header,
        base,
        HEADER_LEN as u64,
        why,
    ));
    let header = Header::decode(&with_magic(bytes)?).ok()?;
    Some(ProvenHeader {
        header,
        copy: FoundCopy::of_block(bytes),
        damaged: false,
    })
}

fn check_size(source: &ImageSource, geometry: &Geometry, findings: &mut Vec<Finding>) {
    let (end, size) = (geometry.end().0, source.size);
    if source.is_block_device && end > size {
        let why = format!(
            "the header says that the store ends at byte {end}, but the device has only {size}: \
             it is not the whole device the store was made on"
        );
        findings.push(Finding::new(FindingKind::Truncated, size, end - size, why));
    }
}

fn minfs_info(inodes: &[u8], directory: &[u8]) -> MinfsInfo {
    let file = to_usize(FILE_INODE) * INODE_LEN;
    let inode = Inode::decode(inodes.get(file..).unwrap_or_default()).ok();
    let entry = DirEntry::decode(directory).ok();
    MinfsInfo {
        file_name: entry.map(|entry| String::from_utf8_lossy(entry.name()).into_owned()),
        file_size_mod_4g: inode.map(|inode| inode.size),
    }
}

/// Describes a header, if it can be used.
pub(super) fn describe(found: &ImageStart) -> Option<ImageInfo> {
    let header = found.proven?.header;
    let geometry = Geometry::new(found.base, &header);
    Some(ImageInfo {
        layout: found.layout.name(),
        name: found.name.clone(),
        version: format!("1.{}", header.minor),
        uuid: uuid::Uuid::from_bytes(header.uuid).to_string(),
        base_offset: geometry.base().0,
        block_size: header.block_size.get(),
        journal_region_bytes: geometry.journal_len().0,
        data_offset: geometry.data_offset().0,
        data_region_bytes: geometry.data_len().0,
        end_offset: geometry.end().0,
        max_lump_bytes: max_payload(header.block_size),
    })
}
