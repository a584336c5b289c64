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

use smallvec::SmallVec;

use crate::event::Event;
use crate::report::LostTime;

use super::owner::{CLASSES, OWNERS, Owner, Process};
use super::recent::Recent;
use super::requests::{BlocksAhead, Intervals};
use super::stages;

/// Block requests of others looked at for one block request; beyond that what is lost is a lower
/// bound, and the request says so.
const MAX_LOOKED_AT: usize = 4096;
/// Intervals kept a request, after those that overlap were joined; the same then.
const MAX_INTERVALS: usize = 1024;
/// Processes told apart by one request; more are one.
const MAX_PROCESSES: usize = 8;

/// Times lost by one request.
#[derive(Debug, Default)]
pub(super) struct Lost {
    intervals: Vec<Interval>,
    processes: SmallVec<[Process; 1]>,
    /// There may be more.
    pub(super) at_least: bool,
}

/// Somebody to whom time was lost.
#[derive(Debug)]
pub(super) enum Culprit<'a> {
    /// All of a class: see [`OWNERS`].
    Class(usize),
    Process(&'a Process),
}

/// Time lost to one class, or to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    /// Number of the class, or behind these that of the process.
    who: usize,
    from: u64,
    to: u64,
}

impl Lost {
    /// Adds what a block request of this request lost. Returns how many block requests of others
    /// completed while it was queued; 0 when it is not known when that was.
    pub(super) fn add(&mut self, event: &Event, request: u64, recent: &Recent) -> BlocksAhead {
        let mut ahead = BlocksAhead::default();
        let Some(to) = event.completed_ns() else {
            self.at_least = true;
            ahead.at_least = true;
            return ahead;
        };
        let from = event.first_ns();
        ahead.at_least = !recent.reaches_back_to(from);
        // Going backwards in the order of completion, one interval for each is enough to join
        // what overlaps.
        let mut current: [Option<(u64, u64)>; CLASSES + MAX_PROCESSES] = Default::default();
        let mut looked_at = 0;
        let sent = event.queue_ns.and(event.issue_ns).unwrap_or(0);
        for other in recent.completed(from, to.saturating_sub(1)) {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                ahead.at_least = true;
                break;
            }
            if other.owner.serves(request) {
                continue;
            }
            ahead.count += u32::from(other.done_ns <= sent);
            let begin = other.issue_ns.max(from);
            let who = self.who(&other.owner);
            match &mut current[who] {
                Some(known) if other.done_ns >= known.0 => known.0 = known.0.min(begin),
                slot => {
                    let finished = slot.replace((begin, other.done_ns));
                    self.push(who, finished);
                }
            }
        }
        for (who, last) in current.into_iter().enumerate() {
            self.push(who, last);
        }
        self.at_least |= ahead.at_least;
        ahead
    }

    /// Number of a process, or of a class.
    fn who(&mut self, owner: &Owner) -> usize {
        let Owner::Other(process) = owner else {
            return owner.class();
        };
        let known = self.processes.iter().position(|p| p.pid == process.pid);
        let at = known.or_else(|| {
            let fits = process.pid > 0 && self.processes.len() < MAX_PROCESSES;
            fits.then(|| self.processes.push(*process))?;
            Some(self.processes.len() - 1)
        });
        at.map_or(owner.class(), |at| CLASSES + at)
    }

    fn push(&mut self, who: usize, interval: Option<(u64, u64)>) {
        let Some((from, to)) = interval.filter(|(from, to)| from < to) else {
            return;
        };
        if self.intervals.len() >= MAX_INTERVALS {
            self.join();
        }
        if self.intervals.len() >= MAX_INTERVALS {
            self.at_least = true;
        } else {
            self.intervals.push(Interval { who, from, to });
        }
    }

    /// Joins what overlaps or touches.
    fn join(&mut self) {
        self.intervals.sort_unstable();
        self.intervals.dedup_by(|next, kept| {
            let joined = next.who == kept.who && next.from <= kept.to;
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
    pub(super) fn by_class(&self) -> [u64; CLASSES] {
        let mut classes: [Intervals; CLASSES] = Default::default();
        for one in &self.intervals {
            // Processes are of the last class.
            classes[one.who.min(CLASSES - 1)].push((one.from, one.to));
        }
        classes.map(stages::union)
    }

    /// Whoever the disk served for the longest between two times, for how many nanoseconds. `None`:
    /// nobody.
    pub(super) fn worst(&self, from_ns: u64, to_ns: u64) -> Option<(Culprit<'_>, u64)> {
        let sum = |who: usize| {
            let own = self.intervals.iter().filter(|one| one.who == who);
            let clipped = own.map(|one| (one.from.max(from_ns), one.to.min(to_ns)));
            stages::union(clipped.collect())
        };
        let all = (0..CLASSES + self.processes.len()).rev();
        let (who, ns) = all.map(|who| (who, sum(who))).max_by_key(|(_, ns)| *ns)?;
        let process = who.checked_sub(CLASSES).map(|at| &self.processes[at]);
        let culprit = process.map_or(Culprit::Class(who), Culprit::Process);
        (ns > 0).then_some((culprit, ns))
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
