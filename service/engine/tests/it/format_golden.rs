//! The format against images written by CannyLS 0.10.0 (testdata/lusf): every record at the ring
//! position that CannyLS reports, every live lump with the size and content that was put.

use std::collections::BTreeMap;
use std::fs;

use lumpscope_engine::LumpId;
use lumpscope_engine::format::journal_header::JournalHeader;
use lumpscope_engine::format::record::{Decoded, EmbeddedData, Record};
use lumpscope_engine::format::trailer::LumpEnd;
use lumpscope_engine::format::trailer::TrailerState;
use lumpscope_engine::format::verify::{Provenance, Subject};
use lumpscope_engine::format::{Geometry, Header, Portion};
use lumpscope_engine::units::{BlockSize, ByteOffset, RingPosition};

use crate::support::testdata;

/// A whole image in memory, decoded without any I/O code of the engine.
struct Image {
    bytes: Vec<u8>,
    header: Header,
    geometry: Geometry,
    head: RingPosition,
    /// Every record from the head to the end, with its ring position.
    records: Vec<(RingPosition, String)>,
    live: BTreeMap<LumpId, LumpPlace>,
}

#[derive(Clone, Copy)]
enum LumpPlace {
    Data(Portion),
    Embedded { at: RingPosition, len: usize },
}

impl Image {
    fn load(name: &str) -> Self {
        let bytes = fs::read(testdata(&format!("{name}.lusf"))).expect("a sample image");
        let header = Header::decode(&bytes).expect("a header");
        let geometry = Geometry::new(ByteOffset(0), &header);
        let from = |offset: ByteOffset| &bytes[usize::try_from(offset.0).expect("small")..];
        let head =
            JournalHeader::decode(from(geometry.journal_header_offset()), geometry.ring_len())
                .expect("a journal header")
                .ring_head;
        let ring = from(geometry.ring_offset());
        let ring_len = usize::try_from(geometry.ring_len().0).expect("small");
        let ring_len = ring_len.min(ring.len());
        let (records, live) = replay(&ring[..ring_len], head);
        Self {
            header,
            geometry,
            head,
            records,
            live,
            bytes,
        }
    }

    fn block_size(&self) -> BlockSize {
        self.header.block_size
    }

    fn portion(&self, portion: Portion) -> &[u8] {
        let start = usize::try_from(self.geometry.portion_offset(portion).0).expect("small");
        let len = usize::try_from(portion.byte_len(self.block_size()).0).expect("small");
        &self.bytes[start..start + len]
    }

    /// The bytes of a live lump, and the bytes of padding after it.
    fn lump(&self, id: LumpId) -> (&[u8], usize) {
        match self.live[&id] {
            LumpPlace::Embedded { at, len } => {
                let start = usize::try_from(self.geometry.ring_byte(at).0).expect("small") + 23;
                (&self.bytes[start..start + len], 0)
            }
            LumpPlace::Data(portion) => {
                let bytes = self.portion(portion);
                let end =
                    LumpEnd::decode(bytes, id, portion.len(), self.block_size()).expect("a lump");
                // CannyLS writes no trailer.
                assert_eq!(end.trailer, TrailerState::Missing);
                let subject = Subject {
                    id,
                    blocks: portion.len(),
                    block_size: self.block_size(),
                    provenance: Provenance::Foreign,
                    expected_len: None,
                };
                assert!(!subject.judge(bytes).expect("a lump").verified);
                let (payload, rest) =
                    bytes.split_at(usize::try_from(end.payload_len).expect("small"));
                (payload, rest.len() - 2)
            }
        }
    }
}

type Replayed = (Vec<(RingPosition, String)>, BTreeMap<LumpId, LumpPlace>);

/// Reads the records one after the other, each from the fewest bytes that the decoder asks for,
/// and checks that they encode to the same bytes again.
fn replay(ring: &[u8], head: RingPosition) -> Replayed {
    let (mut records, mut live) = (Vec::new(), BTreeMap::new());
    let mut at = usize::try_from(head.0).expect("small");
    let mut wrapped = false;
    loop {
        let position = RingPosition(u64::try_from(at).expect("small"));
        let mut have = 0;
        let (record, len) = loop {
            match Record::decode(&ring[at..at + have]).expect("a record") {
                Decoded::Record { record, len } => break (record, len),
                Decoded::NeedMore { total } => {
                    assert!(total > have, "the decoder must ask for more than it has");
                    have = total;
                }
            }
        };
        assert_eq!(record.to_bytes(), ring[at..at + len], "re-encoded at {at}");
        at += len;
        let text = match record {
            Record::Put { id, portion } => {
                live.insert(id, LumpPlace::Data(portion));
                let (start, len) = (portion.start().0, portion.len().0);
                format!("put {id} start {start} len {len}")
            }
            Record::Embed { id, data } => {
                let len = data.as_slice().len();
                live.insert(id, LumpPlace::Embedded { at: position, len });
                format!("embed {id} size {len}")
            }
            Record::Delete { id } => {
                live.remove(&id);
                format!("delete {id}")
            }
            Record::DeleteRange { start, end } => {
                live.retain(|id, _| !(start..end).contains(id));
                format!("delete_range {start} {end}")
            }
            Record::GoToFront => {
                assert!(!wrapped, "a second GoToFront");
                (wrapped, at) = (true, 0);
                continue;
            }
            Record::EndOfRecords => {
                records.push((position, String::new()));
                return (records, live);
            }
        };
        records.push((position, text));
    }
}

/// The content of a lump: see testdata/lusf/README.md.
fn content(id: LumpId, salt: u64, len: usize) -> Vec<u8> {
    let [high, low] = [64, 0].map(|shift| u64::try_from(id.0 >> shift & u128::from(u64::MAX)));
    let mut x = low.expect("masked") ^ high.expect("masked") ^ (salt << 56) ^ 0x9E37_79B9_7F4A_7C15;
    let next = || {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(x >> 33 & 255).expect("masked")
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn every_record_stands_where_cannyls_says() {
    for name in ["basic", "wrap", "wrap2", "bs4096"] {
        let image = Image::load(name);
        let journal = fs::read_to_string(testdata(&format!("{name}.journal.txt"))).expect("text");
        let (first, lines) = journal.split_once('\n').expect("a line for the ring");
        let numbers = first.split(' ').filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let [unreleased, head, tail] = numbers[..] else {
            panic!("{first}")
        };
        assert_eq!(image.head, RingPosition(unreleased), "{name}");
        let (last, records) = image.records.split_last().expect("the end of records");
        assert_eq!(last.0, RingPosition(tail), "{name}");
        // CannyLS lists from its head on; what is before it has been relocated already.
        let listed = records.iter().skip_while(|(at, _)| at.0 != head);
        let listed = listed.map(|(at, text)| format!("{} {text}", at.0));
        let listed: Vec<String> = listed.collect();
        assert_eq!(listed, lines.lines().collect::<Vec<_>>(), "{name}");
        assert!(!listed.is_empty());
    }
}

#[test]
fn every_live_lump_has_its_size_and_content() {
    for name in ["basic", "wrap", "wrap2", "bs4096"] {
        let image = Image::load(name);
        let want = fs::read_to_string(testdata(&format!("{name}.want.txt"))).expect("text");
        assert_eq!(image.live.len(), want.lines().count(), "{name}");
        for line in want.lines() {
            let [id, size, kind, salt] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let id: LumpId = id.parse().expect("an id");
            let embedded = matches!(image.live[&id], LumpPlace::Embedded { .. });
            assert_eq!(embedded, kind == "e", "{name}: {line}");
            let (bytes, _) = image.lump(id);
            assert_eq!(bytes.len().to_string(), size, "{name}: {line}");
            let salt = salt.parse().expect("a number");
            assert_eq!(bytes, content(id, salt, bytes.len()), "{name}: {line}");
        }
    }
}

#[test]
fn headers_encode_to_the_same_bytes() {
    for (name, block_size) in [
        ("basic", 512),
        ("wrap", 512),
        ("wrap2", 512),
        ("bs4096", 4096),
        ("foreign_align", 512),
    ] {
        let image = Image::load(name);
        assert_eq!(image.block_size().get(), block_size, "{name}");
        assert_eq!(image.header.minor, 1, "{name}");
        assert_eq!(image.header.encode(), image.bytes[..44], "{name}");
        let padding = &image.bytes[44..usize::from(block_size)];
        assert!(padding.iter().all(|byte| *byte == 0), "{name}");
        let journal = usize::from(block_size);
        let head = JournalHeader {
            ring_head: image.head,
        };
        assert_eq!(head.encode(), image.bytes[journal..journal + 8], "{name}");
    }
}

#[test]
fn padding_may_be_longer_than_a_block() {
    let image = Image::load("foreign_align");
    let paddings: Vec<usize> = image.live.keys().map(|id| image.lump(*id).1).collect();
    let block = usize::from(image.block_size().get());
    assert!(paddings.iter().any(|it| *it >= block), "{paddings:?}");
}

#[test]
fn a_record_cut_anywhere_asks_for_more_and_any_flipped_bit_is_found() {
    let image = Image::load("basic");
    let ring = usize::try_from(image.geometry.ring_offset().0).expect("small");
    for (position, _) in &image.records {
        let start = ring + usize::try_from(position.0).expect("small");
        let bytes = &image.bytes[start..];
        let Ok(Decoded::Record { len, .. }) = Record::decode(bytes) else {
            panic!("a record")
        };
        for cut in 0..len {
            let Ok(Decoded::NeedMore { total }) = Record::decode(&bytes[..cut]) else {
                panic!("{cut} of {len} bytes")
            };
            assert!(total > cut && total <= len, "{total} for {cut} of {len}");
        }
        for bit in 0..len.min(64) * 8 {
            let mut damaged = bytes[..len].to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // A changed length may ask for more; it never yields a record.
            let is_one = matches!(Record::decode(&damaged), Ok(Decoded::Record { .. }));
            assert!(!is_one, "bit {bit} of the record at {position:?}");
        }
    }
}

#[test]
fn the_records_without_body_have_fixed_bytes() {
    assert_eq!(Record::EndOfRecords.to_bytes(), [0, 1, 0, 1, 0]);
    assert_eq!(Record::GoToFront.to_bytes(), [0, 2, 0, 2, 1]);
    // Zeros are no end of records: their checksum is not that of nothing.
    assert!(Record::decode(&[0; 64]).is_err());
    assert!(EmbeddedData::new(&[0; 65_536]).is_err());
}
