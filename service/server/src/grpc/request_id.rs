//! Gives every call its id and times it to the last byte.
//!
//! [`RequestIdService`] wraps a generated service, so that also what the generated code itself refuses
//! (a method that does not exist, a message that does not parse) has an id and is counted.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use lumpscope_proto::REQUEST_ID_KEY;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tracing::Instrument as _;

use super::ReplyFuture;
use super::intake::Intake;
use crate::door::{Caller, Connection};
use crate::refusal::Refusal;
use crate::request::methods::{self, Method};
use crate::request::{ReplyMemory, Requests, Scope, check_timeout, unless_cut_off};

/// A service whose calls have ids.
#[derive(Clone)]
pub struct RequestIdService<S> {
    inner: S,
    requests: Arc<Requests>,
    intake: Intake,
}

impl<S> RequestIdService<S> {
    /// Wraps `inner`, whose messages are gathered by `intake`.
    #[must_use]
    pub fn new(inner: S, (requests, intake): (&Arc<Requests>, &Intake)) -> Self {
        Self {
            inner,
            requests: Arc::clone(requests),
            intake: intake.clone(),
        }
    }
}

impl<S: NamedService> NamedService for RequestIdService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for RequestIdService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = ReplyFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> ReplyFuture {
        let path = request.uri().path();
        // What does not exist never asks for its message.
        let max = methods::find(path).and_then(Method::max_message);
        let method = methods::name_of(path);
        let scope = self.requests.begin(Some(method), &request);
        if let Some(caller) = request.extensions().get::<Caller>() {
            let connection = Connection::of(request.extensions());
            scope.set_caller(caller.clone(), connection);
        }
        let refused = check_timeout(request.headers()).and_then(|()| in_time(&scope));
        request.extensions_mut().insert(Arc::clone(&scope));
        let whole = Arc::clone(&scope);
        let request = request.map(|body| Body::new(WholeBody { body, scope: whole }));
        let message = (max, scope.payer());
        let called = self.intake.call(&mut self.inner, request, message);
        let span = scope.span().clone();
        let reply = async move {
            let reply = async {
                // Neither does what is over already.
                refused?;
                until_late(&scope, called).await
            };
            let mut response = match unless_cut_off(&scope, reply).await {
                Some(Ok(response)) => response?,
                Some(Err(refusal)) => Status::from(refusal).into_http(),
                None => Status::from(Refusal::CutOff).into_http(),
            };
            let id = http::HeaderValue::from(scope.id());
            response.headers_mut().insert(REQUEST_ID_KEY, id);
            if response.body().is_end_stream() {
                // A reply that is an error and nothing else has its status in the head.
                end_with(&scope, response.headers());
            }
            let cut_off = scope.cut_off();
            let kept = response.extensions_mut().remove::<Arc<ReplyMemory>>();
            Ok(response.map(|body| {
                Body::new(TracedBody {
                    body,
                    kept,
                    scope,
                    cut_off: cut_off.map(|token| Box::pin(token.cancelled_owned())),
                })
            }))
        };
        Box::pin(reply.instrument(span))
    }
}

fn in_time(scope: &Scope) -> Result<(), Refusal> {
    if scope.deadline().is_some_and(|deadline| deadline.is_over()) {
        return Err(Refusal::TimeOver);
    }
    Ok(())
}

/// Waits for a reply as long as the client does. tonic does the same, and says CANCELLED then, which
/// a client cannot tell from its own change of mind. This here is asked first, and asks the clock:
/// of two timers, the later one may be seen to go off alone.
async fn until_late<F: Future>(scope: &Scope, reply: F) -> Result<F::Output, Refusal> {
    let Some(deadline) = scope.deadline() else {
        return Ok(reply.await);
    };
    let mut reply = pin!(tokio::time::timeout_at(deadline.instant, reply));
    poll_fn(|context| match reply.as_mut().poll(context) {
        Poll::Ready(reply) => Poll::Ready(reply.map_err(|_| Refusal::TimeOver)),
        Poll::Pending => {
            in_time(scope).map_or_else(|late| Poll::Ready(Err(late)), |()| Poll::Pending)
        }
    })
    .await
}

/// Ends a request with the status in the head or the trailers of its reply.
fn end_with(scope: &Scope, headers: &http::HeaderMap) {
    let status = headers.get(Status::GRPC_STATUS);
    match status.map_or(Code::Ok, |value| Code::from_bytes(value.as_bytes())) {
        Code::Ok => scope.end(Code::Ok),
        code => {
            let status = Status::from_header_map(headers);
            scope.end_as(code, status.as_ref().map_or("", Status::message));
        }
    }
}

/// The body of a request, which ends only where the client ended it.
///
/// tonic reads a request that the client cancelled as one that has ended
/// (<https://docs.rs/tonic/0.14.9/src/tonic/codec/decode.rs.html>, `Direction::Request`), and hyper
/// one that was reset without an error. A put must tell these from the end: what a client took
/// back is not stored. So they become an error that tonic hands on.
struct WholeBody {
    body: Body,
    scope: Arc<Scope>,
}

impl http_body::Body for WholeBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let gone = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(None) if !self.body.is_end_stream() => "its stream was reset".to_owned(),
            Poll::Ready(Some(Err(status))) => status.message().to_owned(),
            other => return other,
        };
        self.scope.end(Code::Cancelled);
        Poll::Ready(Some(Err(Status::aborted(format!(
            "the client went away before the end of its request: {gone}"
        )))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a reply; ends the scope when the transport takes the trailers.
struct TracedBody {
    body: Body,
    /// Memory that its bytes hold until they are sent; `None`: none is counted, or they count it.
    kept: Option<Arc<ReplyMemory>>,
    scope: Arc<Scope>,
    /// Ends when the request's store cuts it off; `None`: it is in none, or that is done.
    cut_off: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl TracedBody {
    /// The end of a reply that was cut off.
    fn cut(&mut self, context: &mut Context<'_>) -> Option<Frame<Bytes>> {
        let token = self.cut_off.as_mut()?;
        token.as_mut().poll(context).is_ready().then(|| {
            self.cut_off = None;
            self.body = Body::empty();
            let status = Status::from(Refusal::CutOff);
            self.scope.end(status.code());
            let mut trailers = http::HeaderMap::new();
            // A status made of plain text always fits into headers.
            let _ = status.add_header(&mut trailers);
            Frame::trailers(trailers)
        })
    }
}

impl http_body::Body for TracedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(end) = self.cut(context) {
            return Poll::Ready(Some(Ok(end)));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    end_with(&self.scope, trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => self.scope.end_as(status.code(), status.message()),
            Poll::Ready(None) => self.scope.end(Code::Ok),
            Poll::Pending => {}
        }
        let Some(kept) = &self.kept else {
            return polled;
        };
        polled.map_ok(|frame| frame.map_data(|bytes| kept.part(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TracedBody {
    fn drop(&mut self) {
        // Only counts when no trailers were taken: the client went away in the middle.
        self.scope.end(Code::Cancelled);
    }
}
