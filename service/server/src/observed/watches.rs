//! Counts the calls and pages that watch what happens, and bounds their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lumpscope_observer::Room;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answers::ANSWERS;
use super::turns::Turns;
use crate::config::ServeConfig;
use crate::refusal::Refusal;
use crate::request::{Readers, Replies};

/// Calls of Trace and Record under way at a time; more are refused.
pub const MAX_WATCHES: usize = 16;
/// Block requests, and lines of recordings, that these calls together keep for their clients.
const BLOCKS: usize = 32_768;
const LINES: usize = 131_072;
/// Bytes of all of these, with long names.
pub(crate) const WATCHED: u64 = (BLOCKS as u64) * 1280 + (LINES as u64) * 320;
/// Pages that are open at a time; more are refused. Each costs little more than its socket, but
/// shares the connections of the metrics endpoint with who scrapes it.
pub const MAX_VIEWERS: usize = 64;
/// Kind of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Block requests.
    Trace,
    /// Everything that the correlator learns.
    Record,
    /// The pictures of the page.
    Page,
}

impl WatchKind {
    /// One of each.
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
pub struct Watches {
    calls: Arc<Semaphore>,
    viewers: Arc<Semaphore>,
    by_kind: [WatchCounts; WatchKind::ALL.len()],
    /// Places for questions, of gRPC and of the page together, and memory for their answers.
    pub(crate) turns: Turns,
    pub(crate) answers: Replies,
    /// For what Trace and Record keep for clients.
    pub(crate) blocks: Arc<Room>,
    pub(crate) lines: Arc<Room>,
}

#[derive(Debug, Default)]
struct WatchCounts {
    open: AtomicU64,
    dropped: AtomicU64,
}

impl Watches {
    /// Nobody watches. Must be called within a runtime.
    #[must_use]
    pub fn new(config: &ServeConfig) -> Self {
        let patience = config.body_timeout;
        let readers = Readers::new(patience, config.min_rate.0);
        Self {
            calls: Arc::new(Semaphore::new(MAX_WATCHES)),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            by_kind: Default::default(),
            turns: Turns::default(),
            answers: Replies::new(ANSWERS, readers, patience),
            blocks: Room::new(BLOCKS),
            lines: Room::new(LINES),
        }
    }

    fn of(&self, kind: WatchKind) -> &WatchCounts {
        &self.by_kind[kind as usize]
    }

    /// Calls of this kind, or pages, that are open.
    #[must_use]
    pub fn open(&self, kind: WatchKind) -> u64 {
        self.of(kind).open.load(Ordering::Relaxed)
    }

    /// Items left out of these watches because their clients were too slow.
    #[must_use]
    pub fn dropped(&self, kind: WatchKind) -> u64 {
        self.of(kind).dropped.load(Ordering::Relaxed)
    }

    /// Lets one more watch.
    ///
    /// # Errors
    /// [`Refusal::TooManyWatches`].
    pub(crate) fn begin(self: &Arc<Self>, kind: WatchKind) -> Result<Watching, Refusal> {
        let (places, max) = match kind {
            WatchKind::Trace | WatchKind::Record => (&self.calls, MAX_WATCHES),
            WatchKind::Page => (&self.viewers, MAX_VIEWERS),
        };
        let place = Arc::clone(places).try_acquire_owned();
        let place = place.map_err(|_| Refusal::TooManyWatches { max })?;
        self.of(kind).open.fetch_add(1, Ordering::Relaxed);
        Ok(Watching {
            watches: Arc::clone(self),
            kind,
            dropped: 0,
            _place: place,
        })
    }
}

/// One that watches; dropping it makes room for another.
pub(crate) struct Watching {
    watches: Arc<Watches>,
    kind: WatchKind,
    dropped: u64,
    _place: OwnedSemaphorePermit,
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
        let counts = self.watches.of(self.kind);
        counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_so_many_watch_and_each_end_makes_room() {
        let watches = Arc::new(Watches::new(&ServeConfig::default()));
        let mut all: Vec<Watching> = (0..MAX_WATCHES)
            .map(|i| {
                watches
                    .begin([WatchKind::Trace, WatchKind::Record][i % 2])
                    .unwrap()
            })
            .collect();
        assert!(watches.begin(WatchKind::Trace).is_err());
        assert_eq!(watches.open(WatchKind::Trace), 8);
        all[0].missed(3);
        all[0].missed(5);
        assert_eq!(watches.dropped(WatchKind::Trace), 5);
        all.remove(0);
        assert_eq!(watches.open(WatchKind::Trace), 7);
        all.push(watches.begin(WatchKind::Record).unwrap());
        assert!(watches.begin(WatchKind::Record).is_err());
        // Pages are counted on their own.
        let pages: Vec<_> = (0..MAX_VIEWERS)
            .map(|_| watches.begin(WatchKind::Page).unwrap())
            .collect();
        assert!(watches.begin(WatchKind::Page).is_err());
        drop((all, pages));
        assert_eq!(watches.open(WatchKind::Page), 0);
        assert_eq!(watches.open(WatchKind::Record), 0);
        assert_eq!(watches.dropped(WatchKind::Trace), 5);
    }
}
