//! Block requests as the service hands them out, collected until they have ceased.

use std::time::Duration;

use lumpscope_proto::v1::{BlockLine, TraceRequest};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Client;

/// After this time without a block request all of them are in.
const QUIET: Duration = Duration::from_secs(3);

/// Items handed out.
#[derive(Debug, Default)]
pub struct TraceItems {
    /// Block requests as they completed.
    pub lines: Vec<BlockLine>,
    /// The last gaps reported by the service; empty: none.
    pub incomplete: String,
    /// It said so at any time.
    pub was_incomplete: bool,
}

/// A call of Trace that collects.
#[derive(Debug)]
pub struct Watching {
    over: oneshot::Sender<()>,
    task: JoinHandle<TraceItems>,
}

impl Watching {
    /// Begins with all block requests of a store.
    ///
    /// # Panics
    /// When the service refuses.
    pub async fn of_store(client: &Client, store: &str) -> Watching {
        let store = store.to_owned();
        let request = TraceRequest {
            store,
            ..TraceRequest::default()
        };
        Watching::begin(client, request).await
    }

    /// Begins: every block request from the return of this on is collected.
    ///
    /// # Panics
    /// When the service refuses.
    pub async fn begin(client: &Client, request: TraceRequest) -> Watching {
        let reply = client.observe().trace(request).await.expect("a trace");
        let mut stream = reply.into_inner();
        // The first message says that watching has begun.
        let first = stream.message().await.expect("the trace goes on");
        let (over, mut is_over) = oneshot::channel();
        let task = tokio::spawn(async move {
            let (mut seen, mut ended, mut last) = (TraceItems::default(), false, Instant::now());
            let mut next = first;
            // The service says something every second.
            while let Some(message) = next {
                assert_eq!(message.dropped, 0, "this client takes them in time");
                if !ended && is_over.try_recv() != Err(oneshot::error::TryRecvError::Empty) {
                    (ended, last) = (true, Instant::now());
                }
                if !message.blocks.is_empty() {
                    last = Instant::now();
                }
                seen.lines.extend(message.blocks);
                seen.was_incomplete |= !message.incomplete.is_empty();
                seen.incomplete = message.incomplete;
                if ended && last.elapsed() >= QUIET {
                    break;
                }
                next = stream.message().await.ok().flatten();
            }
            seen
        });
        Watching { over, task }
    }

    /// Ends it after all that is under way has been handed out.
    ///
    /// # Panics
    /// When block requests were left out because this side was too slow.
    pub async fn end(self) -> TraceItems {
        // Whoever collects may have ended already: the service is gone.
        let _ = self.over.send(());
        self.task.await.expect("the watch ends")
    }
}
