//! When the clients of a load make requests, which of these count, and when the load is over.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;

/// The rule of one load, shared by its clients.
#[derive(Debug, Default)]
pub struct Pace {
    /// Begin of the timed part; not set while a client still prepares it.
    begin: OnceLock<Instant>,
    time: Option<Duration>,
    every: Option<Duration>,
    pub(crate) stop: CancellationToken,
}

impl Pace {
    /// A timed part of this length; `None`: until `stop`, or until the clients have nothing left
    /// to do. `every`: from the begin of a client's step to that of its next; `None`: no pause.
    /// `stop` ends the load early; requests in flight are waited for.
    #[must_use]
    pub fn new(
        time: Option<Duration>,
        every: Option<Duration>,
        stop: CancellationToken,
    ) -> Arc<Pace> {
        Arc::new(Pace {
            begin: OnceLock::new(),
            time,
            every,
            stop,
        })
    }

    /// A timed part of this length; `None`: until the clients have nothing left to do.
    pub(crate) fn lasting(time: Option<Duration>) -> Arc<Pace> {
        Pace::new(time, None, CancellationToken::new())
    }

    /// A timed part of this length, which begins after `warm_up` from now.
    pub(crate) fn after(warm_up: Duration, time: Duration) -> Arc<Pace> {
        Arc::new(Pace {
            begin: OnceLock::from(Instant::now() + warm_up),
            time: Some(time),
            ..Pace::default()
        })
    }

    /// Begin of the timed part, which is now if it has none.
    pub(crate) fn begin(&self) -> Instant {
        *self.begin.get_or_init(Instant::now)
    }

    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begin.get().copied()
    }

    pub(crate) fn end(&self) -> Option<Instant> {
        self.begun()?.checked_add(self.time?)
    }

    /// True for a request that ended at this moment within the timed part.
    pub(crate) fn counts(&self, ended: Instant) -> bool {
        self.begun().is_some_and(|begin| ended >= begin) && self.end().is_none_or(|end| ended < end)
    }

    fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.end().is_some_and(|end| Instant::now() >= end)
    }

    /// Waits so long, or until the load is over.
    pub(crate) async fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let until = self.end().map_or(until, |end| end.min(until));
        tokio::select! {
            () = sleep_until(until.into()) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// One client of a load.
pub(crate) trait Worker: Send + 'static {
    type Error: Send + 'static;

    /// One request, or a few that belong together; false: nothing is left to do.
    fn step(&mut self, pace: &Pace) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

/// Runs all clients at once, and gives them back when they have ended. The first error ends all,
/// whatever the others are at; so does dropping the future.
pub(crate) async fn drive<W: Worker>(
    workers: impl IntoIterator<Item = W>,
    pace: &Arc<Pace>,
) -> Result<Vec<W>, W::Error> {
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(worker, Arc::clone(pace)));
    }
    let mut ended = Vec::with_capacity(tasks.len());
    while let Some(worker) = tasks.join_next().await {
        match worker {
            Ok(worker) => ended.push(worker?),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    Ok(ended)
}

async fn work<W: Worker>(mut worker: W, pace: Arc<Pace>) -> Result<W, W::Error> {
    let mut ticks = pace.every.map(|every| {
        // Not all clients at once.
        let first = Instant::now() + every.mul_f64(fastrand::f64());
        let mut ticks = interval_at(first.into(), every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    while !pace.is_over() {
        if let Some(ticks) = &mut ticks {
            tokio::select! {
                _ = ticks.tick() => {}
                () = pace.sleep(Duration::from_secs(1 << 30)) => break,
            }
        }
        if !worker.step(&pace).await? {
            break;
        }
    }
    Ok(worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(u32);

    impl Worker for Counter {
        type Error = &'static str;

        async fn step(&mut self, pace: &Pace) -> Result<bool, &'static str> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.0 += u32::from(pace.counts(Instant::now()));
            if self.0 == u32::MAX {
                return Err("one fails");
            }
            Ok(self.0 < 3)
        }
    }

    #[tokio::test]
    async fn a_load_ends_with_its_clients_its_time_its_stop_or_an_error() {
        let pace = Pace::after(Duration::ZERO, Duration::from_secs(3600));
        let done = drive([Counter(0), Counter(1)], &pace).await;
        assert!(done.is_ok_and(|done| done.iter().all(|counter| counter.0 == 3)));
        let failed = drive([Counter(0), Counter(u32::MAX - 1)], &pace).await;
        assert_eq!(failed.err(), Some("one fails"));

        let past = Pace::after(Duration::from_secs(3600), Duration::ZERO);
        past.stop.cancel();
        let short = Pace::after(Duration::from_millis(20), Duration::ZERO);
        for pace in [past, short] {
            let done = drive([Counter(0)], &pace).await;
            assert!(done.is_ok_and(|done| done[0].0 == 0), "none counts");
        }
        let hour = Some(Duration::from_secs(3600));
        let slow = Pace::new(
            Some(Duration::from_millis(20)),
            hour,
            CancellationToken::new(),
        );
        let begin = slow.begin();
        assert!(drive([Counter(0)], &slow).await.is_ok());
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "no tick is waited for"
        );
    }
}
