//! A bound on log lines of one kind: nobody outside decides how much is logged.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one kind that are logged in a row.
const BURST: u32 = 10;
/// Time after which so many may be logged again.
const PERIOD: Duration = Duration::from_secs(10);

/// Lets [`BURST`] lines through in every [`PERIOD`], and counts the others: whoever knocks a
/// thousand times a second must not fill the log.
#[derive(Debug, Default)]
pub struct LogRate(Mutex<RateWindow>);

#[derive(Debug, Default)]
struct RateWindow {
    begun: Option<Instant>,
    logged: u32,
    kept: u64,
}

impl LogRate {
    /// Nothing has been logged yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(RateWindow {
            begun: None,
            logged: 0,
            kept: 0,
        }))
    }

    /// `Some`: log it, and say that so many before were not logged.
    pub fn allows(&self) -> Option<u64> {
        self.allows_at(Instant::now())
    }

    fn allows_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.begun.is_none_or(|begun| now - begun >= PERIOD) {
            window.begun = Some(now);
            window.logged = 0;
        }
        if window.logged == BURST {
            window.kept += 1;
            return None;
        }
        window.logged += 1;
        Some(std::mem::take(&mut window.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded_and_says_what_it_left_out() {
        let (rate, now) = (LogRate::default(), Instant::now());
        let logged = |_: &u32| rate.allows_at(now).is_some();
        assert_eq!((0..1000).filter(logged).count(), 10);
        assert_eq!(rate.allows_at(now + PERIOD), Some(990));
        assert_eq!(rate.allows_at(now + PERIOD), Some(0));
    }
}
