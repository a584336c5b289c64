//! A hold on one connection, for whoever serves a call on it.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// A hold on a connection: found in the extensions of every request that came on it. Cheap to
/// clone; all clones are the same connection.
///
/// To end a connection is the only sure way to get back the memory of a reply that its client does
/// not take: what was handed to HTTP/2 stays there until it is sent.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    closed: CancellationToken,
    why: OnceLock<&'static str>,
}

impl Connection {
    /// A connection that is open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the connection and every call on it; `why` is for the log. Only the first call counts.
    pub fn close(&self, why: &'static str) {
        let _ = self.inner.why.set(why);
        self.inner.closed.cancel();
    }

    /// Completes when the connection is to be ended, with the reason.
    pub async fn closed(&self) -> &'static str {
        self.inner.closed.cancelled().await;
        self.inner.why.get().copied().unwrap_or("no reason given")
    }
}
