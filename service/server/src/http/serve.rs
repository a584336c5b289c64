//! Serves the routes on connections that the door has let in.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codegen::Service;
use tonic::transport::server::Connected as _;

use super::{PageConfig, router};
use crate::door::{self, Admitted, Connection, Entrance, HttpLimits, Leave, Listener};
use crate::telemetry::Sources;

/// Serves until `stopped` says so.
pub(crate) async fn serve(
    listener: TcpListener,
    entrance: Arc<Entrance>,
    limits: HttpLimits,
    sources: Sources,
    page: PageConfig,
    any_name: bool,
    stopped: watch::Receiver<bool>,
) {
    let app = router(sources, page, any_name, stopped.clone());
    let serve = move |admitted, leave| one(app.clone(), limits, admitted, leave);
    door::accept(Listener::Tcp(listener), entrance, stopped, serve).await;
}

/// Serves one connection until it has ended.
async fn one(app: Router, limits: HttpLimits, admitted: Admitted, leave: Leave) {
    let connection = admitted.connect_info();
    let service = On { app, connection };
    door::serve_http(service, limits, admitted, leave).await;
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
