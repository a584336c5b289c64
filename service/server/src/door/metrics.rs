//! Counters of the door.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tracing::{debug, warn};

use super::connection::Connection;
use super::handshake::Refused;
use crate::log_rate::LogRate;

/// Values of the labels of one series, with the labels' names.
type Labels = Vec<(&'static str, String)>;

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
    accept_log: LogRate,
    refused_log: LogRate,
    login_log: LogRate,
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
