//! An OpenTelemetry collector that keeps what it is sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Spans that a collector has received, with the `authorization` of each message.
#[derive(Debug, Clone, Default)]
pub struct Collected(
    Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    Arc<Mutex<Vec<Option<String>>>>,
);

#[tonic::async_trait]
impl TraceService for Collected {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.note(request.metadata());
        self.0.lock().expect("no panic").push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collected {
    /// Collects at an address, until the test ends.
    ///
    /// # Panics
    /// When the port is taken.
    pub async fn listen(at: SocketAddr) -> (SocketAddr, Collected) {
        let listener = TcpListener::bind(at).await.expect("the port is free");
        let address = listener.local_addr().expect("it has one");
        let collected = Collected::default();
        let traces = TraceServiceServer::new(collected.clone());
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(traces)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        (address, collected)
    }

    fn note(&self, headers: &MetadataMap) {
        let value = headers.get("authorization");
        let value = value.map(|value| value.to_str().expect("text").to_owned());
        self.1.lock().expect("no panic").push(value);
    }

    /// `authorization` of every message so far.
    ///
    /// # Panics
    /// When a thread of the collector has panicked.
    #[must_use]
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.1.lock().expect("no panic").clone()
    }

    /// All spans so far.
    ///
    /// # Panics
    /// When a thread of the collector has panicked.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let all = self.0.lock().expect("no panic");
        let scopes = all.iter().flat_map(|request| &request.resource_spans);
        let scopes = scopes.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Resource of the first spans.
    ///
    /// # Panics
    /// When nothing was sent yet.
    #[must_use]
    pub fn resource(&self) -> Vec<KeyValue> {
        let all = self.0.lock().expect("no panic");
        let resource = all[0].resource_spans[0].resource.clone();
        resource.expect("it says who it is").attributes
    }
}
