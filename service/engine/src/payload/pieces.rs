//! Lumps that are written while they come in, so that a large one never has to be in memory.
//!
//! Its blocks are fresh, and no record names them before all of the lump is written, so pieces can
//! go to the disk as they come: a lump that ends early or wrong leaves nothing but free blocks. The
//! last piece, with the trailer, is written by the put.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{self, Poll};

use super::{LumpBuf, RUN_LIMIT, shape_of};
use crate::buffer::{AlignedBuf, BufferPool};
use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::format::Portion;
use crate::format::proof;
use crate::format::sums::PayloadSums;
use crate::format::trailer::LumpShape;
use crate::lump::LumpId;
use crate::mutant::{self, Mutant};
use crate::times::{EngineTimes, OnDone};
use crate::units::{BlockCount, BlockSize, SECTOR_LEN, to_usize};
use crate::waker::Waker;

/// Hands a piece over: its first byte within the portion, and its bytes, which come back.
pub(crate) type HandOver =
    Box<dyn Fn(u64, AlignedBuf, OnDone<AlignedBuf>) -> Result<(), Error> + Send + Sync>;

/// Blocks of lumps that were not put, on their way to the owner thread.
#[derive(Debug, Default)]
pub(crate) struct Unused {
    /// Bytes of the lumps whose blocks are not decided about.
    open: AtomicU64,
    portions: Mutex<Vec<Portion>>,
}

impl Unused {
    /// Takes the blocks out.
    pub(crate) fn take(&self) -> Vec<Portion> {
        std::mem::take(&mut *self.portions())
    }

    /// Bytes of the lumps that are being written while they come in.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    fn portions(&self) -> MutexGuard<'_, Vec<Portion>> {
        self.portions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a lump that is being written. Its blocks are free again when this is dropped, and
/// each piece that is being written keeps it.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) id: LumpId,
    pub(crate) blocks: BlockCount,
    /// Bytes of these.
    bytes: u64,
    /// True: the lump is not to be put if there is one with its id.
    pub(crate) if_absent: bool,
    /// True: its blocks may be of a run.
    pub(crate) fits_run: bool,
    place: OnceLock<Portion>,
    kept: AtomicBool,
    unused: Arc<Unused>,
    waker: Waker,
}

impl Begun {
    pub(crate) fn new(
        (id, shape, if_absent): (LumpId, LumpShape, bool),
        unused: &Arc<Unused>,
        waker: Waker,
    ) -> Arc<Self> {
        let bytes = shape.total_len();
        unused.open.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Self {
            id,
            blocks: shape.blocks(),
            bytes,
            if_absent,
            fits_run: shape.total_len() <= RUN_LIMIT,
            place: OnceLock::new(),
            kept: AtomicBool::new(false),
            unused: Arc::clone(unused),
            waker,
        })
    }

    /// Its blocks, once they are chosen.
    pub(crate) fn place(&self) -> Option<Portion> {
        self.place.get().copied()
    }

    /// Its blocks are these; only the first call counts.
    pub(crate) fn choose(&self, place: Portion) {
        // The owner thread alone chooses, once.
        let _ = self.place.set(place);
    }

    /// Its blocks belong to the caller from now on.
    pub(crate) fn keep(&self) -> Option<Portion> {
        self.kept.store(true, Ordering::Relaxed);
        self.place()
    }

    /// Its blocks are free once nothing is written there.
    pub(crate) fn give_back(&self) {
        self.kept.store(false, Ordering::Relaxed);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.unused.open.fetch_sub(self.bytes, Ordering::Relaxed);
        if let (Some(place), false) = (self.place(), *self.kept.get_mut()) {
            self.unused.portions().push(place);
            self.waker.wake();
        }
    }
}

/// Bytes of the buffer for pieces of at most `most` bytes: two of them, in the steps of `alignment`.
pub(crate) const fn memory_for(most: usize, alignment: usize) -> usize {
    2 * most.next_multiple_of(alignment)
}

/// The pieces of a lump.
pub(crate) struct Pieces {
    begun: Arc<Begun>,
    hand_over: HandOver,
    pool: Arc<BufferPool>,
    /// Bytes of every piece but the last.
    piece: usize,
    /// Sum of the samples of what was handed over.
    samples: u64,
    waited_ns: u64,
    flow: Arc<Flow>,
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("begun", &self.begun)
            .field("is_written", &self.is_written())
            .finish_non_exhaustive()
    }
}

/// What has become of the pieces that were handed over.
#[derive(Default)]
struct Flow(Mutex<FlowState>);

#[derive(Default)]
struct FlowState {
    in_flight: usize,
    free: Vec<AlignedBuf>,
    /// The first error.
    error: Option<Error>,
    times: EngineTimes,
    task: Option<task::Waker>,
}

impl Flow {
    fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, result: Result<AlignedBuf, Error>, times: EngineTimes) {
        let mut state = self.lock();
        state.in_flight -= 1;
        state.times += times;
        match result {
            Ok(buf) => state.free.push(buf),
            Err(error) => drop(state.error.get_or_insert(error)),
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Tells of the end of a piece, also if nobody answers.
struct EndNotice(Option<Arc<Flow>>);

impl EndNotice {
    fn end(mut self, result: Result<AlignedBuf, Error>, times: EngineTimes) {
        if let Some(flow) = self.0.take() {
            flow.ended(result, times);
        }
    }
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        if let Some(flow) = self.0.take() {
            flow.ended(Err(Error::Closed), EngineTimes::default());
        }
    }
}

impl FlowState {
    fn is_written(&self) -> bool {
        self.in_flight == 0 || mutant::is(Mutant::PutsEarly)
    }

    fn check(&self) -> Result<(), Error> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

impl Pieces {
    /// True: everything that was handed over is written.
    pub(crate) fn is_written(&self) -> bool {
        self.flow.lock().is_written()
    }

    /// See [`LumpBuf::piece_times`].
    pub(crate) fn times(&self) -> (EngineTimes, u64) {
        (self.flow.lock().times, self.waited_ns)
    }

    /// Waits until all that was handed over is written.
    pub(crate) async fn all_written(&mut self) -> Result<(), Error> {
        self.until(|state| state.is_written().then_some(())).await
    }

    /// The sum of the samples of what was written, and its place.
    pub(crate) fn end(self) -> Result<(u64, Option<Arc<Begun>>), Error> {
        self.flow.lock().check()?;
        Ok((self.samples, Some(self.begun)))
    }

    /// Waits until there is what is looked for, or an error.
    async fn until<T>(
        &mut self,
        mut find: impl FnMut(&mut FlowState) -> Option<T> + Send,
    ) -> Result<T, Error> {
        let mut since_ns = None;
        let flow = &self.flow;
        let found = poll_fn(|context| {
            let mut state = flow.lock();
            state.check()?;
            if let Some(found) = find(&mut state) {
                return Poll::Ready(Ok(found));
            }
            state.task = Some(context.waker().clone());
            since_ns.get_or_insert_with(monotonic_ns);
            Poll::Pending
        });
        let found = found.await;
        if let Some(since_ns) = since_ns {
            self.waited_ns += monotonic_ns().saturating_sub(since_ns);
        }
        found
    }
}

impl LumpBuf {
    /// A buffer for the pieces of a lump of `len` bytes, of `most` bytes each, which consist of
    /// whole `unit`s.
    ///
    /// # Errors
    /// As [`LumpBuf::new`].
    pub(crate) fn in_pieces(
        (len, block_size): (u64, BlockSize),
        (most, unit): (usize, usize),
        pool: &Arc<BufferPool>,
        begun: Arc<Begun>,
        hand_over: HandOver,
    ) -> Result<Self, Error> {
        let (shape, total) = shape_of(len, block_size)?;
        // What is behind the payload is written at once.
        let tail = usize::try_from(shape.tail_len()).unwrap_or(total);
        let piece = (most.saturating_sub(tail) / unit * unit).max(unit);
        // One half is filled while the other is written.
        let both = pool.get_for_put(memory_for(most.max(piece + tail), pool.alignment()));
        let [buf, other] = both?.halves(piece + tail);
        let flow = Flow::default();
        flow.lock().free.push(other);
        let pieces = Pieces {
            begun,
            hand_over,
            pool: Arc::clone(pool),
            piece,
            samples: 0,
            waited_ns: 0,
            flow: Arc::new(flow),
        };
        let mut lump = Self {
            buf,
            start: 0,
            shape,
            len: shape.payload_len().try_into().unwrap_or(total),
            filled: 0,
            sums: PayloadSums::new(shape.payload_len()),
            pieces: Some(Box::new(pieces)),
        };
        lump.fit();
        Ok(lump)
    }

    /// Gives the buffer the length of the piece that begins now.
    fn fit(&mut self) {
        let total = to_usize(self.shape.total_len());
        let left = total - self.start;
        if let Some(pieces) = &self.pieces {
            let is_last = left < pieces.piece + (total - self.len);
            self.buf.set_len(if is_last { left } else { pieces.piece });
        }
    }

    /// True: the piece that is being filled is the last one, or the only one.
    fn is_last(&self) -> bool {
        let total = to_usize(self.shape.total_len());
        self.start + self.buf.len() == total
    }

    /// Hands the piece over if it is full. The last one is for the put.
    pub(super) fn hand_over_full(&mut self) -> Result<(), Error> {
        let is_full = !self.buf.is_empty() && self.filled == self.start + self.buf.len();
        let is_last = self.is_last();
        let Some(pieces) = self.pieces.as_mut().filter(|_| is_full && !is_last) else {
            return Ok(());
        };
        let at = self.start as u64;
        let samples = proof::samples(at / SECTOR_LEN, &self.buf);
        pieces.samples = pieces.samples.wrapping_add(samples);
        let buf = std::mem::replace(&mut self.buf, AlignedBuf::nothing(&pieces.pool));
        self.start += buf.len();
        let flow = Arc::clone(&pieces.flow);
        flow.lock().in_flight += 1;
        let told = EndNotice(Some(flow));
        (pieces.hand_over)(
            at,
            buf,
            Box::new(move |result, times| told.end(result, times)),
        )
    }

    /// Waits for a buffer for the next piece if there is none at hand.
    pub(super) async fn next_piece(&mut self) -> Result<(), Error> {
        if let Some(pieces) = self.pieces.as_mut().filter(|_| self.buf.is_empty()) {
            self.buf = pieces.until(|state| state.free.pop()).await?;
            self.fit();
        }
        Ok(())
    }
}
