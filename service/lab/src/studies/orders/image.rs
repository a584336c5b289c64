//! A store whose lumps lie all over a disk, without writing them: header and journal say where they
//! are, and everywhere else are zeros. It is one as another engine leaves it, without checksums, so
//! zeros are as good as any bytes.

use anyhow::anyhow;
use lumpscope_engine::LumpId;
use lumpscope_engine::format::geometry::{Geometry, RegionSizes};
use lumpscope_engine::format::journal_header::JournalHeader;
use lumpscope_engine::format::record::{END_OF_RECORDS_LEN, PUT_LEN, Record};
use lumpscope_engine::format::{Header, Portion, header};
use lumpscope_engine::units::{
    BlockCount, BlockIndex, BlockSize, ByteLen, ByteOffset, RingPosition,
};

/// Share of the disk for the journal.
const JOURNAL: f64 = 0.0001;

/// The first bytes of a store of `size` bytes with `lumps` lumps of `len` bytes each, numbered from
/// 0, one at a random place of each of as many equal parts of the data region.
pub(super) fn scattered(
    size: u64,
    lumps: u64,
    len: u64,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Vec<u8>> {
    let block_size = BlockSize::DEFAULT;
    let block = block_size.bytes();
    let too_small = || anyhow!("{lumps} lumps of {len} bytes do not fit on a disk of {size} bytes");
    let sizes = RegionSizes::divide(ByteLen(size), block_size, JOURNAL).map_err(|_| too_small())?;
    let header = Header {
        minor: header::MINOR_VERSION,
        block_size,
        uuid: [7; 16],
        journal_len: sizes.journal_len,
        data_len: sizes.data_len,
    };
    let geometry = Geometry::new(ByteOffset(0), &header);
    let blocks = u16::try_from(len.div_ceil(block)).map_err(|_| too_small())?;
    let part = geometry.data_blocks() / lumps.max(1);
    let room = part.checked_sub(u64::from(blocks)).ok_or_else(too_small)?;
    let mut journal = Vec::new();
    for lump in 0..lumps {
        let start = BlockIndex(lump * part + random.u64(0..=room));
        let portion = Portion::new(start, BlockCount(blocks)).map_err(|_| too_small())?;
        let id = LumpId(lump.into());
        journal.extend_from_slice(&Record::Put { id, portion }.to_bytes());
    }
    journal.extend_from_slice(&Record::EndOfRecords.to_bytes());
    debug_assert_eq!(
        journal.len() as u64,
        lumps * PUT_LEN as u64 + END_OF_RECORDS_LEN as u64
    );
    if journal.len() as u64 * 2 > geometry.ring_len().0 {
        return Err(too_small());
    }
    let ring_head = RingPosition(0);
    let mut image = Vec::new();
    for (offset, bytes) in [
        (0, &header.encode()[..]),
        (
            geometry.journal_header_offset().0,
            &JournalHeader { ring_head }.encode()[..],
        ),
        (geometry.ring_offset().0, &journal),
    ] {
        image.resize(usize::try_from(offset).map_err(|_| too_small())?, 0);
        image.extend_from_slice(bytes);
    }
    Ok(image)
}
