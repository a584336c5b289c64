//! Looks after clients that do not take what they asked for.
//!
//! The bytes of a lump stay in memory until HTTP/2 has sent them. A reply is not even asked for
//! more while the client's window is closed, and what was handed over cannot be taken back; so the
//! connection of a client that is too slow is ended.

use std::collections::HashMap;
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
            reading.look(self.patience, self.min_rate);
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
            progress: Mutex::new(ReadProgress {
                time: OwnTime {
                    before: Duration::ZERO,
                    since: Some(Instant::now()),
                },
                last: Duration::ZERO,
                taken: 0,
                total,
            }),
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
    progress: Mutex<ReadProgress>,
}

impl Reading {
    fn progress(&self) -> MutexGuard<'_, ReadProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The transport has asked for more and got `bytes`.
    pub fn took(&self, bytes: u64) {
        let mut progress = self.progress();
        progress.last = progress.time.passed(Instant::now());
        progress.taken += bytes;
    }

    /// The transport has asked for more and there is none yet: from now on the client waits, and
    /// its own time stands still.
    pub fn waits(&self) {
        self.progress().time.stop(Instant::now());
    }

    /// There are bytes for it again.
    pub fn goes_on(&self) {
        self.progress().time.go_on(Instant::now());
    }

    /// Closes the connection of a client that is too slow.
    fn look(&self, patience: Duration, min_rate: u64) {
        let progress = self.progress();
        let passed = progress.time.passed(Instant::now());
        let why = progress.too_slow(passed, patience, min_rate);
        drop(progress);
        if let (Some(connection), Some(why)) = (&self.connection, why) {
            connection.close(why);
        }
    }
}

/// Time in which the service had bytes for a client.
struct OwnTime {
    before: Duration,
    /// `None`: the client waits for the service.
    since: Option<Instant>,
}

impl OwnTime {
    fn passed(&self, now: Instant) -> Duration {
        let since = self.since.map(|since| now.duration_since(since));
        self.before + since.unwrap_or_default()
    }

    fn stop(&mut self, now: Instant) {
        self.before = self.passed(now);
        self.since = None;
    }

    fn go_on(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }
}

/// How far a client has come.
struct ReadProgress {
    time: OwnTime,
    /// When it took bytes last, in its own time.
    last: Duration,
    taken: u64,
    total: u64,
}

impl ReadProgress {
    fn too_slow(
        &self,
        passed: Duration,
        patience: Duration,
        min_rate: u64,
    ) -> Option<&'static str> {
        let under_way = (CHUNK as u64 * UNDER_WAY)
            .checked_div(min_rate)
            .unwrap_or(0);
        if passed.saturating_sub(self.last) > patience + Duration::from_secs(under_way) {
            return Some("a client takes nothing of the lump it asked for");
        }
        // What was handed over whole is judged by silence alone.
        let slow =
            self.taken < self.total && passed > patience && is_slow(self.taken, passed, min_rate);
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
        let elapsed = Duration::from_secs(elapsed);
        let progress = ReadProgress {
            time: OwnTime {
                before: elapsed,
                since: None,
            },
            last: Duration::from_secs(last),
            taken,
            total: 100 * MIB,
        };
        progress.too_slow(elapsed, PATIENCE, min_rate).is_some()
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
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut time = OwnTime {
            before: Duration::ZERO,
            since: Some(begin),
        };
        let passed = |time: &OwnTime, ms| time.passed(at(ms)).as_millis();
        assert_eq!(passed(&time, 7), 7);
        time.stop(at(10));
        time.stop(at(500));
        assert_eq!(passed(&time, 1000), 10);
        time.go_on(at(1000));
        time.go_on(at(2000));
        assert_eq!(passed(&time, 1009), 19);
        time.stop(at(1010));
        assert_eq!(passed(&time, 5000), 20);
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
