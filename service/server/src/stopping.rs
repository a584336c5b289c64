//! The end of a service: what is under way finishes, but not for ever.

use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::error::ServerError;
use crate::stores::Stores;
use crate::telemetry::metrics::RequestMetrics;

/// How often is looked whether requests are under way.
const LOOK: Duration = Duration::from_millis(20);
/// The last bytes of replies have this long to get out once nothing is under way any more.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// A disk that does not answer keeps a store from being closed; the end waits this long for it.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(30);

/// Waits until no request is under way, for at most `longest` or until `hurry` completes, then cuts
/// off what is left.
pub(crate) async fn finish(
    serving: &mut JoinHandle<()>,
    requests: &RequestMetrics,
    stores: &Stores,
    longest: Duration,
    hurry: impl Future<Output = ()>,
) {
    tokio::select! {
        // All connections have ended, which they do when nothing is under way on them.
        _ = &mut *serving => return,
        () = none_under_way(requests) => info!("no request is under way any more"),
        () = tokio::time::sleep(longest) => {
            let left = requests.under_way();
            warn!(left, after = ?longest, "requests are still under way: they are cut off");
        }
        () = hurry => {
            let left = requests.under_way();
            warn!(left, "asked to hurry: requests under way are cut off");
        }
    }
    stores.cut_off();
    if tokio::time::timeout(LAST_BYTES, &mut *serving)
        .await
        .is_err()
    {
        serving.abort();
    }
}

async fn none_under_way(requests: &RequestMetrics) {
    while requests.under_way() > 0 {
        tokio::time::sleep(LOOK).await;
    }
}

/// Closes the stores and then does `last`, for at most [`CLOSE_WITHIN`].
///
/// # Errors
/// A store that did not close in order, or in time.
pub(crate) async fn close(
    stores: &Stores,
    last: impl FnOnce() + Send + 'static,
) -> Result<(), ServerError> {
    let stores = stores.clone();
    let closing = tokio::task::spawn_blocking(move || {
        let closed = stores.close();
        last();
        closed
    });
    match tokio::time::timeout(CLOSE_WITHIN, closing).await {
        Ok(Ok(closed)) => closed,
        Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        Err(_) => Err(ServerError::CloseLate {
            after: CLOSE_WITHIN,
        }),
    }
}
