//! The stream of one viewer: events in the form of `text/event-stream`.
//!
//! The bytes of a frame are those of the ring, handed to the connection one frame at a time when it
//! has room for more. A viewer that takes nothing keeps its place and is told how many frames it
//! has skipped; when it takes nothing at all for `body-timeout`, its connection is closed.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::answer::BROWSER_RULES;
use super::hello::{self, PageStore, Service};
use super::pulse::Viewer;
use super::ring::Frame;
use crate::door::{self, Caller, Connection, told};
use crate::observed::Asking;
use crate::observed::Watching;

/// Proxies that would keep bytes back are told not to.
const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Pieces of an event that wait for the connection.
const PIECES_WAITING: usize = 1;

/// A viewer, ready to be answered.
pub(super) struct PageStream {
    pub(super) asking: Asking,
    pub(super) hello: Arc<Service>,
    /// Says when the service stops.
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) caller: Caller,
    pub(super) watching: Watching,
    pub(super) viewer: Viewer,
    /// The last frame it has; 0: none.
    pub(super) since: u64,
    pub(super) connection: Option<Connection>,
}

type Pieces = mpsc::Sender<Result<Bytes, Infallible>>;

/// The answer, whose body goes on until viewer or service goes.
pub(super) fn answer(live: PageStream) -> Response {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING);
    tokio::spawn(live.run(sender));
    let kind = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (NO_BUFFER, HeaderValue::from_static("no")),
    ];
    let body = Body::from_stream(ReceiverStream::new(pieces));
    (BROWSER_RULES, kind, body).into_response()
}

impl PageStream {
    async fn run(self, sender: Pieces) {
        let stopped = self.stopped.clone();
        let withdrawn = door::withdrawn(&self.caller, self.connection.as_ref());
        tokio::select! {
            () = told(stopped) => {}
            _ = withdrawn => {}
            () = sender.closed() => {}
            () = self.send(&sender) => {}
        }
    }

    /// Sends until nobody takes it.
    async fn send(mut self, to: &Pieces) {
        // Until it ends, the connection is not idle.
        let _call = self.connection.as_ref().map(Connection::call);
        let asking = self.asking.clone();
        let stores = tokio::task::spawn_blocking(move || hello::stores(&asking)).await;
        // An error: the runtime ends, and so does this.
        let Ok(stores) = stores else { return };
        let mut stores = Arc::new(stores);
        if !put(to, self.hello(&stores)).await {
            return;
        }
        let (mut seq, mut missed) = (self.viewer.begin(self.since), 0);
        loop {
            let (frame, skipped) = self.viewer.after(seq).await;
            seq = frame.seq;
            missed += skipped;
            self.watching.missed(missed);
            if frame.stores != stores {
                stores = Arc::clone(&frame.stores);
                if !put(to, self.hello(&stores)).await {
                    return;
                }
            }
            for piece in self.pieces(&frame, skipped) {
                if !put(to, piece).await {
                    return;
                }
            }
        }
    }

    fn hello(&self, stores: &[PageStore]) -> Bytes {
        let own = stores.iter().filter(|s| self.caller.may_use(&s.name));
        let hello = self.hello.hello(&own.collect::<Vec<_>>());
        format!("event: hello\ndata: {hello}\n\n").into()
    }

    /// An event, in pieces.
    fn pieces(&self, frame: &Frame, skipped: u64) -> Vec<Bytes> {
        let head = format!("id: {}\nevent: frame\ndata: ", frame.seq);
        let mut pieces = frame.json(&head, &self.caller, skipped);
        pieces.push(Bytes::from_static(b"\n\n"));
        pieces
    }
}

/// False: nobody takes it any more.
async fn put(to: &Pieces, piece: Bytes) -> bool {
    to.send(Ok(piece)).await.is_ok()
}
