//! Teaches the order how long the disk takes, from the engine's own I/Os or from an observer of the
//! disk. An observer also knows how others moved the arm, so while it reports
//! ([`Store::learn`](crate::Store::learn)), the engine's own pairs are left out.

use super::Waiting;
use super::order::curve::Pair;
use super::order_stats::OrderShared;
use crate::clock::monotonic_ns;

/// Observations from outside taken up in one round.
const TOLD_AT_ONCE: usize = 64;

/// The engine's own pairs are left out for so long after an observation from outside, in
/// nanoseconds.
const TOLD_LASTS_NS: u64 = 1_000_000_000;

/// Pairs after which the curve is shown anew.
const SHOWN_EVERY: u32 = 8;

/// State between pairs.
#[derive(Debug, Default)]
pub(super) struct Learning {
    /// When an observation from outside was taken up last.
    told_ns: Option<u64>,
    /// Pairs since the curve was shown; `None`: it was not yet.
    since_shown: Option<u32>,
}

impl Waiting {
    /// A pair of the engine's own I/Os.
    pub(in crate::owner) fn learn_own(&mut self, shared: &OrderShared, pair: Pair) {
        let told_ns = self.learning.told_ns;
        if told_ns.is_none_or(|told| monotonic_ns().saturating_sub(told) > TOLD_LASTS_NS) {
            self.learn(shared, pair, true);
        }
    }

    /// Takes up what others have observed.
    pub(in crate::owner) fn learn_told(&mut self, shared: &OrderShared) {
        for _ in 0..TOLD_AT_ONCE {
            let Some(pair) = shared.told() else {
                return;
            };
            self.learning.told_ns = Some(monotonic_ns());
            self.learn(shared, pair, false);
        }
    }

    fn learn(&mut self, shared: &OrderShared, pair: Pair, own: bool) {
        let Some(curve) = self.queue.order().curve() else {
            return;
        };
        let predicted = curve.predict(pair.distance, pair.len);
        shared.note_pair(pair, predicted, own);
        self.queue.learn(pair);
        let since = &mut self.learning.since_shown;
        *since = since.map(|since| since + 1);
    }

    /// Shows to other threads why requests were chosen, and the curve now and then.
    pub(super) fn publish_order(&mut self, shared: &OrderShared) {
        shared.show_chosen(self.queue.chosen());
        let shown = self.learning.since_shown;
        if let Some(curve) = self.queue.order().curve()
            && shown.is_none_or(|since| since >= SHOWN_EVERY)
        {
            shared.show_curve(curve);
            self.learning.since_shown = Some(0);
        }
    }
}
