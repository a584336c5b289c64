//! Keys that clients choose, and what stands behind the bytes of blocks in their lumps.

use lumpscope_engine::LumpId;
use lumpscope_objects::juicefs::BlockKey;
use lumpscope_objects::trailer as format;

/// A key, and in front of it a number of a volume and a time.
pub(crate) fn block_key(data: &[u8]) {
    let Some((&volume, data)) = data.split_first() else {
        return;
    };
    let Some((time, key)) = data.split_first_chunk::<8>() else {
        return;
    };
    let Ok(key) = std::str::from_utf8(key) else {
        return;
    };
    let Some((prefix, block)) = BlockKey::parse(key) else {
        return;
    };
    assert_eq!(format!("{prefix}{block}"), key, "what was read is written");
    let id = block.id(volume, u64::from_le_bytes(*time));
    assert_eq!(BlockKey::of_id(id, block.layout).0, block);
    let ids = block.ids(volume);
    assert!(ids.start <= id && Some(id) < ids.end, "{id}");
}

/// An id, and a trailer without its checksum, which a fuzzer would not guess.
pub(crate) fn trailer(data: &[u8]) {
    let Some((id, fields)) = data.split_first_chunk::<16>() else {
        return;
    };
    let id = LumpId(u128::from_be_bytes(*id));
    assert!(format::decode(id, data).is_err(), "a checksum was guessed");
    let whole = [fields, &format::sum(id, fields).to_be_bytes()].concat();
    if let Ok(info) = format::decode(id, &whole) {
        // Numbers may have been written longer than they need.
        let again = format::encode(id, &info, whole.len());
        let again = again.expect("it is no longer than it was");
        assert_eq!(format::decode(id, &again), Ok(info));
    }
}
