//! Live streams: bounded in number and in memory, and nothing waits for them.
//!
//! Each call has a queue of the observer's for itself. This side empties it every few milliseconds
//! and sends; a client that does not take what is sent holds up its own call only, its queue runs
//! full, and what does not fit is counted in the replies that it takes later.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use lumpscope_observer::{Observer, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::tokio_stream::Stream;

use crate::door::told;
use crate::observed::{Watching, left_out};

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

/// Replies as they come.
pub(super) type BoxStream<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Contents of a reply.
pub(super) struct Batch<'a, T> {
    /// Oldest first.
    pub(super) things: VecDeque<T>,
    /// Left out so far.
    pub(super) dropped: u64,
    /// Possible gaps, in words.
    pub(super) doubts: &'a str,
    /// There must be a reply, even when nothing has come.
    pub(super) heartbeat: bool,
}

/// A call that watches, ready to go.
pub(super) struct LiveReplies<T> {
    pub(super) watching: Watching,
    pub(super) watch: Watch<T>,
    /// Says when the service stops.
    pub(super) stopped: watch::Receiver<bool>,
    /// Looked at once a heartbeat; `None`: nothing can be missing but what was dropped.
    pub(super) doubts: Option<Doubts>,
}

impl<T: Send + 'static> LiveReplies<T> {
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
