//! A budget of bytes a second for work in the background.
//!
//! A token bucket that may go into debt: work is begun when the bucket is not in debt, and then
//! taken off whole. So the average holds whatever the size of one piece is, and an idle time is
//! made up for by at most [`BURST_NS`] of work.

/// Time whose budget an idle bucket saves up.
const BURST_NS: u64 = 100_000_000;
const SECOND_NS: u128 = 1_000_000_000;

/// The bucket. Its time is the engine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Bytes a second; 0: no limit.
    rate: u64,
    /// From this time on the next piece may begin.
    due_ns: u64,
}

impl Budget {
    pub(super) fn new(rate: u64) -> Self {
        Self { rate, due_ns: 0 }
    }

    /// Keeps the debt, to be paid at another rate from now on.
    pub(super) fn set_rate(&mut self, rate: u64, now_ns: u64) {
        if rate != self.rate {
            let debt_ns = self.due_ns.saturating_sub(now_ns);
            let bytes = u128::from(debt_ns) * u128::from(self.rate) / SECOND_NS;
            *self = Self::new(rate);
            self.due_ns = now_ns;
            self.spend(u64::try_from(bytes).unwrap_or(u64::MAX), now_ns);
        }
    }

    /// When the next piece may begin, if that is later than now.
    pub(super) fn wait_until(&self, now_ns: u64) -> Option<u64> {
        (self.rate > 0 && self.due_ns > now_ns).then_some(self.due_ns)
    }

    /// A piece of this many bytes begins.
    pub(super) fn spend(&mut self, bytes: u64, now_ns: u64) {
        if self.rate > 0 {
            let cost = u128::from(bytes) * SECOND_NS / u128::from(self.rate);
            let from = self.due_ns.max(now_ns.saturating_sub(BURST_NS));
            self.due_ns = from.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_average_holds_for_pieces_of_any_size() {
        for piece in [1, 4096, 1 << 20, 5_000_000] {
            let mut budget = Budget::new(1_000_000);
            let (mut now, mut done) = (5 * SECOND, 0);
            while now < 105 * SECOND {
                match budget.wait_until(now) {
                    Some(due) => now = due,
                    None => {
                        budget.spend(piece, now);
                        done += piece;
                    }
                }
            }
            let least = 100_000_000;
            let most = least + 100_000 + 2 * piece;
            assert!((least..=most).contains(&done), "{piece}: {done}");
        }
    }

    #[test]
    fn no_limit_never_waits() {
        let mut budget = Budget::new(0);
        budget.spend(u64::MAX, 0);
        assert_eq!(budget.wait_until(0), None);
    }

    #[test]
    fn a_debt_is_paid_at_the_new_rate() {
        let mut budget = Budget::new(1000);
        budget.spend(100_000, 10 * SECOND);
        let old = budget.wait_until(10 * SECOND).unwrap();
        assert_eq!(old, 10 * SECOND + 100 * SECOND - BURST_NS);
        budget.set_rate(100_000, 10 * SECOND);
        let new = budget.wait_until(10 * SECOND).unwrap();
        assert!(new <= 11 * SECOND, "{new}");
        budget.set_rate(0, 10 * SECOND);
        assert_eq!(budget.wait_until(10 * SECOND), None);
    }
}
