//! Live watching: bounded queues that the observer fills without ever waiting.
//!
//! Each watch has a bounded queue of its own; watches may share a [`Room`] beside that. What does not
//! fit is dropped and counted; a slow reader costs the observer no more than a fast one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A bounded queue that the observer fills. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch<T> {
    shared: Arc<WatchQueue<T>>,
}

#[derive(Debug)]
struct WatchQueue<T> {
    queue: Mutex<Queue<T>>,
    capacity: usize,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Queue<T> {
    things: VecDeque<T>,
    /// How many of them have taken room, and how many of those that the reader took last, which it
    /// may still have.
    waiting: usize,
    taken: usize,
    room: Option<Arc<Room>>,
}

impl<T> Queue<T> {
    /// Takes the room for one more; false: there is none.
    fn admit(&mut self) -> bool {
        let Some(room) = &self.room else { return true };
        let held = self.waiting + self.taken;
        let one = |left| (held < left).then(|| left - 1);
        let order = Ordering::Relaxed;
        let admits = room.left.fetch_update(order, order, one).is_ok();
        self.waiting += usize::from(admits);
        admits
    }

    /// Gives the room of so many back.
    fn give_back(&self, things: usize) {
        if let Some(room) = &self.room {
            room.left.fetch_add(things, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.give_back(self.waiting + self.taken);
    }
}

/// How many things watches hold together. One alone may have half of it, the next half of what is
/// left then, and each gets the same in the end: a watch may hold as much as is left.
#[derive(Debug)]
pub struct Room {
    left: AtomicUsize,
}

impl Room {
    /// Room for so many things, those included that a reader has taken and not yet asked for more.
    #[must_use]
    pub fn new(things: usize) -> Arc<Self> {
        let left = AtomicUsize::new(things);
        Arc::new(Self { left })
    }
}

/// The other end of a [`Watch`].
#[derive(Debug)]
pub(crate) struct Feed<T> {
    shared: Weak<WatchQueue<T>>,
}

/// A watch of at most `capacity` things, and its other end.
pub(crate) fn watch<T>(capacity: usize) -> (Watch<T>, Feed<T>) {
    let shared = Arc::new(WatchQueue {
        queue: Mutex::new(Queue {
            things: VecDeque::new(),
            waiting: 0,
            taken: 0,
            room: None,
        }),
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
        let mut queue = self.shared.lock();
        queue.give_back(queue.taken);
        queue.taken = std::mem::take(&mut queue.waiting);
        std::mem::take(&mut queue.things)
    }

    /// It shares this room with others, but for what has come already.
    #[must_use]
    pub fn within(self, room: &Arc<Room>) -> Self {
        self.shared.lock().room = Some(Arc::clone(room));
        self
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
        if queue.things.len() < shared.capacity && queue.admit() {
            queue.things.push_back(thing);
        } else {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.shared.strong_count() > 0
    }
}

impl<T> WatchQueue<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Room, watch};

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

    #[test]
    fn those_who_do_not_read_share_a_room_and_leave_some_to_the_next() {
        let room = Room::new(60);
        let fill = |watches: &[_]| {
            for _ in 0..100 {
                for (_, feed) in watches {
                    super::Feed::put(feed, 1);
                }
            }
        };
        let begin = || {
            let (watch, feed) = watch(50);
            (watch.within(&room), feed)
        };
        let mut all = vec![begin()];
        fill(&all);
        assert_eq!(all[0].0.take().len(), 30);
        fill(&all);
        assert_eq!(all[0].0.take().len(), 0, "the reader has what it took");
        fill(&all);
        all.extend([begin(), begin()]);
        fill(&all);
        let got: Vec<usize> = all.iter().map(|(watch, _)| watch.take().len()).collect();
        assert_eq!(got, [30, 10, 10]);
        drop(all);
        let alone = [begin()];
        fill(&alone);
        assert_eq!(alone[0].0.take().len(), 30, "all room was given back");
    }
}
