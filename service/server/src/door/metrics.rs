//! Counters of the door, and limits of its log lines.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tracing::{debug, warn};

use super::connection::Connection;
use super::handshake::Refused;

/// Values of the labels of one series, with the labels' names.
type Labels = Vec<(&'static str, String)>;

/// Lines of one kind that are logged in a row.
const BURST: u32 = 10;
/// Time after which so many may be logged again.
const PERIOD: Duration = Duration::from_secs(10);

/// Names of the ways in, in the order of their gauges.
pub const ENTRANCES: [&str; 4] = ["tcp", "unix", "metrics", "s3"];

/// Counts connections and logins.
#[derive(Debug, Default)]
pub struct DoorMetrics {
    pub(crate) accepted: Family<Labels, Counter>,
    pub(crate) accept_errors: Family<Labels, Counter>,
    pub(crate) refused: Family<Labels, Counter>,
    pub(crate) login_failures: Family<Labels, Counter>,
    pub(crate) reloads: Family<Labels, Counter>,
    open: [Arc<AtomicUsize>; ENTRANCES.len()],
    accept_log: Rate,
    refused_log: Rate,
    login_log: Rate,
}

impl DoorMetrics {
    /// Connections open now, all entrances together.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Connections open now at one entrance.
    pub(crate) fn open_at(&self, entrance: &str) -> usize {
        self.place(entrance).load(Ordering::Relaxed)
    }

    /// Counts a connection as open until the [`Open`] is dropped.
    pub(super) fn opened(&self, entrance: &'static str) -> Open {
        let labels = vec![("entrance", entrance.to_owned())];
        self.accepted.get_or_create(&labels).inc();
        let place = Arc::clone(self.place(entrance));
        place.fetch_add(1, Ordering::Relaxed);
        Open(place)
    }

    /// Counts an accept that failed. True: log it.
    pub(super) fn accept_failed(&self, entrance: &'static str) -> bool {
        let labels = vec![("entrance", entrance.to_owned())];
        self.accept_errors.get_or_create(&labels).inc();
        self.accept_log.allows().is_some()
    }

    /// Counts and logs a connection that was not let in. A certificate that is not accepted is a
    /// login that failed.
    pub(super) fn refused(
        &self,
        entrance: &'static str,
        connection: &Connection,
        refused: &Refused,
    ) {
        let peer = connection.peer();
        let reason = refused.reason();
        let labels = vec![
            ("entrance", entrance.to_owned()),
            ("reason", reason.to_owned()),
        ];
        self.refused.get_or_create(&labels).inc();
        if matches!(refused, Refused::Certificate(_)) {
            self.login_failed(Some(connection), reason, "");
        }
        match self.refused_log.allows() {
            Some(kept) if !matches!(refused, Refused::Gone(_)) => {
                warn!(%peer, entrance, %refused, not_logged = kept, "connection refused");
            }
            _ => debug!(%peer, entrance, %refused, "connection refused"),
        }
    }

    /// Counts a request whose caller is unknown or may not do what was asked for, and logs it at
    /// a bounded rate. `who` is the name of a token or certificate, or empty.
    pub(crate) fn login_failed(
        &self,
        connection: Option<&Connection>,
        reason: &'static str,
        who: &str,
    ) {
        let labels = vec![("reason", reason.to_owned())];
        self.login_failures.get_or_create(&labels).inc();
        if let Some(kept) = self.login_log.allows() {
            let peer = connection.map(|connection| connection.peer().to_string());
            warn!(peer, reason, who, not_logged = kept, "login refused");
        }
    }

    /// Counts a look at certificates and tokens that was asked for or that found a change.
    pub(super) fn reloaded(&self, worked: bool) {
        let result = if worked { "ok" } else { "failed" };
        let labels = vec![("result", result.to_owned())];
        self.reloads.get_or_create(&labels).inc();
    }

    fn place(&self, entrance: &str) -> &Arc<AtomicUsize> {
        let known = ENTRANCES.iter().position(|name| *name == entrance);
        &self.open[known.unwrap_or(0)]
    }
}

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets [`BURST`] lines through in every [`PERIOD`], and counts the others: whoever knocks a
/// thousand times a second must not fill the log.
#[derive(Debug, Default)]
struct Rate(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    logged: u32,
    kept: u64,
}

impl Rate {
    /// `Some`: log it, and say that so many before were not logged.
    fn allows(&self) -> Option<u64> {
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
        let (rate, now) = (Rate::default(), Instant::now());
        let logged = |_: &u32| rate.allows_at(now).is_some();
        assert_eq!((0..1000).filter(logged).count(), 10);
        assert_eq!(rate.allows_at(now + PERIOD), Some(990));
        assert_eq!(rate.allows_at(now + PERIOD), Some(0));
    }
}
