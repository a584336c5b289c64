//! The stream of a put: gRPC prefixes and protobuf, cut anywhere.

use bytes::Bytes;
use lumpscope_proto::frame::{Decoder, Event, Limits, WireError};
use lumpscope_proto::v1::PutRequest;
use lumpscope_proto::v1::put_request::Part;
use prost::Message as _;

const LIMITS: Limits = Limits {
    message: 2048,
    header: 256,
};

/// A message as it was understood.
#[derive(Debug, PartialEq)]
enum Read {
    Header(Bytes),
    Chunk(Vec<u8>),
    Nothing,
}

/// Messages up to the end or the first mistake.
fn read(pieces: impl Iterator<Item = Bytes>) -> (Vec<Read>, Result<(), WireError>) {
    let mut decoder = Decoder::new(LIMITS);
    let (mut all, mut message) = (Vec::new(), Read::Nothing);
    for mut piece in pieces {
        let most = 2 * piece.len() + 2;
        for step in 0.. {
            assert!(step <= most, "the decoder does not come to an end");
            match decoder.next(&mut piece) {
                Ok(Some(Event::Header(header))) => message = Read::Header(header),
                Ok(Some(Event::Chunk(bytes))) => match &mut message {
                    Read::Chunk(chunk) => chunk.extend_from_slice(&bytes),
                    other => *other = Read::Chunk(bytes.to_vec()),
                },
                Ok(Some(Event::End { part })) => {
                    let whole = std::mem::replace(&mut message, Read::Nothing);
                    // An empty chunk is a part without bytes.
                    all.push(match whole {
                        Read::Nothing if part => Read::Chunk(Vec::new()),
                        whole => whole,
                    });
                }
                Ok(None) => break,
                Err(error) => return (all, Err(error)),
            }
        }
        assert!(
            piece.is_empty(),
            "bytes were left where all should be taken"
        );
    }
    let end = decoder.finish();
    (all, end)
}

/// Reads the stream by tonic's way: whole messages, decoded by prost. Stops where a message cannot
/// be read.
fn read_by_prost(mut bytes: &[u8]) -> Vec<Read> {
    let mut all = Vec::new();
    while let Some((prefix, rest)) = bytes.split_at_checked(5) {
        let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
        let whole = usize::try_from(len)
            .ok()
            .and_then(|len| rest.split_at_checked(len));
        let Some((message, rest)) = whole else {
            break;
        };
        let Ok(message) = PutRequest::decode(Bytes::copy_from_slice(message)) else {
            break;
        };
        all.push(match message.part {
            Some(Part::Header(header)) => Read::Header(header.encode_to_vec().into()),
            Some(Part::Chunk(chunk)) => Read::Chunk(chunk.to_vec()),
            None => Read::Nothing,
        });
        bytes = rest;
    }
    all
}

/// The first byte says how the rest is cut.
pub(crate) fn put_stream(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let whole = Bytes::copy_from_slice(stream);
    let (messages, end) = read(std::iter::once(whole.clone()));
    let size = usize::from(cut % 64) + 1;
    let cuts = stream.chunks(size).map(Bytes::copy_from_slice);
    let (again, end_again) = read(cuts);
    assert_eq!((&messages, &end), (&again, &end_again), "cut by {size}");
    // What the decoder took is what prost takes, and what one refuses the other does.
    let by_prost = read_by_prost(stream);
    let readable = messages.iter().take_while(|message| match message {
        Read::Header(header) => lumpscope_proto::v1::PutHeader::decode(header.clone()).is_ok(),
        Read::Chunk(_) | Read::Nothing => true,
    });
    let readable = readable.count();
    match end {
        // Limits, and what no encoder writes.
        Err(
            WireError::TwoParts
            | WireError::TooLarge { .. }
            | WireError::HeaderTooLarge { .. }
            | WireError::Flag { .. }
            | WireError::Compressed
            | WireError::Malformed("groups are nested too deeply"),
        ) => assert!(by_prost.len() >= readable, "{stream:?}"),
        _ => assert_eq!(by_prost.len(), readable, "{end:?} {stream:?}"),
    }
    for (ours, theirs) in messages.iter().zip(&by_prost) {
        match (ours, theirs) {
            // Encoded again, so that unknown fields and the order of fields do not matter.
            (Read::Header(bytes), Read::Header(theirs)) => {
                let header = lumpscope_proto::v1::PutHeader::decode(bytes.clone());
                let header = header.expect("prost has read it inside the message");
                assert_eq!(header.encode_to_vec(), theirs.to_vec());
            }
            (ours, theirs) => assert_eq!(ours, theirs),
        }
    }
}
