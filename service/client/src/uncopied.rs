//! Sends the bodies of puts as they are: tonic's codec would copy each chunk into a buffer of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Channel;

use crate::call::Client;

/// A message on the wire: [`frame::message`](lumpscope_proto::frame::message) and nothing, or a
/// [`frame::chunk`](lumpscope_proto::frame::chunk).
pub(crate) type Message = [Bytes; 2];

impl Client {
    /// The generated client for one call that sends these messages, whatever it is called with: an empty stream.
    pub(crate) fn sending(
        &self,
        messages: impl Stream<Item = Message> + Send + Unpin + 'static,
    ) -> LumpStoreClient<Uncopied> {
        let second = Bytes::new();
        LumpStoreClient::new(Uncopied {
            channel: self.channel(),
            body: Some(Body::new(Messages { messages, second })),
        })
    }
}

/// The connection, for one call with this body.
pub(crate) struct Uncopied {
    channel: Channel,
    body: Option<Body>,
}

impl Service<http::Request<Body>> for Uncopied {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let body = self.body.take().unwrap_or_default();
        self.channel.call(request.map(|_empty| body))
    }
}

struct Messages<S> {
    messages: S,
    /// Of the message whose first part was sent.
    second: Bytes,
}

impl<S: Stream<Item = Message> + Unpin> http_body::Body for Messages<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let second = std::mem::take(&mut self.second);
        let part = if second.is_empty() {
            let next = ready!(Pin::new(&mut self.messages).poll_next(context));
            next.map(|[first, second]| {
                self.second = second;
                first
            })
        } else {
            Some(second)
        };
        Poll::Ready(part.map(|bytes| Ok(Frame::data(bytes))))
    }
}
