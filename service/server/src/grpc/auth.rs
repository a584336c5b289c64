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
use lumpscope_proto::REQUEST_ID_KEY;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use crate::door::{Call, Caller, Connection, Door};
use crate::refusal::Refusal;
use crate::request::{Requests, methods};

/// Prefix of methods that need no login: for load balancers and supervisors.
const OPEN: &str = "/grpc.health.v1.Health/";

/// All services, behind the door.
#[derive(Clone)]
pub struct Auth<S> {
    inner: S,
    door: Door,
    requests: Arc<Requests>,
}

impl<S> Auth<S> {
    /// Puts `inner` behind the door.
    #[must_use]
    pub fn new(inner: S, door: Door, requests: Arc<Requests>) -> Self {
        Self {
            inner,
            door,
            requests,
        }
    }

    /// The caller; `None`: unknown, for methods that are open to all.
    fn admit(
        &self,
        connection: Option<&Connection>,
        request: &http::Request<Body>,
    ) -> Result<Option<Caller>, Refusal> {
        let path = request.uri().path();
        if path.starts_with(OPEN) {
            let caller = self.door.reloader.caller(connection, request.headers());
            return Ok(caller.ok());
        }
        let caller = self.door.caller(connection, request.headers())?;
        // Others (reflection, what does not exist) are for everybody who is known.
        let Some(method) = methods::find(path) else {
            return Ok(Some(caller));
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
        Ok(Some(caller))
    }

    /// A refusal has an id and is counted as every request is.
    fn refuse(&self, request: &http::Request<Body>, refusal: Refusal) -> http::Response<Body> {
        let method = methods::name_of(request.uri().path());
        let scope = self.requests.begin(Some(method), request.headers());
        scope.end_as(refusal.code(), &refusal.to_string());
        let mut response = Status::from(refusal).into_http();
        let id = http::HeaderValue::from(scope.id());
        response.headers_mut().insert(REQUEST_ID_KEY, id);
        response
    }
}

type Reply = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Auth<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Reply {
        let connection = Connection::of(request.extensions()).cloned();
        let caller = match self.admit(connection.as_ref(), &request) {
            Ok(caller) => caller,
            Err(refusal) => {
                let response = self.refuse(&request, refusal);
                return Box::pin(std::future::ready(Ok(response)));
            }
        };
        // What strangers ask for does not keep their connection from being idle.
        let known = connection.filter(|_| caller.is_some());
        let call = known.map(|connection| connection.call());
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        let reply = self.inner.call(request);
        Box::pin(async move {
            let response = reply.await?;
            Ok(response.map(|body| Body::new(Held { body, _call: call })))
        })
    }
}

/// The body of a reply, with the call that is under way until it is gone.
struct Held {
    body: Body,
    _call: Option<Call>,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
