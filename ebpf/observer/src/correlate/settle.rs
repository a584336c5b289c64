//! Settles a block request once everything that completed before it is known: who moved the head,
//! and what it cost whom.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::event::Event;
use crate::report::TracedRequest;

use super::owner::{CLASSES, Owner};
use super::requests::{Open, Share};
use super::taps::At;
use super::{Correlator, EndedRequest, explain, stages};

/// Attributed block requests that wait for what completed before them; beyond that the oldest
/// wait no longer.
const MAX_UNSETTLED: usize = 1 << 18;

/// The shares of requests in a block request: mostly one.
pub(super) type Shares = SmallVec<[Share; 1]>;

/// An attributed block request.
#[derive(Debug)]
pub(super) struct Unsettled {
    pub(super) event: Event,
    pub(super) owner: Owner,
    /// Each request's share of it.
    pub(super) shares: Shares,
    /// Whose it is, is not certain.
    pub(super) uncertain: bool,
    /// The stores it was made for; none are known when nobody watches.
    pub(super) stores: Vec<usize>,
}

impl Correlator {
    pub(super) fn drained(&mut self, until_ns: u64) {
        self.conclude(until_ns);
        self.joiner.expire(until_ns);
        for request in self.requests.expire(until_ns) {
            // It may be one that was counted before these I/Os were declared.
            self.add_gap(request);
        }
        self.kept.expire(until_ns);
        self.taps.prune();
    }

    /// Settles and counts what completed up to this time.
    pub(super) fn conclude(&mut self, until_ns: u64) {
        for event in std::mem::take(&mut self.waiting) {
            self.event(&event, false);
        }
        for told in self.flushes.take(until_ns, &mut self.joiner) {
            self.attribute(&told.event, &told.found);
        }
        for _ in 0..self.unsettled.len() {
            match self.unsettled.pop_front() {
                Some(one) if one.event.last_ns() <= until_ns => self.settle(one),
                Some(one) => self.unsettled.push_back(one),
                None => break,
            }
        }
        for disk in self.disks.values_mut() {
            disk.moves.retry(&disk.recent, until_ns);
        }
        let flushes_ns = self.flushes.oldest_waiting_ns().unwrap_or(u64::MAX);
        for (ended, open) in self.requests.take_ended(until_ns.min(flushes_ns)) {
            let lost = open.lost.by_class();
            self.add_request(&ended, &open, &lost);
        }
    }

    pub(super) fn bound_unsettled(&mut self) {
        if self.unsettled.len() > MAX_UNSETTLED
            && let Some(oldest) = self.unsettled.pop_front()
        {
            self.settle(oldest);
        }
    }

    fn settle(&mut self, one: Unsettled) {
        if self.taps.want_blocks() {
            self.tap(&one);
        }
        let Some(disk) = self.disks.get_mut(&one.event.dev) else {
            return;
        };
        let previous = disk.recent.previous(&one.event);
        let before = previous.map(Owner::class);
        disk.moves.add(one.owner.class(), &one.event, before);
        if one.event.done_unknown {
            let placements = &self.placements;
            let is_on_disk = |store: usize| {
                let at = placements.get(&store);
                at.is_some_and(|at| at.dev == one.event.dev)
            };
            self.kept.doubt_lost(is_on_disk, one.event.first_ns());
            self.requests.doubt_lost();
        }
        if one.shares.is_empty() {
            return;
        }
        let event = Arc::new(one.event);
        let (from, to) = (event.first_ns(), event.last_ns());
        let all_known = !self.flushes.any_waits(event.dev, from, to);
        let mut counted = Vec::new();
        for share in one.shares {
            let (request, requests) = (share.request, &mut self.requests);
            let open = requests.add(&event, share, previous, (&disk.recent, all_known));
            if !open {
                counted.push(request);
            }
        }
        for request in counted {
            self.add_gap(request);
        }
    }

    /// Block requests of a request became known after it was counted, if it was.
    fn add_gap(&mut self, request: u64) {
        self.kept.add_gap(request);
        for totals in self.stores.values_mut() {
            totals.add_gap(request);
        }
    }

    /// Hands a block request to those who watch.
    fn tap(&mut self, one: &Unsettled) {
        let dev = one.event.dev;
        let Some(disk) = self.disks.get(&dev) else {
            return;
        };
        let placed = self.placements.iter().filter(|(_, p)| p.dev == dev);
        let named = placed.filter_map(|(index, _)| Some((*index, &self.stores.get(index)?.name)));
        let stores: Vec<(usize, &str)> = named.map(|(i, name)| (i, name.as_str())).collect();
        let at = At {
            disk: &disk.name,
            stores: &stores,
            cgroups: &self.cgroups,
            clock: self.clock,
        };
        let previous = disk.recent.previous(&one.event);
        self.taps.block(one, previous, &at);
    }

    fn add_request(&mut self, ended: &EndedRequest, open: &Open, lost: &[u64; CLASSES]) {
        let stages = stages::split(ended, open);
        let Some(totals) = self.stores.get_mut(&ended.store) else {
            return;
        };
        totals.add(ended, open, &stages);
        totals.add_lost(lost, open.lost.at_least || open.gaps.not_remembered);
        let at = self.placements.get(&ended.store);
        let slow = !ended.control && totals.is_slow(ended);
        if !slow && ended.trace.is_none() && !self.kept.is_slow(ended) {
            return;
        }
        let disk = at.and_then(|at| self.disks.get(&at.dev));
        let known = explain::RequestFacts {
            ended,
            open,
            stages: &stages,
            lost,
            store: &totals.name,
            disk,
            cgroups: &self.cgroups,
            file_system: at.map_or("", |at| at.file_system.as_str()),
            clock: self.clock,
        };
        let explained = explain::explain(&known);
        if slow {
            totals.add_slow(explained.clone());
        }
        if let Some(trace) = ended.trace.filter(|_| self.taps.want_traced()) {
            let request = self.with_doubt(ended.store, explained.clone());
            let sharers = explain::sharers(open);
            self.taps.traced(&TracedRequest {
                request,
                trace,
                sharers,
            });
        }
        self.kept.add(ended, explained);
    }
}
