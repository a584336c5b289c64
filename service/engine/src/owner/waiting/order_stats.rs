//! Numbers about the order, for other threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::order::curve::{Curve, Pair};
use super::queue::Chosen;
use crate::options::QueuePolicy;

/// Observations from outside that can wait for the owner thread.
const MOST_WAITING: usize = 1024;

/// Distances in bytes at which the learnt curve is shown, each of them up and down.
pub(crate) const SHOWN: [u64; 6] = [0, 1 << 20, 1 << 26, 1 << 30, 1 << 34, 1 << 38];

/// Where requests were chosen for which reason, and how well the disk is known. All since the
/// store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderStats {
    /// Waiting requests that were started because they had come first.
    pub by_arrival: u64,
    /// Because they had been overtaken as often as `max_overtakes` allows.
    pub by_bound: u64,
    /// Because of their deadline.
    pub by_deadline: u64,
    /// Because of their place on the disk.
    pub by_position: u64,
    /// Observed times of the disk; `None` unless the policy is [`Learned`](QueuePolicy::Learned).
    pub learned: Option<LearnedStats>,
}

/// Learnt times of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedStats {
    /// Pairs of distance and time taken from the engine's own I/Os.
    pub own: u64,
    /// Pairs told by [`Store::learn`](crate::Store::learn).
    pub told: u64,
    /// Pairs told that were not taken up: more came than the owner thread had time for.
    pub dropped: u64,
    /// Sum of the times predicted for all pairs, before they were taken up, in nanoseconds.
    pub predicted_ns: u64,
    /// Sum of the times observed.
    pub observed_ns: u64,
    /// Sum of the differences, whichever way.
    pub error_ns: u64,
    /// Ranges of distances of which enough was seen, of 130.
    pub known: u64,
    /// True: the way makes no difference on this disk, and requests are started as they come.
    pub flat: bool,
    /// Nanoseconds to transfer a MiB.
    pub transfer_ns_per_mib: u64,
    /// Signed distance in bytes, and the nanoseconds that the disk probably takes to get there.
    pub curve: [(i64, u64); 2 * SHOWN.len() - 1],
}

/// Declares atomics of one kind.
macro_rules! atomics {
    ($($name:ident),* $(,)?) => {
        /// The live values.
        #[derive(Debug, Default)]
        struct Live {
            $($name: AtomicU64,)*
            curve: [AtomicU64; 2 * SHOWN.len() - 1],
        }
    };
}

atomics!(
    by_arrival,
    by_bound,
    by_deadline,
    by_position,
    own,
    told,
    dropped,
    predicted_ns,
    observed_ns,
    error_ns,
    known,
    flat,
    transfer_ns_per_mib,
);

/// Statistics from the owner thread about the order, and observations for it.
#[derive(Debug)]
pub(crate) struct OrderShared {
    policy: QueuePolicy,
    live: Live,
    sender: Sender<Pair>,
    pairs: Receiver<Pair>,
}

/// The distances that are shown, in ascending order.
fn shown() -> impl Iterator<Item = i64> {
    let signed = |far: &u64| i64::try_from(*far).unwrap_or(i64::MAX);
    let down = SHOWN[1..].iter().rev().map(move |far| -signed(far));
    down.chain(SHOWN.iter().map(signed))
}

fn set(of: &AtomicU64, value: u64) {
    of.store(value, Ordering::Relaxed);
}

fn get(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

fn add(of: &AtomicU64, value: u64) {
    of.fetch_add(value, Ordering::Relaxed);
}

impl OrderShared {
    pub(crate) fn new(policy: QueuePolicy) -> Self {
        let (sender, pairs) = bounded(MOST_WAITING);
        Self {
            policy,
            live: Live::default(),
            sender,
            pairs,
        }
    }

    /// Any thread: the disk was observed.
    pub(crate) fn tell(&self, pair: Pair) {
        if self.policy == QueuePolicy::Learned && self.sender.try_send(pair).is_err() {
            add(&self.live.dropped, 1);
        }
    }

    /// The owner thread: what others have observed.
    pub(super) fn told(&self) -> Option<Pair> {
        self.pairs.try_recv().ok()
    }

    /// A pair is taken up, for which the curve had predicted this time.
    pub(super) fn note_pair(&self, pair: Pair, predicted_ns: u64, own: bool) {
        let live = &self.live;
        add(if own { &live.own } else { &live.told }, 1);
        add(&live.predicted_ns, predicted_ns);
        add(&live.observed_ns, pair.took_ns);
        add(&live.error_ns, predicted_ns.abs_diff(pair.took_ns));
    }

    pub(super) fn show_chosen(&self, chosen: Chosen) {
        let live = &self.live;
        set(&live.by_arrival, chosen.arrival);
        set(&live.by_bound, chosen.bound);
        set(&live.by_deadline, chosen.deadline);
        set(&live.by_position, chosen.position);
    }

    pub(super) fn show_curve(&self, curve: &Curve) {
        let live = &self.live;
        set(&live.known, curve.known() as u64);
        set(&live.flat, u64::from(curve.is_flat()));
        set(&live.transfer_ns_per_mib, curve.transfer_ns(1 << 20));
        for (slot, distance) in live.curve.iter().zip(shown()) {
            set(slot, curve.positioning_ns(distance));
        }
    }

    pub(crate) fn stats(&self) -> OrderStats {
        let live = &self.live;
        OrderStats {
            by_arrival: get(&live.by_arrival),
            by_bound: get(&live.by_bound),
            by_deadline: get(&live.by_deadline),
            by_position: get(&live.by_position),
            learned: (self.policy == QueuePolicy::Learned).then(|| self.learned()),
        }
    }

    fn learned(&self) -> LearnedStats {
        let live = &self.live;
        let mut curve = [(0, 0); 2 * SHOWN.len() - 1];
        for (point, (slot, distance)) in curve.iter_mut().zip(live.curve.iter().zip(shown())) {
            *point = (distance, get(slot));
        }
        LearnedStats {
            own: get(&live.own),
            told: get(&live.told),
            dropped: get(&live.dropped),
            predicted_ns: get(&live.predicted_ns),
            observed_ns: get(&live.observed_ns),
            error_ns: get(&live.error_ns),
            known: get(&live.known),
            flat: get(&live.flat) != 0,
            transfer_ns_per_mib: get(&live.transfer_ns_per_mib),
            curve,
        }
    }
}
