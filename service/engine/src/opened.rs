//! Lumps that are read piece by piece, so that the beginning can be used while the rest is read and
//! a large one never has to be in memory.
//!
//! A lump that is open keeps its blocks, whatever becomes of its id: its reader gets the version it
//! has opened, or an error. Only lumps whose chunks must fit their checksums are read like this; of
//! any other it can be told only when all of it has been read whether it is verified.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::facts::DeviceFacts;
use crate::format::Portion;
use crate::format::sums::Chunks;
use crate::format::trailer::Trailer;
use crate::format::verify::{Judged, Misfit, Subject};
use crate::payload::LumpData;
use crate::request::RangeOutcome;
use crate::units::ByteOffset;
use crate::waker::Waker;

/// Bytes of a piece, unless a chunk is larger: the next is read while one is sent.
const PIECE: u64 = 2 * 1024 * 1024;
/// Bytes of a piece on a disk with an arm: it would go to another lump between two pieces.
const PIECE_OF_ARM: u64 = 2 * PIECE;
/// Bytes that may have been read and not been taken before the next piece is read. A reader may
/// need longer for its turn on a busy processor than the disk for a few pieces.
pub(crate) const AHEAD: u64 = PIECE;

/// How long a piece is. Pieces end where chunks end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceSize(u64);

impl PieceSize {
    pub(crate) fn on(disk: Option<DeviceFacts>) -> Self {
        let has_arm = DeviceFacts::has_arm(disk);
        Self(if has_arm { PIECE_OF_ARM } else { PIECE })
    }

    /// Most bytes from the beginning of a piece to its end, of a lump with chunks of `chunk` bytes.
    pub(crate) fn most(self, chunk: u64) -> u64 {
        let bytes = self.0.max(chunk);
        bytes + bytes / 2
    }

    /// End of a piece that begins at `from`, where a chunk of `chunk` bytes begins, of bytes that end
    /// at `to`. A small rest is no piece of its own.
    pub(crate) fn end(self, chunk: u64, from: u64, to: u64) -> u64 {
        if to - from <= self.most(chunk) {
            to
        } else {
            from + self.0.max(chunk)
        }
    }
}

/// Blocks of lumps that are read no more, on their way to the owner thread.
#[derive(Debug, Default)]
pub(crate) struct Released(Mutex<Vec<Portion>>);

impl Released {
    /// Takes them out.
    pub(crate) fn take(&self) -> Vec<Portion> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Portion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the blocks of a lump until it is dropped, on any thread.
pub(crate) struct Pin {
    pub(crate) portion: Portion,
    pub(crate) released: Arc<Released>,
    pub(crate) waker: Waker,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.released.lock().push(self.portion);
        self.waker.wake();
    }
}

/// A lump that is open: its place, and what its bytes must be.
pub(crate) struct OpenLump {
    pub(crate) pin: Pin,
    pub(crate) subject: Subject,
    /// First byte of the portion in the device.
    pub(crate) start: ByteOffset,
    pub(crate) payload_len: u64,
    pub(crate) trailer: Trailer,
}

impl OpenLump {
    pub(crate) fn chunks(&self) -> Chunks {
        Chunks::of(self.payload_len)
    }

    /// Place in the device of the chunks that hold these bytes, rounded up to whole blocks.
    pub(crate) fn extent(&self, wanted: &Range<u64>) -> (u64, u64) {
        let cover = self.chunks().cover(wanted.clone());
        let total = self.pin.portion.byte_len(self.subject.block_size).0;
        let end = cover.end.next_multiple_of(self.subject.block_size.bytes());
        (self.start.0 + cover.start, end.min(total) - cover.start)
    }

    /// Judges what was read of [`Self::extent`].
    pub(crate) fn judge(&self, bytes: &[u8], wanted: Range<u64>) -> Result<Judged, Error> {
        let start = self.chunks().cover(wanted.clone()).start;
        let end = (self.payload_len, Some(self.trailer.clone()));
        self.subject
            .judge_part(bytes, start, wanted, end)
            .map_err(|misfit| self.mismatch(&misfit))
    }

    fn mismatch(&self, misfit: &Misfit) -> Error {
        Error::mismatch(self.subject.id, self.pin.portion, self.start.0, misfit)
    }
}

/// The first bytes of what was asked for, as the engine's threads have them.
pub(crate) struct Beginning {
    pub(crate) first: LumpData,
    /// The bytes of the lump that were asked for, clipped to it.
    pub(crate) wanted: Range<u64>,
    pub(crate) total_length: u64,
    /// `None`: the first bytes are all.
    pub(crate) rest: Option<OpenLump>,
}

impl Beginning {
    /// What a range read returns: it has all bytes.
    pub(crate) fn into_range(self) -> RangeOutcome {
        RangeOutcome {
            data: self.first,
            offset: self.wanted.start,
            total_length: self.total_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rest_of_a_lump_is_small() {
        let plan = |piece: u64, len: u64| {
            let chunk = Chunks::of(len).chunk_len();
            let (mut at, mut lens) = (0, Vec::new());
            while at < len {
                let to = PieceSize(piece).end(chunk, at, len);
                lens.push((to - at) >> 10);
                at = to;
            }
            lens
        };
        assert_eq!(plan(PIECE, 384 << 10), [384]);
        assert_eq!(plan(PIECE, 3 << 20), [3072]);
        assert_eq!(plan(PIECE, 4 << 20), [2048; 2]);
        assert_eq!(plan(PIECE, 7 << 20), [2048, 2048, 3072]);
        assert_eq!(plan(PIECE_OF_ARM, 6 << 20), [6144]);
        assert_eq!(plan(PIECE_OF_ARM, 8 << 20), [4096, 4096]);
        let largest = plan(PIECE, 256 << 20);
        assert_eq!(largest, vec![4096; 64], "a chunk each");
    }
}
