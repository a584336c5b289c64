//! What one disk did: owners, seeks, and what it was sent recently.

use std::collections::{BTreeMap, VecDeque};

use hdrhistogram::Histogram;

use crate::event::{BlockOp, Class, Event};
use crate::report::{BlockReport, OwnerTotal};

use super::Owner;
use super::join::Match;
use super::totals::histogram;

/// Block requests kept to answer "who was there before?".
const MAX_RECENT: usize = 8192;
/// Seek distances beyond this many bytes are counted as this many.
const MAX_SEEK_BYTES: u64 = 1 << 50;

/// What one disk did.
#[derive(Debug)]
pub(super) struct Disk {
    owners: BTreeMap<(&'static str, BlockOp), (u64, u64)>,
    data_requests: u64,
    sequential: u64,
    seeks: Histogram<u64>,
    own_bytes: u64,
    attributed_bytes: u64,
    shared_bytes: u64,
    unattributed_bytes: u64,
    recent: VecDeque<Recent>,
}

/// A block request that the disk was sent.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) issue_ns: u64,
    done_ns: u64,
    /// Sector after it; `None`: it has no place, as a flush.
    end: Option<u64>,
    pub(super) owner: Owner,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk {
            owners: BTreeMap::new(),
            data_requests: 0,
            sequential: 0,
            seeks: histogram(MAX_SEEK_BYTES),
            own_bytes: 0,
            attributed_bytes: 0,
            shared_bytes: 0,
            unattributed_bytes: 0,
            recent: VecDeque::new(),
        }
    }
}

impl Disk {
    /// Counts a block request. `sharers`: how many requests (and the store itself) it was for.
    pub(super) fn add(&mut self, event: &Event, owner: &Owner, found: &Match, sharers: usize) {
        let total = self.owners.entry((owner.class(), event.op)).or_default();
        total.0 += 1;
        total.1 += u64::from(event.bytes);
        if event.op.is_data() {
            self.add_data(event, found, sharers);
        }
        if let Some(issue_ns) = event.issue_ns {
            if self.recent.len() >= MAX_RECENT {
                self.recent.pop_front();
            }
            let end = event
                .op
                .is_data()
                .then(|| event.sector + u64::from(event.sectors));
            let (done_ns, owner) = (event.done_ns, owner.clone());
            self.recent.push_back(Recent {
                issue_ns,
                done_ns,
                end,
                owner,
            });
        }
    }

    fn add_data(&mut self, event: &Event, found: &Match, sharers: usize) {
        self.data_requests += 1;
        self.sequential += u64::from(event.seek == Some(0));
        if let Some(seek) = event.seek {
            self.seeks
                .saturating_record(seek.unsigned_abs().saturating_mul(512));
        }
        if found.parts.is_empty() && event.class != Class::Own {
            return;
        }
        let tied: u64 = found.parts.iter().map(|part| part.bytes).sum();
        self.own_bytes += tied + found.rest;
        self.unattributed_bytes += found.rest;
        if sharers > 1 {
            self.shared_bytes += tied;
        } else {
            self.attributed_bytes += tied;
        }
    }

    /// The data request that the disk was sent before this one, if that is certain: the one
    /// issued last before it, and ending where the seek distance was measured from.
    pub(super) fn previous(&self, event: &Event) -> Option<&Recent> {
        let (issue, seek) = (event.issue_ns?, event.seek?);
        let placed = self
            .recent
            .iter()
            .filter(|r| r.end.is_some() && r.issue_ns < issue);
        let last = placed.max_by_key(|r| r.issue_ns)?;
        (last.end == event.sector.checked_add_signed(seek.checked_neg()?)).then_some(last)
    }

    /// How many block requests of others the disk had to do while this one waited.
    pub(super) fn ahead_of(&self, event: &Event, request: u64) -> usize {
        let (Some(queued), Some(issue)) = (event.queue_ns, event.issue_ns) else {
            return 0;
        };
        let others = self
            .recent
            .iter()
            .filter(|r| r.owner != Owner::Request(request));
        others
            .filter(|r| r.issue_ns < issue && r.done_ns > queued)
            .count()
    }

    pub(super) fn report(&self) -> BlockReport {
        let owners = self
            .owners
            .iter()
            .map(|(&(owner, op), &(requests, bytes))| OwnerTotal {
                owner: owner.to_owned(),
                operation: op.name().to_owned(),
                requests,
                bytes,
            });
        BlockReport {
            owners: owners.collect(),
            data_requests: self.data_requests,
            sequential: self.sequential,
            seek_median_bytes: self.seeks.value_at_quantile(0.5),
            seek_p99_bytes: self.seeks.value_at_quantile(0.99),
            own_bytes: self.own_bytes,
            attributed_bytes: self.attributed_bytes,
            shared_bytes: self.shared_bytes,
            unattributed_bytes: self.unattributed_bytes,
            ..BlockReport::default()
        }
    }
}
