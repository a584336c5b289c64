//! The bytes of one lump on their way to and from the disk.
//!
//! The caller fills a [`LumpBuf`] on its own thread; the checksum is computed as it goes, so the
//! owner thread never touches payload bytes. A [`LumpData`] holds the very buffer the device
//! wrote to.

pub(crate) mod pieces;

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::buffer::{AlignedBuf, BufferPool};
use crate::crc32c;
use crate::error::Error;
use crate::format::proof;
use crate::format::run::has_room_for_link;
use crate::format::sums::PayloadSums;
use crate::format::trailer::{LumpShape, max_payload, overhead_len};
use crate::format::verify::Judged;
use crate::lump::LumpId;
use crate::times::EngineTimes;
use crate::units::{BlockCount, BlockSize, SECTOR_LEN, to_usize};
use pieces::{Begun, Pieces};

/// Bytes of the largest lump that is put in a run. One that is larger is committed as ordered: two
/// flushes cost it little, and opening need not read it.
pub(crate) const RUN_LIMIT: u64 = 16 * 1024 * 1024;

/// A buffer for one lump that is about to be put, with room for its padding and trailer. Or, of a
/// lump that is [written while it comes in](crate::Store::lump_buf_in_pieces), for the piece that is
/// being filled.
#[derive(Debug)]
pub struct LumpBuf {
    buf: AlignedBuf,
    /// First byte of `buf` within the portion.
    start: usize,
    shape: LumpShape,
    len: usize,
    filled: usize,
    sums: PayloadSums,
    /// `None`: all of the lump goes into `buf`.
    pieces: Option<Box<Pieces>>,
}

impl LumpBuf {
    /// A buffer for a lump of exactly `len` bytes in a store of this block size.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`], [`Error::BuffersExhausted`].
    pub fn new(len: u64, block_size: BlockSize, pool: &Arc<BufferPool>) -> Result<Self, Error> {
        Self::with(len, block_size, |total| pool.get_for_put(total))
    }

    fn with(
        len: u64,
        block_size: BlockSize,
        memory: impl FnOnce(usize) -> Result<AlignedBuf, Error>,
    ) -> Result<Self, Error> {
        let (shape, total) = shape_of(len, block_size)?;
        Ok(Self {
            buf: memory(total)?,
            start: 0,
            shape,
            len: shape.payload_len().try_into().unwrap_or(total),
            filled: 0,
            sums: PayloadSums::new(shape.payload_len()),
            pieces: None,
        })
    }

    /// As [`LumpBuf::new`], of memory that takes no more room than the pool before it is filled, and
    /// that does not count: the caller bounds it.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub(crate) fn untouched(
        len: u64,
        block_size: BlockSize,
        pool: &Arc<BufferPool>,
    ) -> Result<Self, Error> {
        Self::with(len, block_size, |total| Ok(pool.untouched(total)))
    }

    /// Bytes of memory that [`LumpBuf::new`] takes.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub(crate) fn memory(len: u64, block_size: BlockSize, pool: &BufferPool) -> Result<u64, Error> {
        let (_, total) = shape_of(len, block_size)?;
        Ok(pool.capacity_of(total))
    }

    /// Appends bytes; the checksum is updated as it goes.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when more comes than was announced, or than the piece has room for
    /// (then [`write`](Self::write) is to be used); nothing is appended then.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.check_room(bytes)?;
        if bytes.len() > self.room() {
            return Err(self.mismatch(self.room()));
        }
        self.append(bytes);
        Ok(())
    }

    /// Appends bytes. Of a lump in pieces it hands full ones over, and waits when too many of them
    /// are being written; with the last byte it waits for all that were handed over.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when more comes than was announced; of a lump in pieces also those
    /// of [`Store::submit_put`](crate::Store::submit_put) and [`Error::PlaceRefused`]: the lump is
    /// lost then.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        self.check_room(bytes)?;
        while !bytes.is_empty() {
            if self.room() == 0 {
                self.next_piece().await?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.append(now);
            self.hand_over_full()?;
            bytes = later;
        }
        if self.filled < self.len {
            return Ok(());
        }
        // The trailer may be all that is left.
        self.next_piece().await?;
        match &mut self.pieces {
            Some(pieces) => pieces.all_written().await,
            None => Ok(()),
        }
    }

    fn check_room(&self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > self.remaining() {
            return Err(self.mismatch(bytes.len()));
        }
        Ok(())
    }

    fn mismatch(&self, more: usize) -> Error {
        Error::LengthMismatch {
            announced: self.len as u64,
            got: (self.filled + more) as u64,
        }
    }

    /// Bytes of the payload that the buffer at hand has room for.
    fn room(&self) -> usize {
        let end = self.len.min(self.start + self.buf.len());
        end.saturating_sub(self.filled)
    }

    fn append(&mut self, bytes: &[u8]) {
        let at = self.filled - self.start;
        self.buf[at..at + bytes.len()].copy_from_slice(bytes);
        self.sums.update(bytes);
        self.filled += bytes.len();
    }

    /// Bytes announced.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True: a lump of zero bytes was announced.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes still to come.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.len - self.filled
    }

    /// CRC32C of the whole payload; `None` while bytes are to come.
    #[must_use]
    pub fn crc32c(&self) -> Option<u32> {
        (self.remaining() == 0).then(|| self.sums.clone().finish().0)
    }

    /// The bytes that came; of a lump in pieces: those that were not handed over.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.buf[..self.filled - self.start]
    }

    /// The whole payload, or what of it was not handed over.
    pub(crate) fn payload(&self) -> Result<&[u8], Error> {
        if self.remaining() > 0 || self.pieces.as_ref().is_some_and(|it| !it.is_written()) {
            return Err(self.mismatch(0));
        }
        Ok(self.filled())
    }

    /// True: its first bytes were written while the others came.
    pub(crate) fn has_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    /// Engine times of the pieces that were written, and for how many nanoseconds whoever fills the
    /// buffer has waited for them; `None`: the lump has no pieces.
    #[must_use]
    pub fn piece_times(&self) -> Option<(EngineTimes, u64)> {
        self.pieces.as_ref().map(|pieces| pieces.times())
    }

    /// For how many nanoseconds whoever fills the buffer has waited for pieces to be written.
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        self.piece_times().map_or(0, |(_, waited_ns)| waited_ns)
    }

    /// True: it can be put in a [run](crate::CommitMode::Runs).
    pub(crate) fn can_be_linked(&self) -> bool {
        let overhead = overhead_len(self.shape.payload_len());
        has_room_for_link(self.shape.tail_len(), overhead) && self.shape.total_len() <= RUN_LIMIT
    }

    /// Where its link goes, when the samples of its payload have this sum.
    fn link_slot(&self, samples: u64) -> LinkSlot {
        let overhead = overhead_len(self.shape.payload_len());
        let end = self.shape.total_len() - overhead;
        let in_buf = |at: u64| to_usize(at - self.start as u64);
        LinkSlot {
            padding: in_buf(self.shape.payload_len())..in_buf(end),
            samples,
            linked: false,
            forced: false,
        }
    }

    /// Adds padding and trailer: the bytes of the whole portion. `linked`: it may go into a run.
    pub(crate) fn seal(
        mut self,
        id: LumpId,
        generation: u64,
        linked: bool,
    ) -> Result<SealedLump, Error> {
        let first = self.start as u64 / SECTOR_LEN;
        let last = proof::samples(first, self.payload()?);
        let (before, begun) = match self.pieces.take() {
            Some(pieces) => pieces.end()?,
            None => (0, None),
        };
        let slot = linked.then(|| self.link_slot(before.wrapping_add(last)));
        let tail = &mut self.buf[self.len - self.start..];
        self.shape.write_tail(id, generation, self.sums, tail);
        Ok(SealedLump {
            buf: self.buf,
            start: self.start as u64,
            begun,
            slot,
            blocks: self.shape.blocks(),
            len: self.len as u64,
        })
    }
}

/// The shape of a lump of `len` bytes, and the bytes of its portion.
fn shape_of(len: u64, block_size: BlockSize) -> Result<(LumpShape, usize), Error> {
    let too_large = || Error::LumpTooLarge {
        len,
        max: max_payload(block_size),
    };
    let shape = LumpShape::new(len, block_size).map_err(|_| too_large())?;
    let total = usize::try_from(shape.total_len()).map_err(|_| too_large())?;
    Ok((shape, total))
}

/// Room for a link in the padding of a lump that can be put in a run.
#[derive(Clone, Debug)]
pub(crate) struct LinkSlot {
    /// The bytes of the buffer between payload and chunk table, at whose end the link stands.
    pub(crate) padding: Range<usize>,
    /// Sum of the samples of the payload.
    pub(crate) samples: u64,
    /// True: the put was placed in a run that the journal names.
    pub(crate) linked: bool,
    /// True: its write is forced, so it needs no flush.
    pub(crate) forced: bool,
}

/// A lump ready to be written to the data region.
#[derive(Debug)]
pub(crate) struct SealedLump {
    pub(crate) buf: AlignedBuf,
    /// First byte of `buf` within the portion; those before it have been written.
    pub(crate) start: u64,
    /// Where they were; `None`: nothing was written yet.
    pub(crate) begun: Option<Arc<Begun>>,
    /// Room for a link; `None`: it is not for a run.
    pub(crate) slot: Option<LinkSlot>,
    pub(crate) blocks: BlockCount,
    /// Bytes of the payload.
    pub(crate) len: u64,
}

/// A lump, or a range of one, that was read: dereferences to its bytes. Holds the buffer the device wrote to.
pub struct LumpData {
    buf: AlignedBuf,
    start: usize,
    end: usize,
    crc32c: u32,
    /// True: the bytes were checked against the checksum stored with the lump. False: the lump
    /// has none that fits, and may have been written by an engine that stores none.
    pub verified: bool,
}

impl LumpData {
    /// An owner of the bytes for `bytes::Bytes::from_owner`: no copy.
    #[must_use]
    pub fn into_bytes_owner(self) -> impl AsRef<[u8]> + Send + 'static {
        self
    }

    /// CRC32C of exactly these bytes. Verified bytes have it from the disk, or from chunks that
    /// were compared with the disk's; unverified ones have it from after the read.
    #[must_use]
    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }

    /// A range of these bytes, which it must be within.
    pub(crate) fn narrowed(self, range: &Range<u64>) -> Self {
        let at = |offset: u64| {
            let offset = to_usize(offset);
            self.start.saturating_add(offset).min(self.end)
        };
        let (start, end) = (at(range.start), at(range.end).max(at(range.start)));
        let crc32c = crc32c::of(&self.buf[start..end]);
        Self {
            start,
            end,
            crc32c,
            ..self
        }
    }

    /// The bytes of a buffer that the judgement is about.
    pub(crate) fn judged(buf: AlignedBuf, judged: &Judged) -> Self {
        Self {
            buf,
            start: judged.bytes.start,
            end: judged.bytes.end,
            crc32c: judged.crc32c,
            verified: judged.verified,
        }
    }

    /// Bytes `start..end` of a buffer that held a (verified) journal record.
    pub(crate) fn embedded(buf: AlignedBuf, start: usize, end: usize) -> Self {
        let crc32c = crc32c::of(&buf[start..end]);
        Self {
            buf,
            start,
            end,
            crc32c,
            verified: true,
        }
    }
}

impl AsRef<[u8]> for LumpData {
    fn as_ref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}

impl Deref for LumpData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl fmt::Debug for LumpData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LumpData({} bytes, verified {})",
            self.len(),
            self.verified
        )
    }
}
