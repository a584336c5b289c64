//! Sends replies whose bodies are slices of the buffer the disk wrote to.
//!
//! tonic encodes each reply into a buffer of its own. Here a body goes straight from the buffer the disk
//! wrote to, to the socket, as [`Decoder`](lumpscope_proto::frame::Decoder) does with puts.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use lumpscope_engine::clock::monotonic_ns;
use tokio_stream::Stream;
use tonic::Status;
use tonic::codegen::http::{HeaderMap, HeaderValue};

use crate::refusal::Refusal;

/// The body of a reply: frames as they are, then the status as trailers. An error ends it, and so
/// does the deadline.
pub(super) struct Messages<S> {
    frames: Option<S>,
    deadline_ns: Option<u64>,
}

impl<S> Messages<S> {
    /// A body of `frames`, none of which is sent after `deadline_ns` of the monotonic clock.
    pub(super) fn new(frames: S, deadline_ns: Option<u64>) -> Self {
        Self {
            frames: Some(frames),
            deadline_ns,
        }
    }

    fn is_late(&self) -> bool {
        self.deadline_ns.is_some_and(|end| monotonic_ns() > end)
    }
}

impl<S> Body for Messages<S>
where
    S: Stream<Item = Result<Bytes, Status>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let late = self.is_late();
        let Some(frames) = &mut self.frames else {
            return Poll::Ready(None);
        };
        let end = if late {
            Err(Refusal::TimeOver.into())
        } else {
            match ready!(Pin::new(frames).poll_next(context)) {
                Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Err(status)) => Err(status),
                None => Ok(()),
            }
        };
        self.frames = None;
        Poll::Ready(Some(trailers(end).map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_none()
    }
}

fn trailers(end: Result<(), Status>) -> Result<HeaderMap, Status> {
    let mut trailers = HeaderMap::new();
    match end {
        Ok(()) => {
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        }
        Err(status) => status.add_header(&mut trailers)?,
    }
    Ok(trailers)
}
