//! From the queue to the collector.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lumpscope_engine::Machine;
use opentelemetry::KeyValue;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use opentelemetry_semantic_conventions::SCHEMA_URL;
use opentelemetry_semantic_conventions::resource::{SERVICE_INSTANCE_ID, SERVICE_VERSION};
use tokio::sync::watch;
use tracing::{info, warn};

use super::spans::Servers;
use super::{ExporterShared, FLUSH_WITHIN, lock};
use crate::error::ServerError;
use crate::files;

/// Most spans of one message: about half a MiB.
const BATCH: usize = 512;
/// Time between two looks at the queue.
const EVERY: Duration = Duration::from_millis(200);
/// Longest that the collector may take for a batch.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Variables of OpenTelemetry that name the certificate of the collector's CA, as PEM.
const CERTIFICATES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
/// Without one: the CAs that the system knows.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Pause after a batch that was not taken; doubled each time up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The exporter, which connects when there is something to send.
///
/// # Errors
/// An endpoint that is no address; for `https://`, no certificate of a CA.
pub(super) fn exporter(endpoint: &str) -> Result<SpanExporter, ServerError> {
    let failed =
        |why: String| ServerError::Argument(format!("otlp-endpoint = {endpoint:?}: {why}"));
    let mut builder = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(TIMEOUT)
        // What a batch costs when nobody is there is decided here alone.
        .with_retry_policy(RetryPolicy::disabled());
    if endpoint.starts_with("https:") {
        let ca = CERTIFICATES.iter().find_map(std::env::var_os);
        let ca = ca.map_or_else(|| PathBuf::from(SYSTEM_CA), PathBuf::from);
        let pem = files::read(&ca, None).map_err(|error| {
            failed(format!(
                "{error}; name the certificate of the collector's CA in {}",
                CERTIFICATES[1]
            ))
        })?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        builder = builder.with_tls_config(tls);
    }
    let exporter = builder.build().map_err(|error| failed(error.to_string()))?;
    Ok(exporter)
}

/// Resource of spans: the attributes of the environment (`OTEL_RESOURCE_ATTRIBUTES`)
/// are kept.
pub(super) fn resource(servers: &Servers) -> Resource {
    Resource::builder()
        .with_service_name("lumpscope")
        .with_attribute(KeyValue::new(SERVICE_VERSION, env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new(SERVICE_INSTANCE_ID, servers.instance()))
        .with_attribute(KeyValue::new("host.name", Machine::this().host))
        .with_schema_url([], SCHEMA_URL)
        .build()
}

/// Sends what is in the queue.
pub(super) struct Sender {
    shared: Arc<ExporterShared>,
    exporter: SpanExporter,
    /// Spans of the batch under way.
    sending: u64,
    /// After a batch that was not taken.
    pause: Option<Duration>,
}

impl Sender {
    pub(super) fn new(shared: Arc<ExporterShared>, exporter: SpanExporter) -> Self {
        Self {
            shared,
            exporter,
            sending: 0,
            pause: None,
        }
    }

    /// Sends until it is told to stop.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Self {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.pause.unwrap_or(EVERY)) => {}
                // An error means that the service is gone, which is a stop too.
                _ = stopped.wait_for(|stop| *stop) => return self,
            }
            self.send_all().await;
            if *stopped.borrow() {
                return self;
            }
        }
    }

    /// Sends what is left, within [`FLUSH_WITHIN`]; the rest is dropped.
    pub(super) async fn flush(mut self) {
        // Out of time: the spans of the batch under way are counted below.
        let sent = tokio::time::timeout(FLUSH_WITHIN, self.send_all()).await;
        let mut left = self.shared.take_queue();
        if sent.is_err() {
            left += self.sending;
        }
        lock(&self.shared.numbers).shutdown += left;
    }

    /// Sends batch after batch, until nothing is left or one is not taken.
    async fn send_all(&mut self) {
        while let Some(batch) = self.shared.next_batch(BATCH) {
            if !self.send(batch).await {
                let longer = self.pause.map_or(PAUSE.0, |pause| pause * 2);
                self.pause = Some(longer.min(PAUSE.1));
                return;
            }
            self.pause = None;
        }
    }

    /// Sends one batch; false: it was not taken.
    async fn send(&mut self, batch: Vec<SpanData>) -> bool {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        self.sending = spans;
        let sent = tokio::time::timeout(TIMEOUT, self.exporter.export(batch)).await;
        self.sending = 0;
        let why = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {TIMEOUT:?}")),
        };
        let mut numbers = lock(&self.shared.numbers);
        let before = numbers.up.replace(why.is_none());
        let Some(why) = why else {
            numbers.exported += spans;
            if before == Some(false) {
                info!("the collector of traces takes spans again");
            }
            return true;
        };
        numbers.failures += 1;
        numbers.export_failed += spans;
        // Said once, not every time.
        if before != Some(false) {
            warn!(
                why,
                "the collector of traces does not take spans; they are dropped"
            );
        }
        false
    }
}
