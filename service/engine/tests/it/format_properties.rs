//! Properties of the format's conversions: what is encoded decodes to itself, and no bytes
//! whatever make a decoder panic.

use lumpscope_engine::LumpId;
use lumpscope_engine::crc32c;
use lumpscope_engine::format::geometry::{Geometry, RegionSizes};
use lumpscope_engine::format::journal_header::JournalHeader;
use lumpscope_engine::format::minfs::{DirEntry, FILE_OFFSET, Inode, Superblock, encode_metadata};
use lumpscope_engine::format::record::{Decoded, EmbeddedData, Record};
use lumpscope_engine::format::ring::{RingPlace, room_for};
use lumpscope_engine::format::sums::{Chunks, PayloadSums};
use lumpscope_engine::format::trailer::{
    LumpEnd, LumpShape, OVERHEAD_LEN, TrailerState, max_payload, overhead_len,
};
use lumpscope_engine::format::verify::{Damage, Provenance, Subject};
use lumpscope_engine::format::{Header, Portion, header};
use lumpscope_engine::units::{
    BlockCount, BlockIndex, BlockSize, ByteLen, ByteOffset, RingPosition,
};
use proptest::prelude::*;

fn block_size() -> impl Strategy<Value = BlockSize> {
    (1..=127_u16).prop_map(|units| BlockSize::new(units * 512).expect("a multiple of 512"))
}

fn lump_id() -> impl Strategy<Value = LumpId> {
    any::<u128>().prop_map(LumpId)
}

fn portion() -> impl Strategy<Value = Portion> {
    (0..1_u64 << 39, 1..=u16::MAX)
        .prop_map(|(start, len)| Portion::new(BlockIndex(start), BlockCount(len)).expect("valid"))
}

fn any_header() -> impl Strategy<Value = Header> {
    (
        0..=1_u16,
        block_size(),
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(|(minor, block_size, uuid, journal, data)| {
            let journal = journal % (header::MAX_JOURNAL_LEN - 2 * block_size.bytes());
            let journal = block_size.floor(journal) + 2 * block_size.bytes();
            let data = block_size.floor(data % header::MAX_DATA_LEN);
            let (journal_len, data_len) = (ByteLen(journal), ByteLen(data));
            Header {
                minor,
                block_size,
                uuid,
                journal_len,
                data_len,
            }
        })
}

/// A lump as it stands in its portion.
fn written(id: LumpId, generation: u64, payload: &[u8], block_size: BlockSize) -> Vec<u8> {
    let len = u64::try_from(payload.len()).expect("small");
    let shape = LumpShape::new(len, block_size).expect("small enough");
    let mut sums = PayloadSums::new(len);
    // In pieces, as a writer that streams.
    payload.chunks(1000).for_each(|piece| sums.update(piece));
    let mut bytes = payload.to_vec();
    bytes.resize(usize::try_from(shape.total_len()).expect("small"), 0xEE);
    shape.write_tail(id, generation, sums, &mut bytes[payload.len()..]);
    bytes
}

fn subject(id: LumpId, bytes: &[u8], block_size: BlockSize, provenance: Provenance) -> Subject {
    let blocks = bytes.len() / usize::from(block_size.get());
    Subject {
        id,
        blocks: BlockCount(u16::try_from(blocks).expect("small")),
        block_size,
        provenance,
        expected_len: None,
    }
}

proptest! {
    #[test]
    fn headers_round_trip(header in any_header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn journal_headers_round_trip(head in any::<u64>(), ring in any::<u64>()) {
        let header = JournalHeader { ring_head: RingPosition(head) };
        let decoded = JournalHeader::decode(&header.encode(), ByteLen(ring));
        prop_assert_eq!(decoded.ok(), (head < ring).then_some(header));
    }

    #[test]
    fn records_round_trip(
        id in lump_id(), end in lump_id(), portion in portion(),
        data in proptest::collection::vec(any::<u8>(), 0..2000),
        rest in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let data = EmbeddedData::new(&data).expect("small");
        let (start, end) = (id.min(end), id.max(end));
        for record in [
            Record::Put { id, portion }, Record::Embed { id, data }, Record::Delete { id },
            Record::DeleteRange { start, end }, Record::EndOfRecords, Record::GoToFront,
        ] {
            let mut bytes = record.to_bytes();
            let len = bytes.len();
            prop_assert_eq!(len, record.encoded_len());
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(Record::decode(&bytes), Ok(Decoded::Record { record, len }));
            // Any shorter beginning asks for more, and never for more than the record has.
            let Ok(Decoded::NeedMore { total }) = Record::decode(&bytes[..len / 2]) else {
                return Err(TestCaseError::fail("half a record"));
            };
            prop_assert!(total > len / 2 && total <= len);
        }
    }

    #[test]
    fn lumps_round_trip_and_damage_is_found(
        block_size in block_size(), id in lump_id(), other in lump_id(), generation in any::<u64>(),
        len in prop_oneof![0..10_000_usize, 65_500..65_600_usize, 65_536..300_000_usize],
        at in any::<prop::sample::Index>(), from in any::<prop::sample::Index>(),
    ) {
        let payload: Vec<u8> = (0..len).map(|at| (at ^ (at >> 8)).to_le_bytes()[0]).collect();
        let bytes = written(id, generation, &payload, block_size);
        let subject = subject(id, &bytes, block_size, Provenance::Own);
        let judged = subject.judge(&bytes).expect("intact");
        prop_assert_eq!((judged.bytes, judged.verified), (0..len, true));
        prop_assert_eq!(judged.crc32c, crc32c::of(&payload));
        let block = usize::from(block_size.get());
        let end = subject.judge_end(&bytes[bytes.len() - block..]).expect("intact");
        prop_assert_eq!(end.1.as_ref().map(|trailer| trailer.generation), Some(generation));
        if id != other {
            let misfit = Subject { id: other, ..subject }.judge(&bytes).expect_err("not that one");
            let is_misfit = matches!(misfit.damage, Damage::TrailerMisfit { .. });
            prop_assert!(is_misfit, "{misfit:?}");
            let bytes = u64::try_from(bytes.len()).expect("small");
            prop_assert_eq!(misfit.bytes, bytes - block_size.bytes()..bytes);
        }
        // Any changed byte that counts is found, and told where.
        let counts = len + usize::try_from(overhead_len(len as u64)).expect("small");
        let at = at.index(counts);
        let at = if at < len { at } else { bytes.len() - (counts - at) };
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let misfit = subject.judge(&damaged).expect_err("damaged");
        prop_assert!(misfit.bytes.contains(&(at as u64)), "{misfit:?}, byte {at}");
        // Parts are judged without the rest.
        if len > 0 {
            let (from, at) = (from.index(len).min(at), from.index(len).max(at).min(len));
            let wanted = from as u64..at as u64;
            let cover = Chunks::of(len as u64).cover(wanted.clone());
            let range = |range: &std::ops::Range<u64>| {
                usize::try_from(range.start).expect("small")..usize::try_from(range.end).expect("small")
            };
            let part = &bytes[range(&cover)];
            let judged = subject.judge_part(part, cover.start, wanted.clone(), end.clone());
            let judged = judged.expect("intact");
            prop_assert!(judged.verified);
            prop_assert_eq!(&part[judged.bytes], &payload[from..at]);
            prop_assert_eq!(judged.crc32c, crc32c::of(&payload[from..at]));
            if !cover.is_empty() {
                let mut part = part.to_vec();
                let last = part.len() - 1;
                part[last] ^= 1;
                prop_assert!(subject.judge_part(&part, cover.start, wanted.clone(), end).is_err());
            }
        }
    }

    #[test]
    fn foreign_lumps_are_verified_or_not_but_never_refused(
        block_size in block_size(), id in lump_id(), at in any::<prop::sample::Index>(),
        len in 0..3000_usize,
    ) {
        let payload = vec![7; len];
        let mut bytes = written(id, 5, &payload, block_size);
        let subject = subject(id, &bytes, block_size, Provenance::Foreign);
        prop_assert!(subject.judge(&bytes).expect("intact").verified);
        // Whatever stands there: only the padding length decides how long it is.
        let at = at.index(bytes.len() - 2);
        bytes[at] ^= 0x40;
        let padding = (len..bytes.len() - OVERHEAD_LEN).contains(&at);
        let judged = subject.judge(&bytes).expect("served");
        prop_assert_eq!((judged.bytes, judged.verified), (0..len, padding));
        prop_assert_eq!(judged.crc32c, crc32c::of(&bytes[..len]));
    }

    #[test]
    fn shapes_waste_less_than_a_block_and_the_room_of_a_large_lump(len in any::<u64>(), block_size in block_size()) {
        let len = len % (max_payload(block_size) + 1);
        let shape = LumpShape::new(len, block_size).expect("within the limit");
        prop_assert!(shape.tail_len() >= overhead_len(len));
        let room = if len < 65_536 { 0 } else { 1024 };
        prop_assert!(shape.tail_len() < overhead_len(len) + room + block_size.bytes());
        prop_assert_eq!(shape.total_len(), shape.payload_len() + shape.tail_len());
        prop_assert!(LumpShape::new(max_payload(block_size) + 1, block_size).is_err());
    }

    #[test]
    fn any_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), tag in 0..8_u8,
        block_size in block_size(), count in any::<u16>(), ring in any::<u64>(), id in lump_id(),
    ) {
        let mut tagged = bytes.clone();
        if let Some(byte) = tagged.get_mut(4) {
            *byte = tag;
        }
        for bytes in [&bytes, &tagged] {
            let _ = Header::decode(bytes);
            let _ = JournalHeader::decode(bytes, ByteLen(ring));
            let _ = Record::decode(bytes);
            let _ = Superblock::decode(bytes);
            let _ = Inode::decode(bytes);
            let _ = DirEntry::decode(bytes).map(|entry| entry.name().len());
            let mut portion = vec![tag; 2 * usize::from(block_size.get())];
            let at = portion.len() - bytes.len();
            portion[at..].copy_from_slice(bytes);
            for (portion, blocks) in [(&portion, count % 3), (&portion, count), (bytes, count)] {
                for provenance in [Provenance::Own, Provenance::Foreign] {
                    let subject = Subject {
                        id, blocks: BlockCount(blocks), block_size, provenance, expected_len: None,
                    };
                    let _ = subject.judge(portion);
                    if let Ok(end) = subject.judge_end(portion) {
                        let _ = subject.judge_part(portion, ring, ring / 2..ring, end);
                    }
                }
            }
        }
    }

    /// A header with any one field destroyed is refused or decodes to what it says; its geometry
    /// never overflows.
    #[test]
    fn damaged_headers_never_overflow(
        header in any_header(), at in 0..44_usize, byte in any::<u8>(), base in 0..1_u64 << 40
    ) {
        let mut bytes = header.encode();
        bytes[at] = byte;
        if let Ok(decoded) = Header::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
            let geometry = Geometry::new(ByteOffset(base), &decoded);
            prop_assert_eq!(geometry.end().0, base + geometry.image_len().0);
            prop_assert_eq!(
                geometry.data_offset().0 - geometry.ring_offset().0, geometry.ring_len().0
            );
            prop_assert_eq!(geometry.data_blocks() * decoded.block_size.bytes(), decoded.data_len.0);
        }
    }

    #[test]
    fn records_with_a_right_checksum_and_wrong_fields_are_refused(
        id in lump_id(), start in any::<u64>(), len in any::<u16>(), a in lump_id(), b in lump_id(),
    ) {
        let start = start & ((1 << 40) - 1);
        let mut put = vec![0, 0, 0, 0, 3];
        put.extend_from_slice(&id.to_be_bytes());
        put.extend_from_slice(&len.to_be_bytes());
        put.extend_from_slice(&start.to_be_bytes()[3..]);
        let mut range = vec![0, 0, 0, 0, 6];
        range.extend_from_slice(&a.to_be_bytes());
        range.extend_from_slice(&b.to_be_bytes());
        for bytes in [&mut put, &mut range] {
            let sum = adler2::adler32_slice(&bytes[4..]);
            bytes[..4].copy_from_slice(&sum.to_be_bytes());
        }
        let valid = Portion::new(BlockIndex(start), BlockCount(len)).is_ok();
        prop_assert_eq!(Record::decode(&put).is_ok(), valid);
        prop_assert_eq!(Record::decode(&range).is_ok(), a <= b);
    }

    #[test]
    fn regions_fill_the_capacity(
        capacity in 0..1_u64 << 45, block_size in block_size(), ratio in 0.0..=1.0_f64
    ) {
        if let Ok(sizes) = RegionSizes::divide(ByteLen(capacity), block_size, ratio) {
            let (bs, journal, data) = (block_size.bytes(), sizes.journal_len.0, sizes.data_len.0);
            prop_assert!(journal.is_multiple_of(bs) && data.is_multiple_of(bs));
            prop_assert!(journal >= 2 * bs && data >= bs);
            let used = bs + journal + data;
            prop_assert!(used <= capacity && capacity - used < bs);
        }
    }

    /// The room rule against a model: bytes that must survive are never within what is written.
    #[test]
    fn room_never_reaches_the_head(
        head in 0..4096_u64, used in 0..4096_u64, record in 1..3000_u64, unit in 0..4_u32
    ) {
        let (ring, unit) = (4096, 512_u64 << unit);
        let tail = (head + used) % ring;
        let room = room_for(
            RingPosition(head), RingPosition(tail), record, ByteLen(ring), ByteLen(unit),
        );
        let start = match room {
            RingPlace::AtTail => tail,
            RingPlace::AtFront => {
                prop_assert!(tail + 5 <= ring);
                0
            }
            RingPlace::Full => return Ok(()),
        };
        prop_assert!(start + record + 5 <= ring);
        // Every byte of the write units is before the tail's own records or free.
        let end = (start + record + 5).next_multiple_of(unit).min(ring);
        let live = |byte: u64| if head <= tail { (head..tail).contains(&byte) } else { byte >= head || byte < tail };
        prop_assert!((start..end).all(|byte| !live(byte)), "{head} {tail} {record} {unit}");
    }

    #[test]
    fn minfs_metadata_round_trips(len in any::<u64>(), bitmap in any::<u64>()) {
        let metadata = encode_metadata(len);
        prop_assert_eq!(metadata.len(), 3 * 4096);
        prop_assert_eq!(Superblock::decode(&metadata), Ok(Superblock::WITH_FILE));
        prop_assert_eq!(Inode::decode(&metadata[4096..]), Ok(Inode::ROOT));
        prop_assert_eq!(Inode::decode(&metadata[4116..]), Ok(Inode::of_file(len)));
        prop_assert_eq!(u64::from(Inode::of_file(len).size), len % (1 << 32));
        prop_assert_eq!(DirEntry::decode(&metadata[8192..]), Ok(DirEntry::of_file()));
        prop_assert_eq!(DirEntry::decode(&metadata[8212..]).map(|entry| entry.ino), Ok(0));
        prop_assert_eq!(FILE_OFFSET, 61_440);
        let superblock = Superblock { inode_bitmap: bitmap };
        prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
}

#[test]
fn the_padding_of_a_lump_is_cleared() {
    let bytes = written(LumpId(7), 9, b"abc", BlockSize::MIN);
    assert!(bytes[3..512 - OVERHEAD_LEN].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[488..494], b"LsCk\x00\x02");
    assert_eq!(bytes[502..506], crc32c::of(b"abc").to_be_bytes());
    assert_eq!(bytes[510..], 507_u16.to_be_bytes());
}

#[test]
fn a_lump_of_ours_without_its_trailer_is_lost() {
    for (at, what) in [(488, "missing"), (493, "unknown format"), (500, "damaged")] {
        let mut bytes = written(LumpId(7), 9, b"abc", BlockSize::MIN);
        bytes[at] ^= 0xFF;
        let own = subject(LumpId(7), &bytes, BlockSize::MIN, Provenance::Own);
        let misfit = own.judge(&bytes).expect_err(what);
        assert!(misfit.damage.to_string().contains(what), "{misfit:?}");
        let foreign = Subject {
            provenance: Provenance::Foreign,
            ..own
        };
        let judged = foreign.judge(&bytes).expect("served");
        assert_eq!((judged.bytes, judged.verified), (0..3, false), "{what}");
    }
    let bytes = written(LumpId(7), 9, b"abc", BlockSize::MIN);
    let longer = Subject {
        expected_len: Some(4),
        ..subject(LumpId(7), &bytes, BlockSize::MIN, Provenance::Own)
    };
    let misfit = longer.judge(&bytes).expect_err("an older version");
    assert_eq!(
        misfit.damage,
        Damage::Length {
            expected: 4,
            found: 3
        }
    );
}

#[test]
fn padding_longer_than_the_portion_is_refused() {
    let mut bytes = [0; 512];
    for (padding, payload_len) in [(510_u16, Some(0)), (511, None), (u16::MAX, None)] {
        bytes[510..].copy_from_slice(&padding.to_be_bytes());
        let end = LumpEnd::decode(&bytes, LumpId(1), BlockCount(1), BlockSize::MIN);
        assert_eq!(
            end.ok().map(|end| (end.payload_len, end.trailer)),
            payload_len.map(|len| (len, TrailerState::Missing)),
            "{padding}"
        );
        let foreign = subject(LumpId(1), &bytes, BlockSize::MIN, Provenance::Foreign);
        assert_eq!(foreign.judge(&bytes).is_ok(), payload_len.is_some());
    }
    assert!(LumpEnd::decode(&[0; 19], LumpId(1), BlockCount(1), BlockSize::MIN).is_err());
}
