//! Looks after clients that do not take what they asked for.
//!
//! The bytes of a lump stay in memory until HTTP/2 has sent them. A reply is not even asked for
//! more while the client's window is closed, and what was handed over cannot be taken back; so the
//! connection of a client that is too slow is ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::door::Connection;

/// Bytes of a chunk: what the .proto promises, and every gRPC library accepts it (the usual limit
/// is 4 MiB).
pub const CHUNK: usize = 1 << 20;
/// Longest and shortest time between two looks.
const PERIOD: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Chunks that are on their way to the client, at most: one with HTTP/2, and one behind it.
const UNDER_WAY: u64 = 2;

/// True: `bytes` in this time are less than `min_rate` a second.
#[must_use]
pub fn is_slow(bytes: u64, elapsed: Duration, min_rate: u64) -> bool {
    u128::from(bytes) * 1000 < u128::from(min_rate) * elapsed.as_millis()
}

/// All clients that take bodies.
#[derive(Clone)]
pub struct Readers {
    shared: Arc<ReadersShared>,
}

struct ReadersShared {
    patience: Duration,
    min_rate: u64,
    state: Mutex<ReadersState>,
}

#[derive(Default)]
struct ReadersState {
    next: u64,
    all: HashMap<u64, Weak<Reading>>,
}

impl ReadersShared {
    fn state(&self) -> MutexGuard<'_, ReadersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        let all: Vec<_> = self
            .state()
            .all
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for reading in all {
            if let Some(why) = reading.progress().too_slow(self.patience, self.min_rate) {
                reading.cut_off(why);
            }
        }
    }
}

impl Readers {
    /// Cuts off readers that take less than `min_rate` bytes a second after `patience`, or nothing
    /// for that long plus the time that the bytes on their way may take. Must be called within a
    /// runtime; the checks end with the last clone.
    #[must_use]
    pub fn new(patience: Duration, min_rate: u64) -> Self {
        let shared = Arc::new(ReadersShared {
            patience,
            min_rate,
            state: Mutex::default(),
        });
        let watched = Arc::downgrade(&shared);
        let mut tick = tokio::time::interval((patience / 8).clamp(PERIOD.0, PERIOD.1));
        tokio::spawn(async move {
            loop {
                tick.tick().await;
                match watched.upgrade() {
                    Some(shared) => shared.look(),
                    None => return,
                }
            }
        });
        Self { shared }
    }

    /// A client begins to take a body of `total` bytes.
    #[must_use]
    pub fn watch(&self, connection: Option<&Connection>, total: u64) -> Arc<Reading> {
        let mut state = self.shared.state();
        let number = state.next;
        state.next += 1;
        let reading = Arc::new(Reading {
            number,
            readers: Arc::downgrade(&self.shared),
            connection: connection.cloned(),
            began: Instant::now(),
            waits: Waits::default(),
            total,
            taken: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        });
        state.all.insert(number, Arc::downgrade(&reading));
        reading
    }
}

/// One client that takes a body, until the last of its bytes is gone.
pub struct Reading {
    number: u64,
    readers: Weak<ReadersShared>,
    /// `None`: it came by no socket, and cannot be slow.
    connection: Option<Connection>,
    began: Instant,
    waits: Waits,
    total: u64,
    taken: AtomicU64,
    /// Milliseconds of its own time from the beginning to when bytes were taken last.
    last_ms: AtomicU64,
}

impl Reading {
    /// The transport has asked for more and got `bytes`.
    pub fn took(&self, bytes: u64) {
        self.last_ms.store(self.own_ms(), Ordering::Relaxed);
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The transport has asked for more and there is none yet: from now on the client waits, and
    /// its own time stands still.
    pub fn waits(&self) {
        self.waits.begin(self.now_ms());
    }

    /// There are bytes for it again.
    pub fn goes_on(&self) {
        self.waits.end(self.now_ms());
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// Time from the beginning in which the service had bytes for it.
    fn own_ms(&self) -> u64 {
        self.waits.without(self.now_ms())
    }

    fn cut_off(&self, why: &'static str) {
        if let Some(connection) = &self.connection {
            connection.close(why);
        }
    }

    fn progress(&self) -> ReadProgress {
        ReadProgress {
            elapsed: Duration::from_millis(self.own_ms()),
            last: Duration::from_millis(self.last_ms.load(Ordering::Relaxed)),
            taken: self.taken.load(Ordering::Relaxed),
            total: self.total,
        }
    }
}

/// Times in which a client waits for the service, by a clock of milliseconds.
#[derive(Default)]
struct Waits {
    /// When the present one began, and one more; 0: there is none.
    since: AtomicU64,
    /// All before.
    sum: AtomicU64,
}

impl Waits {
    fn begin(&self, now: u64) {
        let since = now.saturating_add(1);
        let (set, unset) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.since.compare_exchange(0, since, set, unset);
    }

    fn end(&self, now: u64) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since > 0 {
            let waited = now.saturating_add(1).saturating_sub(since);
            self.sum.fetch_add(waited, Ordering::Relaxed);
        }
    }

    /// The time until now without them.
    fn without(&self, now: u64) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        let until = since.checked_sub(1).unwrap_or(now);
        until.saturating_sub(self.sum.load(Ordering::Relaxed))
    }
}

/// How far a client has come.
#[derive(Clone, Copy)]
struct ReadProgress {
    elapsed: Duration,
    /// When it took bytes last, from the beginning.
    last: Duration,
    taken: u64,
    total: u64,
}

impl ReadProgress {
    fn too_slow(self, patience: Duration, min_rate: u64) -> Option<&'static str> {
        let under_way = (CHUNK as u64 * UNDER_WAY)
            .checked_div(min_rate)
            .unwrap_or(0);
        if self.elapsed.saturating_sub(self.last) > patience + Duration::from_secs(under_way) {
            return Some("a client takes nothing of the lump it asked for");
        }
        // What was handed over whole is judged by silence alone.
        let slow = self.taken < self.total
            && self.elapsed > patience
            && is_slow(self.taken, self.elapsed, min_rate);
        slow.then_some("a client takes the lump it asked for too slowly")
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(readers) = self.readers.upgrade() {
            readers.state().all.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::Peer;

    const PATIENCE: Duration = Duration::from_secs(10);
    const MIB: u64 = 1 << 20;

    fn verdict(elapsed: u64, last: u64, taken: u64, min_rate: u64) -> bool {
        let progress = ReadProgress {
            elapsed: Duration::from_secs(elapsed),
            last: Duration::from_secs(last),
            taken,
            total: 100 * MIB,
        };
        progress.too_slow(PATIENCE, min_rate).is_some()
    }

    #[test]
    fn who_takes_too_little_is_cut_off_and_who_keeps_up_is_not() {
        assert!(!verdict(9, 0, 0, MIB), "within the patience");
        assert!(verdict(11, 10, 2 * MIB, MIB));
        assert!(!verdict(11, 10, 11 * MIB, MIB));
        assert!(!verdict(90, 89, 90 * MIB, MIB));
        assert!(verdict(90, 89, 89 * MIB, MIB));
        assert!(!verdict(90, 89, 1, 0), "no rate is asked for");
    }

    #[test]
    fn silence_is_too_slow_whatever_the_rate() {
        // All was handed over: the last of it may take as long as the slowest client needs.
        assert!(!verdict(12, 0, 100 * MIB, MIB));
        assert!(verdict(13, 0, 100 * MIB, MIB));
        assert!(!verdict(10, 0, 0, 0));
        assert!(verdict(11, 0, 0, 0));
    }

    #[test]
    fn the_time_of_a_client_stands_still_while_it_waits_for_the_service() {
        let waits = Waits::default();
        assert_eq!(waits.without(7), 7);
        waits.begin(10);
        waits.begin(500);
        assert_eq!(waits.without(1000), 10);
        waits.end(1000);
        waits.end(2000);
        assert_eq!(waits.without(1009), 19);
        waits.begin(1010);
        assert_eq!(waits.without(5000), 20);
    }

    #[tokio::test]
    async fn a_body_that_is_gone_is_watched_no_more() {
        let readers = Readers::new(Duration::from_millis(50), 0);
        let connection = Connection::new(Peer::Unix {
            pid: None,
            uid: None,
        });
        let gone = readers.watch(Some(&connection), 1);
        drop(gone);
        assert!(readers.shared.state().all.is_empty());
        let _stays = readers.watch(Some(&connection), 1);
        while !connection.is_closed() {
            tokio::time::sleep(PERIOD.0).await;
        }
    }
}
