//! The bytes of an empty store, for a simulated disk.

use crate::format::header::Header;
use crate::format::journal_header::JournalHeader;
use crate::format::record::Record;
use crate::units::{BlockSize, ByteLen, RingPosition, to_usize};

/// An image at byte 0 with a ring of `ring_blocks` and a data region of `data_blocks` blocks, with
/// an empty journal as CannyLS formats it. Where `format` writes nothing lie old bytes, as on a
/// used disk.
#[must_use]
pub fn blank_image(
    block_size: BlockSize,
    ring_blocks: u64,
    data_blocks: u64,
    uuid: [u8; 16],
) -> Vec<u8> {
    let header = Header {
        minor: 1,
        block_size,
        uuid,
        journal_len: ByteLen((1 + ring_blocks) * block_size.bytes()),
        data_len: ByteLen(data_blocks * block_size.bytes()),
    };
    let head = JournalHeader {
        ring_head: RingPosition(0),
    };
    let total = (2 + ring_blocks + data_blocks) * block_size.bytes();
    // 251 is prime, so no two blocks are alike.
    let mut image: Vec<u8> = (0..251).cycle().take(to_usize(total)).collect();
    let block = usize::from(block_size.get());
    image[..2 * block].fill(0);
    for (at, bytes) in [
        (0, &header.encode()[..]),
        (block, &head.encode()[..]),
        (2 * block, &Record::EndOfRecords.to_bytes()[..]),
    ] {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }
    image
}
