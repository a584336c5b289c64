//! Flushes of a disk, and who asked for them.
//!
//! The block layer sends a flush for everybody who has asked since the one before, so a flush says
//! nothing of its makers. They are the empty requests that asked for one, and the writes that the
//! block layer wraps in flushes. An empty request ends with the flush that served it, and a wrapped
//! write is sent after it: so of the flushes that suit an asker the last is its own. A flush that FUA
//! needs is the first after the write's data.
//!
//! A disk without requests is given the flush itself, by whoever asks: its only asker is itself.
//!
//! Askers of the service name its declared flushes. A kernel thread asks for anybody: what it asks
//! for while a declared flush waits may be that one's, which is said to be uncertain.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::event::{Event, Maker};

use super::found::{Ids, Match};
use super::join::Joiner;

/// Flushes, and askers, remembered at once; beyond that the oldest are forgotten.
const MAX: usize = 4096;
/// So long a flush waits for those who asked for it.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Askers stay so long after they were served.
const LINGER_NS: u64 = 100_000_000;

/// Flushes of all disks.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    askers: VecDeque<Asker>,
    /// All that completed, those that wait too.
    known: VecDeque<Event>,
    waiting: VecDeque<Event>,
    /// Askers and flushes that had to be forgotten before their time.
    pub(super) forgotten: u64,
    /// The last of them had ended at this time: whose a flush before was, is not certain.
    forgotten_ns: u64,
}

/// Somebody who asked for a flush.
#[derive(Debug)]
struct Asker {
    event: Event,
    /// The flush was sent at this time at the earliest...
    from_ns: u64,
    /// ...and had completed at this.
    to_ns: u64,
    /// It comes after the write's data: the first that suits, not the last.
    after: bool,
    /// The I/Os that a wrapped write was made for.
    ios: Ids,
}

/// A flush, with the declared flushes that it was made for.
pub(super) struct FlushMatch {
    pub(super) event: Event,
    pub(super) found: Match,
}

impl Flushes {
    /// A block request has completed that may have asked for flushes.
    pub(super) fn asked(&mut self, event: &Event, found: &Match) {
        let ends = event.completed_ns().unwrap_or(u64::MAX);
        let ios = || found.parts.iter().map(|part| part.io).collect();
        if event.flush_parent || event.preflush {
            let to_ns = if event.flush_parent {
                ends
            } else {
                event.issue_ns.unwrap_or(ends)
            };
            let from_ns = event.first_ns();
            self.add(event, from_ns, to_ns, false, ios());
        }
        if event.fua && !event.flush_parent {
            self.add(event, event.last_ns(), u64::MAX, true, ios());
        }
    }

    fn add(&mut self, event: &Event, from_ns: u64, to_ns: u64, after: bool, ios: Ids) {
        if self.askers.len() >= MAX
            && let Some(gone) = self.askers.pop_front()
        {
            self.forget(&gone.event);
        }
        let asker = Asker::new(event, (from_ns, to_ns), after, ios);
        self.askers.push_back(asker);
    }

    /// A flush has completed; it waits for its askers.
    pub(super) fn completed(&mut self, event: &Event) {
        if self.known.len() >= MAX
            && let Some(gone) = self.known.pop_front()
        {
            self.forget(&gone);
        }
        self.known.push_back(*event);
        self.waiting.push_back(*event);
    }

    fn forget(&mut self, event: &Event) {
        self.forgotten += 1;
        self.forgotten_ns = self.forgotten_ns.max(event.last_ns());
    }

    /// True: a flush of this disk that completed in this time still waits.
    pub(super) fn any_waits(&self, dev: u32, from_ns: u64, to_ns: u64) -> bool {
        let within = |e: &Event| e.dev == dev && (from_ns..=to_ns).contains(&e.last_ns());
        self.waiting.iter().any(within)
    }

    /// When the first of those that wait completed: whose it is, is not known yet. `None`: none waits.
    pub(super) fn oldest_waiting_ns(&self) -> Option<u64> {
        self.waiting.iter().map(Event::last_ns).min()
    }

    /// The flushes of which all askers are known, when everything up to a time is.
    pub(super) fn take(&mut self, until_ns: u64, joiner: &mut Joiner) -> Vec<FlushMatch> {
        let mut told = Vec::new();
        for event in std::mem::take(&mut self.waiting) {
            let (issue, last) = sent(&event);
            let patient = until_ns.saturating_sub(last) < PATIENCE_NS && told.len() < MAX;
            let open = || joiner.any_open(&joiner.flushes_over(event.dev, issue, last), until_ns);
            if last > until_ns || (patient && open()) {
                self.waiting.push_back(event);
            } else {
                told.push(self.tell(event, joiner));
            }
        }
        let oldest = self.waiting.iter().map(|event| sent(event).0).min();
        let keep = oldest.unwrap_or(until_ns).min(until_ns);
        let keep = keep.saturating_sub(LINGER_NS);
        self.askers
            .retain(|asker| asker.to_ns.min(asker.event.last_ns()) >= keep);
        self.known.retain(|event| event.last_ns() >= keep);
        told
    }

    fn tell(&self, event: Event, joiner: &mut Joiner) -> FlushMatch {
        let (issue, last) = sent(&event);
        let itself = event
            .queue_ns
            .map(|_| Asker::new(&event, (issue, last), false, Ids::new()));
        let asked: SmallVec<[(&Asker, bool); 2]> = match &itself {
            Some(asker) => SmallVec::from_iter([(asker, true)]),
            None => self.askers_of(&event).collect(),
        };
        let by = |maker: Maker| asked.iter().filter(move |(a, _)| a.event.maker() == maker);
        let mut mine = Ids::new();
        let forgotten = itself.is_none() && issue <= self.forgotten_ns;
        let mut unsure = forgotten;
        for (asker, certain) in by(Maker::Own) {
            unsure |= !certain;
            for io in asker.ios_of(last, joiner) {
                if !mine.contains(&io) {
                    mine.push(io);
                }
            }
        }
        let first = by(Maker::Own)
            .chain(by(Maker::Foreign))
            .chain(by(Maker::Unknown))
            .next();
        let event = first.map_or(event, |(asker, _)| asker.as_maker_of(event));
        let own = by(Maker::Own).count();
        let found = if !mine.is_empty() {
            joiner.flushed(&mine, unsure || mine.len() > own)
        } else if !forgotten
            && (own > 0 || (by(Maker::Foreign).count() > 0 && by(Maker::Unknown).count() == 0))
        {
            Match::default()
        } else {
            let mut waited = joiner.flushes_over(event.dev, issue, last);
            waited.retain(|io| !joiner.was_flushed(*io));
            joiner.flushed(&waited, true)
        };
        FlushMatch { event, found }
    }

    /// Those who asked for a flush, and whether that is certain.
    fn askers_of<'a>(&'a self, flush: &'a Event) -> impl Iterator<Item = (&'a Asker, bool)> {
        let (issue, last) = sent(flush);
        self.askers.iter().filter_map(move |asker| {
            if asker.event.dev != flush.dev || !asker.suits(flush) {
                return None;
            }
            let mut certain = !asker.after;
            for other in self.known.iter().filter(|other| *other != flush) {
                if other.dev != flush.dev || !asker.suits(other) {
                    continue;
                }
                let (other_issue, other_last) = sent(other);
                if other_issue < last && issue < other_last {
                    // A disk with several queues sends several at once.
                    certain = false;
                } else if (other_issue > issue) != asker.after {
                    return None;
                }
            }
            Some((asker, certain))
        })
    }
}

impl Asker {
    fn new(event: &Event, (from_ns, to_ns): (u64, u64), after: bool, ios: Ids) -> Asker {
        Asker {
            event: *event,
            from_ns,
            to_ns,
            after,
            ios,
        }
    }

    fn suits(&self, flush: &Event) -> bool {
        let (issue, last) = sent(flush);
        let soon = !self.after || issue.saturating_sub(self.from_ns) < LINGER_NS;
        self.from_ns <= issue && last <= self.to_ns && soon
    }

    /// The declared I/Os for which it asked.
    fn ios_of(&self, flushed_ns: u64, joiner: &Joiner) -> Ids {
        if !self.ios.is_empty() {
            return self.ios.clone();
        }
        let to_ns = if self.to_ns == u64::MAX {
            flushed_ns
        } else {
            self.to_ns
        };
        let from_ns = self.event.first_ns();
        let waited = joiner.flushes_over(self.event.dev, from_ns, to_ns.max(flushed_ns));
        let named = |io: &u64| {
            self.event
                .submission
                .is_some_and(|s| joiner.is_named(*io, s))
        };
        match waited.iter().copied().find(named) {
            Some(one) => Ids::from_slice(&[one]),
            None => waited,
        }
    }

    /// A flush, as made by whoever asked for it.
    fn as_maker_of(&self, flush: Event) -> Event {
        Event {
            class: self.event.class,
            own: self.event.own,
            kernel_thread: self.event.kernel_thread,
            tgid: self.event.tgid,
            comm: self.event.comm,
            cgroup: self.event.cgroup,
            ..flush
        }
    }
}

/// When a flush was sent, and when it is known to have been under way last.
fn sent(flush: &Event) -> (u64, u64) {
    let last = flush.last_ns();
    (flush.issue_ns.unwrap_or(last), last)
}
