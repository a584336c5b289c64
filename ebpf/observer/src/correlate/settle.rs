//! What a block request did to others and others to it, once everything that completed before it
//! has been told.

use std::sync::Arc;

use crate::event::Event;
use crate::extents::Placement;

use super::owner::Owner;
use super::requests::{Block, Open, Share};
use super::{Correlator, Ended, explain, stages};

/// Attributed block requests that wait for what completed before them; beyond that the oldest
/// wait no longer.
const MAX_UNSETTLED: usize = 1 << 18;

/// An attributed block request.
#[derive(Debug)]
pub(super) struct Unsettled {
    pub(super) event: Arc<Event>,
    pub(super) owner: Arc<Owner>,
    /// What each request has of it.
    pub(super) shares: Vec<Share>,
}

impl Correlator {
    pub(super) fn drained(&mut self, until_ns: u64) {
        for event in std::mem::take(&mut self.waiting) {
            self.event(event, false);
        }
        let mut later = std::collections::VecDeque::new();
        for one in std::mem::take(&mut self.unsettled) {
            if one.event.done_ns <= until_ns {
                self.settle(one);
            } else {
                later.push_back(one);
            }
        }
        self.unsettled = later;
        for (ended, open) in self.requests.take_ended(until_ns) {
            let at = self.placements.get(&ended.store).cloned();
            self.add_request(&ended, &open, at);
        }
        self.joiner.expire(until_ns);
        self.requests.expire(until_ns);
        self.kept.expire(until_ns);
    }

    pub(super) fn bound_unsettled(&mut self) {
        if self.unsettled.len() > MAX_UNSETTLED
            && let Some(oldest) = self.unsettled.pop_front()
        {
            self.settle(oldest);
        }
    }

    fn settle(&mut self, one: Unsettled) {
        let Unsettled { event, shares, .. } = one;
        let Some(disk) = self.disks.get(&event.dev) else {
            return;
        };
        let previous = disk.recent.previous(&event).cloned();
        for share in shares {
            let block = Block {
                event: Arc::clone(&event),
                ahead: disk.ahead_of(&event, share.request),
                previous: previous.clone(),
                share,
            };
            self.requests.add(block);
        }
    }

    fn add_request(&mut self, ended: &Ended, open: &Open, at: Option<Placement>) {
        let stages = stages::split(ended, open);
        let Some(totals) = self.stores.get_mut(&ended.store) else {
            return;
        };
        totals.add(ended, open, &stages);
        let slow = totals.is_slow(ended);
        if !slow && ended.trace.is_none() && !self.kept.is_slow(ended) {
            return;
        }
        let disk = at.as_ref().and_then(|at| self.disks.get(&at.dev));
        let known = explain::Known {
            ended,
            open,
            stages: &stages,
            store: &totals.name,
            disk,
            file_system: at.as_ref().map_or("", |at| at.file_system.as_str()),
        };
        let explained = explain::explain(&known);
        if slow {
            totals.add_slow(explained.clone());
        }
        self.kept.add(ended, explained);
    }
}
