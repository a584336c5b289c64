//! The checkpoints of the index behind the image: what they say of themselves, and whether their
//! chunks are intact.

use super::report::CheckpointInfo;
use super::source::ImageSource;
use crate::finding::{Finding, FindingKind};
use crate::format::Geometry;
use crate::format::checkpoint::{
    Area, CHUNK_LEN, CheckpointHeader, HEADER_LEN, HEADER_SPACE, MAGIC, read_chunk,
};

/// A checkpoint and where it lies.
pub(super) struct Slot {
    pub(super) offset: u64,
    pub(super) header: CheckpointHeader,
}

impl Slot {
    pub(super) fn describe(&self, epoch: Option<u64>) -> CheckpointInfo {
        let header = &self.header;
        CheckpointInfo {
            offset: self.offset,
            sequence: header.sequence,
            lumps: header.lumps,
            log_begin: header.log_begin,
            log_end: header.log_end,
            epoch: format!("{:016x}", header.epoch),
            of_this_epoch: epoch == Some(header.epoch),
        }
    }
}

/// The checkpoints of the store with this UUID, the newest first, and the damaged headers.
pub(super) fn find(
    source: &ImageSource,
    geometry: &Geometry,
    uuid: [u8; 16],
) -> (Vec<Slot>, Vec<Finding>) {
    let (mut slots, mut findings) = (Vec::new(), Vec::new());
    let area = Area::of(geometry, source.is_block_device, source.size);
    for offset in area.iter().flat_map(|area| [area.slot(0), area.slot(1)]) {
        if offset + HEADER_SPACE > source.size {
            continue;
        }
        let found = |kind, why| Finding::new(kind, offset, HEADER_LEN as u64, why);
        match source.read(offset, HEADER_SPACE) {
            Err(error) => findings.push(found(FindingKind::Read, error.to_string())),
            // What lies behind an image may be anybody's.
            Ok(bytes) if !bytes.starts_with(&MAGIC) => {}
            Ok(bytes) => match CheckpointHeader::decode(&bytes) {
                Ok(header) if header.uuid == uuid && header.sequence > 0 => {
                    slots.push(Slot { offset, header });
                }
                Ok(_) => {}
                Err(error) => findings.push(found(FindingKind::Checkpoint, error.to_string())),
            },
        }
    }
    slots.sort_unstable_by_key(|slot| std::cmp::Reverse(slot.header.sequence));
    (slots, findings)
}

/// Damage in the chunks of a checkpoint. Only the newest one is checked: the next may be under way
/// in the place of the one before.
pub(super) fn check(source: &ImageSource, slot: &Slot) -> Option<Finding> {
    let first = slot.offset + HEADER_SPACE;
    for number in 0..slot.header.chunks() {
        let len = CHUNK_LEN as u64;
        let offset = first.saturating_add(number.saturating_mul(len));
        let (kind, why) = match source.read(offset, len) {
            Err(error) => (FindingKind::Read, error.to_string()),
            Ok(bytes) => {
                let expected = u32::try_from(number).unwrap_or(u32::MAX);
                match read_chunk(&bytes, slot.header.sequence, expected) {
                    Ok(_) => continue,
                    Err(error) => (FindingKind::Checkpoint, error.to_string()),
                }
            }
        };
        return Some(Finding::new(kind, offset, len, why));
    }
    None
}
