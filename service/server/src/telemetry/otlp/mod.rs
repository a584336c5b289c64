//! OTLP: what the disk did for a request, as spans of the trace that the client began.
//!
//! ```text
//! Scope::end_as ── choose ──▶ observer ── explained ──▶ gather ──▶ queue ──▶ send ──▶ collector
//!        │                                                │ spans.rs
//!        └── About: what the observer does not know ──────┘
//! ```
//!
//! Whether a request is exported is decided at its end, when it is known how long it took: see
//! [`sampling`]. Every step is bounded and never waits for the next one. What does not fit is
//! dropped and counted, so a collector that is away costs memory that is named here and no time.

mod gather;
mod sampling;
mod send;
mod spans;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumpscope_observer::{EndedRequest, Observer, TraceContext, TracedRequest};
use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanData, SpanExporter as _};
use opentelemetry_semantic_conventions::SCHEMA_URL;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Code;
use tracing::info;

pub use spans::{About, Servers};

use crate::config::Sampling;
use crate::error::ServerError;
use crate::request::TraceParent;

/// Explained requests that wait to become spans.
const WATCHED: usize = 1024;
/// Requests that were chosen and whose explanation has not come: the oldest are forgotten.
const CHOSEN: usize = 4096;
/// Spans that wait to be sent: at about 1 KiB each, 8 MiB; with all links, three times that.
pub const QUEUE: usize = 8192;
/// Longest that spans are still sent when the service ends, after the batch under way.
pub const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// Exports requests as spans, or does nothing. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracing {
    running: Option<Arc<Running>>,
}

/// Counts of exported and dropped spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Spans that the collector has taken.
    pub exported: u64,
    /// Spans that did not fit into the queue.
    pub queue_full: u64,
    /// Spans of batches that the collector did not take.
    pub export_failed: u64,
    /// Spans that were left when the service ended.
    pub shutdown: u64,
    /// Requests that were chosen and of which no span was made: too many ended at a time.
    pub requests_lost: u64,
    /// Batches that the collector did not take.
    pub failures: u64,
    /// Whether the collector took the last batch; `None`: there was none yet.
    pub up: Option<bool>,
}

struct Running {
    sampling: Sampling,
    ids: RandomIdGenerator,
    shared: Arc<ExporterShared>,
    stop: watch::Sender<bool>,
    /// Taken by the end.
    tasks: Mutex<Option<Tasks>>,
}

struct Tasks {
    gathering: JoinHandle<()>,
    sending: JoinHandle<send::Sender>,
}

/// Between those who choose, gather and send.
struct ExporterShared {
    chosen: Mutex<VecDeque<About>>,
    /// Explained by the service alone: requests that named no store.
    alone: Mutex<Vec<TracedRequest>>,
    /// The last [`CHOSEN`] requests that were chosen, for links to their spans.
    contexts: Mutex<BTreeMap<u64, TraceContext>>,
    queue: Mutex<VecDeque<SpanData>>,
    numbers: Mutex<Numbers>,
    servers: Servers,
}

/// A collector that takes the spans; `None`: nothing is exported. Must be called within a runtime, and
/// before privileges are given up, because it reads certificates.
///
/// # Errors
/// An endpoint that is no address; for `https://`, no certificate of a CA.
pub fn collector(endpoint: Option<&str>) -> Result<Option<SpanExporter>, ServerError> {
    endpoint.map(send::exporter).transpose()
}

impl Tracing {
    /// Begins to export to a collector; `None`: never exports anything. Must be called within a runtime.
    #[must_use]
    pub fn start(
        collector: Option<SpanExporter>,
        sampling: Sampling,
        servers: Servers,
        observer: &Observer,
    ) -> Self {
        let Some(exporter) = collector else {
            return Self::default();
        };
        let mut exporter = exporter;
        exporter.set_resource(&send::resource(&servers));
        let shared = Arc::new(ExporterShared {
            chosen: Mutex::default(),
            alone: Mutex::default(),
            contexts: Mutex::default(),
            queue: Mutex::default(),
            numbers: Mutex::default(),
            servers,
        });
        let (stop, stopped) = watch::channel(false);
        let watched = observer.watch_traced(WATCHED);
        let gathering = gather::run(
            Arc::clone(&shared),
            watched,
            observer.clone(),
            stopped.clone(),
        );
        let gathering = tokio::spawn(gathering);
        let sender = send::Sender::new(Arc::clone(&shared), exporter);
        let sending = tokio::spawn(sender.run(stopped));
        info!("requests are exported as spans");
        Self {
            running: Some(Arc::new(Running {
                sampling,
                ids: RandomIdGenerator::default(),
                shared,
                stop,
                tasks: Mutex::new(Some(Tasks { gathering, sending })),
            })),
        }
    }

    /// Decides about a request that has ended, by how long it took and whether the disk of its store may
    /// have an arm; `None`: it is not exported.
    #[must_use]
    pub fn choose(
        &self,
        parent: Option<&TraceParent>,
        took: (Duration, bool),
        code: Code,
    ) -> Option<TraceContext> {
        let running = self.running.as_ref()?;
        let trace_id = match parent {
            Some(parent) => parent.trace_id(),
            None => u128::from_be_bytes(running.ids.new_trace_id().to_bytes()),
        };
        let sampled = parent.is_some_and(TraceParent::is_sampled);
        let wanted = sampled || running.sampling.wants(trace_id, took, code);
        wanted.then(|| TraceContext {
            trace_id,
            span_id: new_span_id(&running.ids),
            parent_span_id: parent.map_or(0, TraceParent::span_id),
        })
    }

    /// Tells what the observer does not know of a request that was chosen, before the observer is
    /// told of its end.
    pub fn chosen(&self, about: About, context: TraceContext) {
        let Some(running) = &self.running else { return };
        let mut contexts = lock(&running.shared.contexts);
        contexts.insert(about.request, context);
        if contexts.len() > CHOSEN {
            contexts.pop_first();
        }
        drop(contexts);
        let mut chosen = lock(&running.shared.chosen);
        if chosen.len() >= CHOSEN {
            chosen.pop_front();
            lock(&running.shared.numbers).requests_lost += 1;
        }
        chosen.push_back(about);
    }

    /// Exports a request that named no store, of which the observer is told nothing.
    pub fn alone(&self, what: &EndedRequest) {
        let (Some(running), Some(trace)) = (&self.running, what.trace) else {
            return;
        };
        let mut alone = lock(&running.shared.alone);
        if alone.len() < WATCHED {
            alone.push(spans::without_observer(what, trace));
        } else {
            lock(&running.shared.numbers).requests_lost += 1;
        }
    }

    /// Counts so far; `None`: nothing is exported.
    #[must_use]
    pub fn numbers(&self) -> Option<Numbers> {
        let running = self.running.as_ref()?;
        Some(*lock(&running.shared.numbers))
    }

    /// Sends what there is, for at most [`FLUSH_WITHIN`], and ends. Call it when all requests have
    /// ended, and while the observer still runs.
    pub async fn shutdown(&self) {
        let Some(running) = &self.running else { return };
        running.stop.send_replace(true);
        let Some(tasks) = lock(&running.tasks).take() else {
            return;
        };
        // A task that has panicked has said so.
        let _ = tasks.gathering.await;
        if let Ok(sender) = tasks.sending.await {
            sender.flush().await;
        }
        let numbers = self.numbers().unwrap_or_default();
        info!(
            exported = numbers.exported,
            dropped = numbers.queue_full + numbers.export_failed + numbers.shutdown,
            "no more spans"
        );
    }
}

impl ExporterShared {
    /// The oldest spans of the queue; `None`: it is empty.
    fn next_batch(&self, most: usize) -> Option<Vec<SpanData>> {
        let mut queue = lock(&self.queue);
        let count = queue.len().min(most);
        (count > 0).then(|| queue.drain(..count).collect())
    }

    /// Empties the queue; answers how many spans were in it.
    fn take_queue(&self) -> u64 {
        let left = std::mem::take(&mut *lock(&self.queue));
        u64::try_from(left.len()).unwrap_or(u64::MAX)
    }
}

/// The maker of spans.
fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("lumpscope")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA_URL)
        .build()
}

fn new_span_id(ids: &RandomIdGenerator) -> u64 {
    u64::from_be_bytes(ids.new_span_id().to_bytes())
}

/// State after a panic elsewhere is still in order: each change here is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use lumpscope_observer::{BlockIo, SlowRequest, StageTime};

    use super::*;
    use crate::door::Peer;

    /// A request with one stage and `blocks` block requests.
    fn explained(blocks: usize) -> TracedRequest {
        let block = BlockIo {
            operation: "read".to_owned(),
            purpose: "data".to_owned(),
            queued_at_ns: Some(10),
            done_at_ns: Some(20),
            ..BlockIo::default()
        };
        let request = SlowRequest {
            request_id: 5,
            total_ns: 100,
            begin_unix_ns: 1000,
            stages: vec![StageTime {
                stage: "recv".to_owned(),
                total_ns: 7,
            }],
            blocks: vec![block; blocks],
            ..SlowRequest::default()
        };
        TracedRequest {
            request,
            trace: TraceContext {
                trace_id: 1,
                span_id: 2,
                parent_span_id: 0,
            },
            sharers: Vec::new(),
        }
    }

    fn shared() -> ExporterShared {
        ExporterShared {
            chosen: Mutex::default(),
            alone: Mutex::default(),
            contexts: Mutex::default(),
            queue: Mutex::default(),
            numbers: Mutex::default(),
            servers: servers(),
        }
    }

    fn servers() -> Servers {
        Servers::new(([127, 0, 0, 1], 50051).into(), None)
    }

    #[test]
    fn the_queue_is_bounded_and_every_span_is_counted_once() {
        let shared = shared();
        let spans_of_one = 2 + 62;
        let fit = QUEUE / spans_of_one;
        for _ in 0..fit + 3 {
            shared.enqueue(&explained(62));
        }
        assert_eq!(lock(&shared.queue).len(), fit * spans_of_one);
        let dropped = lock(&shared.numbers).queue_full;
        assert_eq!(dropped, 3 * u64::try_from(spans_of_one).unwrap());
        assert_eq!(shared.next_batch(10).unwrap().len(), 10);
        let left = u64::try_from(fit * spans_of_one - 10).unwrap();
        assert_eq!(shared.take_queue(), left);
        assert!(shared.next_batch(10).is_none());
    }

    /// What an attribute of a span says.
    fn said(span: &SpanData, key: &str) -> Option<String> {
        let found = span.attributes.iter().find(|a| a.key.as_str() == key);
        found.map(|a| a.value.to_string())
    }

    #[test]
    fn block_requests_hang_below_their_stage_and_have_places_in_time() {
        let mut explained = explained(1);
        explained.request.stages.push(StageTime {
            stage: "device".to_owned(),
            total_ns: 50,
        });
        // When it completed is not known: no span can be made of it.
        explained.request.blocks.push(BlockIo::default());
        // It sticks out of its stage, as those of many lumps in parallel do.
        explained.request.blocks.push(BlockIo {
            operation: "read".to_owned(),
            issued_at_ns: Some(55),
            done_at_ns: Some(65),
            device_ns: 10,
            flags: vec!["meta".to_owned(), "fua".to_owned()],
            hardware_queue: Some(0),
            ..BlockIo::default()
        });
        let about = About {
            request: 5,
            method: "lumpscope.v1.LumpStore/Get",
            code: Some(Code::DataLoss),
            ..About::unknown(5)
        };
        let ids = RandomIdGenerator::default();
        let shared = shared();
        let made = spans::of(&explained, &about, &shared, &ids);
        assert_eq!(made.len(), spans::count(&explained.request));
        let names: Vec<&str> = made.iter().map(|span| &*span.name).collect();
        let expected = [
            "lumpscope.v1.LumpStore/Get",
            "recv",
            "device",
            "read",
            "read",
        ];
        assert_eq!(names, expected);
        assert_eq!(made[4].parent_span_id, made[2].span_context.span_id());
        let says = |span, key| said(span, key).is_some();
        assert!(says(&made[4], "lumpscope.device_ns") && !says(&made[4], "lumpscope.queue_ns"));
        let flags = said(&made[4], "lumpscope.flags");
        assert_eq!(flags.as_deref(), Some(r#"["meta","fua"]"#));
        assert_eq!(
            said(&made[4], "lumpscope.hardware_queue").as_deref(),
            Some("0")
        );
        assert!(!says(&made[3], "lumpscope.flags"), "it has none");
        assert!(
            !says(&made[3], "lumpscope.device_ns"),
            "when it was sent was not seen"
        );
        assert_eq!(made[3].parent_span_id, made[2].span_context.span_id());
        assert_eq!(made[2].parent_span_id, made[0].span_context.span_id());
        let after = |span: &SpanData| {
            let after = span.start_time.duration_since(made[0].start_time).unwrap();
            (
                after.as_nanos(),
                span.end_time
                    .duration_since(span.start_time)
                    .unwrap()
                    .as_nanos(),
            )
        };
        assert_eq!((after(&made[2]), after(&made[3])), ((7, 58), (10, 10)));
        let expected = opentelemetry::trace::Status::error("DATA_LOSS");
        assert_eq!(made[0].status, expected);
    }

    #[test]
    fn the_server_and_the_schema_of_the_attributes_are_named() {
        let about = About {
            method: "S3/PutObject",
            ..About::unknown(5)
        };
        let explained = explained(0);
        let ids = RandomIdGenerator::default();
        let of = |servers| {
            let shared = ExporterShared {
                servers,
                ..shared()
            };
            let made = spans::of(&explained, &about, &shared, &ids).swap_remove(0);
            let says = |key| said(&made, key).unwrap();
            let schema = made.instrumentation_scope.schema_url().unwrap();
            assert!(schema.starts_with("https://opentelemetry.io/schemas/"));
            (says("server.address"), says("server.port"))
        };
        let s3 = Servers::new(
            ([127, 0, 0, 1], 50051).into(),
            Some(([127, 0, 0, 2], 9000).into()),
        );
        assert_eq!(of(s3), ("127.0.0.2".to_owned(), "9000".to_owned()));
        let everywhere = Servers::new(([0, 0, 0, 0], 50051).into(), None);
        assert_ne!(of(everywhere).0, "0.0.0.0");
    }

    #[test]
    fn the_client_is_named_as_far_as_it_has_an_address() {
        let (explained, ids, shared) = (explained(0), RandomIdGenerator::default(), shared());
        let of = |client| {
            let about = About {
                client,
                ..About::unknown(5)
            };
            let made = spans::of(&explained, &about, &shared, &ids).swap_remove(0);
            ["client.address", "client.port", "network.transport"].map(|key| said(&made, key))
        };
        let named = |words: [&str; 3]| words.map(|word| Some(word.to_owned()));
        let mapped = "[::ffff:192.0.2.7]:4711".parse().unwrap();
        let tcp = named(["192.0.2.7", "4711", "tcp"]);
        assert_eq!(of(Some(Peer::Tcp(mapped))), tcp);
        let unix = Peer::Unix {
            pid: Some(7),
            uid: Some(0),
        };
        assert_eq!(of(Some(unix)), [None, None, Some("unix".to_owned())]);
        assert_eq!(of(None), [None, None, None]);
    }

    #[test]
    fn spans_are_linked_with_those_of_the_requests_they_name() {
        let mut explained = explained(1);
        explained.request.waited_for_request_id = Some(3);
        explained.request.blocks[0].previous_owner = "request 4".to_owned();
        explained.sharers = vec![(4..40).collect()];
        let shared = shared();
        // Of the first ones, request 9 is not exported.
        for id in (3..40).filter(|id| *id != 9) {
            let context = TraceContext {
                trace_id: u128::from(id),
                span_id: 100 + id,
                parent_span_id: 0,
            };
            lock(&shared.contexts).insert(id, context);
        }
        let (about, ids) = (About::unknown(5), RandomIdGenerator::default());
        let made = spans::of(&explained, &about, &shared, &ids);
        let links = |span: &SpanData| -> Vec<(u64, String)> {
            let links = span.links.iter().map(|link| {
                let id = u64::from_be_bytes(link.span_context.span_id().to_bytes());
                (id, link.attributes[0].value.to_string())
            });
            links.collect()
        };
        assert_eq!(links(&made[0]), [(103, "waited_for".to_owned())]);
        assert!(links(&made[1]).is_empty(), "a stage names nobody");
        let of_block = links(&made[2]);
        assert_eq!(of_block[0], (104, "previous_owner".to_owned()));
        let sharers: Vec<u64> = of_block[1..].iter().map(|(id, _)| *id).collect();
        let first = [104, 106, 107, 108].into_iter().chain(110..121);
        assert!(sharers.into_iter().eq(first), "{of_block:?}");
        assert_eq!(made[2].links.dropped_count, 19);
    }

    #[test]
    fn what_was_chosen_long_ago_is_forgotten_and_said() {
        let shared = shared();
        assert_eq!(shared.about(5), About::unknown(5));
        let about = About {
            method: "m",
            ..About::unknown(5)
        };
        lock(&shared.chosen).push_back(about.clone());
        assert_eq!(shared.about(5), about);
        assert!(lock(&shared.chosen).is_empty());
    }
}
