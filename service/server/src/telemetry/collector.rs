//! Reads every number at the moment of the scrape and writes it under its name.
//!
//! Counts of engine and observer stay theirs: nothing is copied into counters of this service, so
//! nothing can drift apart.

use std::fmt;
use std::sync::Arc;

use lumpscope_observer::{GuardReport, Observer, StoreReport};
use lumpscope_proto::v1::StoreState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::exposition::Out;
use super::heat::{float, seconds};
use super::metrics::RequestMetrics;
use super::names::{self, Metric};
use super::observing;
use super::otlp::{Numbers, Tracing};
use super::process;
use super::store_stats;
use crate::door::{Door, ENTRANCES};
use crate::observed::Watches;
use crate::request::Budget;
use crate::stores::{FailedStore, NamedStore, Stores};

/// Where the numbers come from. Cheap to clone.
#[derive(Clone)]
pub struct Sources {
    /// Names this service among all, as its spans do.
    pub instance: String,
    /// May gain and lose stores while the service runs.
    pub stores: Stores,
    /// Source of all block metrics.
    pub observer: Observer,
    /// The service's own counters.
    pub requests: Arc<RequestMetrics>,
    /// How connections are let in.
    pub door: Door,
    /// Memory for bodies that are being put.
    pub put_memory: Budget,
    /// Exports requests as spans.
    pub tracing: Tracing,
    /// Live watchers.
    pub watches: Arc<Watches>,
}

/// In which form the metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MetricsFormat {
    /// OpenMetrics: classic histograms with exemplars.
    OpenMetrics,
    /// Text of Prometheus: the same without exemplars.
    Plain,
    /// Protobuf: histograms with native and classic buckets; exemplars stand in a family of their
    /// own behind that of their histogram.
    Protobuf,
}

/// All metrics of the service.
pub(super) struct ServiceCollector {
    sources: Arc<Sources>,
    form: MetricsFormat,
}

/// Every state that a store can be in.
const STATES: [StoreState; 7] = [
    StoreState::Serving,
    StoreState::Degraded,
    StoreState::ReadOnly,
    StoreState::Failed,
    StoreState::Gone,
    StoreState::Draining,
    StoreState::Unavailable,
];

impl ServiceCollector {
    /// A collector that reads from `sources` at every scrape.
    pub(super) fn new(sources: Arc<Sources>, form: MetricsFormat) -> Self {
        Self { sources, form }
    }
}

impl fmt::Debug for ServiceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceCollector")
    }
}

/// Everything of one store, read once a scrape.
pub(super) struct Snapshot<'a> {
    pub(super) named: &'a NamedStore,
    numbers: Vec<(&'static Metric, f64)>,
    pub(super) report: StoreReport,
    pub(super) mode: String,
    pub(super) guard: GuardReport,
    /// Slow requests that can be explained.
    pub(super) kept: u64,
}

impl Collector for ServiceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let sources = &*self.sources;
        let all = sources.stores.all();
        let stores: Vec<Snapshot> = all
            .iter()
            .map(|named| Snapshot {
                named,
                numbers: store_stats::numbers(named).collect(),
                report: sources.observer.report(&named.name).unwrap_or_default(),
                mode: sources
                    .observer
                    .store_status(&named.name)
                    .unwrap_or_default()
                    .mode,
                kept: sources.observer.kept(&named.name) as u64,
                guard: sources.observer.guard(&named.name).unwrap_or_default(),
            })
            .collect();
        let mut out = Out {
            encoder: &mut encoder,
        };
        service(&mut out, sources, self.form)?;
        traces(&mut out, sources.tracing.numbers())?;
        door(&mut out, &sources.door)?;
        requests(&mut out, &stores)?;
        describe_stores(&mut out, &stores)?;
        store_states(&mut out, &stores, &sources.stores.failed())?;
        store_numbers(&mut out, &stores, &sources.stores.failed())?;
        observing::encode(&mut out, &stores, sources)?;
        process::encode(&mut out)
    }
}

fn service(out: &mut Out<'_, '_>, sources: &Sources, form: MetricsFormat) -> fmt::Result {
    out.info(
        &names::BUILD,
        vec![vec![
            env!("CARGO_PKG_VERSION").to_owned(),
            sources.instance.clone(),
        ]],
    )?;
    out.family(&names::REQUESTS, &sources.requests.requests)?;
    if form == MetricsFormat::Protobuf {
        out.family(&names::REQUEST_DURATION, &sources.requests.native)?;
    }
    out.family(&names::REQUEST_DURATION, &sources.requests.duration)?;
    let running = sources.requests.under_way();
    out.numbers(&names::REQUESTS_IN_PROGRESS, [(vec![], float(running))])?;
    let all = sources.stores.all();
    let gets = all.iter().map(|named| named.store.stats().buffer_get_bytes);
    out.numbers(
        &names::BODY_MEMORY,
        [
            (vec!["put"], float(sources.put_memory.held())),
            (vec!["get"], float(gets.sum())),
        ],
    )
}

fn traces(out: &mut Out<'_, '_>, numbers: Option<Numbers>) -> fmt::Result {
    let one = |value: fn(&Numbers) -> u64| numbers.iter().map(move |n| (vec![], float(value(n))));
    out.numbers(&names::SPANS_EXPORTED, one(|n| n.exported))?;
    let dropped = numbers.iter().flat_map(|n| {
        [
            ("queue_full", n.queue_full),
            ("export_failed", n.export_failed),
            ("shutdown", n.shutdown),
        ]
    });
    let dropped = dropped.map(|(reason, spans)| (vec![reason], float(spans)));
    out.numbers(&names::SPANS_DROPPED, dropped)?;
    out.numbers(&names::TRACED_LOST, one(|n| n.requests_lost))?;
    out.numbers(&names::EXPORT_FAILURES, one(|n| n.failures))?;
    let up = numbers.and_then(|n| n.up);
    let up = up.map(|up| (vec![], float(u64::from(up))));
    out.numbers(&names::EXPORTER_UP, up)
}

fn door(out: &mut Out<'_, '_>, door: &Door) -> fmt::Result {
    let metrics = &door.metrics;
    let open = |name| (vec![name], float(metrics.open_at(name) as u64));
    out.numbers(&names::CONNECTIONS, ENTRANCES.map(open))?;
    out.family(&names::CONNECTIONS_ACCEPTED, &metrics.accepted)?;
    out.family(&names::ACCEPT_ERRORS, &metrics.accept_errors)?;
    out.family(&names::CONNECTIONS_REFUSED, &metrics.refused)?;
    out.family(&names::LOGIN_FAILURES, &metrics.login_failures)?;
    out.family(&names::RELOADS, &metrics.reloads)?;
    let in_force = door.reloader.in_force();
    out.numbers(&names::TOKENS, [(vec![], f64::from(in_force.tokens))])?;
    // Absent without TLS: 0 would be a certificate that has expired long ago.
    let not_after = in_force.certificate_not_after.map(|at| {
        let seconds = u64::try_from(at).unwrap_or(0);
        (vec![], float(seconds))
    });
    out.numbers(&names::CERTIFICATE_NOT_AFTER, not_after)
}

fn requests(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    let operations = || {
        stores.iter().flat_map(|s| {
            let name = s.named.name.as_str();
            s.report.operations.iter().map(move |o| (name, o))
        })
    };
    out.numbers(
        &names::REQUEST_STAGE,
        operations().flat_map(|(store, o)| {
            o.stages.iter().map(move |stage| {
                let labels = vec![store, o.method.as_str(), stage.stage.as_str()];
                (labels, seconds(stage.total_ns))
            })
        }),
    )?;
    out.numbers(
        &names::REQUEST_BODY,
        operations().map(|(store, o)| (vec![store, o.method.as_str()], float(o.bytes))),
    )
}

/// A series for each state of each store.
fn store_states(out: &mut Out<'_, '_>, stores: &[Snapshot], failed: &[FailedStore]) -> fmt::Result {
    let open = stores.iter().map(|s| (&*s.named.name, s.named.state().0));
    let failed = failed.iter().map(|f| (&*f.name, StoreState::Unavailable));
    let series = open.chain(failed).flat_map(|(name, now)| {
        let value = move |state| f64::from(u8::from(state == now));
        STATES.map(|state| (vec![name, state.word()], value(state)))
    });
    out.numbers(&names::STORE_STATE, series)
}

fn describe_stores(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    let describe = |s: &Snapshot| {
        let info = s.named.store.info();
        vec![
            s.named.name.clone(),
            info.path.display().to_string(),
            info.layout.name().to_owned(),
            info.backend.name().to_owned(),
            s.report.device.clone(),
            info.block_size.to_string(),
        ]
    };
    out.info(&names::STORE, stores.iter().map(describe).collect())
}

/// The numbers of each store; of one that could not be opened, only that it has failed.
fn store_numbers(
    out: &mut Out<'_, '_>,
    stores: &[Snapshot],
    failed: &[FailedStore],
) -> fmt::Result {
    for metric in store_stats::metrics() {
        let open = stores.iter().filter_map(|s| {
            let (_, value) = s.numbers.iter().find(|(of, _)| of.name == metric.name)?;
            Some((vec![&*s.named.name], *value))
        });
        let closed = failed
            .iter()
            .filter(|_| metric.name == names::STORE_FAILED.name);
        let series = open.chain(closed.map(|failed| (vec![&*failed.name], 1.0)));
        out.numbers(metric, series)?;
    }
    Ok(())
}
