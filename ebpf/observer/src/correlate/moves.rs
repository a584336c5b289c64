//! Head moves: whose block request came before whose, and how far the head had to travel.
//!
//! A block request's seek distance is measured when it is sent, from the end of the data request
//! that was sent before it in its access range. Whose that one was is known when it has completed, which may be
//! later. A request whose predecessor does not show up in time, or does not end where the
//! distance was measured from, counts as moved by `unknown`.

use crate::event::Event;
use crate::report::HeadMove;

use super::owner::{CLASSES, OWNERS, UNKNOWN};
use super::recent::Recent;

/// How long the one before may take to complete.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How often it is looked for.
const EVERY_NS: u64 = 100_000_000;
/// Block requests that wait for it; beyond that it stays unknown at once.
const MAX_PENDING: usize = 4096;

/// Head moves of one disk, by owner class and class of the one before.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// By class of the block request that had to travel, then by class of the one before.
    counts: [[Count; CLASSES]; CLASSES],
    pending: Vec<(usize, Event)>,
    retried_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    requests: u64,
    seeks: u64,
    travel_bytes: u64,
}

impl Moves {
    /// Counts a block request of this class.
    pub(super) fn add(&mut self, class: usize, event: &Event, before: Option<usize>) {
        if event.seek.is_none() {
            return;
        }
        if before.is_none() && self.pending.len() < MAX_PENDING {
            self.pending.push((class, *event));
            return;
        }
        self.count(class, event, before.unwrap_or(UNKNOWN));
    }

    /// Looks again for what was sent before.
    pub(super) fn retry(&mut self, recent: &Recent, until_ns: u64) {
        if until_ns < self.retried_ns.saturating_add(EVERY_NS) {
            return;
        }
        self.retried_ns = until_ns;
        for (class, event) in std::mem::take(&mut self.pending) {
            let before = recent.previous(&event).map(|owner| owner.class());
            let waits = event.last_ns().saturating_add(PATIENCE_NS) > until_ns;
            if before.is_none() && waits {
                self.pending.push((class, event));
            } else {
                self.count(class, &event, before.unwrap_or(UNKNOWN));
            }
        }
    }

    fn count(&mut self, class: usize, event: &Event, before: usize) {
        let Some(seek) = event.seek else {
            return;
        };
        let count = &mut self.counts[class][before];
        count.requests += 1;
        count.seeks += u64::from(seek != 0);
        let travel = seek.unsigned_abs().saturating_mul(512);
        count.travel_bytes = count.travel_bytes.saturating_add(travel);
    }

    /// Pairs of classes that occurred.
    pub(super) fn report(&self) -> Vec<HeadMove> {
        let mut moves = Vec::new();
        for (owner, row) in OWNERS.iter().zip(&self.counts) {
            let columns = OWNERS.iter().zip(row);
            moves.extend(columns.filter(|(_, count)| count.requests > 0).map(
                |(moved_by, count)| HeadMove {
                    owner: (*owner).to_owned(),
                    moved_by: (*moved_by).to_owned(),
                    requests: count.requests,
                    seeks: count.seeks,
                    travel_bytes: count.travel_bytes,
                },
            ));
        }
        moves
    }
}
