//! When a store counts as overloaded. Pure: no clock, no I/O.
//!
//! CannyLS's rule: its queue has had at least a number of requests for longer than a time,
//! without a moment of less. Unlike CannyLS the store recovers by itself, when the queue is down
//! to half of that number, and nothing but new requests that are not prioritized is refused.

/// The rule and where it stands.
#[derive(Debug)]
pub(crate) struct Overload {
    threshold: usize,
    after_ns: u64,
    /// Since when the queue has not been shorter than the threshold.
    long_since: Option<u64>,
    overloaded: bool,
}

impl Overload {
    pub(crate) fn new(threshold: usize, after_ns: u64) -> Self {
        Self {
            threshold: threshold.max(1),
            after_ns,
            long_since: None,
            overloaded: false,
        }
    }

    /// So many requests wait after all that can start has been started. True: overloaded.
    pub(crate) fn observe(&mut self, waiting: usize, now_ns: u64) -> bool {
        if self.overloaded {
            self.overloaded = waiting > self.recovers_at();
            self.long_since = None;
        } else if waiting >= self.threshold {
            let since = *self.long_since.get_or_insert(now_ns);
            self.overloaded = now_ns.saturating_sub(since) >= self.after_ns;
        } else {
            self.long_since = None;
        }
        self.overloaded
    }

    /// Waiting requests at which the store has recovered.
    pub(crate) fn recovers_at(&self) -> usize {
        self.threshold / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_queue_for_long_is_overload_and_a_burst_is_not() {
        let mut overload = Overload::new(10, 100);
        assert!(!overload.observe(1000, 0));
        assert!(!overload.observe(10, 99));
        assert!(!overload.observe(9, 99), "a moment of less");
        assert!(!overload.observe(10, 150));
        assert!(!overload.observe(10, 249));
        assert!(overload.observe(10, 250));
        // Not as soon as it is below the threshold.
        assert!(overload.observe(9, 251));
        assert!(overload.observe(6, 252));
        assert!(!overload.observe(5, 253));
        // And not again at once.
        assert!(!overload.observe(10, 254));
        assert!(overload.observe(10, 354));
        assert!(!overload.observe(0, 355));
    }

    #[test]
    fn a_time_of_zero_is_overload_at_once() {
        let mut overload = Overload::new(1, 0);
        assert!(!overload.observe(0, 5));
        assert!(overload.observe(1, 5));
        assert!(!overload.observe(0, 5));
    }
}
