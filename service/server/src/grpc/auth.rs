//! Lets in who is known and may do what is asked for, before anything else looks at the request.
//!
//! [`Auth`] is the outermost service, so it also covers what no other code of ours sees: methods
//! that do not exist, reflection. Only the standard health check is open to everybody.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use lumpscope_engine::Payer;
use lumpscope_proto::REQUEST_ID_KEY;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use tonic::codegen::{Service, http};

use super::ReplyFuture;
use super::intake::Intake;
use crate::door::{self, ActiveCall, Caller, Connection, Denied, Door};
use crate::refusal::Refusal;
use crate::request::{Requests, methods, payer};

/// Prefix of methods that need no login: for load balancers and supervisors.
const OPEN: &str = "/grpc.health.v1.Health/";
/// Most bytes of a message to these methods: it holds one name.
const MAX_OPEN: usize = 4 << 10;
/// Calls without a login under way on all connections.
const VISITS: usize = 1024;

/// All services, behind the door.
#[derive(Clone)]
pub struct Auth<S> {
    inner: S,
    door: Door,
    requests: Arc<Requests>,
    intake: Intake,
    visits: Arc<Semaphore>,
}

impl<S> Auth<S> {
    /// Puts `inner` behind the door. `intake` bounds the messages to methods that are open to all.
    #[must_use]
    pub fn new(inner: S, door: Door, requests: Arc<Requests>, intake: Intake) -> Self {
        Self {
            inner,
            door,
            requests,
            intake,
            visits: Arc::new(Semaphore::new(VISITS)),
        }
    }

    /// The caller, if its rights are enough for the method.
    fn admit(
        &self,
        connection: Option<&Connection>,
        request: &http::Request<Body>,
    ) -> Result<Admitted, Refusal> {
        let path = request.uri().path();
        if path.starts_with(OPEN) {
            let caller = self.door.reloader.caller(connection, request.headers());
            return caller
                .map(Admitted::Known)
                .or_else(|_| self.visit(connection));
        }
        let caller = self.door.caller(connection, request.headers())?;
        // Others (reflection, what does not exist) are for everybody who is known.
        let Some(method) = methods::find(path) else {
            return Ok(Admitted::Known(caller));
        };
        if !caller.has(method.right) {
            let metrics = &self.door.metrics;
            metrics.login_failed(connection, "scope", caller.name());
            return Err(Refusal::RightMissing {
                caller: caller.name().to_owned(),
                right: method.right.name(),
                method: method.path,
            });
        }
        Ok(Admitted::Known(caller))
    }

    /// Strangers share a number of calls, and each connection of theirs has a few of it.
    fn visit(&self, connection: Option<&Connection>) -> Result<Admitted, Refusal> {
        let each = match connection {
            Some(connection) => Some(connection.visit().ok_or(Refusal::Crowded)?),
            None => None,
        };
        let all = Arc::clone(&self.visits).try_acquire_owned();
        let all = all.map_err(|_| Refusal::Crowded)?;
        Ok(Admitted::Stranger {
            _all: all,
            _each: each,
        })
    }

    /// A refusal has an id and is counted as every request is.
    fn refuse(&self, request: &http::Request<Body>, refusal: Refusal) -> http::Response<Body> {
        let method = methods::name_of(request.uri().path());
        let scope = self.requests.begin(Some(method), request);
        scope.end_as(refusal.code(), &refusal.to_string());
        let mut response = Status::from(refusal).into_http();
        let id = http::HeaderValue::from(scope.id());
        response.headers_mut().insert(REQUEST_ID_KEY, id);
        response
    }
}

/// Refuses what is no call of gRPC, or comes from the page of a web site. A browser lets any page
/// send requests in the name of its user, but with none of these headers unless it is asked first.
fn is_grpc(request: &http::Request<Body>) -> Result<(), http::StatusCode> {
    if request.method() != http::Method::POST {
        return Err(http::StatusCode::METHOD_NOT_ALLOWED);
    }
    let headers = request.headers();
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    if !matches!(rest.map(<[u8]>::first), Some(None | Some(b'+' | b';'))) {
        return Err(http::StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    if headers.contains_key(ORIGIN) && !headers.contains_key(AUTHORIZATION) {
        return Err(http::StatusCode::FORBIDDEN);
    }
    Ok(())
}

/// True: the reply goes on until its client leaves. Others are admitted once: a long put outlives
/// the withdrawal of its token.
fn is_endless(path: &str) -> bool {
    methods::find(path).is_none_or(|method| matches!(method.name, "trace" | "record"))
}

/// A caller that may make a call.
enum Admitted {
    /// One with a login, or where none is asked for.
    Known(Caller),
    /// One without, for methods that are open to all.
    Stranger {
        _all: OwnedSemaphorePermit,
        _each: Option<OwnedSemaphorePermit>,
    },
}

impl Admitted {
    /// Who pays for the memory of a message that is open to all: strangers do together.
    fn payer(&self, connection: Option<&Connection>) -> Payer {
        match self {
            Self::Known(caller) => payer(caller.name(), connection),
            Self::Stranger { .. } => payer("", None),
        }
    }
}

impl<S> Service<http::Request<Body>> for Auth<S>
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
        if let Err(status) = is_grpc(&request) {
            let mut response = http::Response::new(Body::empty());
            *response.status_mut() = status;
            return Box::pin(std::future::ready(Ok(response)));
        }
        // Each message says whether it is compressed; tonic refuses the call for the name alone.
        request.headers_mut().remove("grpc-encoding");
        let connection = Connection::of(request.extensions()).cloned();
        let admitted = match self.admit(connection.as_ref(), &request) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let response = self.refuse(&request, refusal);
                return Box::pin(std::future::ready(Ok(response)));
            }
        };
        // What strangers ask for does not keep their connection from being idle.
        let (mut call, mut withdrawn): (_, Option<Ends>) = (None, None);
        let payer = admitted.payer(connection.as_ref());
        if let Admitted::Known(caller) = &admitted {
            if is_endless(request.uri().path()) {
                withdrawn = Some(Box::pin(door::withdrawn(caller, connection.as_ref())));
            }
            call = connection.map(|connection| connection.call());
            request.extensions_mut().insert(caller.clone());
        }
        // Others are bounded behind here.
        let max = request.uri().path().starts_with(OPEN).then_some(MAX_OPEN);
        let reply = self.intake.call(&mut self.inner, request, (max, payer));
        Box::pin(async move {
            Ok(reply.await?.map(|body| {
                Body::new(TrackedBody {
                    body,
                    withdrawn,
                    _call: call,
                    _admitted: admitted,
                })
            }))
        })
    }
}

/// Completes when a login is in force no more, and says why.
type Ends = Pin<Box<dyn Future<Output = Denied> + Send>>;

/// The body of a reply, with the call that is under way until it is gone.
struct TrackedBody {
    body: Body,
    /// Ends when the caller is known no more; `None`: that does not matter, or has been said.
    withdrawn: Option<Ends>,
    _call: Option<ActiveCall>,
    _admitted: Admitted,
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let ends = self.withdrawn.as_mut();
        if let Some(Poll::Ready(why)) = ends.map(|ends| ends.as_mut().poll(context)) {
            self.withdrawn = None;
            self.body = Body::empty();
            let mut trailers = http::HeaderMap::new();
            // A status made of plain text always fits into headers.
            let _ = Status::from(Refusal::from(why)).add_header(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
