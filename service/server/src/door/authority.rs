//! The `:authority` of calls over the UNIX socket, which names nobody there.
//!
//! grpcio and all else that stands on gRPC's C core sends the percent-encoded path of the socket. h2
//! resets each call with a name that is none of the network (`PROTOCOL_ERROR`), before anything of
//! the service sees it. So what no host name has is replaced on the way in, byte by byte: lengths,
//! frames and the table of HPACK stay as they are. The C core never writes it with Huffman's code.

/// Bytes before the payload of a frame (RFC 9113, section 4.1).
const FRAME_HEADER: usize = 9;
/// Types of the frames that have fields: HEADERS and CONTINUATION.
const WITH_FIELDS: [u8; 2] = [0x1, 0x9];
/// Name of the field, as a literal (RFC 7541, section 6.2) with its length before it.
const NAME: &[u8] = b"\x0a:authority";
/// The largest length that is one byte; it has more when all its bits are set.
const SHORT: u8 = 0x7f;

/// Follows the frames of one connection.
#[derive(Debug, Default)]
pub(super) struct Authority {
    header: [u8; FRAME_HEADER],
    /// Bytes of the header that have come.
    known: usize,
    /// Bytes of the payload that are still to come.
    left: usize,
    place: FieldPosition,
}

/// What the next byte of the fields is.
#[derive(Clone, Copy, Debug)]
enum FieldPosition {
    /// Of the name, of which so many bytes have come; or of anything else.
    Name(usize),
    /// The length of the value.
    Length,
    /// More of the length, which is so much without it and goes on at this bit.
    More { len: usize, shift: u32 },
    /// Of the value, of which so many bytes are to come.
    Value(usize),
}

impl Default for FieldPosition {
    fn default() -> Self {
        Self::Name(0)
    }
}

impl Authority {
    /// Replaces what no host name has in the next bytes of the connection, behind its preface.
    pub(super) fn clean(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let more = bytes.len().min(FRAME_HEADER - self.known);
                let (head, rest) = bytes.split_at_mut(more);
                self.header[self.known..self.known + more].copy_from_slice(head);
                self.known += more;
                bytes = rest;
                if self.known == FRAME_HEADER {
                    let [high, middle, low, ..] = self.header;
                    self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                    self.known = 0;
                }
                continue;
            }
            let more = bytes.len().min(self.left);
            let (payload, rest) = bytes.split_at_mut(more);
            if WITH_FIELDS.contains(&self.header[3]) {
                for byte in payload {
                    self.place = self.place.next(byte);
                }
            }
            self.left -= more;
            bytes = rest;
        }
    }
}

impl FieldPosition {
    fn next(self, byte: &mut u8) -> Self {
        match self {
            Self::Name(known) if NAME[known] == *byte => match known + 1 {
                all if all == NAME.len() => Self::Length,
                known => Self::Name(known),
            },
            Self::Name(_) => Self::Name(usize::from(NAME[0] == *byte)),
            Self::Length if *byte < SHORT => Self::value(usize::from(*byte)),
            Self::Length if *byte == SHORT => Self::More {
                len: usize::from(SHORT),
                shift: 0,
            },
            // Huffman's code.
            Self::Length => Self::default(),
            Self::More { len, shift } if shift <= 14 => {
                let len = len + (usize::from(*byte & 0x7f) << shift);
                match *byte & 0x80 {
                    0 => Self::value(len),
                    _ => Self::More {
                        len,
                        shift: shift + 7,
                    },
                }
            }
            Self::More { .. } => Self::default(),
            Self::Value(left) => {
                if !byte.is_ascii_alphanumeric() && !b"-._~".contains(byte) {
                    *byte = b'-';
                }
                Self::value(left - 1)
            }
        }
    }

    fn value(left: usize) -> Self {
        match left {
            0 => Self::default(),
            left => Self::Value(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let [_, len @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len, &[kind, 4, 0, 0, 0, 1][..], payload].concat()
    }

    fn field(value: &str) -> Vec<u8> {
        let len = match value.len() {
            short if short < 127 => vec![u8::try_from(short).unwrap()],
            long => {
                let rest = long - 127;
                let low = u8::try_from(rest & 0x7f).unwrap() | 0x80;
                vec![127, low, u8::try_from(rest >> 7).unwrap()]
            }
        };
        [b"\x83@\x0a:authority", &len[..], value.as_bytes()].concat()
    }

    #[test]
    fn only_the_value_of_the_field_is_changed() {
        let long = "/a".repeat(150);
        let sent = [
            frame(0, b"\x0a:authority\x03a%b"),
            frame(1, &[&field("tmp%2Fs.sock")[..], b"@\x01a\x03b%c"].concat()),
            frame(1, &field(&long)[..9]),
            frame(9, &field(&long)[9..]),
            frame(1, b"\x0a\x0a:authority\x03a:b\x84"),
        ]
        .concat();
        let wanted = [
            frame(0, b"\x0a:authority\x03a%b"),
            frame(1, &[&field("tmp-2Fs.sock")[..], b"@\x01a\x03b%c"].concat()),
            frame(1, &field(&long)[..9]),
            frame(9, &field(&long.replace('/', "-"))[9..]),
            frame(1, b"\x0a\x0a:authority\x03a-b\x84"),
        ]
        .concat();
        for pieces in [1, 7, 10, sent.len()] {
            let mut bytes = sent.clone();
            let mut authority = Authority::default();
            for piece in bytes.chunks_mut(pieces) {
                authority.clean(piece);
            }
            assert_eq!(bytes, wanted, "in pieces of {pieces}");
        }
    }
}
