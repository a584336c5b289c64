//! The I/Os in flight, and what each one is for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::admission::pace::RequestKind;
use super::command::TimedReply;
use super::command::put::{PieceWrite, Put};
use super::command::read::{EmbeddedRead, HeadRead, LumpRead, PieceRead, RangePiece};
use super::judge::Judge;
use crate::buffer::{AlignedBuf, BufferPool, Reservation};
use crate::clock::monotonic_ns;
use crate::declaration::{IoOp, IoPurpose, RequestId};
use crate::device::{Completion, Device, Io, Wait, WriteCache};
use crate::error::Error;
use crate::format::Portion;
use crate::health::{Condition, bound_ns};
use crate::request::HeadOutcome;
use crate::stats::Counters;
use crate::storage::io::BlockingIo;
use crate::units::{RingPosition, to_usize};

/// What a write of the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingPiece {
    /// A piece of a batch that is not visible yet.
    Rest,
    /// The one that makes a batch visible.
    First,
    /// The end of the journal, without a run.
    End,
}

/// Action at the end of an I/O.
pub(crate) enum Tag {
    /// A get.
    Get(LumpRead),
    /// The last block of a lump whose size is not known.
    Head {
        lump: HeadRead,
        reply: TimedReply<HeadOutcome>,
    },
    /// A piece of a range of a lump.
    Range(u64, RangePiece),
    /// A piece of a lump that is open.
    Piece(Box<PieceRead>),
    /// The data of a put.
    PutData(Box<Put>),
    /// A piece of the data of a put that comes in.
    PutPiece(Box<PieceWrite>),
    /// A piece of the journal, and where it goes.
    Ring(RingPiece, RingPosition),
    /// A flush.
    Flush,
    /// The journal's header with a new head.
    Header(RingPosition),
    /// The journal's header with the same head and a new scrub mark.
    ScrubMark,
    /// The header block with its claim, before this write of the headers; where the copy in it ends.
    Claim(Box<(Tag, AlignedBuf)>, Option<u64>),
    /// A chunk of the ring, for who wants the embedded lumps.
    Embedded(Box<EmbeddedRead>),
    /// A chunk of the ring, for the collection.
    Collect(RingPosition),
    /// A chunk or the header of a checkpoint.
    Checkpoint,
    /// A flush of a checkpoint.
    CheckpointFlush,
    /// A flush of the checked copies, at close.
    CopiesFlush,
    /// Lumps, for the scrubber.
    Scrub,
    /// Records from this position on, for the scrubber.
    ScrubJournal(RingPosition),
    /// A trial read, to see whether the disk is well.
    Trial,
    /// A trial write of a block that is free, to see whether the disk takes any.
    TrialWrite(Portion),
}

impl Tag {
    /// True: it takes one of the slots for data I/O.
    fn is_data(&self) -> bool {
        matches!(
            self,
            Self::Get(_)
                | Self::Range(..)
                | Self::Piece(_)
                | Self::Head { .. }
                | Self::PutData(_)
                | Self::PutPiece(_)
        )
    }

    /// The kind of request that this read is all the work for.
    fn read_kind(&self) -> Option<RequestKind> {
        match self {
            Self::Get(_) | Self::Range(_, RangePiece::Body) | Self::Piece(_) => {
                Some(RequestKind::Get)
            }
            Self::Head { .. } => Some(RequestKind::Head),
            _ => None,
        }
    }

    /// The kind of request whose bytes it moves.
    fn moves(&self) -> Option<RequestKind> {
        match self {
            Self::PutData(_) | Self::PutPiece(_) => Some(RequestKind::Put),
            _ => self.read_kind(),
        }
    }

    /// True: a read for a request, which is tried twice.
    pub(super) fn is_asked_for(&self) -> bool {
        matches!(
            self,
            Self::Get(_) | Self::Range(..) | Self::Piece(_) | Self::Head { .. } | Self::Embedded(_)
        )
    }

    fn purpose(&self) -> IoPurpose {
        match self {
            Self::Get(_)
            | Self::Range(..)
            | Self::Piece(_)
            | Self::Head { .. }
            | Self::PutData(_)
            | Self::PutPiece(_) => IoPurpose::LumpData,
            Self::Ring(..) | Self::Collect(_) | Self::Embedded(_) => IoPurpose::Journal,
            Self::Flush | Self::CheckpointFlush | Self::CopiesFlush => IoPurpose::Flush,
            Self::Checkpoint => IoPurpose::Checkpoint,
            Self::Header(_) | Self::ScrubMark | Self::Claim(..) | Self::Trial => {
                IoPurpose::JournalHeader
            }
            Self::Scrub | Self::ScrubJournal(_) | Self::TrialWrite(_) => IoPurpose::Scrub,
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
    /// The first of the requests it is done for.
    request: Option<RequestId>,
    /// True: it has failed once before.
    again: bool,
    /// Of a write: it need not be flushed.
    forced: bool,
    /// Of a flush: writes that had ended before it, and whether it need not be sent.
    covers: u64,
    spared: bool,
}

/// The device, and the table of what is in flight on it.
pub(crate) struct IoTable {
    pub(crate) device: Device,
    pub(crate) pool: Arc<BufferPool>,
    /// Memory set aside for the next read.
    pub(crate) reservation: Option<Reservation>,
    /// Reads that have failed once. They are tried again one at a time: the kernel may make one
    /// request of reads that lie side by side, and one bad sector fails all of them.
    failed_once: VecDeque<(Tag, Extent, Option<AlignedBuf>)>,
    in_flight: HashMap<u64, (Tag, Extent)>,
    /// Tokens with the begin of their I/Os, the oldest in flight first.
    began: VecDeque<(u64, u64)>,
    /// What the ends of I/Os have said of the disk.
    pub(crate) judge: Judge,
    condition: Arc<Condition>,
    /// An I/O in flight for longer hangs.
    bound_ns: u64,
    data_in_flight: usize,
    next_token: u64,
    counters: Arc<Counters>,
    /// Writes that have ended and may be in the device's cache, counted since open, and how many
    /// of them a flush has covered.
    written: u64,
    flushed: u64,
    /// Flushes that need not be sent, to be handed out as ended.
    spared: Vec<Completion>,
}

impl IoTable {
    /// Nothing of the device may be in its cache.
    pub(crate) fn new(
        device: Device,
        pool: &Arc<BufferPool>,
        next_token: u64,
        (condition, counters): (&Arc<Condition>, &Arc<Counters>),
        io_timeout: Duration,
    ) -> Self {
        Self {
            device,
            pool: Arc::clone(pool),
            reservation: None,
            failed_once: VecDeque::new(),
            in_flight: HashMap::new(),
            began: VecDeque::new(),
            judge: Judge::default(),
            condition: Arc::clone(condition),
            bound_ns: bound_ns(io_timeout),
            data_in_flight: 0,
            next_token,
            counters: Arc::clone(counters),
            written: 0,
            flushed: 0,
            spared: Vec::new(),
        }
    }

    /// Does what waits for its I/Os, while none is in flight.
    pub(crate) fn when_idle<T>(&mut self, work: impl FnOnce(&mut BlockingIo<'_>) -> T) -> T {
        let bound = Duration::from_nanos(self.bound_ns);
        let io = BlockingIo::new(&mut self.device, &self.pool, &mut self.next_token);
        work(&mut io.within(bound))
    }

    /// I/Os in flight.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// I/Os in flight that carry lumps.
    pub(crate) fn data_in_flight(&self) -> usize {
        self.data_in_flight
    }

    /// Bytes of gets or of puts that are under way and have begun after `since_ns`, and when the
    /// first of these I/Os began.
    pub(crate) fn begun_since(&self, since_ns: u64, kind: RequestKind) -> (u64, u64) {
        let begun = self
            .in_flight
            .values()
            .filter(|(tag, extent)| extent.begin_ns > since_ns && tag.moves() == Some(kind));
        begun.fold((0, u64::MAX), |(bytes, first_ns), (_, extent)| {
            (bytes + extent.len, first_ns.min(extent.begin_ns))
        })
    }

    /// Reads whole units into a new buffer.
    pub(crate) fn read(&mut self, tag: Tag, offset: u64, len: u64, requests: Vec<RequestId>) {
        let len = to_usize(len);
        let buf = match self.reservation.take() {
            Some(reservation) => reservation.into_buf(len),
            None => self.pool.get(len),
        };
        self.submit(tag, (IoOp::Read, false), offset, Some(buf), requests);
    }

    /// Writes a buffer of whole units; `forced`: so that they are durable at the end of the write.
    pub(crate) fn write(
        &mut self,
        (tag, forced): (Tag, bool),
        offset: u64,
        buf: AlignedBuf,
        requests: Vec<RequestId>,
    ) {
        self.submit(tag, (IoOp::Write, forced), offset, Some(buf), requests);
    }

    /// True: a write can be forced past a cache that there is.
    pub(crate) fn can_force(&self) -> bool {
        let backend = &self.device.backend;
        backend.forces_writes() && backend.write_cache() == WriteCache::Back
    }

    /// Flushes the device's cache.
    pub(crate) fn flush(&mut self, requests: Vec<RequestId>) {
        self.flush_as(Tag::Flush, requests);
    }

    /// Flushes the device's cache, for a purpose of its own.
    pub(crate) fn flush_as(&mut self, tag: Tag, requests: Vec<RequestId>) {
        self.submit(tag, (IoOp::Flush, false), 0, None, requests);
    }

    /// Writes that have ended and may be in the device's cache, counted since open.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// True: of the writes counted by [`written`](Self::written), the first so many cannot be lost.
    pub(crate) fn is_durable(&self, written: u64) -> bool {
        written <= self.flushed || self.device.backend.write_cache() == WriteCache::Through
    }

    /// True: no write that has ended can be lost, so a flush would change nothing.
    fn all_durable(&self) -> bool {
        self.is_durable(self.written)
    }

    /// True: something has ended that the backend knows nothing of.
    pub(crate) fn has_spared(&self) -> bool {
        !self.spared.is_empty()
    }

    /// Starts what was handed out and appends what has ended.
    pub(crate) fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        let wait = if self.spared.is_empty() {
            wait
        } else {
            Wait::No
        };
        self.device.backend.wait(ended, wait);
        ended.append(&mut self.spared);
    }

    fn submit(
        &mut self,
        tag: Tag,
        (op, forced): (IoOp, bool),
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
            forced,
            offset,
            buf,
            purpose: tag.purpose(),
            requests,
        };
        let request = io.requests.first().copied();
        let spared = op == IoOp::Flush && self.all_durable();
        let extent = Extent {
            op,
            offset,
            len: io.len(),
            begin_ns: monotonic_ns(),
            request,
            again: false,
            forced,
            covers: self.written,
            spared,
        };
        self.in_flight.insert(token, (tag, extent));
        if spared {
            return self.spared.push(Completion {
                token,
                buf: None,
                result: Ok(()),
            });
        }
        self.began.push_back((token, extent.begin_ns));
        if self.began.len() == 1 {
            self.condition.tell_oldest(Some(extent.begin_ns));
        }
        self.device.backend.submit(io);
    }

    /// When the oldest I/O in flight hangs unless it has ended; `None`: none is in flight, or it may
    /// take for ever.
    pub(crate) fn hangs_at_ns(&self) -> Option<u64> {
        let (_, began_ns) = self.began.front()?;
        began_ns.checked_add(self.bound_ns)
    }

    /// The oldest I/O in flight, for messages, if it hangs.
    pub(crate) fn hanging(&self, now_ns: u64) -> Option<String> {
        if self.hangs_at_ns()? > now_ns {
            return None;
        }
        let (token, _) = self.began.front()?;
        let (
            _,
            Extent {
                op, offset, len, ..
            },
        ) = self.in_flight.get(token)?;
        Some(format!("{op:?} of {len} bytes at byte {offset}"))
    }

    /// Forgets the oldest I/Os as far as they have ended.
    fn note_oldest(&mut self) {
        let before = self.began.len();
        while let Some((token, _)) = self.began.front()
            && !self.in_flight.contains_key(token)
        {
            self.began.pop_front();
        }
        if self.began.len() < before {
            let began_ns = self.began.front().map(|(_, began_ns)| *began_ns);
            self.condition.tell_oldest(began_ns);
        }
    }

    /// How long the read of a get or a head took that has just ended, in nanoseconds.
    pub(crate) fn read_time(&self, token: u64) -> Option<(RequestKind, u64)> {
        let (tag, extent) = self.in_flight.get(&token)?;
        let kind = tag.read_kind()?;
        Some((kind, monotonic_ns().saturating_sub(extent.begin_ns)))
    }

    /// The tag, the memory and the result of an I/O that has ended. `None`: it is not known, or it is
    /// a read for a request and is tried once more.
    pub(crate) fn ended(
        &mut self,
        completion: Completion,
    ) -> Option<(Tag, Option<AlignedBuf>, Result<(), Error>)> {
        let (tag, extent) = self.in_flight.remove(&completion.token)?;
        self.data_in_flight -= usize::from(tag.is_data());
        if extent.again {
            self.read_again();
        }
        self.note_end(&extent, completion.result.is_ok());
        self.note_oldest();
        let Extent {
            op, offset, len, ..
        } = extent;
        let result = completion
            .result
            .map_err(|source| Error::from_io(op, offset, len, source));
        if let Err(error) = &result {
            self.counters.io_errors.add(1);
            if let (true, false, Some(_)) = (error.is_bad_spot(), extent.again, &completion.buf)
                && tag.is_asked_for()
            {
                self.failed_once.push_back((tag, extent, completion.buf));
                if !self.in_flight.values().any(|(_, extent)| extent.again) {
                    self.read_again();
                }
                return None;
            }
        }
        if !extent.spared && !matches!(tag, Tag::Trial | Tag::TrialWrite(_)) {
            self.judge.ended(op, &result, monotonic_ns());
        }
        Some((tag, completion.buf, result))
    }

    /// Tries the next of the reads that have failed once.
    fn read_again(&mut self) {
        let Some((tag, extent, buf)) = self.failed_once.pop_front() else {
            return;
        };
        let token = self.next_token;
        let requests = extent.request.into_iter().collect();
        self.submit(tag, (IoOp::Read, false), extent.offset, buf, requests);
        if let Some((_, extent)) = self.in_flight.get_mut(&token) {
            extent.again = true;
        }
    }

    fn note_end(&mut self, extent: &Extent, well: bool) {
        match extent.op {
            IoOp::Read => {}
            // A write that has failed may be there in part.
            IoOp::Write => {
                self.written += u64::from(!extent.forced || !well);
                self.counters.writes.add(u64::from(well));
                self.counters
                    .writes_forced
                    .add(u64::from(well && extent.forced));
            }
            IoOp::Flush if well => {
                self.flushed = self.flushed.max(extent.covers);
                let count = if extent.spared {
                    &self.counters.flushes_spared
                } else {
                    &self.counters.flushes
                };
                count.add(1);
            }
            IoOp::Flush => {}
        }
    }
}
