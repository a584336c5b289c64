//! Any cut of a stream is read as prost reads the whole, and no bytes make the decoder panic.

use proptest::prelude::*;
use prost::Message as _;
use prost::encoding::{encode_key, encode_varint};

use super::*;
use crate::v1;
use crate::v1::put_request::Part;

const LIMITS: Limits = Limits {
    message: 1 << 16,
    header: 1 << 10,
};

/// Decoded stream: headers and chunks put together, one entry a message.
type Said = Vec<Option<Part>>;

/// Reads `stream` in the pieces that `cuts` make of it.
fn read(stream: &[u8], mut cuts: impl FnMut() -> usize) -> Result<Said, WireError> {
    let mut decoder = Decoder::new(LIMITS);
    let (mut said, mut part) = (Vec::new(), None);
    let mut rest = Bytes::copy_from_slice(stream);
    while !rest.is_empty() {
        let mut input = rest.split_to(cuts().clamp(1, rest.len()));
        while let Some(event) = decoder.next(&mut input)? {
            match event {
                Event::Header(bytes) => {
                    let header =
                        v1::PutHeader::decode(bytes).map_err(|_| WireError::Malformed("header"))?;
                    part = Some(Part::Header(header));
                }
                Event::Chunk(bytes) => match &mut part {
                    Some(Part::Chunk(all)) => {
                        let mut both = BytesMut::from(&all[..]);
                        both.extend_from_slice(&bytes);
                        *all = both.freeze();
                    }
                    _ => part = Some(Part::Chunk(bytes)),
                },
                // A chunk without bytes says nothing until its message ends.
                Event::End { part: had } => said.push(match part.take() {
                    None if had => Some(Part::Chunk(Bytes::new())),
                    part => part,
                }),
            }
        }
        assert!(input.is_empty(), "input was left over");
    }
    decoder.finish().map(|()| said)
}

/// Reads the whole as tonic and prost do.
fn expected(mut stream: &[u8]) -> Option<Said> {
    let mut said = Vec::new();
    while !stream.is_empty() {
        let (prefix, rest) = stream.split_at_checked(PREFIX_LEN)?;
        let len = u32::from_be_bytes(prefix[1..].try_into().ok()?);
        let (message, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        said.push(v1::PutRequest::decode(message).ok()?.part);
        stream = rest;
    }
    Some(said)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    [&[0], &len.to_be_bytes()[..], message].concat()
}

/// A field that no version knows.
fn unknown() -> impl Strategy<Value = Vec<u8>> {
    (3_u32..5000, 0_u8..4, any::<u64>(), 0_usize..40).prop_map(|(tag, kind, value, len)| {
        let mut out = Vec::new();
        match kind {
            0 => {
                encode_key(tag, WireType::Varint, &mut out);
                encode_varint(value, &mut out);
            }
            1 => {
                encode_key(tag, WireType::SixtyFourBit, &mut out);
                out.extend(value.to_le_bytes());
            }
            2 => {
                encode_key(tag, WireType::LengthDelimited, &mut out);
                encode_varint(len as u64, &mut out);
                out.extend(std::iter::repeat_n(7, len));
            }
            _ => {
                encode_key(tag, WireType::StartGroup, &mut out);
                encode_key(1, WireType::Varint, &mut out);
                encode_varint(value, &mut out);
                encode_key(tag, WireType::EndGroup, &mut out);
            }
        }
        out
    })
}

fn part() -> impl Strategy<Value = Option<Part>> {
    let header = ("[a-z]{0,9}", any::<u64>(), any::<[u8; 16]>(), any::<bool>());
    prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(|bytes| Some(Part::Chunk(bytes.into()))),
        header.prop_map(|(store, length, id, crc)| {
            Some(Part::Header(v1::PutHeader {
                store,
                length,
                id: Some(v1::LumpId {
                    form: Some(v1::lump_id::Form::Raw(Bytes::copy_from_slice(&id))),
                }),
                crc32c: crc.then_some(9),
                ..Default::default()
            }))
        }),
    ]
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    (part(), unknown(), unknown(), any::<[bool; 2]>()).prop_map(|(part, before, after, with)| {
        let mut out = Vec::new();
        if with[0] {
            out.extend(before);
        }
        out.extend(v1::PutRequest { part }.encode_to_vec());
        if with[1] {
            out.extend(after);
        }
        framed(&out)
    })
}

proptest! {
    #[test]
    fn any_cut_of_a_stream_says_what_prost_says(
        messages in prop::collection::vec(message(), 0..6),
        sizes in prop::collection::vec(1_usize..200, 1..20),
    ) {
        let stream = messages.concat();
        let mut sizes = sizes.into_iter().cycle();
        let want = expected(&stream).unwrap();
        prop_assert_eq!(read(&stream, || sizes.next().unwrap()).unwrap(), want.clone());
        prop_assert_eq!(read(&stream, || 1).unwrap(), want.clone());
        prop_assert_eq!(read(&stream, || usize::MAX).unwrap(), want);
    }

    #[test]
    fn what_is_accepted_is_what_prost_accepts(
        messages in prop::collection::vec(message(), 1..3),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        sizes in prop::collection::vec(1_usize..50, 1..20),
    ) {
        let mut stream = messages.concat();
        for (at, byte) in flips {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let mut sizes = sizes.into_iter().cycle();
        let cut = read(&stream, || sizes.next().unwrap());
        prop_assert_eq!(&cut, &read(&stream, || usize::MAX));
        match cut {
            Ok(said) => prop_assert_eq!(Some(said), expected(&stream)),
            // Stated limits, and what no encoder writes: prost knows of none of these.
            Err(
                WireError::TwoParts
                | WireError::TooLarge { .. }
                | WireError::HeaderTooLarge { .. }
                | WireError::Flag { .. }
                | WireError::Compressed
                | WireError::Malformed("groups are nested too deeply"),
            ) => {}
            Err(error) => prop_assert_eq!(expected(&stream), None, "refused: {}", error),
        }
    }

    #[test]
    fn no_bytes_panic(stream in prop::collection::vec(any::<u8>(), 0..400), size in 1_usize..9) {
        let _ = read(&stream, || size);
        let mut framed = framed(&stream);
        framed.extend(stream);
        let _ = read(&framed, || size);
    }
}

fn all(stream: &[u8]) -> Result<Said, WireError> {
    read(stream, || usize::MAX)
}

#[test]
fn what_is_refused() {
    assert_eq!(all(&[1, 0, 0, 0, 0]), Err(WireError::Compressed));
    assert_eq!(all(&[2, 0, 0, 0, 0]), Err(WireError::Flag { flag: 2 }));
    assert_eq!(all(&[0, 0, 0]), Err(WireError::Truncated));
    let (len, max) = (65_537, 65_536);
    assert_eq!(all(&[0, 0, 1, 0, 1]), Err(WireError::TooLarge { len, max }));
    let mut header = Vec::new();
    prost::encoding::bytes::encode(HEADER, &vec![0_u8; 1025], &mut header);
    let (len, max) = (1025, 1024);
    let found = all(&framed(&header));
    assert_eq!(found, Err(WireError::HeaderTooLarge { len, max }));
    let mut two = Vec::new();
    prost::encoding::bytes::encode(CHUNK, &vec![1_u8], &mut two);
    prost::encoding::bytes::encode(CHUNK, &vec![2_u8], &mut two);
    assert_eq!(all(&framed(&two)), Err(WireError::TwoParts));
    // A chunk that is longer than its message.
    assert!(matches!(
        all(&framed(&[0x12, 9, 1])),
        Err(WireError::Malformed(_))
    ));
    // A chunk that is a number.
    assert!(matches!(
        all(&framed(&[0x10, 9])),
        Err(WireError::Malformed(_))
    ));
    let deep = [0x1b_u8; MAX_GROUPS + 1];
    assert!(matches!(all(&framed(&deep)), Err(WireError::Malformed(_))));
}
