//! From explained requests to spans that wait to be sent.

use std::sync::Arc;
use std::time::Duration;

use lumpscope_observer::{Observer, TracedRequest, Watch};
use opentelemetry_sdk::trace::RandomIdGenerator;
use tokio::sync::watch;

use super::spans::{self, About};
use super::{ExporterShared, QUEUE, lock};

/// Time between two looks; the observer has something new at most every 10 ms.
const EVERY: Duration = Duration::from_millis(50);
/// Longest that is waited for the last block requests when the service ends.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);

/// Gathers until it is told to stop, and then what is still there.
pub(super) async fn run(
    shared: Arc<ExporterShared>,
    watched: Watch<TracedRequest>,
    observer: Observer,
    mut stopped: watch::Receiver<bool>,
) {
    let mut lost = 0;
    let mut last = false;
    while !last {
        last = tokio::select! {
            () = tokio::time::sleep(EVERY) => false,
            // An error means that the service is gone, which is a stop too.
            _ = stopped.wait_for(|stop| *stop) => true,
        };
        if last {
            let observer = observer.clone();
            // What has ended by now is known after this. A panic there has said so.
            let _ = tokio::task::spawn_blocking(move || observer.settle(SETTLE_WITHIN)).await;
        }
        let now_lost = watched.dropped();
        lock(&shared.numbers).requests_lost += now_lost - lost;
        lost = now_lost;
        let alone = std::mem::take(&mut *lock(&shared.alone));
        for explained in watched.take().into_iter().chain(alone) {
            shared.enqueue(&explained);
        }
    }
}

impl ExporterShared {
    /// Makes the spans of a request, all or none.
    pub(super) fn enqueue(&self, traced: &TracedRequest) {
        let about = self.about(traced.request.request_id);
        let room = QUEUE - lock(&self.queue).len().min(QUEUE);
        let count = spans::count(&traced.request);
        if count > room {
            // Not even made: that is the work which a collector that is away must not cost.
            let dropped = u64::try_from(count).unwrap_or(u64::MAX);
            lock(&self.numbers).queue_full += dropped;
            return;
        }
        let ids = RandomIdGenerator::default();
        let made = spans::of(traced, &about, self, &ids);
        lock(&self.queue).extend(made);
    }

    /// The service's facts about a chosen request; drops requests chosen long before it.
    pub(super) fn about(&self, request: u64) -> About {
        let mut chosen = lock(&self.chosen);
        let place = chosen.iter().position(|about| about.request == request);
        let found = place.and_then(|place| chosen.remove(place));
        found.unwrap_or_else(|| About::unknown(request))
    }
}
