//! What stands behind the bytes of a block in its lump: what is known of the object. Pure; the
//! layout is the table in `docs/objects.md`.

use lumpscope_engine::LumpId;

use crate::bytes::{Input, RecordError};
use crate::juicefs::{BlockKey, Layout};
use crate::record::{put_info, take_info};
use crate::types::{ObjectInfo, PutInfo};

/// First byte of every trailer. Another one is of a later version.
pub const VERSION: u8 = 1;
/// Most bytes of a trailer.
pub const MAX_TRAILER_BYTES: usize = 1024;
/// Room for what comes with the commit: time, ETag, checksums.
const LATE: usize = 192;
const STEP: usize = 256;
const SUM_BYTES: usize = 4;

/// Bytes to set aside for the trailer of an object of which so much is known before its bytes
/// come; `None`: it has more than fits a trailer.
pub(crate) fn room(put: &PutInfo) -> Option<usize> {
    let known = ObjectInfo {
        content_type: put.content_type.clone(),
        metadata: put.metadata.clone(),
        attributes: put.attributes.clone(),
        ..ObjectInfo::default()
    };
    let mut bytes = Vec::new();
    put_info(&mut bytes, &known);
    let room = (bytes.len() + LATE).next_multiple_of(STEP);
    (room <= MAX_TRAILER_BYTES).then_some(room)
}

/// The CRC32C that ends a trailer, of the id and of what stands before it: the trailer of another
/// block is none.
#[must_use]
pub fn sum(id: LumpId, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0.to_be_bytes()), bytes)
}

/// The trailer of the block with this id, of exactly `room` bytes; `None`: they are too few.
#[must_use]
pub fn encode(id: LumpId, info: &ObjectInfo, room: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(room);
    bytes.push(VERSION);
    put_info(&mut bytes, info);
    let padded = room.checked_sub(SUM_BYTES)?;
    if bytes.len() > padded || room > MAX_TRAILER_BYTES {
        return None;
    }
    bytes.resize(padded, 0);
    bytes.extend_from_slice(&sum(id, &bytes).to_be_bytes());
    Some(bytes)
}

/// What the trailer of the block with this id says: all that stands behind its bytes.
///
/// # Errors
/// The bytes are none of this block.
pub fn decode(id: LumpId, bytes: &[u8]) -> Result<ObjectInfo, RecordError> {
    if bytes.len() > MAX_TRAILER_BYTES {
        return Err(RecordError("it is too long"));
    }
    let Some((fields, stored)) = bytes.split_last_chunk::<SUM_BYTES>() else {
        return Err(RecordError("it ends too early"));
    };
    if u32::from_be_bytes(*stored) != sum(id, fields) {
        return Err(RecordError("its checksum does not fit"));
    }
    let mut input = Input(fields);
    if input.byte()? != VERSION {
        return Err(RecordError("it is of another version"));
    }
    let info = take_info(&mut input)?;
    if input.0.iter().any(|byte| *byte != 0) {
        return Err(RecordError("something follows it"));
    }
    // The size does not depend on the layout.
    let (block, _) = BlockKey::of_id(id, Layout::Plain);
    if info.size != u64::from(block.size) {
        return Err(RecordError("its size is not that of the block"));
    }
    Ok(info)
}
