//! Reading a lump piece by piece, as its reader sees it.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Store;
use crate::error::Error;
use crate::opened::{AHEAD, Beginning, OpenLump, PieceSize};
use crate::payload::LumpData;
use crate::request::RequestCtx;
use crate::times::EngineTimes;

/// A lump, or a range of one, of which the beginning has been read
/// ([`Store::submit_open`](crate::Store::submit_open)).
#[derive(Debug)]
pub struct Opened {
    /// The first bytes of what was asked for.
    pub first: LumpData,
    /// First of them within the lump.
    pub offset: u64,
    /// Bytes asked for; fewer where the lump ends.
    pub length: u64,
    /// Bytes of the whole lump.
    pub total_length: u64,
    /// CRC32C of the whole lump; `None`: it is not verified, or only a part was asked for.
    pub crc32c: Option<u32>,
    /// The rest of what was asked for; `None`: the first bytes are all.
    pub rest: Option<Rest>,
}

/// The rest of a lump that was opened: verified bytes of the version that was opened, piece by
/// piece, even if it has been replaced or removed since. While this exists, its blocks are not
/// used for another lump, and no put waits for them.
///
/// A piece is read as soon as the one before has come, until 2 MiB wait to be taken: so the disk
/// works while bytes are sent, and a slow reader holds little memory. Pieces count against the
/// store's [`buffer_budget`](crate::StoreOptions::buffer_budget) until they are dropped. They wait
/// in the queue with the deadline of their lump, and are not refused because the queue is full.
pub struct Rest {
    ahead: Arc<Ahead>,
    /// Bytes that have not been taken.
    remaining: u64,
}

/// A piece or why there is none, and what reading it took.
pub type Piece = (Result<LumpData, Error>, EngineTimes);

/// What is read before it is taken.
struct Ahead {
    store: Store,
    ctx: RequestCtx,
    lump: Arc<OpenLump>,
    size: PieceSize,
    state: Mutex<RestState>,
}

struct RestState {
    /// Bytes of the lump that have not been asked for.
    bytes: Range<u64>,
    /// A piece is being read: one at a time, or pieces that have overtaken those before them could
    /// hold all memory.
    asked: bool,
    read: VecDeque<Piece>,
    reader: Option<Waker>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest")
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

impl Opened {
    pub(super) fn new(
        beginning: Beginning,
        rest: impl FnOnce(OpenLump, Range<u64>) -> Rest,
    ) -> Self {
        let Range { start, end } = beginning.wanted;
        let is_whole = end - start == beginning.total_length;
        let first = beginning.first;
        let crc32c = match &beginning.rest {
            None => first.crc32c(),
            Some(lump) => lump.trailer.payload_crc,
        };
        let next = start + first.len() as u64;
        Self {
            crc32c: (first.verified && is_whole).then_some(crc32c),
            first,
            offset: start,
            length: end - start,
            total_length: beginning.total_length,
            rest: beginning.rest.map(|lump| rest(lump, next..end)),
        }
    }
}

impl Rest {
    /// Has the first of its pieces read.
    pub(super) fn new(
        store: Store,
        ctx: RequestCtx,
        (lump, size): (OpenLump, PieceSize),
        bytes: Range<u64>,
    ) -> Self {
        let remaining = bytes.end - bytes.start;
        let ahead = Arc::new(Ahead {
            store,
            ctx,
            lump: Arc::new(lump),
            size,
            state: Mutex::new(RestState {
                bytes,
                asked: false,
                read: VecDeque::new(),
                reader: None,
            }),
        });
        ahead.ask();
        Self { ahead, remaining }
    }

    /// Bytes that have not been taken.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// True: all of it has been read, and what is left has only to be taken.
    #[must_use]
    pub fn is_read(&self) -> bool {
        let state = self.ahead.lock();
        state.bytes.is_empty() && !state.asked
    }

    /// The next piece; `None`: that was all. An error is the last: [`Error::Closed`],
    /// [`Error::ChecksumMismatch`], [`Error::DeadlineExceeded`], [`Error::Io`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let mut state = self.ahead.lock();
        let Some(piece) = state.read.pop_front() else {
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        self.remaining = match &piece.0 {
            Ok(data) => self.remaining - data.len() as u64,
            Err(_) => 0,
        };
        self.ahead.ask();
        Poll::Ready(Some(piece))
    }

    /// As [`Rest::poll_next`]. What is given up meanwhile loses no piece.
    pub async fn next(&mut self) -> Option<Piece> {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let mut state = self.ahead.lock();
        state.bytes.start = state.bytes.end;
        let unread = std::mem::take(&mut state.read);
        drop(state);
        drop(unread);
    }
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, RestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next piece read, if its time has come.
    fn ask(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.asked || state.bytes.is_empty() || state.waiting_bytes() >= AHEAD {
            return;
        }
        let Range { start, end } = state.bytes;
        let chunk = self.lump.chunks().chunk_len();
        let to = self.size.end(chunk, start - start % chunk, end);
        state.bytes.start = to;
        state.asked = true;
        drop(state);
        let ahead = Arc::clone(self);
        let on_done = Box::new(move |result, times| ahead.came((result, times)));
        let wanted = (Arc::clone(&self.lump), start..to);
        if let Err(error) = self.store.submit_piece(self.ctx, wanted, on_done) {
            self.came((Err(error), EngineTimes::default()));
        }
    }

    fn came(self: &Arc<Self>, piece: Piece) {
        let mut state = self.lock();
        state.asked = false;
        if piece.0.is_err() {
            state.bytes.start = state.bytes.end;
        }
        state.read.push_back(piece);
        let reader = state.reader.take();
        drop(state);
        self.ask();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl RestState {
    fn waiting_bytes(&self) -> u64 {
        let pieces = self.read.iter().filter_map(|(data, _)| data.as_ref().ok());
        pieces.map(|data| data.len() as u64).sum()
    }
}
