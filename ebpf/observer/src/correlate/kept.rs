//! Explained requests, kept for a while for questions after the fact.

use std::collections::{BTreeMap, VecDeque};

use crate::report::SlowRequest;

use super::EndedRequest;
use super::explain::MAY_HAVE_LOST_MORE;

/// The slowest requests, and the slowest of those that failed, are chosen a store and span of this
/// length...
const SPAN_NS: u64 = 60_000_000_000;
/// ...so many of each...
const PER_SPAN: usize = 50;
/// ...and kept for so many spans, the one under way included.
const SPANS: u64 = 15;
/// Block requests in all of them: a bound of about 36 MiB, however many stores there are.
const MAX_SLOW_BLOCKS: usize = 65_536;
/// Traced requests are kept this long, however fast they were...
const TRACED_NS: u64 = 60_000_000_000;
/// ...at most so many...
const MAX_TRACED: usize = 1024;
/// ...with so many block requests in all.
const MAX_TRACED_BLOCKS: usize = 16_384;

/// Note on a request whose block requests were not all known in time.
pub(super) const FOUND_LATER: &str = "the completion of block requests of it was found only later: they are \
                           not in here";

/// Explained requests.
#[derive(Debug, Default)]
pub(super) struct ExplainedRequests {
    /// By span, store, and whether they failed; slowest first.
    slow: BTreeMap<(u64, usize, bool), Vec<One>>,
    slow_blocks: usize,
    /// In the order in which they were counted.
    traced: VecDeque<One>,
    traced_blocks: usize,
    /// Those that had to go before their time.
    pub(super) dropped: u64,
}

#[derive(Debug, Clone)]
struct One {
    store: usize,
    end_ns: u64,
    explained: SlowRequest,
}

impl One {
    /// Its weight: one for itself, one for each of its block requests.
    fn weight(&self) -> usize {
        1 + self.explained.blocks.len()
    }
}

impl ExplainedRequests {
    /// True: it would be kept although it has no trace.
    pub(super) fn is_slow(&self, ended: &EndedRequest) -> bool {
        if ended.control {
            return false;
        }
        let key = (ended.end_ns / SPAN_NS, ended.store, !ended.ok);
        match self.slow.get(&key) {
            Some(all) if all.len() >= PER_SPAN => all
                .last()
                .is_some_and(|last| last.explained.total_ns < ended.total_ns()),
            _ => true,
        }
    }

    /// Keeps a request as long as it deserves it.
    pub(super) fn add(&mut self, ended: &EndedRequest, explained: SlowRequest) {
        let one = One {
            store: ended.store,
            end_ns: ended.end_ns,
            explained,
        };
        if ended.trace.is_some() {
            self.add_traced(one.clone());
        }
        if self.is_slow(ended) {
            self.add_slow(one);
        }
    }

    fn add_slow(&mut self, one: One) {
        self.slow_blocks += one.weight();
        let all = self
            .slow
            .entry((one.end_ns / SPAN_NS, one.store, !one.explained.ok))
            .or_default();
        let at = all.partition_point(|o| o.explained.total_ns >= one.explained.total_ns);
        all.insert(at, one);
        if all.len() > PER_SPAN {
            self.slow_blocks -= all.pop().map_or(0, |gone| gone.weight());
        }
        while self.slow_blocks > MAX_SLOW_BLOCKS {
            let Some(mut oldest) = self.slow.first_entry() else {
                return;
            };
            if let Some(gone) = oldest.get_mut().pop() {
                self.slow_blocks -= gone.weight();
                self.dropped += 1;
            }
            if oldest.get().is_empty() {
                oldest.remove();
            }
        }
    }

    fn add_traced(&mut self, one: One) {
        self.traced_blocks += one.weight();
        self.traced.push_back(one);
        while self.traced.len() > MAX_TRACED || self.traced_blocks > MAX_TRACED_BLOCKS {
            let Some(gone) = self.traced.pop_front() else {
                return;
            };
            self.traced_blocks -= gone.weight();
            self.dropped += 1;
        }
    }

    /// A request and the index of its store.
    pub(super) fn find(&self, request: u64) -> Option<(usize, &SlowRequest)> {
        let slow = self.slow.values().rev().flatten();
        let mut all = self.traced.iter().rev().chain(slow);
        let one = all.find(|one| one.explained.request_id == request)?;
        Some((one.store, &one.explained))
    }

    /// A block request of this request became known after it was counted.
    pub(super) fn add_gap(&mut self, request: u64) {
        self.note(FOUND_LATER, |one| one.explained.request_id == request);
    }

    /// A block request became known that was at the disk of these stores from then on, nobody knows until when.
    pub(super) fn doubt_lost(&mut self, is_on_disk: impl Fn(usize) -> bool, since_ns: u64) {
        self.note(MAY_HAVE_LOST_MORE, |one| {
            one.end_ns > since_ns && is_on_disk(one.store)
        });
    }

    fn note(&mut self, gap: &str, concerns: impl Fn(&One) -> bool) {
        let all = self.slow.values_mut().flatten().chain(&mut self.traced);
        for one in all.filter(|one| concerns(one)) {
            note(&mut one.explained, gap);
        }
    }

    /// How many slow ones of this store are kept.
    pub(super) fn slow_of(&self, store: usize) -> usize {
        let of_store = self.slow.iter().filter(|((_, s, _), _)| *s == store);
        of_store.map(|(_, all)| all.len()).sum()
    }

    /// Slowest first, each with the index of its store; `failed`: only those that failed.
    pub(super) fn slowest(
        &self,
        (store, failed): (Option<usize>, bool),
        since_ns: u64,
        limit: usize,
    ) -> Vec<(usize, &SlowRequest)> {
        let spans = self.slow.range((since_ns / SPAN_NS, 0, false)..);
        let of_store = spans.filter(|((_, s, has_failed), _)| {
            store.is_none_or(|store| store == *s) && (*has_failed || !failed)
        });
        let mut found: Vec<&One> = of_store.flat_map(|(_, all)| all).collect();
        found.retain(|one| one.end_ns >= since_ns);
        found.sort_by_key(|one| std::cmp::Reverse(one.explained.total_ns));
        found.truncate(limit);
        let found = found.into_iter();
        found.map(|one| (one.store, &one.explained)).collect()
    }

    /// Forgets what has been kept long enough.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let first = (now_ns / SPAN_NS).saturating_sub(SPANS - 1);
        while let Some(oldest) = self.slow.first_entry()
            && oldest.key().0 < first
        {
            self.slow_blocks -= oldest.remove().iter().map(One::weight).sum::<usize>();
        }
        let from_ns = now_ns.saturating_sub(TRACED_NS);
        while let Some(oldest) = self.traced.front()
            && oldest.end_ns < from_ns
        {
            self.traced_blocks -= oldest.weight();
            self.traced.pop_front();
        }
    }

    /// Forgets everything of a store.
    pub(super) fn forget(&mut self, store: usize) {
        self.slow.retain(|(_, s, _), _| *s != store);
        self.traced.retain(|one| one.store != store);
        self.slow_blocks = self.slow.values().flatten().map(One::weight).sum();
        self.traced_blocks = self.traced.iter().map(One::weight).sum();
    }
}

/// Adds a gap to what an explanation says of itself, once.
pub(super) fn note(explained: &mut SlowRequest, gap: &str) {
    let incomplete = &mut explained.incomplete;
    if incomplete.contains(gap) {
        return;
    }
    if !incomplete.is_empty() {
        incomplete.push_str("; ");
    }
    incomplete.push_str(gap);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TraceContext;
    use crate::report::BlockIo;

    fn ended(request: u64, end_ns: u64, total_ns: u64, traced: bool) -> EndedRequest {
        let trace = TraceContext {
            trace_id: 1,
            span_id: 2,
            parent_span_id: 0,
        };
        EndedRequest {
            request,
            method: "get".into(),
            begin_ns: end_ns - total_ns,
            end_ns,
            ok: true,
            trace: traced.then_some(trace),
            ..EndedRequest::default()
        }
    }

    fn explained(ended: &EndedRequest, blocks: usize) -> SlowRequest {
        SlowRequest {
            request_id: ended.request,
            total_ns: ended.total_ns(),
            ok: ended.ok,
            blocks: vec![BlockIo::default(); blocks],
            ..SlowRequest::default()
        }
    }

    fn keep(kept: &mut ExplainedRequests, ended: &EndedRequest, blocks: usize) {
        kept.add(ended, explained(ended, blocks));
    }

    #[test]
    fn the_slowest_of_a_minute_are_kept_and_the_fast_ones_fall_out() {
        let mut kept = ExplainedRequests::default();
        for request in 0..200 {
            keep(&mut kept, &ended(request, 1_000_000, request, false), 0);
        }
        let slowest = kept.slowest((None, false), 0, 1000);
        assert_eq!(slowest.len(), PER_SPAN);
        assert_eq!(slowest[0].1.request_id, 199);
        assert!(kept.find(150).is_some() && kept.find(149).is_none());
        assert!(!kept.is_slow(&ended(9, 1_000_000, 150, false)));
        assert_eq!(kept.slowest((Some(1), false), 0, 9), []);
        assert_eq!(kept.slowest((Some(0), false), 1_000_001, 9), []);
        kept.expire(SPANS * SPAN_NS - 1);
        assert!(kept.find(199).is_some());
        kept.expire(SPANS * SPAN_NS);
        assert!(kept.find(199).is_none());
        assert_eq!((kept.slow_blocks, kept.dropped), (0, 0));
    }

    #[test]
    fn failed_requests_are_kept_beside_slower_ones_and_control_calls_are_not() {
        let mut kept = ExplainedRequests::default();
        let mut failed = ended(7, 1_000_000, 1, false);
        failed.ok = false;
        keep(&mut kept, &failed, 0);
        for request in 100..200 {
            keep(&mut kept, &ended(request, 1_000_000, request, false), 0);
        }
        let mut control = ended(8, 1_000_000, 900_000, false);
        control.control = true;
        assert!(!kept.is_slow(&control));
        let found = kept.slowest((None, true), 0, 1000);
        assert_eq!((found.len(), found[0].1.request_id), (1, 7));
        assert_eq!(kept.slowest((None, false), 0, 1000).len(), PER_SPAN + 1);
    }

    #[test]
    fn traced_requests_are_kept_for_a_short_while_however_fast() {
        let mut kept = ExplainedRequests::default();
        for request in 0..100 {
            keep(&mut kept, &ended(request, 1_000_000, 1000, false), 0);
        }
        keep(&mut kept, &ended(777, 1_000_000, 1, true), 0);
        assert!(kept.find(777).is_some());
        assert_eq!(kept.slowest((None, false), 0, 1000).len(), PER_SPAN);
        kept.expire(1_000_001 + TRACED_NS);
        assert!(kept.find(777).is_none());
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut kept = ExplainedRequests::default();
        for request in 0..3000 {
            let at = request * (SPAN_NS / 50);
            keep(&mut kept, &ended(request + 1, at + 10, 10, true), 64);
            assert!(kept.slow_blocks <= MAX_SLOW_BLOCKS);
            assert!(kept.traced_blocks <= MAX_TRACED_BLOCKS);
        }
        assert!(kept.dropped > 0);
        assert!(kept.find(3000).is_some());
        kept.forget(0);
        assert_eq!((kept.slow_blocks, kept.traced_blocks), (0, 0));
        assert_eq!(kept.find(3000), None);
    }
}
