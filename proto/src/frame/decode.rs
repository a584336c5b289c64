//! Reads the stream of a put or a get as it comes.
//!
//! The input may be cut anywhere. Bytes of a chunk are handed on as slices of the input; nothing
//! of them is kept. Only the header of a lump is gathered, and it is short.
//!
//! The messages are [`PutRequest`](crate::v1::PutRequest), [`PutManyRequest`](crate::v1::PutManyRequest) and
//! [`GetResponse`](crate::v1::GetResponse), which are the same on the wire: field 1 is the header, field 2 a chunk,
//! both in one oneof. Fields that are not known are skipped. Of two parts in one message protobuf keeps the last; no
//! encoder writes that, and bytes that were handed on cannot be taken back, so it is refused.

use bytes::{Buf as _, Bytes, BytesMut};
use prost::encoding::{WireType, decode_varint};

use super::{CHUNK, HEADER, PREFIX_LEN, WireError};

/// Most bytes of a varint.
const MAX_VARINT: usize = 10;
/// Most groups inside each other; prost takes a few more.
const MAX_GROUPS: usize = 64;

/// How much of a message is taken.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a message.
    pub message: u64,
    /// Bytes of a header.
    pub header: u64,
}

/// Event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A header, encoded.
    Header(Bytes),
    /// The next bytes of a chunk.
    Chunk(Bytes),
    /// A message has ended. `part`: it had a header or a chunk, perhaps an empty one.
    End {
        /// False: there was neither.
        part: bool,
    },
}

/// Expected next part.
#[derive(Debug)]
enum State {
    /// The gRPC prefix of a message, or the end of the stream.
    Prefix,
    /// The key of a field, or the end of the message.
    Key,
    /// The length of a length-delimited field.
    Len { tag: u32 },
    /// The value of a varint that is skipped.
    Varint,
    /// Bytes that are skipped.
    Skip { left: u64 },
    /// Bytes of a header.
    Header { left: u64 },
    /// Bytes of a chunk.
    Chunk { left: u64 },
}

/// The decoder; see the module head. After an error it is not to be used again.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
    /// Bytes of the message still to come.
    left: u64,
    /// Bytes of a prefix or varint that came so far.
    partial: [u8; MAX_VARINT],
    partial_len: usize,
    /// Groups that are being skipped, outermost first.
    groups: Vec<u32>,
    part: bool,
    header: BytesMut,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Prefix,
            left: 0,
            partial: [0; MAX_VARINT],
            partial_len: 0,
            groups: Vec::new(),
            part: false,
            header: BytesMut::new(),
        }
    }

    /// Takes from `input` until something has come; `None`: all of the input was taken.
    ///
    /// # Errors
    /// [`WireError`]: the stream cannot be read on.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Event>, WireError> {
        loop {
            let event = match self.state {
                State::Prefix => self.prefix(input)?,
                State::Key if self.left == 0 && self.partial_len == 0 => {
                    return self.end().map(Some);
                }
                State::Key => self.key(input)?,
                State::Len { tag } => self.len(tag, input)?,
                State::Varint => self.varint(input)?.map(|_| {
                    self.state = State::Key;
                    None
                }),
                State::Skip { left } => self.skip(left, input),
                State::Header { left } => self.header_bytes(left, input),
                State::Chunk { left } => self.chunk_bytes(left, input),
            };
            match event {
                Some(Some(event)) => return Ok(Some(event)),
                Some(None) => {}
                None => return Ok(None),
            }
        }
    }

    /// To be called where the stream ends.
    ///
    /// # Errors
    /// [`WireError::Truncated`]: inside a message.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.state {
            State::Prefix if self.partial_len == 0 => Ok(()),
            _ => Err(WireError::Truncated),
        }
    }

    /// The steps below return `None` when they need more input, and `Some(None)` when the state has
    /// changed and nothing is to be reported.
    fn prefix(&mut self, input: &mut Bytes) -> Result<Option<Option<Event>>, WireError> {
        while self.partial_len < PREFIX_LEN {
            if input.is_empty() {
                return Ok(None);
            }
            self.partial[self.partial_len] = input.get_u8();
            self.partial_len += 1;
        }
        let [flag, a, b, c, d, ..] = self.partial;
        let len = u64::from(u32::from_be_bytes([a, b, c, d]));
        self.partial_len = 0;
        match flag {
            0 => {}
            1 => return Err(WireError::Compressed),
            flag => return Err(WireError::Flag { flag }),
        }
        let max = self.limits.message;
        if len > max {
            return Err(WireError::TooLarge { len, max });
        }
        self.left = len;
        self.part = false;
        self.state = State::Key;
        Ok(Some(None))
    }

    fn end(&mut self) -> Result<Event, WireError> {
        if !self.groups.is_empty() {
            return Err(WireError::Malformed("a group does not end"));
        }
        self.state = State::Prefix;
        Ok(Event::End { part: self.part })
    }

    fn key(&mut self, input: &mut Bytes) -> Result<Option<Option<Event>>, WireError> {
        let Some(key) = self.varint(input)? else {
            return Ok(None);
        };
        let malformed = |why| Err(WireError::Malformed(why));
        let Ok(key) = u32::try_from(key) else {
            return malformed("a field's key is too large");
        };
        let (tag, kind) = (key >> 3, WireType::try_from(u64::from(key & 7)));
        let Ok(kind) = kind else {
            return malformed("a field has a wire type that does not exist");
        };
        if tag == 0 {
            return malformed("a field has the number 0");
        }
        let known = self.groups.is_empty() && matches!(tag, HEADER | CHUNK);
        if known && kind != WireType::LengthDelimited {
            return malformed("a header or chunk has another wire type");
        }
        match kind {
            WireType::Varint => self.state = State::Varint,
            WireType::SixtyFourBit => self.state = State::Skip { left: 8 },
            WireType::ThirtyTwoBit => self.state = State::Skip { left: 4 },
            WireType::LengthDelimited => self.state = State::Len { tag },
            WireType::StartGroup if self.groups.len() < MAX_GROUPS => self.groups.push(tag),
            WireType::StartGroup => return malformed("groups are nested too deeply"),
            WireType::EndGroup if self.groups.pop() == Some(tag) => {}
            WireType::EndGroup => return malformed("a group ends that did not begin"),
        }
        self.check_left()?;
        Ok(Some(None))
    }

    fn len(&mut self, tag: u32, input: &mut Bytes) -> Result<Option<Option<Event>>, WireError> {
        let Some(left) = self.varint(input)? else {
            return Ok(None);
        };
        let known = self.groups.is_empty() && matches!(tag, HEADER | CHUNK);
        if known && std::mem::replace(&mut self.part, true) {
            return Err(WireError::TwoParts);
        }
        let max = self.limits.header;
        self.state = match tag {
            HEADER if known && left > max => {
                return Err(WireError::HeaderTooLarge { len: left, max });
            }
            HEADER if known => State::Header { left },
            CHUNK if known => State::Chunk { left },
            _ => State::Skip { left },
        };
        self.check_left()?;
        Ok(Some(None))
    }

    /// A field must not go past the end of its message.
    fn check_left(&self) -> Result<(), WireError> {
        let needed = match self.state {
            State::Skip { left } | State::Header { left } | State::Chunk { left } => left,
            State::Len { .. } | State::Varint => 1,
            State::Prefix | State::Key => 0,
        };
        if needed > self.left {
            return Err(WireError::Malformed(
                "a field goes past the end of its message",
            ));
        }
        Ok(())
    }

    /// A varint, once it is complete.
    fn varint(&mut self, input: &mut Bytes) -> Result<Option<u64>, WireError> {
        loop {
            if self.left == 0 {
                return Err(WireError::Malformed(
                    "a number goes past the end of its message",
                ));
            }
            if input.is_empty() {
                return Ok(None);
            }
            let byte = input.get_u8();
            self.left -= 1;
            self.partial[self.partial_len] = byte;
            self.partial_len += 1;
            if byte < 0x80 || self.partial_len == MAX_VARINT {
                let mut whole = &self.partial[..self.partial_len];
                let value = decode_varint(&mut whole)
                    .map_err(|_| WireError::Malformed("a number has more than 64 bits"))?;
                self.partial_len = 0;
                return Ok(Some(value));
            }
        }
    }

    /// The next bytes of a field that has `left` bytes to come, and how many come after them;
    /// `None`: the input is used up.
    fn take(&mut self, left: u64, input: &mut Bytes) -> Option<(Bytes, u64)> {
        if input.is_empty() && left > 0 {
            return None;
        }
        let len = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
        let bytes = input.split_to(len);
        let taken = bytes.len() as u64;
        self.left -= taken;
        Some((bytes, left - taken))
    }

    fn skip(&mut self, left: u64, input: &mut Bytes) -> Option<Option<Event>> {
        let (_, left) = self.take(left, input)?;
        self.state = if left == 0 {
            State::Key
        } else {
            State::Skip { left }
        };
        Some(None)
    }

    fn chunk_bytes(&mut self, left: u64, input: &mut Bytes) -> Option<Option<Event>> {
        let (bytes, left) = self.take(left, input)?;
        self.state = if left == 0 {
            State::Key
        } else {
            State::Chunk { left }
        };
        Some((!bytes.is_empty()).then_some(Event::Chunk(bytes)))
    }

    fn header_bytes(&mut self, left: u64, input: &mut Bytes) -> Option<Option<Event>> {
        let (bytes, left) = self.take(left, input)?;
        if left > 0 {
            self.header.extend_from_slice(&bytes);
            self.state = State::Header { left };
            return Some(None);
        }
        self.state = State::Key;
        if self.header.is_empty() {
            return Some(Some(Event::Header(bytes)));
        }
        self.header.extend_from_slice(&bytes);
        Some(Some(Event::Header(self.header.split().freeze())))
    }
}

#[cfg(test)]
mod tests;
