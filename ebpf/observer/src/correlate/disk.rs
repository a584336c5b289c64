//! Totals of one disk: owners, seeks, and the requests it was sent recently.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::event::{BlockOp, Class, Event, OPERATIONS};
use crate::failure::Failure;
use crate::report::{AuditReport, BlockReport, FailureTotal, OwnerTotal};

use super::crosscheck::CrossCheck;
use super::found::Match;
use super::moves::Moves;
use super::owner::{CLASSES, OWNERS, Owner};
use super::processes::{Cgroups, Processes};
use super::recent::Recent;
use super::totals::histogram;

/// Seek distances beyond this many bytes are counted as this many.
const MAX_SEEK_BYTES: u64 = 1 << 50;

/// Totals of one disk.
#[derive(Debug)]
pub(super) struct DiskTotals {
    /// Its name, e.g. `loop3`; empty: unknown.
    pub(super) name: String,
    /// How far what was told of it can be trusted; `None`: nothing was said.
    pub(super) audit: Option<Box<AuditReport>>,
    /// By class and operation: block requests and bytes.
    owners: [[(u64, u64); OPERATIONS.len()]; CLASSES],
    failures: BTreeMap<(BlockOp, Failure), u64>,
    data_requests: u64,
    sequential: u64,
    seeks: Histogram<u64>,
    own_bytes: u64,
    attributed_bytes: u64,
    shared_bytes: u64,
    unattributed_bytes: u64,
    pub(super) recent: Recent,
    pub(super) moves: Moves,
    pub(super) checks: CrossCheck,
    processes: Processes,
}

impl Default for DiskTotals {
    fn default() -> DiskTotals {
        DiskTotals {
            name: String::new(),
            audit: None,
            owners: [[(0, 0); OPERATIONS.len()]; CLASSES],
            failures: BTreeMap::new(),
            data_requests: 0,
            sequential: 0,
            seeks: histogram(MAX_SEEK_BYTES),
            own_bytes: 0,
            attributed_bytes: 0,
            shared_bytes: 0,
            unattributed_bytes: 0,
            recent: Recent::default(),
            moves: Moves::default(),
            checks: CrossCheck::default(),
            processes: Processes::default(),
        }
    }
}

impl DiskTotals {
    /// Counts a block request. `sharers`: how many requests (and the store itself) it was for.
    pub(super) fn add(&mut self, event: &Event, owner: &Owner, found: &Match, sharers: usize) {
        // The operations are numbered in the order of their names.
        let total = &mut self.owners[owner.class()][event.op as usize];
        total.0 += 1;
        total.1 += u64::from(event.bytes);
        if event.op.is_data() {
            self.add_data(event, found, sharers);
        }
        self.processes.add(event);
        self.recent.add(event, owner);
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

    /// Counts a block request if it failed.
    pub(super) fn add_failure(&mut self, event: &Event) {
        if let Some(failure) = event.failure {
            *self.failures.entry((event.op, failure)).or_default() += 1;
        }
    }

    fn failures(&self) -> Vec<FailureTotal> {
        let all = self.failures.iter();
        let total = all.map(|((op, failure), requests)| FailureTotal {
            operation: op.name().to_owned(),
            failure: failure.name().to_owned(),
            requests: *requests,
        });
        total.collect()
    }

    /// All but what the requests of a store lost.
    pub(super) fn report(&self, cgroups: &Cgroups) -> BlockReport {
        let owners = OWNERS.iter().zip(&self.owners).flat_map(|(owner, by_op)| {
            let totals = OPERATIONS.iter().zip(by_op);
            let any = totals.filter(|(_, (requests, _))| *requests > 0);
            any.map(|(operation, &(requests, bytes))| OwnerTotal {
                owner: (*owner).to_owned(),
                operation: (*operation).to_owned(),
                requests,
                bytes,
            })
        });
        BlockReport {
            owners: owners.collect(),
            failures: self.failures(),
            data_requests: self.data_requests,
            sequential: self.sequential,
            seek_median_bytes: self.seeks.value_at_quantile(0.5),
            seek_p99_bytes: self.seeks.value_at_quantile(0.99),
            own_bytes: self.own_bytes,
            attributed_bytes: self.attributed_bytes,
            shared_bytes: self.shared_bytes,
            unattributed_bytes: self.unattributed_bytes,
            moves: self.moves.report(),
            processes: self.processes.report(cgroups),
            ..BlockReport::default()
        }
    }
}
