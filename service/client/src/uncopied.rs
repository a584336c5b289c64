//! Sends the bodies of puts and takes those of gets as they are: tonic's codec would copy each chunk into a buffer of its
//! own. It keeps the rest of a call: statuses, deadlines, trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use lumpscope_proto::frame::{self, Decoder, Event, Limits};
use lumpscope_proto::v1;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, StatusCode};
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::{Channel, Error};

use crate::call::{Client, LARGEST_MESSAGE};

/// What is taken of a reply of Get. The header of a lump has a few fields.
const LIMITS: Limits = Limits {
    message: LARGEST_MESSAGE as u64,
    header: 64 << 10,
};

/// A message on the wire: [`frame::message`] and nothing, or a [`frame::chunk`].
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
            sends: Some(Body::new(Messages { messages, second })),
            takes: None,
        })
    }

    /// The generated client for one Get. Each chunk that it gives is empty, and stands for the next bytes from the
    /// receiver.
    pub(crate) fn taking(&self) -> (LumpStoreClient<Uncopied>, mpsc::Receiver<Bytes>) {
        let (takes, taken) = mpsc::channel();
        let client = LumpStoreClient::new(Uncopied {
            channel: self.channel(),
            sends: None,
            takes: Some(takes),
        });
        (client, taken)
    }
}

/// The connection, for one call.
pub(crate) struct Uncopied {
    channel: Channel,
    /// What is sent in place of the call's messages.
    sends: Option<Body>,
    /// Where the bytes of chunks go.
    takes: Option<mpsc::Sender<Bytes>>,
}

impl Service<Request<Body>> for Uncopied {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<Response<Body>, Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let request = match self.sends.take() {
            Some(body) => request.map(|_empty| body),
            None => request,
        };
        let (takes, reply) = (self.takes.take(), self.channel.call(request));
        Box::pin(async {
            let reply = reply.await?;
            Ok(match takes {
                // Anything else is no gRPC.
                Some(takes) if reply.status() == StatusCode::OK => {
                    reply.map(|body| Body::new(Taken::new(body, takes)))
                }
                _ => reply,
            })
        })
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

/// The reply of a Get, in which each piece of a chunk is an empty chunk.
struct Taken {
    body: Body,
    input: Bytes,
    decoder: Decoder,
    pieces: mpsc::Sender<Bytes>,
}

impl Taken {
    fn new(body: Body, pieces: mpsc::Sender<Bytes>) -> Self {
        Self {
            body,
            input: Bytes::new(),
            decoder: Decoder::new(LIMITS),
            pieces,
        }
    }

    /// The next message for tonic in what has come.
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        while let Some(event) = self.decoder.next(&mut self.input).map_err(unreadable)? {
            match event {
                Event::Header(header) => return Ok(Some(frame::header(header).concat().into())),
                Event::Chunk(piece) => {
                    // Nobody waits for it any more when this fails.
                    let _ = self.pieces.send(piece);
                    let [empty, _] = frame::chunk(Bytes::new());
                    return Ok(Some(empty));
                }
                Event::End { part: true } => {}
                Event::End { part: false } => {
                    return Ok(Some(frame::message(&v1::GetResponse::default())));
                }
            }
        }
        Ok(None)
    }
}

fn unreadable(error: frame::WireError) -> Status {
    Status::internal(format!("what came is no reply of a get: {error}"))
}

impl http_body::Body for Taken {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(message) = self.next().transpose() {
                return Poll::Ready(Some(message.map(Frame::data)));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)?) {
                None => {
                    let end = self.decoder.finish().map_err(unreadable);
                    return Poll::Ready(end.err().map(Err));
                }
                Some(came) => match came.into_data() {
                    Ok(bytes) => self.input = bytes,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
    }
}
