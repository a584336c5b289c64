//! Single structures of the format. What decodes must encode to the bytes it came from.

use lumpscope_engine::LumpId;
use lumpscope_engine::format::geometry::RegionSizes;
use lumpscope_engine::format::journal_header::JournalHeader;
use lumpscope_engine::format::record::{Decoded, Record};
use lumpscope_engine::format::seal::{Seal, SealPlace};
use lumpscope_engine::format::trailer::LumpEnd;
use lumpscope_engine::format::verify::{Provenance, Subject};
use lumpscope_engine::format::{Geometry, Header, minfs};
use lumpscope_engine::units::{
    BlockCount, BlockIndex, BlockSize, ByteLen, ByteOffset, RingPosition,
};

/// Takes bytes off the front; zeros when there are none left.
fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = N.min(data.len());
    bytes[..len].copy_from_slice(&data[..len]);
    *data = &data[len..];
    bytes
}

pub(crate) fn header(mut data: &[u8]) {
    let whole = data;
    let base = u64::from_le_bytes(take(&mut data)) >> 8;
    if let Ok(header) = Header::decode(data) {
        let again = Header::decode(&header.encode());
        assert_eq!(again.as_ref(), Ok(&header), "what was written is read");
        let geometry = Geometry::new(ByteOffset(base), &header);
        assert!(geometry.ring_offset().0 <= geometry.data_offset().0);
        assert!(geometry.data_offset().0 <= geometry.end().0);
    }
    let mut rest = whole;
    let capacity = ByteLen(u64::from_le_bytes(take(&mut rest)));
    let block_size = u16::from_le_bytes(take(&mut rest));
    let ratio = f64::from_le_bytes(take(&mut rest));
    if let Ok(block_size) = BlockSize::new(block_size)
        && let Ok(sizes) = RegionSizes::divide(capacity, block_size, ratio)
    {
        let total = block_size.bytes() + sizes.journal_len.0 + sizes.data_len.0;
        assert!(total <= capacity.0, "{sizes:?} do not fit {capacity}");
    }
}

pub(crate) fn journal_header(mut data: &[u8]) {
    let ring_len = ByteLen(u64::from_le_bytes(take(&mut data)));
    if let Ok(header) = JournalHeader::decode(data, ring_len) {
        assert!(header.ring_head.0 < ring_len.0);
        assert!(data.starts_with(&header.encode()));
    }
}

pub(crate) fn records(data: &[u8]) {
    let mut rest = data;
    while let Ok(Decoded::Record { record, len }) = Record::decode(rest) {
        assert!(len > 0 && len == record.encoded_len());
        assert_eq!(
            record.to_bytes(),
            &rest[..len],
            "one record has one encoding"
        );
        rest = &rest[len..];
    }
}

pub(crate) fn lump_end(mut data: &[u8]) {
    let id = LumpId(u128::from_le_bytes(take(&mut data)));
    let blocks = BlockCount(u16::from_le_bytes(take(&mut data)) % 8);
    let expected = u16::from_le_bytes(take(&mut data));
    let [choice] = take::<1>(&mut data);
    let Ok(block_size) = BlockSize::new(512 * (1 + u16::from(choice >> 4))) else {
        return;
    };
    let portion_len = u64::from(blocks.0) * block_size.bytes();
    let mut portion = data.to_vec();
    if choice & 1 == 0 {
        // The end is what counts: it stands at the end of a portion of the right length.
        let mut whole = vec![0xA5; usize::try_from(portion_len).unwrap_or(0)];
        let len = data.len().min(whole.len());
        let at = whole.len() - len;
        whole[at..].copy_from_slice(&data[data.len() - len..]);
        portion = whole;
    }
    for provenance in [Provenance::Own, Provenance::Foreign] {
        let subject = Subject {
            id,
            blocks,
            block_size,
            provenance,
            expected_len: (choice & 2 != 0).then_some(u64::from(expected)),
        };
        if let Ok(judged) = subject.judge(&portion) {
            assert!(judged.bytes.end <= portion.len());
            assert!(judged.verified || provenance == Provenance::Foreign);
        }
        let wanted = u64::from(expected)..u64::from(expected) + 700;
        if let Ok(end) = subject.judge_end(&portion) {
            let _ = subject.judge_part(&portion, 0, wanted, end);
        }
    }
    if let Ok(end) = LumpEnd::decode(&portion, id, blocks, block_size) {
        assert!(end.payload_len <= portion_len);
    }
}

pub(crate) fn seal(mut data: &[u8]) {
    let uuid = take(&mut data);
    let tail = RingPosition(u64::from_le_bytes(take(&mut data)));
    let [len] = take::<1>(&mut data);
    let (before, behind) = data.split_at(data.len().min(usize::from(len)));
    let place = SealPlace { uuid, tail, before };
    if let Some(seal) = Seal::decode(behind, place) {
        assert!(seal.foreign_end <= seal.log_end);
        assert!(behind.starts_with(&seal.encode(place)));
    }
    // One that was made for this place fits here, and nowhere else.
    let mut numbers = [0; 3];
    numbers.fill_with(|| u64::from_le_bytes(take(&mut data)));
    let log_sum = (numbers[0] % 3 > 0).then_some(u32::from(len));
    let made = Seal {
        epoch: numbers[0] >> if log_sum.is_some() { 32 } else { 0 },
        log_end: numbers[1].max(numbers[2]),
        foreign_end: numbers[1].min(numbers[2]),
        log_sum,
    };
    let bytes = made.encode(place);
    assert_eq!(Seal::decode(&bytes, place), Some(made));
    let elsewhere = SealPlace {
        tail: RingPosition(tail.0 ^ 1),
        ..place
    };
    assert_eq!(Seal::decode(&bytes, elsewhere), None);
}

pub(crate) fn minfs(data: &[u8]) {
    if let Ok(superblock) = minfs::Superblock::decode(data) {
        let encoded = superblock.encode();
        assert_eq!(minfs::Superblock::decode(&encoded), Ok(superblock));
    }
    if let Ok(inode) = minfs::Inode::decode(data) {
        assert_eq!(minfs::Inode::decode(&inode.encode()), Ok(inode));
    }
    if let Ok(entry) = minfs::DirEntry::decode(data) {
        assert!(entry.name().len() <= minfs::NAME_LEN);
        assert_eq!(minfs::DirEntry::decode(&entry.encode()), Ok(entry));
    }
    let mut rest = data;
    let start = BlockIndex(u64::from_le_bytes(take(&mut rest)));
    let len = BlockCount(u16::from_le_bytes(take(&mut rest)));
    if let Ok(portion) = lumpscope_engine::format::Portion::new(start, len) {
        assert!(portion.end().0 > portion.start().0);
        let _ = portion.check_within(u64::from_le_bytes(take(&mut rest)));
    }
}
