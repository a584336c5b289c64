//! HTTP/1 on a connection that was let in.

use std::pin::pin;
use std::time::Duration;

use axum::BoxError;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tonic::codegen::Service;
use tracing::debug;

use super::accept::Leave;
use super::io::Admitted;

/// Limits of a client of the endpoint.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Longest that the headers of a request may take, counted from the end of the one before.
    pub header_timeout: Duration,
    /// Bytes of the buffer of a connection, which the headers must fit into, 8 KiB or more; a body
    /// comes in pieces of at most so many.
    pub buffer_bytes: usize,
}

/// Speaks HTTP/1 with one client until it goes or is to leave.
pub async fn serve_http<S, B>(service: S, limits: HttpLimits, admitted: Admitted, leave: Leave)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
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
