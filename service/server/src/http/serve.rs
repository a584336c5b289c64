//! Serves the routes on connections that the door has let in.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codegen::Service;
use tonic::transport::server::Connected as _;
use tracing::debug;

use super::{PageConfig, router};
use crate::door::{self, Admitted, Connection, Entrance, Leave, Listener};
use crate::telemetry::Sources;

/// What a client may take of the endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest that the headers of a request may take, counted from the end of the one before.
    pub(crate) header_timeout: Duration,
    /// Bytes of the buffer of a connection, which the headers must fit into, 8 KiB or more; a body
    /// comes in pieces of at most so many.
    pub(crate) buffer_bytes: usize,
}

/// Serves until `stopped` says so.
pub(crate) async fn serve(
    listener: TcpListener,
    entrance: Arc<Entrance>,
    limits: Limits,
    sources: Sources,
    page: PageConfig,
    stopped: watch::Receiver<bool>,
) {
    let app = router(sources, page, stopped.clone());
    let serve = move |admitted, leave| one(app.clone(), limits, admitted, leave);
    door::accept(Listener::Tcp(listener), entrance, stopped, serve).await;
}

/// Serves one connection until it has ended.
async fn one(app: Router, limits: Limits, admitted: Admitted, leave: Leave) {
    let connection = admitted.connect_info();
    let service = On { app, connection };
    serve_connection(service, limits, admitted, leave).await;
}

/// Speaks HTTP/1 with one client until it goes or is to leave.
pub(crate) async fn serve_connection<S, B>(
    service: S,
    limits: Limits,
    admitted: Admitted,
    leave: Leave,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<axum::BoxError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<axum::BoxError>,
{
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.buffer_bytes);
    let service = TowerToHyperService::new(service);
    let mut served = pin!(builder.serve_connection(TokioIo::new(admitted), service));
    let outcome = tokio::select! {
        outcome = &mut served => outcome,
        () = leave => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = outcome {
        debug!(%error, "an HTTP connection ended with an error");
    }
}

/// The routes on one connection, which each request is told of.
#[derive(Clone)]
struct On {
    app: Router,
    connection: Connection,
}

impl<B> Service<Request<B>> for On
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<B>>::poll_ready(&mut self.app, context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let call = self.connection.call();
        request.extensions_mut().insert(self.connection.clone());
        let reply = self.app.call(request);
        Box::pin(async move {
            let reply = reply.await;
            drop(call);
            reply
        })
    }
}
