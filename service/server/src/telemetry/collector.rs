//! Reads every number at the moment of the scrape and writes it under its name.
//!
//! What engine and observer count stays theirs: nothing is copied into counters of this service,
//! so nothing can drift apart.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lumpscope_engine::StoreStats;
use lumpscope_observer::{Observer, StoreReport};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::exposition::Out;
use super::heat::{self, float, seconds};
use super::metrics::RequestMetrics;
use super::names;
use crate::grpc::Memory;
use crate::stores::{NamedStore, Stores};

/// Where the numbers come from.
pub struct Sources {
    /// The stores.
    pub stores: Stores,
    /// The observer.
    pub observer: Observer,
    /// What the service counts itself.
    pub requests: Arc<RequestMetrics>,
    /// Memory for bodies that are being put.
    pub put_memory: Memory,
    /// Memory for bodies that are being sent.
    pub get_memory: Memory,
}

/// All metrics of the service.
pub struct ServiceCollector {
    sources: Sources,
}

impl ServiceCollector {
    /// A collector that reads from `sources` at every scrape.
    #[must_use]
    pub fn new(sources: Sources) -> Self {
        Self { sources }
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
    stats: StoreStats,
    pub(super) report: StoreReport,
    mode: String,
}

impl Collector for ServiceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let sources = &self.sources;
        let stores: Vec<Snapshot> = sources
            .stores
            .iter()
            .map(|named| Snapshot {
                named,
                stats: named.store.stats(),
                report: sources.observer.report(&named.name).unwrap_or_default(),
                mode: sources
                    .observer
                    .store_status(&named.name)
                    .unwrap_or_default()
                    .mode,
            })
            .collect();
        let mut out = Out {
            encoder: &mut encoder,
        };
        service(&mut out, sources)?;
        requests(&mut out, &stores)?;
        store_states(&mut out, &stores)?;
        store_counters(&mut out, &stores)?;
        block(&mut out, &stores)?;
        attribution(&mut out, &stores)?;
        audit(&mut out, &stores)
    }
}

fn service(out: &mut Out<'_, '_>, sources: &Sources) -> fmt::Result {
    out.info(
        &names::BUILD,
        vec![vec![env!("CARGO_PKG_VERSION").to_owned()]],
    )?;
    out.family(&names::REQUESTS, &sources.requests.requests)?;
    out.family(&names::REQUEST_DURATION, &sources.requests.duration)?;
    let running = sources.requests.in_progress.load(Ordering::Relaxed);
    let running = u64::try_from(running).unwrap_or(0);
    out.gauge(&names::REQUESTS_IN_PROGRESS, [(vec![], float(running))])?;
    out.gauge(
        &names::BODY_MEMORY,
        [
            (vec!["put"], float(sources.put_memory.reserved())),
            (vec!["get"], float(sources.get_memory.reserved())),
        ],
    )
}

fn requests(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    let operations = || {
        stores.iter().flat_map(|s| {
            let name = s.named.name.as_str();
            s.report.operations.iter().map(move |o| (name, o))
        })
    };
    out.counter(
        &names::REQUEST_STAGE,
        operations().flat_map(|(store, o)| {
            o.stages.iter().map(move |stage| {
                let labels = vec![store, o.method.as_str(), stage.stage.as_str()];
                (labels, seconds(stage.total_ns))
            })
        }),
    )?;
    out.counter(
        &names::REQUEST_BODY,
        operations().map(|(store, o)| (vec![store, o.method.as_str()], float(o.bytes))),
    )
}

fn store_states(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
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
    out.info(&names::STORE, stores.iter().map(describe).collect())?;
    let failed = |s: &Snapshot| u64::from(s.named.store.failed().is_some());
    out.gauge_of(&names::STORE_FAILED, stores, failed)?;
    out.gauge_of(&names::STORE_LUMPS, stores, |s| s.stats.lumps)?;
    out.gauge_of(&names::DATA_CAPACITY, stores, |s| {
        s.stats.data_capacity_bytes
    })?;
    out.gauge_of(&names::DATA_USED, stores, |s| s.stats.data_used_bytes)?;
    out.gauge_of(&names::LARGEST_FREE, stores, |s| s.stats.largest_free_bytes)?;
    out.gauge_of(&names::FREE_EXTENTS, stores, |s| s.stats.free_extents)?;
    out.gauge_of(&names::JOURNAL_CAPACITY, stores, |s| {
        s.stats.journal_capacity_bytes
    })?;
    out.gauge_of(&names::JOURNAL_USED, stores, |s| s.stats.journal_used_bytes)?;
    out.gauge_of(&names::JOURNAL_LIVE, stores, |s| s.stats.journal_live_bytes)?;
    out.gauge_of(&names::QUEUE_LENGTH, stores, |s| s.stats.queue_length)?;
    out.gauge_of(&names::PENDING, stores, |s| s.stats.pending)?;
    out.gauge_of(&names::IN_FLIGHT, stores, |s| s.stats.in_flight_ios)
}

fn store_counters(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    out.counter_of(&names::JOURNAL_COMMITS, stores, |s| s.stats.commits)?;
    out.counter_of(&names::JOURNAL_RECORDS, stores, |s| s.stats.commit_records)?;
    out.counter_of(&names::JOURNAL_HEADER_WRITES, stores, |s| {
        s.stats.header_writes
    })?;
    out.counter_of(&names::GC_RELOCATED, stores, |s| s.stats.gc_relocated)?;
    out.counter_of(&names::GC_DROPPED, stores, |s| s.stats.gc_dropped)?;
    out.counter_of(&names::FLUSHES, stores, |s| s.stats.flushes)?;
    out.counter_of(&names::IO_ERRORS, stores, |s| s.stats.io_errors)?;
    out.counter_of(&names::CHECKSUM_FAILURES, stores, |s| {
        s.stats.checksum_failures
    })?;
    out.counter_of(&names::UNVERIFIED_GETS, stores, |s| s.stats.unverified_gets)
}

fn block(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    out.gauge(
        &names::PROBE_ATTACHED,
        stores.iter().map(|s| {
            let labels = vec![&*s.named.name, &*s.report.device, &*s.mode];
            (labels, float(u64::from(s.report.observed)))
        }),
    )?;
    let owners = || {
        stores.iter().flat_map(|s| {
            let owners = s.report.block.owners.iter();
            owners.map(move |o| (vec![&*s.named.name, &*o.owner, &*o.operation], o))
        })
    };
    out.counter(
        &names::BLOCK_REQUESTS,
        owners().map(|(l, o)| (l, float(o.requests))),
    )?;
    out.counter(
        &names::BLOCK_BYTES,
        owners().map(|(l, o)| (l, float(o.bytes))),
    )?;
    out.counter_of(&names::BLOCK_DATA_REQUESTS, stores, |s| {
        s.report.block.data_requests
    })?;
    out.counter_of(&names::BLOCK_SEQUENTIAL, stores, |s| {
        s.report.block.sequential
    })?;
    out.histogram(&names::SEEK_DISTANCE, stores, heat::seek_distance)?;
    out.histogram(&names::DEVICE_TIME, stores, heat::device_time)?;
    out.histogram(&names::SEEK_DEVICE_TIME, stores, heat::seek_device_time)
}

fn attribution(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    let results = || {
        stores.iter().flat_map(|s| {
            let b = &s.report.block;
            let all = b.attributed_bytes + b.shared_bytes + b.unattributed_bytes;
            [
                ("attributed", b.attributed_bytes),
                ("shared", b.shared_bytes),
                ("unattributed", b.unattributed_bytes),
            ]
            .map(|(result, bytes)| (vec![&*s.named.name, result], bytes, all))
        })
    };
    out.counter(
        &names::ATTRIBUTION_BYTES,
        results().map(|(labels, bytes, _)| (labels, float(bytes))),
    )?;
    out.gauge(
        &names::ATTRIBUTION_RATIO,
        results()
            .filter(|(_, _, all)| *all > 0)
            .map(|(labels, bytes, all)| (labels, float(bytes) / float(all))),
    )
}

fn audit(out: &mut Out<'_, '_>, stores: &[Snapshot]) -> fmt::Result {
    let both = |probes: fn(&StoreReport) -> u64, kernel: fn(&StoreReport) -> u64| {
        stores.iter().flat_map(move |s| {
            [("probes", probes(&s.report)), ("kernel", kernel(&s.report))]
                .map(|(source, n)| (vec![&*s.named.name, source], float(n)))
        })
    };
    out.counter(
        &names::AUDIT_REQUESTS,
        both(|r| r.audit.seen_requests, |r| r.audit.kernel_requests),
    )?;
    out.counter(
        &names::AUDIT_BYTES,
        both(|r| r.audit.seen_bytes, |r| r.audit.kernel_bytes),
    )?;
    out.gauge_of(&names::AUDIT_COMPLETE, stores, |s| {
        u64::from(s.report.audit.complete)
    })?;
    out.counter_of(&names::LOST_EVENTS, stores, |s| s.report.audit.lost_events)?;
    out.counter_of(&names::UNMATCHED, stores, |s| s.report.audit.unmatched)?;
    out.counter_of(&names::RECURSION_MISSES, stores, |s| {
        s.report.audit.recursion_misses
    })
}
