//! Live watching: bounded queues that the observer fills without ever waiting.
//!
//! Each watch has a bounded queue of its own. What does not fit is dropped and counted; a slow
//! reader costs the observer no more than a fast one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A bounded queue that the observer fills. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    capacity: usize,
    dropped: AtomicU64,
}

/// The other end of a [`Watch`].
#[derive(Debug)]
pub(crate) struct Feed<T> {
    shared: Weak<Shared<T>>,
}

/// A watch of at most `capacity` things, and its other end.
pub(crate) fn watch<T>(capacity: usize) -> (Watch<T>, Feed<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(VecDeque::new()),
        capacity,
        dropped: AtomicU64::new(0),
    });
    let feed = Feed {
        shared: Arc::downgrade(&shared),
    };
    (Watch { shared }, feed)
}

impl<T> Watch<T> {
    /// Everything that has come since the last call, oldest first. Never waits: the observer has
    /// something new at most every 50 ms, so ask about as often.
    #[must_use]
    pub fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.shared.lock())
    }

    /// True: nothing will come any more, because the observer handed out nothing or has stopped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Arc::weak_count(&self.shared) == 0
    }

    /// How many things did not fit since the watch began.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl<T> Feed<T> {
    /// Hands over; false: nobody watches any more.
    pub(crate) fn put(&self, thing: T) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false;
        };
        let mut queue = shared.lock();
        if queue.len() < shared.capacity {
            queue.push_back(thing);
        } else {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// True: somebody watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.shared.strong_count() > 0
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::watch;

    #[test]
    fn what_does_not_fit_is_counted_and_the_rest_stays_in_order() {
        let (watch, feed) = watch(2);
        assert!(feed.put(1) && feed.put(2) && feed.put(3));
        assert_eq!(watch.take(), [1, 2]);
        assert_eq!(watch.dropped(), 1);
        assert!(feed.put(4) && !watch.is_over());
        assert_eq!(watch.take(), [4]);
        drop(watch);
        assert!(!feed.is_watched() && !feed.put(5));
        let (watch, feed) = super::watch::<u8>(2);
        drop(feed);
        assert!(watch.is_over());
    }
}
