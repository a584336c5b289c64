//! The I/Os in flight, and what each one is for.

use std::collections::HashMap;
use std::sync::Arc;

use super::command::Reply;
use super::pairs::{Pairs, Seen};
use super::put::Put;
use super::reads::ranges::Piece;
use super::reads::{ReadEmbedded, ReadLump};
use super::scrub::ScrubRead;
use super::waiting::order::Kind;
use super::waiting::order::curve::Pair;
use crate::buffer::{AlignedBuf, BufferPool, Reservation};
use crate::clock::monotonic_ns;
use crate::declaration::{IoOp, IoPurpose, RequestId};
use crate::device::{Completion, Device, Io};
use crate::error::Error;
use crate::request::HeadOutcome;
use crate::units::RingPosition;

/// Action at the end of an I/O.
pub(crate) enum Tag {
    /// A get.
    Get(ReadLump),
    /// The last block of a lump whose size is not known.
    Head {
        lump: HeadRead,
        reply: Reply<HeadOutcome>,
    },
    /// A piece of a range of a lump.
    Range(u64, Piece),
    /// The data of a put.
    PutData(Box<Put>),
    /// A piece of a batch that is not visible yet.
    BatchRest,
    /// The write that makes a batch visible.
    BatchFirst,
    /// A flush.
    Flush,
    /// The journal's header with a new head.
    Header(RingPosition),
    /// The journal's header with the same head and a new scrub mark.
    ScrubMark,
    /// A chunk of the ring, for who wants the embedded lumps.
    Embedded(Box<ReadEmbedded>),
    /// A chunk of the ring, for the collection.
    Collect(RingPosition),
    /// A chunk or the header of a checkpoint.
    Checkpoint,
    /// A flush of a checkpoint.
    CheckpointFlush,
    /// A flush of the checked copies, at close.
    CopiesFlush,
    /// Lumps, for the scrubber.
    Scrub(Box<ScrubRead>),
    /// Records from this position on, for the scrubber.
    ScrubJournal(RingPosition),
}

/// The lump a head is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRead {
    pub(crate) portion: crate::format::Portion,
    pub(crate) subject: crate::format::verify::Subject,
}

impl Tag {
    /// True: it takes one of the slots for data I/O.
    fn is_data(&self) -> bool {
        matches!(
            self,
            Self::Get(_) | Self::Range(..) | Self::Head { .. } | Self::PutData(_)
        )
    }

    /// The kind of request that this read is all the work for.
    fn read_kind(&self) -> Option<Kind> {
        match self {
            Self::Get(_) => Some(Kind::Get),
            Self::Head { .. } => Some(Kind::Head),
            _ => None,
        }
    }

    fn purpose(&self) -> IoPurpose {
        match self {
            Self::Get(_) | Self::Range(..) | Self::Head { .. } | Self::PutData(_) => {
                IoPurpose::LumpData
            }
            Self::BatchRest | Self::BatchFirst | Self::Collect(_) | Self::Embedded(_) => {
                IoPurpose::Journal
            }
            Self::Flush | Self::CheckpointFlush | Self::CopiesFlush => IoPurpose::Flush,
            Self::Checkpoint => IoPurpose::Checkpoint,
            Self::Header(_) | Self::ScrubMark => IoPurpose::JournalHeader,
            Self::Scrub(_) | Self::ScrubJournal(_) => IoPurpose::Scrub,
        }
    }
}

/// Extent of an I/O, kept for error messages, and its begin.
#[derive(Clone, Copy, Debug)]
struct Extent {
    op: IoOp,
    offset: u64,
    len: u64,
    begin_ns: u64,
}

/// The device, and the table of what is in flight on it.
pub(crate) struct IoTable {
    pub(crate) device: Device,
    pub(crate) pool: Arc<BufferPool>,
    /// Memory set aside for the next read.
    pub(crate) reservation: Option<Reservation>,
    in_flight: HashMap<u64, (Tag, Extent)>,
    data_in_flight: usize,
    next_token: u64,
    /// `None`: nobody learns from them.
    pairs: Option<Pairs>,
}

impl IoTable {
    pub(crate) fn new(device: Device, pool: Arc<BufferPool>, next_token: u64) -> Self {
        Self {
            device,
            pool,
            reservation: None,
            in_flight: HashMap::new(),
            data_in_flight: 0,
            next_token,
            pairs: None,
        }
    }

    /// From now on, [`pair`](Self::pair) answers.
    pub(crate) fn make_pairs(&mut self) {
        self.pairs = Some(Pairs::default());
    }

    /// I/Os in flight.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// I/Os in flight that carry lumps.
    pub(crate) fn data_in_flight(&self) -> usize {
        self.data_in_flight
    }

    /// Reads whole units into a new buffer.
    pub(crate) fn read(&mut self, tag: Tag, offset: u64, len: u64, requests: Vec<RequestId>) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let buf = match self.reservation.take() {
            Some(reservation) => reservation.into_buf(len),
            None => self.pool.get(len),
        };
        self.submit(tag, IoOp::Read, offset, Some(buf), requests);
    }

    /// Writes a buffer of whole units.
    pub(crate) fn write(
        &mut self,
        tag: Tag,
        offset: u64,
        buf: AlignedBuf,
        requests: Vec<RequestId>,
    ) {
        self.submit(tag, IoOp::Write, offset, Some(buf), requests);
    }

    /// Flushes the device's cache.
    pub(crate) fn flush(&mut self, requests: Vec<RequestId>) {
        self.flush_as(Tag::Flush, requests);
    }

    /// Flushes the device's cache, for a purpose of its own.
    pub(crate) fn flush_as(&mut self, tag: Tag, requests: Vec<RequestId>) {
        self.submit(tag, IoOp::Flush, 0, None, requests);
    }

    fn submit(
        &mut self,
        tag: Tag,
        op: IoOp,
        offset: u64,
        buf: Option<AlignedBuf>,
        requests: Vec<RequestId>,
    ) {
        let token = self.next_token;
        self.next_token += 1;
        self.data_in_flight += usize::from(tag.is_data());
        let io = Io {
            token,
            op,
            offset,
            buf,
            purpose: tag.purpose(),
            requests,
        };
        let extent = Extent {
            op,
            offset,
            len: io.len(),
            begin_ns: monotonic_ns(),
        };
        if let Some(pairs) = &mut self.pairs {
            pairs.begun(op == IoOp::Read);
        }
        self.in_flight.insert(token, (tag, extent));
        self.device.backend.submit(io);
    }

    /// How long the read of a get or a head took that has just ended, in nanoseconds.
    pub(crate) fn read_time(&self, token: u64) -> Option<(Kind, u64)> {
        let (tag, extent) = self.in_flight.get(&token)?;
        let kind = tag.read_kind()?;
        Some((kind, monotonic_ns().saturating_sub(extent.begin_ns)))
    }

    /// Pair of distance and time learnt from an I/O that has just ended. To be asked once for each
    /// I/O; `alone`: no other one was seen to end. Nothing, and no work, if learning is off.
    pub(crate) fn pair(&mut self, completion: &Completion, alone: bool) -> Option<Pair> {
        let pairs = self.pairs.as_mut()?;
        let (_, extent) = self.in_flight.get(&completion.token)?;
        pairs.ended(Seen {
            is_read: extent.op == IoOp::Read,
            offset: extent.offset,
            len: extent.len,
            begin_ns: extent.begin_ns,
            end_ns: monotonic_ns(),
            clear: alone && completion.result.is_ok(),
        })
    }

    /// The tag, the memory and the result of an I/O that has ended.
    pub(crate) fn ended(
        &mut self,
        completion: Completion,
    ) -> Option<(Tag, Option<AlignedBuf>, Result<(), Error>)> {
        let (tag, extent) = self.in_flight.remove(&completion.token)?;
        self.data_in_flight -= usize::from(tag.is_data());
        let Extent {
            op, offset, len, ..
        } = extent;
        let result = completion
            .result
            .map_err(|source| Error::from_io(op, offset, len, source));
        Some((tag, completion.buf, result))
    }
}
