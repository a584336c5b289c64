//! The requests that wait for a slot at the disk: a bounded number of them (the
//! [admission](crate::owner::admission) counts), kept so that each [`Order`] finds its next one in
//! logarithmic time. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{Kinds, Moment, Order};
use crate::owner::admission::pace::RequestKind;

/// Properties that the order of a request depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    pub(crate) kind: RequestKind,
    /// First byte in the device; of a put it is not known yet and ignored.
    pub(crate) position: u64,
    /// Nanoseconds of the engine's clock.
    pub(crate) deadline: Option<u64>,
    /// True: it is worth nothing after the deadline.
    pub(crate) expires: bool,
}

/// One kind of waiting requests.
#[derive(Debug, Default)]
struct Lane {
    arrivals: BTreeSet<u64>,
    /// (deadline, number), of those that have one.
    deadlines: BTreeSet<(u64, u64)>,
    /// (position, number); empty if the order does not ask, and for puts.
    positions: BTreeSet<(u64, u64)>,
}

/// The waiting requests by what orders them; each has a number, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: [Lane; 4],
    next_number: u64,
}

impl Lanes {
    fn of(&self, kinds: Kinds) -> impl Iterator<Item = (RequestKind, &Lane)> {
        RequestKind::ALL
            .into_iter()
            .zip(&self.lanes)
            .filter(move |(kind, _)| kinds.has(*kind))
    }

    /// The one that came first.
    pub(super) fn oldest(&self, kinds: Kinds) -> Option<u64> {
        self.of(kinds)
            .filter_map(|(_, lane)| lane.arrivals.first().copied())
            .min()
    }

    /// The one with the earliest deadline.
    pub(super) fn earliest(&self, kinds: Kinds) -> Option<u64> {
        self.of(kinds)
            .filter_map(|(_, lane)| lane.deadlines.first().copied())
            .min()
            .map(|(_, number)| number)
    }

    /// How many younger ones have left before `oldest`, the first of `kinds` to have come.
    /// Exact when all kinds are asked for; else those of other kinds that wait are counted too.
    pub(super) fn overtaken(&self, oldest: u64, kinds: Kinds) -> u64 {
        let waiting: u64 = self
            .of(kinds)
            .map(|(_, lane)| lane.arrivals.len() as u64)
            .sum();
        (self.next_number - oldest).saturating_sub(waiting)
    }

    /// The earliest deadline that will probably be missed unless its request starts now.
    pub(super) fn at_risk(&self, moment: Moment) -> Option<u64> {
        self.of(moment.kinds)
            .filter_map(|(kind, lane)| {
                let &(deadline, number) = lane.deadlines.first()?;
                let latest_start = deadline.saturating_sub(moment.service_ns[kind.timed()]);
                (latest_start <= moment.now_ns).then_some((deadline, number))
            })
            .min()
            .map(|(_, number)| number)
    }

    /// The first position from `head` on, or else the lowest. All puts go to `put_cursor`.
    pub(super) fn sweep(&self, kinds: Kinds, head: u64, put_cursor: u64) -> Option<u64> {
        let next = |from: u64| {
            let places = self.of(kinds).filter_map(|(kind, lane)| match kind {
                RequestKind::Put => {
                    let &number = lane.arrivals.first()?;
                    (put_cursor >= from).then_some((put_cursor, number))
                }
                RequestKind::Get | RequestKind::Small | RequestKind::Head => {
                    lane.positions.range((from, 0)..).next().copied()
                }
            });
            places.min()
        };
        next(head).or_else(|| next(0)).map(|(_, number)| number)
    }

    fn insert(&mut self, place: QueuePlace, with_position: bool) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let lane = &mut self.lanes[place.kind.index()];
        lane.arrivals.insert(number);
        if let Some(deadline) = place.deadline {
            lane.deadlines.insert((deadline, number));
        }
        if with_position && place.kind != RequestKind::Put {
            lane.positions.insert((place.position, number));
        }
        number
    }

    fn remove(&mut self, number: u64, place: QueuePlace) {
        let lane = &mut self.lanes[place.kind.index()];
        lane.arrivals.remove(&number);
        if let Some(deadline) = place.deadline {
            lane.deadlines.remove(&(deadline, number));
        }
        lane.positions.remove(&(place.position, number));
    }
}

/// The waiting requests.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    order: Order,
    lanes: Lanes,
    waiting: BTreeMap<u64, (QueuePlace, T)>,
    /// (deadline, number) of those that are worth nothing after it.
    expiring: BTreeSet<(u64, u64)>,
    overtakes: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            lanes: Lanes::default(),
            waiting: BTreeMap::new(),
            expiring: BTreeSet::new(),
            overtakes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True: a request of this kind waits.
    pub(crate) fn has(&self, kind: RequestKind) -> bool {
        !self.lanes.lanes[kind.index()].arrivals.is_empty()
    }

    /// Times since the beginning that a request left before an older one.
    pub(crate) fn overtakes(&self) -> u64 {
        self.overtakes
    }

    /// Adds a request at the end.
    pub(crate) fn push(&mut self, place: QueuePlace, request: T) {
        let number = self.lanes.insert(place, self.order.uses_positions());
        if let Some(deadline) = place.deadline.filter(|_| place.expires) {
            self.expiring.insert((deadline, number));
        }
        self.waiting.insert(number, (place, request));
    }

    /// The request to start now, and its number.
    pub(crate) fn choose(&self, moment: Moment) -> Option<(u64, &T)> {
        let number = self.order.choose(&self.lanes, moment)?;
        self.waiting
            .get(&number)
            .map(|(_, request)| (number, request))
    }

    /// Kind of a chosen request.
    pub(crate) fn kind(&self, number: u64) -> Option<RequestKind> {
        let (place, _) = self.waiting.get(&number)?;
        Some(place.kind)
    }

    /// Takes a chosen request out that cannot be started.
    pub(crate) fn set_aside(&mut self, number: u64) -> Option<T> {
        self.remove(number).map(|(_, request)| request)
    }

    /// Takes a chosen request out to start it.
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let first = self.waiting.first_key_value().map(|(first, _)| *first);
        let (place, request) = self.remove(number)?;
        self.overtakes += u64::from(first != Some(number));
        self.pass(place);
        Some(request)
    }

    /// A request is started here, perhaps one that never had to wait.
    pub(crate) fn pass(&mut self, place: QueuePlace) {
        match place.kind {
            RequestKind::Put => self.order.started_at(self.order.put_cursor()),
            RequestKind::Get | RequestKind::Small | RequestKind::Head => {
                self.order.started_at(place.position)
            }
        }
    }

    /// Takes out the one that came first, to give it up.
    pub(crate) fn take_oldest(&mut self) -> Option<T> {
        let number = *self.waiting.first_key_value()?.0;
        self.remove(number).map(|(_, request)| request)
    }

    /// A put got these bytes of the device: the next one probably goes behind them.
    pub(crate) fn put_placed(&mut self, start: u64, end: u64) {
        self.order.put_placed(start, end);
    }

    /// Takes out a request that is worth nothing any more, and how late it is in nanoseconds.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Option<(T, u64)> {
        let &(deadline, number) = self.expiring.first()?;
        if deadline >= now_ns {
            return None;
        }
        let (_, request) = self.remove(number)?;
        Some((request, now_ns - deadline))
    }

    /// The deadline after which a request has to be taken out.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.expiring.first().map(|&(deadline, _)| deadline)
    }

    fn remove(&mut self, number: u64) -> Option<(QueuePlace, T)> {
        let (place, request) = self.waiting.remove(&number)?;
        self.lanes.remove(number, place);
        if let Some(deadline) = place.deadline.filter(|_| place.expires) {
            self.expiring.remove(&(deadline, number));
        }
        Some((place, request))
    }
}

#[cfg(test)]
mod tests;
