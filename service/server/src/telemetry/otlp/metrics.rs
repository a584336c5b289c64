//! The metrics of `/metrics`, sent to the collector of the traces at intervals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::transform::common::tonic::Attributes;
use opentelemetry_semantic_conventions::SCHEMA_URL;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataKey, MetadataMap};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tracing::{info, warn};

use super::points::Points;
use super::{lock, scope, send};
use crate::error::ServerError;
use crate::telemetry::{Metrics, Sources, process};

/// Longest that the collector may take for a message.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Metrics go in several messages beyond this; collectors take 4 MiB.
const MESSAGE: usize = 1 << 20;
/// Least time between two lines of the log about a collector that takes nothing.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Variables with the headers of an export, as `NAME=VALUE,NAME=VALUE` with percent-encoded values:
/// the first that is set counts. The exporter of spans reads its own.
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

/// Exports metrics, or does nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct MetricsExport {
    running: Option<Arc<Running>>,
}

#[derive(Debug)]
struct Running {
    taken: AtomicU64,
    failed: AtomicU64,
    stop: watch::Sender<bool>,
    /// Taken by the end.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl MetricsExport {
    /// An export to `endpoint` every so often, which [`Self::start`] begins; without an endpoint or
    /// an interval, none.
    #[must_use]
    pub fn new(endpoint: Option<&str>, every: Duration) -> Self {
        let wanted = endpoint.is_some() && !every.is_zero();
        Self {
            running: wanted.then(|| {
                Arc::new(Running {
                    taken: AtomicU64::new(0),
                    failed: AtomicU64::new(0),
                    stop: watch::channel(false).0,
                    task: Mutex::default(),
                })
            }),
        }
    }

    /// Begins to export. Must be called within a runtime.
    ///
    /// # Errors
    /// An endpoint that is no address, or headers in the environment that are none.
    pub fn start(
        &self,
        endpoint: Option<&str>,
        every: Duration,
        sources: Sources,
    ) -> Result<(), ServerError> {
        let (Some(running), Some(endpoint)) = (&self.running, endpoint) else {
            return Ok(());
        };
        let channel = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| {
            ServerError::Argument(format!("otlp-endpoint = {endpoint:?}: {error}"))
        })?;
        let channel = channel.connect_timeout(TIMEOUT).timeout(TIMEOUT);
        let exporter = Exporter {
            metrics: Arc::new(Metrics::new(sources)),
            client: MetricsServiceClient::with_interceptor(
                channel.connect_lazy(),
                Headers::of_environment()?,
            ),
            points: Points::new(begun(), boot()),
            running: Arc::clone(running),
            refused: false,
            said: None,
        };
        let task = tokio::spawn(exporter.run(every, running.stop.subscribe()));
        *lock(&running.task) = Some(task);
        info!(endpoint, ?every, "metrics are exported");
        Ok(())
    }

    /// Exports that the collector has taken, and those that it has not; `None`: there are none.
    #[must_use]
    pub fn numbers(&self) -> Option<(u64, u64)> {
        let running = self.running.as_ref()?;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some((of(&running.taken), of(&running.failed)))
    }

    /// Exports once more and ends, within [`super::FLUSH_WITHIN`]. Call it while the stores are open.
    pub async fn shutdown(&self) {
        let Some(running) = &self.running else { return };
        running.stop.send_replace(true);
        let task = lock(&running.task).take();
        if let Some(mut task) = task
            && tokio::time::timeout(super::FLUSH_WITHIN, &mut task)
                .await
                .is_err()
        {
            task.abort();
        }
    }
}

/// When the service began.
fn begun() -> u64 {
    process::started().map_or_else(now, |seconds| seconds * 1_000_000_000)
}

/// When the machine was started.
fn boot() -> u64 {
    let since = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    now().saturating_sub(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// In nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// What every message to the collector carries: who sends it, as a rule.
#[derive(Clone, Default)]
struct Headers(MetadataMap);

impl Headers {
    fn of_environment() -> Result<Self, ServerError> {
        let set = |name| std::env::var(name).ok().map(|value| (name, value));
        let Some((name, value)) = HEADERS.into_iter().find_map(set) else {
            return Ok(Self::default());
        };
        // The value is a secret.
        Self::parse(&value).ok_or_else(|| {
            ServerError::Argument(format!(
                "{name} in the environment: it must be NAME=VALUE,NAME=VALUE with percent-encoded values"
            ))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut headers = MetadataMap::new();
        for pair in text.split_terminator(',') {
            let (name, value) = pair.split_once('=')?;
            let name = MetadataKey::<Ascii>::from_bytes(name.trim().as_bytes()).ok()?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            headers.insert(name, value.parse().ok()?);
        }
        Some(Self(headers))
    }
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        *request.metadata_mut() = self.0.clone();
        Ok(request)
    }
}

struct Exporter {
    metrics: Arc<Metrics>,
    client: MetricsServiceClient<InterceptedService<Channel, Headers>>,
    points: Points,
    running: Arc<Running>,
    /// The last export was not taken.
    refused: bool,
    /// When the log was last told that exports are not taken.
    said: Option<Instant>,
}

impl Exporter {
    async fn run(mut self, every: Duration, mut stopped: watch::Receiver<bool>) {
        let mut last = false;
        while !last {
            last = tokio::select! {
                () = tokio::time::sleep(every) => false,
                // An error means that the service is gone, which is a stop too.
                _ = stopped.wait_for(|stop| *stop) => true,
            };
            let sent = self.export().await;
            self.tell(sent);
        }
    }

    async fn export(&mut self) -> Result<(), String> {
        let metrics = Arc::clone(&self.metrics);
        // It asks the observer, which may be busy: no work for a thread of the runtime.
        let read = tokio::task::spawn_blocking(move || metrics.families()).await;
        let read = read.map_err(|error| error.to_string())?;
        let families = read.map_err(|error| error.to_string())?;
        for part in parts(self.points.of(families, now())) {
            let sending = self.client.export(message(part));
            let answer = tokio::time::timeout(TIMEOUT, sending).await;
            let answer = answer.map_err(|_| format!("no answer within {TIMEOUT:?}"))?;
            let answer = answer.map_err(|status| status.to_string())?.into_inner();
            let refused = answer.partial_success.unwrap_or_default();
            if refused.rejected_data_points > 0 {
                let (points, why) = (refused.rejected_data_points, refused.error_message);
                return Err(format!("it refused {points} values: {why}"));
            }
        }
        Ok(())
    }

    fn tell(&mut self, sent: Result<(), String>) {
        let before = std::mem::replace(&mut self.refused, sent.is_err());
        match sent {
            Ok(()) => {
                self.running.taken.fetch_add(1, Ordering::Relaxed);
                if before {
                    info!("the collector takes metrics again");
                }
            }
            Err(why) => {
                self.running.failed.fetch_add(1, Ordering::Relaxed);
                if !before && self.said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
                    self.said = Some(Instant::now());
                    warn!(why, "the collector does not take metrics");
                }
            }
        }
    }
}

/// Metrics in messages of about [`MESSAGE`] bytes.
fn parts(metrics: Vec<Metric>) -> Vec<Vec<Metric>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for metric in metrics {
        let length = metric.encoded_len();
        if bytes > 0 && bytes + length > MESSAGE {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += length;
        parts.last_mut().expect("there is one").push(metric);
    }
    parts
}

fn message(metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let resource = send::RESOURCE.iter();
    let resource =
        resource.map(|(key, value)| opentelemetry::KeyValue::new(key.clone(), value.clone()));
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: Attributes::from(resource).0,
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope::from((scope(), None))),
                metrics,
                schema_url: SCHEMA_URL.to_owned(),
            }],
            schema_url: SCHEMA_URL.to_owned(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let of = |text: &str| {
            let Headers(headers) = Headers::parse(text)?;
            let value = headers.get("authorization")?.to_str().ok()?.to_owned();
            Some((headers.len(), value))
        };
        let bearer = |pairs| Some((pairs, "Bearer a=b".to_owned()));
        assert_eq!(of("authorization=Bearer%20a=b"), bearer(1));
        assert_eq!(of("x-scope = 7 , Authorization=Bearer%20a%3Db,"), bearer(2));
        assert!(Headers::parse("").is_some_and(|none| none.0.is_empty()));
        for wrong in ["a", "a=b,,", "=b", "a b=c", "key-bin=x", "a=%0a", "a=%ff"] {
            assert!(Headers::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn many_metrics_go_in_several_messages_and_none_is_lost() {
        let metric = |length: usize| Metric {
            name: "x".repeat(length),
            ..Metric::default()
        };
        let lengths = |sizes: &[usize]| -> Vec<usize> {
            let parts = parts(sizes.iter().map(|size| metric(*size)).collect());
            parts.iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(&[10, 20]), [2]);
        let half = MESSAGE / 2 - 100;
        assert_eq!(lengths(&[half, half, half, 3 * half, 1]), [2, 1, 1, 1]);
    }
}
