//! The trailer behind the bytes of a block in its lump: the metadata of the object. Pure; the
//! layout is the table in `docs/objects.md`.

use lumpscope_engine::LumpId;
use lumpscope_engine::crc32c;

use crate::bytes::{Input, RecordError};
use crate::juicefs::{BlockKey, Layout};
use crate::record::{put_info, take_info};
use crate::types::{ObjectInfo, PutInfo};

/// First byte of every trailer. Other values are of later versions.
pub const VERSION: u8 = 1;
/// Most bytes of a trailer.
pub const MAX_TRAILER_BYTES: usize = 1024;
/// Room for the fields known at the commit: time, ETag, checksums.
const LATE: usize = 192;
const STEP: usize = 256;
const SUM_BYTES: usize = 4;

/// Bytes to reserve for the trailer of an object, from the metadata known before its bytes
/// come; `None`: the metadata does not fit a trailer.
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

/// The CRC32C that ends a trailer, of the id and of the bytes before it: the trailer of another
/// block does not fit.
#[must_use]
pub fn sum(id: LumpId, bytes: &[u8]) -> u32 {
    crc32c::append(crc32c::of(&id.0.to_be_bytes()), bytes)
}

/// The trailer of the block with this id, of exactly `room` bytes; `None`: too few.
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

/// The metadata in the trailer of the block with this id, from all bytes behind the block's.
///
/// # Errors
/// The bytes do not belong to this block.
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
