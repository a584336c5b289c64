//! Interference: time that a request lost to others.
//!
//! Take a block request B of a request R, from the moment it was queued (or first seen) to its
//! completion. Time is lost to X when X is a block request of somebody else on the same disk, was
//! at the device meanwhile, and completed before B did: the disk did X first, or at the same
//! time. Per request and owner class the union of all such times counts, so nothing counts twice
//! in a class; two classes may have lost the same moment. What completed after B did not hold it
//! up as far as can be seen from here. Class `request` means another request of this service. A
//! flush that several requests waited for is each one's own.
//!
//! A disk that works on several block requests at once may have lost less than that: it is the
//! most that others can have cost.

use crate::event::Event;
use crate::report::LostTime;

use super::owner::{CLASSES, OWNERS};
use super::recent::Recent;
use super::stages;

/// Block requests of others looked at for one block request; beyond that what is lost is a lower
/// bound, and the request says so.
const MAX_LOOKED_AT: usize = 4096;
/// Intervals kept a request, after those that overlap were joined; the same then.
const MAX_INTERVALS: usize = 1024;

/// Times lost by one request.
#[derive(Debug, Default)]
pub(super) struct Lost {
    intervals: Vec<Interval>,
    /// There may be more.
    pub(super) at_least: bool,
}

/// Time lost to one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    class: usize,
    from: u64,
    to: u64,
}

impl Lost {
    /// Adds what a block request of this request lost. Returns how many block requests of others
    /// were sent before it and completed while it was queued or at the device; 0 when it is not
    /// known when it was queued.
    pub(super) fn add(&mut self, event: &Event, request: u64, recent: &Recent) -> u32 {
        let Some(to) = event.completed_ns() else {
            self.at_least = true;
            return 0;
        };
        let from = event.first_ns();
        self.at_least |= !recent.reaches_back_to(from);
        // Going backwards in the order of completion, one interval a class is enough to join
        // what overlaps.
        let mut current: [Option<(u64, u64)>; CLASSES] = [None; CLASSES];
        let (mut looked_at, mut ahead) = (0, 0);
        let sent = event.queue_ns.and(event.issue_ns).unwrap_or(0);
        for other in recent.completed(from, to.saturating_sub(1)) {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                self.at_least = true;
                break;
            }
            if other.owner.serves(request) {
                continue;
            }
            ahead += u32::from(other.issue_ns < sent);
            let begin = other.issue_ns.max(from);
            let class = other.owner.class();
            match &mut current[class] {
                Some(known) if other.done_ns >= known.0 => known.0 = known.0.min(begin),
                slot => {
                    let finished = slot.replace((begin, other.done_ns));
                    self.push(class, finished);
                }
            }
        }
        for (class, last) in current.into_iter().enumerate() {
            self.push(class, last);
        }
        ahead
    }

    fn push(&mut self, class: usize, interval: Option<(u64, u64)>) {
        let Some((from, to)) = interval.filter(|(from, to)| from < to) else {
            return;
        };
        if self.intervals.len() >= MAX_INTERVALS {
            self.join();
        }
        if self.intervals.len() >= MAX_INTERVALS {
            self.at_least = true;
        } else {
            self.intervals.push(Interval { class, from, to });
        }
    }

    /// Joins what overlaps or touches.
    fn join(&mut self) {
        self.intervals.sort_unstable();
        self.intervals.dedup_by(|next, kept| {
            let joined = next.class == kept.class && next.from <= kept.to;
            if joined {
                kept.to = kept.to.max(next.to);
            }
            joined
        });
    }

    /// Nanoseconds in all: a moment lost to two classes counts once.
    pub(super) fn in_all(&self) -> u64 {
        let all = self.intervals.iter().map(|one| (one.from, one.to));
        stages::union(all.collect())
    }

    /// Nanoseconds by class.
    pub(super) fn by_class(&mut self) -> [u64; CLASSES] {
        self.join();
        let mut sums = [0; CLASSES];
        for one in &self.intervals {
            sums[one.class] += one.to - one.from;
        }
        sums
    }
}

/// Lost times in a report: only classes that took any, the worst first.
pub(super) fn report(by_class: &[u64; CLASSES]) -> Vec<LostTime> {
    let pairs = OWNERS.iter().zip(by_class).filter(|(_, ns)| **ns > 0);
    let mut lost: Vec<LostTime> = pairs
        .map(|(owner, ns)| LostTime {
            owner: (*owner).to_owned(),
            ns: *ns,
        })
        .collect();
    lost.sort_by_key(|lost| std::cmp::Reverse(lost.ns));
    lost
}
