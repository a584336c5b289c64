//! What is handed out as it happens: bounded in number and in memory, and nobody waits for it.
//!
//! Each call has a queue of the observer's for itself. This side empties it every few milliseconds
//! and sends; a client that does not take what is sent holds up its own call only, its queue runs
//! full, and what does not fit is counted in the replies that it takes later.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use lumpscope_observer::{EventPolicy, Observer, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::tokio_stream::Stream;

use crate::grpc::status::Refusal;
use crate::listen::told;

/// Calls of Trace and Record under way at a time; more are refused. A queue takes up to about 20 MB.
pub const MAX_WATCHES: usize = 16;
/// Pages that are open at a time; more are refused. Each costs little more than its socket, but
/// shares the connections of the metrics endpoint with who scrapes it.
pub const MAX_VIEWERS: usize = 64;
/// Block requests that wait for the client of one call.
pub(super) const BLOCKS_WAITING: usize = 16_384;
/// Lines of a recording that wait for the client of one call.
pub(super) const LINES_WAITING: usize = 65_536;
/// Replies that wait for the connection of one call.
const REPLIES_WAITING: usize = 2;
/// How often the queues are emptied: the observer has something new every 10 ms.
const POLL: Duration = Duration::from_millis(20);
/// How often a client hears of us, and how often is looked at what may be missing.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Block requests.
    Trace,
    /// Everything that the correlator learns.
    Record,
    /// The pictures of the page.
    Page,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Trace, Self::Record, Self::Page];

    /// Name in metrics; of a call, that of its method.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Record => "record",
            Self::Page => "page",
        }
    }
}

/// Counts who watches, and what they missed.
#[derive(Debug, Default)]
pub struct Watches {
    calls: AtomicUsize,
    viewers: AtomicUsize,
    trace: Counts,
    record: Counts,
    page: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    dropped: AtomicU64,
}

impl Watches {
    fn of(&self, kind: Kind) -> &Counts {
        match kind {
            Kind::Trace => &self.trace,
            Kind::Record => &self.record,
            Kind::Page => &self.page,
        }
    }

    /// How many there are of those that share a limit, and the limit.
    fn together(&self, kind: Kind) -> (&AtomicUsize, usize) {
        match kind {
            Kind::Trace | Kind::Record => (&self.calls, MAX_WATCHES),
            Kind::Page => (&self.viewers, MAX_VIEWERS),
        }
    }

    /// Calls of this kind, or pages, that are open.
    #[must_use]
    pub fn open(&self, kind: Kind) -> u64 {
        self.of(kind).open.load(Ordering::Relaxed)
    }

    /// What was left out of them because their clients were too slow.
    #[must_use]
    pub fn dropped(&self, kind: Kind) -> u64 {
        self.of(kind).dropped.load(Ordering::Relaxed)
    }

    /// Lets one more watch.
    ///
    /// # Errors
    /// [`Refusal::TooManyWatches`].
    pub(crate) fn begin(self: &Arc<Self>, kind: Kind) -> Result<Watching, Refusal> {
        let (open, max) = self.together(kind);
        let room = |now| (now < max).then_some(now + 1);
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .map_err(|_| Refusal::TooManyWatches { max })?;
        self.of(kind).open.fetch_add(1, Ordering::Relaxed);
        Ok(Watching {
            watches: Arc::clone(self),
            kind,
            dropped: 0,
        })
    }
}

/// One that watches; dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Watching {
    watches: Arc<Watches>,
    kind: Kind,
    dropped: u64,
}

impl Watching {
    /// Takes note of how much this one has missed so far.
    pub(crate) fn missed(&mut self, dropped: u64) {
        let more = dropped.saturating_sub(self.dropped);
        let counts = self.watches.of(self.kind);
        counts.dropped.fetch_add(more, Ordering::Relaxed);
        self.dropped = dropped;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let (open, _) = self.watches.together(self.kind);
        open.fetch_sub(1, Ordering::Relaxed);
        let counts = self.watches.of(self.kind);
        counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Replies as they come.
pub(super) type BoxStream<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// What goes into replies.
pub(super) struct Batch<'a, T> {
    /// Oldest first.
    pub(super) things: VecDeque<T>,
    /// Left out so far.
    pub(super) dropped: u64,
    /// What may be missing, in words.
    pub(super) doubts: &'a str,
    /// There must be a reply, even when nothing has come.
    pub(super) heartbeat: bool,
}

/// A call that watches, ready to go.
pub(super) struct Live<T> {
    pub(super) watching: Watching,
    pub(super) watch: Watch<T>,
    /// Says when the service stops.
    pub(super) stopped: watch::Receiver<bool>,
    /// Looked at once a heartbeat; `None`: nothing can be missing but what was dropped.
    pub(super) doubts: Option<Doubts>,
}

impl<T: Send + 'static> Live<T> {
    /// Sends what comes, in the form that `pack` gives it, until the client ends the call, the
    /// service stops, or the observer hands out no more.
    pub(super) fn stream<M: Send + 'static>(
        self,
        pack: impl FnMut(Batch<'_, T>) -> Vec<M> + Send + 'static,
    ) -> BoxStream<M> {
        let (sender, receiver) = mpsc::channel(REPLIES_WAITING);
        tokio::spawn(self.run(sender, pack));
        Box::pin(ReceiverStream::new(receiver))
    }

    async fn run<M: Send>(
        mut self,
        sender: mpsc::Sender<Result<M, Status>>,
        mut pack: impl FnMut(Batch<'_, T>) -> Vec<M> + Send,
    ) {
        let (mut sent, mut looked): (Option<Instant>, Option<Instant>) = (None, None);
        let mut said = String::new();
        let due = |at: Option<Instant>| at.is_none_or(|at| at.elapsed() >= HEARTBEAT);
        let mut last = false;
        loop {
            if due(looked) && !last {
                looked = Some(Instant::now());
                if let Some(doubts) = &self.doubts {
                    said = doubts.look().await;
                }
            }
            let over = self.watch.is_over();
            let things = self.watch.take();
            let dropped = self.watch.dropped();
            self.watching.missed(dropped);
            let replies = pack(Batch {
                things,
                dropped,
                doubts: &said,
                heartbeat: due(sent),
            });
            for reply in replies {
                tokio::select! {
                    biased;
                    done = sender.send(Ok(reply)) => if done.is_err() { return },
                    () = told(self.stopped.clone()) => return,
                }
                sent = Some(Instant::now());
            }
            if last || over {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                // What has come until now is still sent.
                () = told(self.stopped.clone()) => last = true,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }
}

/// Says what may be missing in what is seen of some stores.
#[derive(Clone)]
pub(super) struct Doubts {
    pub(super) observer: Observer,
    pub(super) stores: Vec<String>,
}

impl Doubts {
    async fn look(&self) -> String {
        let doubts = self.clone();
        // The observer is asked under its lock, which is no work for this thread.
        let asked = tokio::task::spawn_blocking(move || doubts.in_words()).await;
        asked.unwrap_or_else(|error| format!("what may be missing is not known: {error}"))
    }

    fn in_words(&self) -> String {
        let mut told = Vec::new();
        for store in &self.stores {
            match self.observer.store_status(store) {
                None => told.push(format!("{store}: is no longer served")),
                Some(status) if !status.observed => {
                    told.push(format!("{store}: not observed: {}", status.why_not));
                }
                Some(_) => {
                    let audit = self.observer.audit(store).unwrap_or_default();
                    if !audit.complete {
                        told.push(format!("{store}: {}", audit.finding));
                    }
                }
            }
        }
        told.extend(left_out(self.observer.events()));
        told.join("; ")
    }
}

/// What the event policy leaves out, in words; `None`: nothing.
pub(crate) fn left_out(policy: EventPolicy) -> Option<String> {
    let slow = match policy.slower_than_ns {
        0 => String::new(),
        ns => format!(" and all that take {ns} ns or more"),
    };
    match policy.one_in {
        1 => None,
        0 if slow.is_empty() => Some("no block request is handed out".to_owned()),
        0 => Some(format!("no block requests are handed out by chance{slow}")),
        n => Some(format!("one of {n} block requests is handed out{slow}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_watch_and_each_end_makes_room() {
        let watches = Arc::new(Watches::default());
        let mut all: Vec<Watching> = (0..MAX_WATCHES)
            .map(|i| watches.begin([Kind::Trace, Kind::Record][i % 2]).unwrap())
            .collect();
        assert!(watches.begin(Kind::Trace).is_err());
        assert_eq!(watches.open(Kind::Trace), 8);
        all[0].missed(3);
        all[0].missed(5);
        assert_eq!(watches.dropped(Kind::Trace), 5);
        all.remove(0);
        assert_eq!(watches.open(Kind::Trace), 7);
        all.push(watches.begin(Kind::Record).unwrap());
        assert!(watches.begin(Kind::Record).is_err());
        // Pages are counted on their own.
        let pages: Vec<_> = (0..MAX_VIEWERS)
            .map(|_| watches.begin(Kind::Page).unwrap())
            .collect();
        assert!(watches.begin(Kind::Page).is_err());
        drop((all, pages));
        assert_eq!(watches.open(Kind::Page), 0);
        assert_eq!(watches.open(Kind::Record), 0);
        assert_eq!(watches.dropped(Kind::Trace), 5);
    }
}
