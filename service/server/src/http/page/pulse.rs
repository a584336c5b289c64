//! Makes a frame a second while anybody looks, on a thread of its own.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lumpscope_observer::StoreReport;
use tokio::sync::watch;

use super::dots::Dots;
use super::frame::StoreFrame;
use super::hello::{self, Store, milliseconds, unix_ms};
use super::ring::{Frame, Ring};
use crate::config::Rhythm;
use crate::observed::Asking;
use crate::observed::convert::WallClock;

/// How often block requests are taken from the observer.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Longest a frame waits for what has ended before it.
const SETTLE: Duration = Duration::from_millis(500);

/// A handle. Cheap to clone; every clone is the same pulse.
#[derive(Clone)]
pub(super) struct Pulse {
    inner: Arc<Inner>,
}

struct Inner {
    asking: Asking,
    rhythm: Rhythm,
    stopped: watch::Receiver<bool>,
    state: Mutex<State>,
    /// Number of the newest frame.
    newest: watch::Sender<u64>,
}

struct State {
    ring: Ring,
    viewers: usize,
    /// When the last viewer left.
    left: Instant,
    /// True: the thread is there.
    beats: bool,
}

/// Somebody who looks, until it is dropped.
pub(super) struct Viewer {
    inner: Arc<Inner>,
    newest: watch::Receiver<u64>,
}

impl Pulse {
    /// A pulse that does not beat yet. It ends when `stopped` says so.
    pub(super) fn new(asking: Asking, rhythm: Rhythm, stopped: watch::Receiver<bool>) -> Self {
        let state = State {
            ring: Ring::new(rhythm.history),
            viewers: 0,
            left: Instant::now(),
            beats: false,
        };
        Self {
            inner: Arc::new(Inner {
                asking,
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

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
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
struct Beating(Arc<Inner>);

impl Drop for Beating {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().beats = false;
        }
    }
}

impl Beating {
    fn run(&self) {
        let mut looks = Looks::new(self.0.asking.clone());
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

/// Last state of the stores between two frames.
struct Looks {
    asking: Asking,
    stores: Arc<Vec<Store>>,
    known: Vec<Known>,
}

/// A store that is looked at.
struct Known {
    index: usize,
    name: String,
    /// As it was when the last frame was made.
    was: StoreReport,
    dots: Dots,
}

impl Looks {
    fn new(asking: Asking) -> Self {
        Self {
            asking,
            stores: Arc::default(),
            known: Vec::new(),
        }
    }

    /// Takes note of how things are now: frames tell what changes from here on.
    fn begin(&mut self) {
        // What has not arrived after the timeout is in the next frame.
        let _ = self.asking.observer.settle(SETTLE);
        let (asking, known) = (&self.asking, &mut self.known);
        let all = asking.stores.all();
        let same = known
            .iter()
            .map(|k| k.index)
            .eq(all.iter().map(|s| s.index));
        if same && self.stores.len() == all.len() {
            return;
        }
        known.retain(|k| all.iter().any(|s| s.index == k.index));
        for named in all.iter() {
            if known.iter().any(|k| k.index == named.index) {
                continue;
            }
            known.push(Known {
                index: named.index,
                name: named.name.clone(),
                was: self.asking.observer.glance(&named.name).unwrap_or_default(),
                dots: Dots::new(&self.asking.observer, &named.name),
            });
        }
        let place = |k: &Known| all.iter().position(|s| s.index == k.index);
        known.sort_by_key(place);
        self.stores = Arc::new(hello::stores(asking));
    }

    /// Looks at the block requests that have come.
    fn look(&mut self) {
        let clock = WallClock::now();
        for known in &mut self.known {
            known.dots.look(clock);
        }
    }

    /// Changes since the last frame.
    fn frame(&mut self, seq: u64) -> Frame {
        let began = Instant::now();
        self.begin();
        self.look();
        let policy = self.asking.observer.events();
        let observer = &self.asking.observer;
        let part = |known: &mut Known| {
            let is = observer.glance(&known.name)?;
            let frame = StoreFrame::between(&known.was, &is, policy, known.dots.take());
            known.was = is;
            let name = serde_json::Value::from(known.name.as_str());
            let json = serde_json::to_string(&frame)
                .inspect_err(|error| tracing::error!(%error, "a frame cannot be written"));
            let part = format!(",{name}:{}", json.ok()?);
            Some((known.name.clone(), part.into()))
        };
        let parts = self.known.iter_mut().filter_map(part).collect();
        Frame {
            seq,
            unix_ms: unix_ms(),
            took_ms: milliseconds(began.elapsed()),
            stores: Arc::clone(&self.stores),
            parts,
        }
    }
}
