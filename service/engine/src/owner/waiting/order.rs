//! Which of the waiting requests starts next. Pure: no clock, no I/O.
//!
//! All policies choose among requests that could start now (see [`Kinds`]):
//!
//! * `Fifo`: the one that came first.
//! * `Deadline`: the one with the earliest deadline, none being the latest; the one that came
//!   first among equals. This is what CannyLS does. A request without a deadline may wait for
//!   ever.
//! * `Position`: in this order
//!   1. the oldest, once `max_overtakes` younger ones have started before it;
//!   2. the earliest deadline that is at risk: nearer than the request will probably take;
//!   3. the next one upwards on the disk from where the last one was, or else the lowest
//!      (C-SCAN). A put goes to where the last put ended.
//!
//! Why `max_overtakes` holds for all and not only for the oldest: whatever overtakes a request
//! overtakes every older one that waits too, so nobody has been overtaken more often than the
//! oldest, and that one starts before the limit is exceeded.

use super::queue::Lanes;
use crate::options::QueuePolicy;
use crate::owner::admission::pace::RequestKind;

/// A set of kinds: those that could start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds([bool; 4]);

impl Kinds {
    pub(crate) const ALL: Self = Self([true; 4]);

    pub(crate) fn without(mut self, kind: RequestKind) -> Self {
        self.0[kind.index()] = false;
        self
    }

    pub(crate) fn has(self, kind: RequestKind) -> bool {
        self.0[kind.index()]
    }
}

/// State that the choice depends on beside the waiting requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Nanoseconds of the engine's clock.
    pub(crate) now_ns: u64,
    /// How long a request of each timed kind probably takes once it is started, in nanoseconds.
    pub(crate) service_ns: [u64; 3],
    /// Kinds of requests that could start.
    pub(crate) kinds: Kinds,
}

/// The policy with its state.
#[derive(Debug)]
pub(crate) struct Order {
    policy: QueuePolicy,
    max_overtakes: u64,
    /// Byte of the device where the last request started was.
    head: u64,
    /// Byte of the device where the last put ended.
    put_cursor: u64,
}

impl Order {
    pub(crate) fn new(policy: QueuePolicy, max_overtakes: u32) -> Self {
        Self {
            policy,
            max_overtakes: u64::from(max_overtakes),
            head: 0,
            put_cursor: 0,
        }
    }

    pub(super) fn uses_positions(&self) -> bool {
        self.policy == QueuePolicy::Position
    }

    /// A request at this byte was started.
    pub(super) fn started_at(&mut self, position: u64) {
        self.head = position;
    }

    /// A put got these bytes.
    pub(super) fn put_placed(&mut self, start: u64, end: u64) {
        self.head = start;
        self.put_cursor = end;
    }

    pub(super) fn put_cursor(&self) -> u64 {
        self.put_cursor
    }

    /// Number of the request to start.
    pub(super) fn choose(&self, lanes: &Lanes, moment: Moment) -> Option<u64> {
        let oldest = lanes.oldest(moment.kinds)?;
        let chosen = match self.policy {
            QueuePolicy::Fifo => None,
            QueuePolicy::Deadline => lanes.earliest(moment.kinds),
            QueuePolicy::Position => {
                if lanes.overtaken(oldest, moment.kinds) >= self.max_overtakes {
                    return Some(oldest);
                }
                lanes
                    .at_risk(moment)
                    .or_else(|| lanes.sweep(moment.kinds, self.head, self.put_cursor))
            }
        };
        chosen.or(Some(oldest))
    }
}
