//! What a disk was sent lately: by the time it was sent, and by the time it completed. Both are
//! looked up by binary search: a disk may do 100,000 block requests a second.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::Event;

use super::owner::Owner;

/// Block requests remembered of one disk; beyond that the oldest are forgotten. What is asked of
/// them lies less than a tenth of a second back, unless the disk is slow and they are few.
pub(super) const MAX_RECENT: usize = 16_384;

/// What a disk was sent lately.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Reads and writes, by the time they were sent.
    sent: VecDeque<Sent>,
    /// Everything whose completion was seen, by the time of it.
    done: VecDeque<Done>,
    /// Completions up to this time may have been forgotten.
    forgotten_ns: u64,
}

/// A read or write that the disk was sent.
#[derive(Debug)]
struct Sent {
    issue_ns: u64,
    /// Sector after it.
    end: u64,
    owner: Arc<Owner>,
}

/// A block request that completed.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) issue_ns: u64,
    pub(super) done_ns: u64,
    pub(super) owner: Arc<Owner>,
}

impl Recent {
    pub(super) fn add(&mut self, event: &Event, owner: &Arc<Owner>) {
        let Some(issue_ns) = event.issue_ns else {
            return;
        };
        if event.op.is_data() {
            let sent = Sent {
                issue_ns,
                end: event.end_sector(),
                owner: Arc::clone(owner),
            };
            insert(&mut self.sent, sent, |s| s.issue_ns);
        }
        let Some(done_ns) = event.completed_ns() else {
            return;
        };
        let done = Done {
            issue_ns,
            done_ns,
            owner: Arc::clone(owner),
        };
        if let Some(gone) = insert(&mut self.done, done, |d| d.done_ns) {
            self.forgotten_ns = self.forgotten_ns.max(gone.done_ns);
        }
    }

    /// The data request that the disk was sent before this one, if that is certain: the one sent
    /// last before it, and ending where the seek distance was measured from.
    pub(super) fn previous(&self, event: &Event) -> Option<&Arc<Owner>> {
        let (issue, seek) = (event.issue_ns?, event.seek?);
        let before = self.sent.partition_point(|s| s.issue_ns < issue);
        let last = self.sent.get(before.checked_sub(1)?)?;
        let from = event.sector.checked_add_signed(seek.checked_neg()?)?;
        (last.end == from).then_some(&last.owner)
    }

    /// What completed in (from, to], the last first.
    pub(super) fn completed(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Done> {
        let first = self.done.partition_point(|d| d.done_ns <= from_ns);
        let end = self.done.partition_point(|d| d.done_ns <= to_ns);
        self.done.range(first..end.max(first)).rev()
    }

    /// True: nothing that completed after this time was forgotten.
    pub(super) fn reaches_back_to(&self, ns: u64) -> bool {
        ns >= self.forgotten_ns
    }
}

/// Inserts in the order of a key, mostly at the end; returns what did not fit any more.
fn insert<T>(all: &mut VecDeque<T>, one: T, key: fn(&T) -> u64) -> Option<T> {
    let at = all.partition_point(|other| key(other) <= key(&one));
    if all.len() < MAX_RECENT {
        all.insert(at, one);
        return None;
    }
    if at == 0 {
        return Some(one);
    }
    let gone = all.pop_front();
    all.insert(at - 1, one);
    gone
}
