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
use tonic::transport::Error;

use crate::call::{Client, LARGEST_MESSAGE};
use crate::pool::Connections;

/// Limits of a reply of Get, whose header has a few fields.
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
            connections: self.connections(),
            sends: Some(Body::new(Messages { messages, second })),
            takes: None,
        })
    }

    /// The generated client for one Get. Each chunk that it gives is empty, and stands for the next bytes from the
    /// receiver.
    pub(crate) fn taking(&self) -> (LumpStoreClient<Uncopied>, mpsc::Receiver<Bytes>) {
        let (takes, taken) = mpsc::channel();
        let client = LumpStoreClient::new(Uncopied {
            connections: self.connections(),
            sends: None,
            takes: Some(takes),
        });
        (client, taken)
    }
}

/// The connections, for one call.
pub(crate) struct Uncopied {
    connections: Connections,
    /// The body that is sent in place of the call's own.
    sends: Option<Body>,
    /// The bytes of chunks go there.
    takes: Option<mpsc::Sender<Bytes>>,
}

impl Service<Request<Body>> for Uncopied {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<Response<Body>, Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.connections.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let request = match self.sends.take() {
            Some(body) => request.map(|_empty| body),
            None => request,
        };
        let (takes, reply) = (self.takes.take(), self.connections.call(request));
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
                    Err(trailers) => {
                        // Their status says how it ends, also within a message.
                        self.decoder = Decoder::new(LIMITS);
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;

    use tonic::Code;
    use tonic::codegen::http::HeaderMap;

    use super::*;

    struct Script(VecDeque<Frame<Bytes>>);

    impl http_body::Body for Script {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    /// The frames that tonic gets of these, and the bytes of the chunks.
    async fn taken(script: VecDeque<Frame<Bytes>>) -> (Result<Vec<Frame<Bytes>>, Status>, Vec<u8>) {
        let (sender, pieces) = mpsc::channel();
        let mut body = Taken::new(Body::new(Script(script)), sender);
        let mut frames = Vec::new();
        let end = loop {
            match poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await {
                Some(Ok(frame)) => frames.push(frame),
                Some(Err(status)) => break Err(status),
                None => break Ok(frames),
            }
        };
        (end, pieces.try_iter().flatten().collect())
    }

    fn header() -> Bytes {
        let header = v1::GetHeader {
            length: 20_000,
            ..v1::GetHeader::default()
        };
        let part = Some(v1::get_response::Part::Header(header));
        frame::message(&v1::GetResponse { part })
    }

    #[tokio::test]
    async fn each_piece_of_a_chunk_is_an_empty_chunk_for_tonic() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let chunks = [&bytes[..15_000], &[], &bytes[15_000..]];
        let chunks = chunks.map(|chunk| frame::chunk(Bytes::copy_from_slice(chunk)).concat());
        let whole = [&header()[..], &chunks.concat()].concat();
        let [empty, _] = frame::chunk(Bytes::new());
        for cut in [1, 6, 1000, whole.len()] {
            let cuts = whole.chunks(cut).map(Bytes::copy_from_slice);
            let (frames, came) = taken(cuts.map(Frame::data).collect()).await;
            assert_eq!(came, bytes, "cut by {cut}");
            let frames = frames.unwrap().into_iter();
            let frames: Vec<Bytes> = frames.map(|frame| frame.into_data().unwrap()).collect();
            assert_eq!(frames[0], header());
            assert!(frames.len() > 2 && frames[1..].iter().all(|one| *one == empty));
        }
    }

    #[tokio::test]
    async fn what_is_no_reply_is_an_error_and_a_status_in_a_message_stands() {
        let half = Bytes::copy_from_slice(&frame::chunk(Bytes::from_static(b"half")).concat()[..9]);
        let packed = Bytes::from_static(&[1, 0, 0, 0, 2, 0, 0]);
        for (data, why) in [(half.clone(), "middle"), (packed, "compressed")] {
            let (end, _) = taken([header(), data].map(Frame::data).into()).await;
            let status = end.unwrap_err();
            assert_eq!(status.code(), Code::Internal);
            assert!(status.message().contains(why), "{status}");
        }
        let mut trailers = HeaderMap::new();
        Status::data_loss("rot").add_header(&mut trailers).unwrap();
        let script = [
            Frame::data(header()),
            Frame::data(half),
            Frame::trailers(trailers),
        ];
        let (frames, came) = taken(script.into()).await;
        assert_eq!(came, b"ha");
        assert!(frames.unwrap().last().is_some_and(Frame::is_trailers));
    }
}
