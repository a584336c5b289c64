//! Finds the owner of a block request.

use crate::event::{BlockOp, Class, Event};

use super::Correlator;
use super::found::Match;
use super::owner::Owner;
use super::requests::Share;
use super::settle::{Shares, Unsettled};

/// Own block requests that wait for a second look-up; beyond that they get none.
const MAX_WAITING: usize = 4096;

impl Correlator {
    /// A block request has completed. `may_wait`: false for one that has been looked up before.
    pub(crate) fn event(&mut self, event: &Event, may_wait: bool) {
        let Some(disk) = self.disks.get_mut(&event.dev) else {
            return;
        };
        if may_wait {
            disk.add_failure(event);
        }
        if event.flush_parent {
            return self.flushes.asked(event, &Match::default());
        }
        if event.op == BlockOp::Flush {
            return self.flushes.completed(event);
        }
        let found = self.joiner.find(event);
        let data = event.op.is_data();
        if data && found.parts.is_empty() && event.class == Class::Own && may_wait {
            self.limits.looked_up_again += 1;
            self.stale |= self.any_file_on(event.dev);
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(*event);
                return;
            }
        }
        if event.preflush || event.fua {
            self.flushes.asked(event, &found);
        }
        self.attribute(event, &found);
    }

    /// It is known for which declared I/Os a block request was made.
    pub(super) fn attribute(&mut self, event: &Event, found: &Match) {
        self.limits.ambiguous += u64::from(found.is_ambiguous());
        for io in found.doubted.iter().filter_map(|io| self.joiner.io(*io)) {
            for request in &io.requests {
                self.requests.doubt(*request);
            }
        }
        let requests = self.joiner.requests_of(found);
        let sharers = requests.len() + usize::from(self.joiner.is_for_store(found));
        let owner = owner_of(event, found, &requests);
        let disk = self.disks.entry(event.dev).or_default();
        disk.add(event, &owner, found, sharers);
        if event.op.is_data() || event.op == BlockOp::Flush {
            disk.checks.add(event, self.joiner.names_of(found));
        }
        disk.checks.ambiguous += u64::from(found.is_ambiguous());
        let shares = self.shares(found, &owner);
        let stores = if self.taps.want_blocks() {
            self.joiner.stores_of(found)
        } else {
            Vec::new()
        };
        self.unsettled.push_back(Unsettled {
            event: *event,
            owner,
            shares,
            uncertain: found.is_ambiguous(),
            stores,
        });
        self.bound_unsettled();
    }

    fn any_file_on(&self, dev: u32) -> bool {
        let mut placed = self.placements.values();
        placed.any(|p| p.dev == dev && !p.file_system.is_empty())
    }

    /// Each request's share of the block request.
    fn shares(&self, found: &Match, owner: &Owner) -> Shares {
        let sharers = match owner {
            Owner::Requests(all) => Some(all),
            _ => None,
        };
        let mut shares = Shares::new();
        for part in &found.parts {
            let Some(io) = self.joiner.io(part.io) else {
                continue;
            };
            let heads = u64::try_from(io.requests.len()).unwrap_or(u64::MAX).max(1);
            for (position, &request) in io.requests.iter().enumerate() {
                // The division's remainder goes to the first.
                let rest = if position == 0 { part.bytes % heads } else { 0 };
                shares.push(Share {
                    request,
                    purpose: io.purpose,
                    own_bytes: part.bytes / heads + rest,
                    of_io: part.bytes,
                    sharers: sharers.cloned(),
                    uncertain: part.uncertain,
                });
            }
        }
        shares
    }
}

fn owner_of(event: &Event, found: &Match, requests: &[u64]) -> Owner {
    match requests {
        [] if found.parts.is_empty() => Owner::guess(event),
        [] => Owner::Store,
        [one] => Owner::Request(*one),
        all => Owner::Requests(all.into()),
    }
}
