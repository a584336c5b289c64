//! Reads in flight, and what each needs at its end.

use std::ops::Range;
use std::sync::Arc;

use super::TimedReply;
use crate::format::Portion;
use crate::format::sums::Chunks;
use crate::format::verify::{Provenance, Subject};
use crate::lump::LumpId;
use crate::opened::{OpenLump, PieceSize};
use crate::payload::LumpData;
use crate::request::{EmbeddedPage, LumpRange};
use crate::units::{ByteOffset, RingPosition};

/// Bytes that are rather read in vain than with a second I/O.
pub(in crate::owner) const CLOSE: u64 = 128 * 1024;

/// Bytes of a lump that are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// First byte.
    pub(crate) offset: u64,
    /// How many; clipped to the lump.
    pub(crate) len: u64,
    /// A piece of them is enough, and the lump stays open for the rest; `None`: all are wanted.
    pub(crate) piece: Option<PieceSize>,
}

impl Wanted {
    /// Bytes at once where `provenance` asks for it: only checksums that must fit can vouch for
    /// a part before all has been read.
    pub(crate) fn of(self, provenance: Provenance) -> Self {
        Self {
            piece: self.piece.filter(|_| provenance == Provenance::Own),
            ..self
        }
    }

    /// Most bytes that are read at once, of a lump that takes `stored` bytes of disk.
    pub(crate) fn memory(self, stored: u64) -> u64 {
        let chunk = Chunks::of(stored).chunk_len();
        let most = self.piece.map_or(u64::MAX, |piece| piece.most(chunk));
        let len = self.len.min(most);
        len.saturating_add(2 * chunk + 2 * CLOSE).min(stored)
    }
}

/// A get whose read is in flight.
pub(crate) struct LumpRead {
    pub(crate) id: LumpId,
    pub(crate) place: ReadPlace,
    pub(crate) offset: ByteOffset,
    pub(crate) reply: TimedReply<LumpData>,
}

/// The pinned place, and the way to find the lump in the bytes.
#[derive(Clone, Debug)]
pub(crate) enum ReadPlace {
    Portion(Portion, Subject),
    /// Its first byte in what is read, and the one behind it.
    Record {
        position: RingPosition,
        bytes: Range<usize>,
    },
}

/// The lump a head is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRead {
    pub(crate) portion: Portion,
    pub(crate) subject: Subject,
    /// True: the checksum was asked for.
    pub(crate) sum: bool,
}

/// Which piece of a range an I/O reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangePiece {
    Body,
    End,
}

/// A piece of a lump that is open, whose read is in flight.
pub(crate) struct PieceRead {
    pub(crate) lump: Arc<OpenLump>,
    /// Bytes of the lump.
    pub(crate) wanted: Range<u64>,
    pub(crate) reply: TimedReply<LumpData>,
}

/// A piece of the ring that is being read.
pub(crate) struct EmbeddedRead {
    pub(crate) range: LumpRange,
    /// Pinned: the first record of the piece, and its log offset.
    pub(crate) position: RingPosition,
    pub(crate) offset: u64,
    /// First byte of the ring that is read.
    pub(crate) start: u64,
    /// The tail when the read began.
    pub(crate) tail: RingPosition,
    pub(crate) reply: TimedReply<EmbeddedPage>,
}
