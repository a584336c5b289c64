//! Messages from callers to the owner thread, and the way of the answer back.

pub(crate) mod put;
pub(crate) mod read;

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;
use put::{DataLump, PieceWrite, Put};
use read::Wanted;

use crate::clock::monotonic_ns;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::lump::LumpId;
use crate::opened::{Beginning, OpenLump};
use crate::payload::LumpData;
use crate::request::{
    CollectOutcome, DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, EmbeddedPage,
    HeadOutcome, ListOutcome, LumpRange, RequestCtx, UsageOutcome,
};
use crate::times::{BatchWait, EngineTimes, OnDone};

/// A request on its way to the owner thread, with what decides when it is started.
pub(crate) struct Arrival {
    pub(crate) ctx: RequestCtx,
    /// When it was let in, in nanoseconds of the monotonic clock.
    pub(crate) since_ns: u64,
    pub(crate) command: StoreCommand,
}

impl Arrival {
    /// An arrival that is let in now.
    pub(crate) fn new(ctx: RequestCtx, command: StoreCommand) -> Self {
        Self {
            ctx,
            since_ns: monotonic_ns(),
            command,
        }
    }
}

/// Operation of a request.
pub(crate) enum StoreCommand {
    Put(Box<Put>),
    /// A piece of a lump that is to be put when all of it has come.
    PutPiece(Box<PieceWrite>),
    Get {
        id: LumpId,
        reply: TimedReply<LumpData>,
    },
    GetRange {
        id: LumpId,
        wanted: Wanted,
        reply: TimedReply<Beginning>,
    },
    /// These bytes of a lump that is open.
    GetPiece {
        lump: Arc<OpenLump>,
        wanted: Range<u64>,
        reply: TimedReply<LumpData>,
    },
    Head {
        id: LumpId,
        /// True: with the checksum of its bytes.
        sum: bool,
        reply: TimedReply<HeadOutcome>,
    },
    Delete {
        id: LumpId,
        durability: Durability,
        reply: TimedReply<DeleteOutcome>,
    },
    DeleteRange {
        start: LumpId,
        end: LumpId,
        durability: Durability,
        reply: TimedReply<DeleteRangeOutcome>,
    },
    DeleteMany {
        ids: Vec<LumpId>,
        durability: Durability,
        reply: TimedReply<DeleteManyOutcome>,
    },
    List {
        range: LumpRange,
        limit: usize,
        reply: TimedReply<ListOutcome>,
    },
    /// The embedded lumps of a range, from an offset of the log on.
    Embedded {
        range: LumpRange,
        from: u64,
        reply: TimedReply<EmbeddedPage>,
    },
    Usage {
        range: LumpRange,
        reply: TimedReply<UsageOutcome>,
    },
    Sync {
        reply: TimedReply<()>,
    },
    Collect {
        reply: TimedReply<CollectOutcome>,
    },
    /// Answered when no change is under way.
    Settle {
        reply: TimedReply<()>,
    },
    Close {
        closed: Sender<Result<(), Error>>,
    },
}

impl StoreCommand {
    /// False: it is answered from memory.
    pub(crate) fn needs_disk(&self) -> bool {
        !matches!(
            self,
            Self::List { .. } | Self::Usage { .. } | Self::Settle { .. } | Self::Close { .. }
        )
    }

    /// True: it is let in however many wait, mostly as a part of a request that was let in before.
    pub(crate) fn goes_on(&self) -> bool {
        match self {
            Self::Put(put) => put.data.as_ref().is_some_and(DataLump::is_begun),
            Self::PutPiece(piece) => piece.at > 0,
            Self::GetPiece { .. } | Self::Settle { .. } => true,
            _ => false,
        }
    }

    /// True: it removes lumps.
    pub(crate) fn is_delete(&self) -> bool {
        matches!(
            self,
            Self::Delete { .. } | Self::DeleteRange { .. } | Self::DeleteMany { .. }
        )
    }

    /// Answers with an error instead of doing it.
    pub(crate) fn refuse(self, error: Error) {
        let stage = Stage::Sched;
        match self {
            Self::Put(put) => put.reply.send(Err(error), stage),
            Self::PutPiece(piece) => piece.reply.send(Err(error), stage),
            Self::Embedded { reply, .. } => reply.send(Err(error), stage),
            Self::Get { reply, .. } => reply.send(Err(error), stage),
            Self::GetRange { reply, .. } => reply.send(Err(error), stage),
            Self::GetPiece { reply, .. } => reply.send(Err(error), stage),
            Self::Head { reply, .. } => reply.send(Err(error), stage),
            Self::Delete { reply, .. } => reply.send(Err(error), stage),
            Self::DeleteRange { reply, .. } => reply.send(Err(error), stage),
            Self::DeleteMany { reply, .. } => reply.send(Err(error), stage),
            Self::List { reply, .. } => reply.send(Err(error), stage),
            Self::Usage { reply, .. } => reply.send(Err(error), stage),
            Self::Sync { reply } | Self::Settle { reply } => reply.send(Err(error), stage),
            Self::Collect { reply } => reply.send(Err(error), stage),
            Self::Close { closed } => drop(closed.send(Err(error))),
        }
    }
}

/// Stages of a request that the engine measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Sched,
    Index,
    Data,
    Journal,
    Write,
    Flush,
}

/// Divides the time of one request among its stages, without gap or overlap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    last_ns: u64,
    times: EngineTimes,
    /// The request whose batch it waits for; `None`: it waits for none.
    behind: Option<RequestId>,
}

impl Timing {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self {
            last_ns: monotonic_ns(),
            times: EngineTimes::default(),
            behind: None,
        }
    }

    /// Books the time since the last call to `stage`.
    pub(crate) fn lap(&mut self, stage: Stage) {
        self.lap_at(stage, monotonic_ns());
    }

    /// As [`lap`](Self::lap), at a time that was looked at before.
    pub(crate) fn lap_at(&mut self, stage: Stage, now_ns: u64) {
        self.behind = None;
        let field = match stage {
            Stage::Sched => &mut self.times.sched_ns,
            Stage::Index => &mut self.times.index_ns,
            Stage::Data => &mut self.times.data_ns,
            Stage::Journal => &mut self.times.journal_ns,
            Stage::Write => &mut self.times.write_ns,
            Stage::Flush => &mut self.times.flush_ns,
        };
        *field += now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
    }

    /// From now on it waits for the batch of this request, if there is one and it does not wait
    /// already.
    pub(crate) fn wait_behind(&mut self, behind: Option<RequestId>) {
        if self.behind.is_none() && behind.is_some() {
            self.lap(Stage::Journal);
            self.behind = behind;
        }
    }

    /// Books the time since the last lap as a wait, if it has waited for a batch, else as the
    /// commit's own.
    pub(crate) fn lap_waited(&mut self, now_ns: u64) {
        let Some(behind) = self.behind.take() else {
            return self.lap_at(Stage::Journal, now_ns);
        };
        let ns = now_ns.saturating_sub(self.last_ns);
        self.times.wait_ns += ns;
        self.times.longest_wait = self.times.longest_wait.max(Some(BatchWait { ns, behind }));
        self.last_ns = self.last_ns.max(now_ns);
    }

    /// Nanoseconds from its start until `now_ns`, if it had data I/O.
    pub(crate) fn data_service_ns(&self, now_ns: u64) -> Option<u64> {
        let times = &self.times;
        let booked = times.index_ns + times.data_ns + times.commit_ns();
        (times.data_ns > 0).then(|| booked + now_ns.saturating_sub(self.last_ns))
    }
}

/// The callback of a request and its clock.
pub(crate) struct TimedReply<T> {
    on_done: OnDone<T>,
    pub(crate) timing: Timing,
}

impl<T> TimedReply<T> {
    pub(crate) fn new(on_done: OnDone<T>) -> Self {
        Self {
            on_done,
            timing: Timing::start(),
        }
    }

    /// One for another result, which `map` makes the one that is wanted.
    pub(crate) fn of<U>(self, map: impl FnOnce(U) -> T + Send + 'static) -> TimedReply<U>
    where
        T: 'static,
    {
        let on_done = self.on_done;
        TimedReply {
            on_done: Box::new(move |result, times| on_done(result.map(map), times)),
            timing: self.timing,
        }
    }

    /// Answers; the time since the last lap belongs to `stage`.
    pub(crate) fn send(mut self, result: Result<T, Error>, stage: Stage) {
        if self.timing.behind.is_some() {
            self.timing.lap_waited(monotonic_ns());
        }
        self.timing.lap(stage);
        self.answer(result);
    }

    /// Answers with an error before the end; what is sent afterwards nobody hears.
    pub(crate) fn answer_early(&mut self, error: &Error) {
        let silent = Self::new(Box::new(|_, _| ()));
        std::mem::replace(self, silent).send(Err(error.clone()), Stage::Journal);
    }

    /// Answers; what has passed since the last lap belongs to the caller's way back.
    pub(crate) fn answer(self, result: Result<T, Error>) {
        (self.on_done)(result, self.timing.times);
    }
}
