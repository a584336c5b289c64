//! Makes a frame a second while anybody looks, on a thread of its own.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::health::Recent;
use super::looks::Looks;
use super::ring::{Frame, Ring};
use crate::config::Rhythm;
use crate::observed::Asking;

/// How often block requests are taken from the observer.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Bytes of all frames in the ring; beyond, the oldest go before their time. That is reached with
/// more than about 8 stores under load: 300 frames of a store are at most about 10 MB.
const MOST_BYTES: usize = 64 << 20;

/// A handle. Cheap to clone; every clone is the same pulse.
#[derive(Clone)]
pub(super) struct Pulse {
    inner: Arc<PulseShared>,
}

struct PulseShared {
    asking: Asking,
    recent: Recent,
    rhythm: Rhythm,
    stopped: watch::Receiver<bool>,
    state: Mutex<PulseState>,
    /// Number of the newest frame.
    newest: watch::Sender<u64>,
}

struct PulseState {
    ring: Ring,
    viewers: usize,
    /// When the last viewer left.
    left: Instant,
    /// True: the thread is there.
    beats: bool,
}

/// Somebody who looks, until it is dropped.
pub(super) struct Viewer {
    inner: Arc<PulseShared>,
    newest: watch::Receiver<u64>,
}

impl Pulse {
    /// A pulse that does not beat yet. It ends when `stopped` says so.
    pub(super) fn new(
        asking: Asking,
        recent: Recent,
        rhythm: Rhythm,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let state = PulseState {
            ring: Ring::new(rhythm.history, MOST_BYTES),
            viewers: 0,
            left: Instant::now(),
            beats: false,
        };
        Self {
            inner: Arc::new(PulseShared {
                asking,
                recent,
                rhythm,
                stopped,
                state: Mutex::new(state),
                newest: watch::Sender::new(0),
            }),
        }
    }

    /// One more looks.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn join(&self) -> io::Result<Viewer> {
        let mut state = self.inner.state();
        if !state.beats {
            let inner = Arc::clone(&self.inner);
            let named = thread::Builder::new().name("pulse".to_owned());
            named.spawn(move || Beating(inner).run())?;
            state.beats = true;
        }
        state.viewers += 1;
        drop(state);
        Ok(Viewer {
            inner: Arc::clone(&self.inner),
            newest: self.inner.newest.subscribe(),
        })
    }
}

impl Viewer {
    /// Where to begin for who has seen the frames up to `since`. A number that is not from this
    /// service, or 0, begins with the oldest frame that there is.
    pub(super) fn begin(&self, since: u64) -> u64 {
        let state = self.inner.state();
        match since {
            0 => state.ring.begin(),
            since if !state.ring.knows(since) => state.ring.begin(),
            since => since,
        }
    }

    /// The frame after this number, and how many between are gone. Waits for it.
    pub(super) async fn after(&mut self, seq: u64) -> (Arc<Frame>, u64) {
        loop {
            // Before the look: what comes between is seen at the next.
            self.newest.mark_unchanged();
            if let Some(found) = self.inner.state().ring.after(seq) {
                return found;
            }
            if self.newest.changed().await.is_err() {
                // The other end is in this viewer's own hands.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.viewers -= 1;
        state.left = Instant::now();
    }
}

impl PulseShared {
    fn state(&self) -> MutexGuard<'_, PulseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        // Nobody at the other end: the service is gone.
        *self.stopped.borrow() || self.stopped.has_changed().is_err()
    }

    /// Ends the pulse if nobody has looked for long enough.
    fn ends(&self) -> bool {
        let mut state = self.state();
        let over = state.viewers == 0 && state.left.elapsed() >= self.rhythm.linger;
        if over || self.is_stopped() {
            state.beats = false;
            state.ring.clear();
            return true;
        }
        false
    }
}

/// The thread. When it ends by a panic, the next viewer starts another.
struct Beating(Arc<PulseShared>);

impl Drop for Beating {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().beats = false;
        }
    }
}

impl Beating {
    fn run(&self) {
        let (asking, recent) = (self.0.asking.clone(), self.0.recent.clone());
        let mut looks = Looks::new(asking, recent, true);
        looks.begin();
        let mut due = Instant::now() + self.0.rhythm.frame;
        while !self.0.ends() {
            let left = due.saturating_duration_since(Instant::now());
            thread::sleep(left.min(POLL));
            looks.look();
            if Instant::now() < due {
                continue;
            }
            let seq = self.0.state().ring.next();
            let frame = looks.frame(seq);
            self.0.state().ring.push(frame);
            self.0.newest.send_replace(seq);
            // What was missed because a look took long is not made up for.
            due = (due + self.0.rhythm.frame).max(Instant::now());
        }
    }
}
