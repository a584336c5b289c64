//! Threads that verify what was read and answer gets, so that the owner thread never touches
//! payload bytes, except the few of a small lump: to verify these takes less time than to wake
//! another thread.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};

use super::command::{Reply, Stage};
use super::reads::ranges::{Wanted, clip};
use super::scrub::{ScrubJob, Verified};
use crate::buffer::AlignedBuf;
use crate::error::{Error, LumpDamage};
use crate::format::Portion;
use crate::format::mend::mend;
use crate::format::record::{Decoded, EMBED_PREFIX_LEN, Record};
use crate::format::verify::{Damage, Misfit, Subject};
use crate::lump::LumpId;
use crate::opened::{Beginning, OpenLump, Pin};
use crate::payload::LumpData;
use crate::stats::Counters;
use crate::units::ByteOffset;

/// Bytes that the owner's thread verifies by itself: about a microsecond's work.
const SMALL: usize = 16 * 1024;
/// Threads of a store; each verifies several GB/s.
const THREADS: usize = 2;

/// A get whose bytes are in memory.
pub(crate) struct Finish {
    pub(crate) id: LumpId,
    pub(crate) buf: AlignedBuf,
    /// Where the bytes came from in the device.
    pub(crate) offset: ByteOffset,
    pub(crate) kind: FinishKind,
    pub(crate) reply: Reply<LumpData>,
}

/// A range of a lump whose bytes are in memory.
pub(crate) struct FinishRange {
    pub(crate) portion: Portion,
    pub(crate) subject: Subject,
    /// First byte of the portion in the device.
    pub(crate) start: ByteOffset,
    pub(crate) wanted: Wanted,
    /// Bytes of the portion in the body.
    pub(crate) body_at: Range<u64>,
    pub(crate) body: AlignedBuf,
    /// The last block, when the body does not end with it.
    pub(crate) end: Option<AlignedBuf>,
    /// Keeps the lump open; `None`: the body has all that is wanted.
    pub(crate) pin: Option<Pin>,
    pub(crate) reply: Reply<Beginning>,
}

/// A piece of a lump that is open, whose bytes are in memory.
pub(crate) struct FinishPiece {
    pub(crate) lump: Arc<OpenLump>,
    /// Bytes of the lump.
    pub(crate) wanted: Range<u64>,
    pub(crate) body: AlignedBuf,
    pub(crate) reply: Reply<LumpData>,
}

/// Something for the threads to do.
enum Job {
    Lump(Finish),
    Range(FinishRange),
    Piece(FinishPiece),
    Scrub(ScrubJob, Box<dyn FnOnce(Verified) + Send>),
}

/// Kind of the bytes.
#[derive(Clone, Debug)]
pub(crate) enum FinishKind {
    /// A whole portion.
    Portion { portion: Portion, subject: Subject },
    /// A journal record, and where it is in the buffer.
    Record { bytes: Range<usize> },
}

/// The threads. They end when the handle is dropped.
pub(crate) struct Finisher {
    /// `None`: there are no threads (any more), the caller does it all.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl Finisher {
    pub(crate) fn start(counters: &Arc<Counters>) -> std::io::Result<Self> {
        // Bounded by the I/Os in flight.
        let (sender, queue) = crossbeam_channel::unbounded();
        let mut finisher = Self {
            queue: Some(sender),
            threads: Vec::with_capacity(THREADS),
            counters: Arc::clone(counters),
        };
        for number in 0..THREADS {
            let (queue, counters) = (queue.clone(), Arc::clone(counters));
            let thread = std::thread::Builder::new()
                .name(format!("lump-finish-{number}"))
                .spawn(move || run(&queue, &counters))?;
            finisher.threads.push(thread);
        }
        Ok(finisher)
    }

    /// One without threads: the owner's thread does the work, for stepped stores.
    pub(crate) fn inline(counters: &Arc<Counters>) -> Self {
        Self {
            queue: None,
            threads: Vec::new(),
            counters: Arc::clone(counters),
        }
    }

    /// Verifies what was read and answers the get.
    pub(crate) fn finish(&self, job: Finish) {
        self.hand_over(Job::Lump(job));
    }

    pub(crate) fn finish_range(&self, job: FinishRange) {
        self.hand_over(Job::Range(job));
    }

    pub(crate) fn finish_piece(&self, job: FinishPiece) {
        self.hand_over(Job::Piece(job));
    }

    /// Verifies what the scrubber has read.
    pub(crate) fn verify(&self, job: ScrubJob, told: impl FnOnce(Verified) + Send + 'static) {
        self.hand_over(Job::Scrub(job, Box::new(told)));
    }

    fn hand_over(&self, job: Job) {
        match &self.queue {
            Some(queue) if job.len() > SMALL => {
                // The receivers live as long as the threads, and they end only after the sender.
                let _ = queue.send(job);
            }
            _ => job.run(&self.counters),
        }
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run(queue: &Receiver<Job>, counters: &Counters) {
    super::mark_engine_thread();
    queue.iter().for_each(|job| job.run(counters));
}

impl Job {
    /// Bytes to be looked at.
    fn len(&self) -> usize {
        match self {
            Self::Lump(finish) => finish.buf.len(),
            Self::Range(finish) => finish.body.len(),
            Self::Piece(finish) => finish.body.len(),
            // It answers nobody who waits.
            Self::Scrub(..) => usize::MAX,
        }
    }

    fn run(self, counters: &Counters) {
        match self {
            Self::Lump(finish) => finish.run(counters),
            Self::Range(finish) => finish.run(counters),
            Self::Piece(finish) => finish.run(counters),
            Self::Scrub(job, told) => told(job.run()),
        }
    }
}

impl FinishRange {
    /// Verifies the bytes and answers the request.
    fn run(self, counters: &Counters) {
        let Self {
            portion,
            subject,
            start,
            wanted,
            body_at,
            body,
            end,
            pin,
            reply,
        } = self;
        let mismatch = |misfit: Misfit| Error::mismatch(subject.id, portion, start.0, &misfit);
        let judged = subject
            .judge_end(end.as_deref().unwrap_or(&body))
            .map_err(mismatch)
            .and_then(|end| {
                let wanted = clip(subject.id, wanted.offset, wanted.len, end.0)?;
                let first = wanted.start..wanted.end.min(body_at.end.max(wanted.start));
                let rest = pin.zip(end.1.clone()).map(|(pin, trailer)| OpenLump {
                    pin,
                    subject,
                    start,
                    payload_len: end.0,
                    trailer,
                });
                let judged = subject.judge_part(&body, body_at.start, first, end);
                judged
                    .map_err(mismatch)
                    .map(|judged| (wanted, judged, rest))
            });
        note(
            counters,
            judged.as_ref().map(|(_, judged, _)| judged.verified),
        );
        let outcome = judged.map(|(wanted, judged, rest)| Beginning {
            first: LumpData::judged(body, &judged),
            wanted,
            total_length: judged.payload_len,
            rest,
        });
        reply.send(outcome, Stage::Data);
    }
}

impl FinishPiece {
    /// Verifies the bytes and answers the request.
    fn run(self, counters: &Counters) {
        let Self {
            lump,
            wanted,
            body,
            reply,
        } = self;
        let judged = lump.judge(&body, wanted);
        drop(lump);
        note(counters, judged.as_ref().map(|judged| judged.verified));
        let piece = judged.map(|judged| LumpData::judged(body, &judged));
        reply.send(piece, Stage::Data);
    }
}

/// Counts what could not be verified.
fn note(counters: &Counters, verified: Result<bool, &Error>) {
    match verified {
        Ok(false) => counters.unverified_gets.add(1),
        Err(Error::ChecksumMismatch { .. }) => counters.checksum_failures.add(1),
        _ => {}
    }
}

impl Finish {
    /// Verifies the bytes and answers the request.
    fn run(self, counters: &Counters) {
        let Self {
            id,
            buf,
            offset,
            kind,
            reply,
        } = self;
        let result = match kind {
            FinishKind::Portion { portion, subject } => match subject.judge(&buf) {
                Ok(judged) => Ok(LumpData::judged(buf, &judged)),
                Err(misfit) => Err(Error::mismatch(id, portion, offset.0, &misfit)),
            },
            FinishKind::Record { bytes } => embedded(buf, id, offset, bytes),
        };
        note(counters, result.as_ref().map(|lump| lump.verified));
        reply.send(result, Stage::Data);
    }
}

/// The lump in a journal record; the record's own checksum verifies it.
fn embedded(
    buf: AlignedBuf,
    id: LumpId,
    offset: ByteOffset,
    within: Range<usize>,
) -> Result<LumpData, Error> {
    let at = within.start;
    let bytes = buf.get(within).unwrap_or_default();
    let whole = bytes.len();
    let len_of = |bytes: &[u8]| match Record::decode(bytes) {
        Ok(Decoded::Record {
            record: Record::Embed { id: found, .. },
            len,
        }) if found == id && len == whole => Some(len),
        _ => None,
    };
    // A flipped bit before the data is known, and the data is as the checksum says.
    let mended = || mend(bytes).filter(|mended| mended.flipped.is_some());
    let found = len_of(bytes).or_else(|| len_of(&mended()?.record));
    match found {
        Some(len) => Ok(LumpData::embedded(buf, at + EMBED_PREFIX_LEN, at + len)),
        None => {
            let len = buf.len().saturating_sub(at) as u64;
            Err(Error::ChecksumMismatch(Box::new(LumpDamage {
                id,
                portion: None,
                damage: Damage::Record,
                offset: offset.0 + at as u64,
                len,
            })))
        }
    }
}
