//! One connection as the requests on it see it: who is at the other end, and a way to end it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::debug;

use super::tls::ClientCertificate;

/// Calls without a login under way on one connection.
const VISITS: usize = 16;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Came over TCP.
    Tcp(SocketAddr),
    /// Came over the UNIX socket; the process that connected, where the kernel says it.
    Unix {
        /// As the kernel said when it connected.
        pid: Option<i32>,
        /// Its effective user id.
        uid: Option<u32>,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { pid, uid } => {
                f.write_str("unix")?;
                pid.map_or(Ok(()), |pid| write!(f, " pid {pid}"))?;
                uid.map_or(Ok(()), |uid| write!(f, " uid {uid}"))
            }
        }
    }
}

/// A handle of one connection. Cheap to clone; it is in the extensions of every request.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    peer: Peer,
    certificate: OnceLock<ClientCertificate>,
    withdrawn: CancellationToken,
    closed: CancellationToken,
    calls: AtomicUsize,
    visits: Arc<Semaphore>,
    logged_in: AtomicBool,
    quiet_since: Mutex<Instant>,
}

impl Connection {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(peer: Peer) -> Self {
        Self {
            inner: Arc::new(Inner {
                peer,
                certificate: OnceLock::new(),
                withdrawn: CancellationToken::new(),
                closed: CancellationToken::new(),
                calls: AtomicUsize::new(0),
                visits: Arc::new(Semaphore::new(VISITS)),
                logged_in: AtomicBool::new(false),
                quiet_since: Mutex::new(Instant::now()),
            }),
        }
    }

    /// The connection by which a request came; `None`: it came by no socket of the door.
    #[must_use]
    pub fn of(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// A number that hardly another connection has while this one is open; never 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        let place = Arc::as_ptr(&self.inner).addr() / align_of::<Inner>();
        u32::try_from(place & 0x7fff_ffff).map_or(1, |number| number.max(1))
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.inner.peer
    }

    /// True: it came by the UNIX socket, whose permissions are the login.
    #[must_use]
    pub fn is_unix(&self) -> bool {
        matches!(self.inner.peer, Peer::Unix { .. })
    }

    /// DNS and URI names of the client's certificate, which the configured authority has signed;
    /// `None`: the client has shown none.
    #[must_use]
    pub fn identities(&self) -> Option<&[String]> {
        self.certificate().map(|shown| shown.names.as_slice())
    }

    /// Ends the connection at once: what reads and writes it gets an error, and with that every
    /// call on it ends.
    pub fn close(&self, why: &'static str) {
        if !self.is_closed() {
            debug!(peer = %self.inner.peer, why, "connection closed");
            self.inner.closed.cancel();
        }
    }

    /// True after [`Connection::close`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Completes after [`Connection::close`].
    pub(super) fn closed(&self) -> WaitForCancellationFutureOwned {
        self.inner.closed.clone().cancelled_owned()
    }

    /// Counts a call as under way until the [`ActiveCall`] is dropped.
    #[must_use]
    pub fn call(&self) -> ActiveCall {
        self.inner.calls.fetch_add(1, Ordering::SeqCst);
        ActiveCall(self.clone())
    }

    /// A caller on it is known: it is no stranger's any more.
    pub fn log_in(&self) {
        self.inner.logged_in.store(true, Ordering::SeqCst);
    }

    /// True: a caller on it is known.
    #[must_use]
    pub fn has_logged_in(&self) -> bool {
        self.is_unix() || self.inner.logged_in.load(Ordering::SeqCst)
    }

    /// True: it may be closed to make room for another.
    pub(super) fn is_displaceable(&self) -> bool {
        !self.has_logged_in() && self.calls() == 0 && !self.is_closed()
    }

    /// True: both are handles of one connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// When a call was under way last, or when it was accepted.
    pub(super) fn quiet_since(&self) -> Instant {
        *self.quiet()
    }

    /// Lets a caller who has not logged in make one more call; `None`: there are enough.
    #[must_use]
    pub fn visit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.inner.visits).try_acquire_owned().ok()
    }

    /// Calls under way.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.inner.calls.load(Ordering::SeqCst)
    }

    /// Completes when no call has been under way for `limit`.
    pub(super) async fn quiet_for(&self, limit: Duration) {
        loop {
            let since = self.quiet_since();
            let due = if self.calls() > 0 {
                Instant::now() + limit
            } else {
                since + limit
            };
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    /// Remembers the client's certificate; only the first call counts.
    pub(super) fn identify(&self, certificate: ClientCertificate) {
        // A connection has one handshake.
        let _ = self.inner.certificate.set(certificate);
    }

    /// The certificate that the client has shown.
    pub(super) fn certificate(&self) -> Option<&ClientCertificate> {
        self.inner.certificate.get()
    }

    /// Cancelled when the client's certificate is not accepted any more.
    #[must_use]
    pub fn withdrawn(&self) -> &CancellationToken {
        &self.inner.withdrawn
    }

    fn quiet(&self) -> MutexGuard<'_, Instant> {
        self.inner
            .quiet_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way on a connection, until it is dropped.
#[derive(Debug)]
pub struct ActiveCall(Connection);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        // Before the count falls: whoever sees no call under way must see since when.
        *self.0.quiet() = Instant::now();
        self.0.inner.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new(Peer::Unix {
            pid: Some(1),
            uid: None,
        })
    }

    #[tokio::test]
    async fn it_is_quiet_only_without_calls() {
        let connection = connection();
        let limit = Duration::from_millis(50);
        let call = connection.call();
        let other = connection.clone();
        let quiet = tokio::spawn(async move { other.quiet_for(limit).await });
        tokio::time::sleep(limit * 5).await;
        assert!(!quiet.is_finished());
        let ended = Instant::now();
        drop(call);
        quiet.await.unwrap();
        assert!(ended.elapsed() >= limit);
    }

    #[tokio::test]
    async fn closing_wakes_both_directions_once() {
        let connection = connection();
        let [reader, writer] = [(); 2].map(|()| tokio::spawn(connection.closed()));
        tokio::task::yield_now().await;
        connection.close("a test");
        connection.close("a test");
        reader.await.unwrap();
        writer.await.unwrap();
        assert!(connection.is_closed());
    }
}
