//! gRPC-Web: the calls of gRPC over HTTP/1.1, for programs that have no HTTP/2.
//!
//! HTTP/1.1 is the protocol of browsers, so more is refused here than over HTTP/2, which no page can
//! make a browser speak without TLS. Behind that stands [`Auth`](super::Auth), which sees an
//! ordinary call of gRPC.

use std::convert::Infallible;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use http_body_util::combinators::Fuse;
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use tonic::codegen::http::{HeaderValue, Method, Request, Response, StatusCode};
use tonic_web::{GrpcWebLayer, GrpcWebService};
use tower::Layer as _;

use super::ReplyFuture;
use crate::door::{Connection, Door};
use crate::http::check_site;

/// All services, on one connection of HTTP/1.1.
#[derive(Clone)]
pub struct Web<S> {
    inner: GrpcWebService<S>,
    door: Door,
    connection: Connection,
}

/// Status and reason of a request that is not looked at.
type Refused = (StatusCode, &'static str);

impl<S> Web<S> {
    /// Translates for `inner`, which serves gRPC.
    #[must_use]
    pub fn new(inner: S, door: Door, connection: Connection) -> Self {
        let inner = GrpcWebLayer::new().layer(inner);
        Self {
            inner,
            door,
            connection,
        }
    }

    /// Refuses what is no call of gRPC-Web, or may come from the page of a web site.
    fn check<B>(&self, request: &Request<B>) -> Result<(), Refused> {
        if request.method() != Method::POST {
            let why = "calls are sent with POST";
            return Err((StatusCode::METHOD_NOT_ALLOWED, why));
        }
        let headers = request.headers();
        let mut kinds = headers.get_all(CONTENT_TYPE).iter();
        let kind = kinds.next().map(HeaderValue::as_bytes);
        let known = [&b"application/grpc-web"[..], b"application/grpc-web+proto"];
        if kinds.next().is_some() || !kind.is_some_and(|kind| known.contains(&kind)) {
            let why = "over HTTP/1.1 calls have the content type application/grpc-web+proto; gRPC \
                itself needs HTTP/2";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        // A page of a name that leads here may send any header, so its origin counts only where a
        // header is compared with something.
        let may_log_in = self.door.reloader.has_tokens() && headers.contains_key(AUTHORIZATION);
        if headers.contains_key(ORIGIN) && !may_log_in {
            let why = "pages of web sites need a token";
            return Err((StatusCode::FORBIDDEN, why));
        }
        if self.connection.is_unix() {
            // No name leads a browser there.
            return Ok(());
        }
        check_site(&self.door, headers).map_err(|why| (StatusCode::FORBIDDEN, why))
    }
}

impl<S> Service<Request<Incoming>> for Web<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ReplyFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Fuse<Incoming>>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> ReplyFuture {
        if let Err((status, why)) = self.check(&request) {
            let mut response = Response::new(Body::new(format!("{why}\n")));
            *response.status_mut() = status;
            let headers = response.headers_mut();
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.insert(CONTENT_TYPE, plain);
            if status == StatusCode::METHOD_NOT_ALLOWED {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            return Box::pin(std::future::ready(Ok(response)));
        }
        request.extensions_mut().insert(self.connection.clone());
        // A chunked body tells its end only by giving nothing more. What reads it behind here knows HTTP/2, where
        // that is a stream that was reset.
        Box::pin(self.inner.call(request.map(BodyExt::fuse)))
    }
}
