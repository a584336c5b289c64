//! Serves the routes on connections that the door has let in.

use std::sync::Arc;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::server::Connected as _;
use tower::ServiceExt as _;

use super::{PageConfig, router};
use crate::door::{self, Admitted, Entrance, HttpLimits, Leave, Listener};
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

/// Serves one connection until it has ended; each request is told of it.
async fn one(app: Router, limits: HttpLimits, admitted: Admitted, leave: Leave) {
    let connection = admitted.connect_info();
    let service = tower::service_fn(move |mut request: Request<Incoming>| {
        let call = connection.call();
        request.extensions_mut().insert(connection.clone());
        let reply = app.clone().oneshot(request);
        async move {
            let reply = reply.await;
            drop(call);
            reply
        }
    });
    door::serve_http(service, limits, admitted, leave).await;
}
