//! Opens one store: with the engine's options of the configuration, watched by the observer.

use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use lumpscope_engine::{Machine, SalvageReport, Store, StoreOptions, TailOutcome, UnsettledTail};
use lumpscope_objects::{ObjectOptions, Objects};
use lumpscope_observer::{GuardPolicy, Observer};
use lumpscope_units::Span;
use tracing::{info, warn};

use super::images::Images;
use super::named::{NamedStore, ServiceGate};
use super::sink::DiskSink;
use crate::config::{FLIGHT_AUTO, ServeConfig, StoreSpec, TRACE_AUTO};
use crate::error::ServerError;

/// Findings of a salvage that are logged; all are counted.
const SALVAGE_LOGGED: usize = 100;

/// Inputs for opening a store.
pub(super) struct Opener {
    pub(super) config: ServeConfig,
    pub(super) observer: Observer,
    pub(super) images: Images,
    /// Found out at the start: later the service cannot read all it is made from.
    pub(super) machine: Machine,
    pub(super) gate: Arc<ServiceGate>,
}

impl Opener {
    /// Says in the log whether a store is observed and guarded, and why not.
    pub(super) fn tell_blind_spot(&self, store: &str) {
        let seen = self.observer.store_status(store).unwrap_or_default();
        let device = seen.device.unwrap_or_default();
        if seen.observed {
            info!(store, device, mode = seen.mode, "observed");
        } else {
            warn!(
                store,
                device,
                why = seen.why_not,
                "serving, but without observing its disk; `lumpscope doctor` says what is missing"
            );
        }
        let guard = self.observer.guard(store).unwrap_or_default();
        if guard.policy != GuardPolicy::Off && !guard.effective {
            warn!(
                store,
                why = guard.why_not,
                "not guarded as asked: the device is only claimed (O_EXCL), others can write to it"
            );
        }
    }

    /// Opens the configured stores, at the same time: a disk that is slow or hangs holds up its own
    /// store only. Blocks.
    pub(super) fn open_all(&self) -> Vec<(&StoreSpec, Result<Arc<NamedStore>, ServerError>)> {
        let specs = &self.config.stores;
        thread::scope(|scope| {
            let opening: Vec<_> = specs
                .iter()
                .enumerate()
                .map(|(index, spec)| scope.spawn(move || self.open(index, spec, false)))
                .collect();
            let opened = opening.into_iter().map(|opening| match opening.join() {
                Ok(opened) => opened,
                Err(panicked) => std::panic::resume_unwind(panicked),
            });
            specs.iter().zip(opened).collect()
        })
    }

    /// Opens a store that the observer knows by `index`. Blocks.
    pub(super) fn open(
        &self,
        index: usize,
        spec: &StoreSpec,
        salvage: bool,
    ) -> Result<Arc<NamedStore>, ServerError> {
        let opened = self.open_image(index, spec, salvage);
        if opened.is_err() {
            self.images.forget(&spec.name);
        }
        opened
    }

    fn open_image(
        &self,
        index: usize,
        spec: &StoreSpec,
        salvage: bool,
    ) -> Result<Arc<NamedStore>, ServerError> {
        let spec = &spec.found().map_err(|why| ServerError::FindStore {
            name: spec.name.clone(),
            why,
        })?;
        let options = self.options(index, spec, salvage);
        let store = Store::open(&spec.path, options).map_err(|source| ServerError::OpenStore {
            name: spec.name.clone(),
            path: spec.path.clone(),
            source: source.into(),
        })?;
        let seen = self.observer.store_status(&spec.name);
        let armless = seen.is_some_and(|seen| seen.armless);
        self.log_opened(&store, armless);
        let objects = self.objects(spec, &store)?;
        let named = Arc::new(NamedStore::new(
            index,
            spec.clone(),
            (store, objects),
            armless,
            Arc::clone(&self.gate),
        ));
        Ok(named)
    }

    fn options(&self, index: usize, spec: &StoreSpec, salvage: bool) -> StoreOptions {
        let config = &self.config;
        let mut options = StoreOptions::new(spec.name.clone());
        options.admission = Some(self.images.admission(spec));
        options.machine = Some(self.machine.clone());
        options.take_over = config.take_over.contains(&spec.name);
        options.io_sink = Some(Arc::new(DiskSink::new(self.observer.clone(), index)));
        options.queue_depth = config.queue_depth;
        options.queue_limit = config.queue_limit;
        options.queue_policy = config.queue_policy.into();
        options.max_overtakes = config.max_overtakes();
        options.overload_threshold = config.overload_threshold();
        options.overload_after = config.overload_after;
        options.buffer_budget = config.buffer_budget.0;
        options.get_budget = config.get_memory().0;
        options.scrub_rate = config.scrub_rate.0;
        options.scrub_interval = config.scrub_interval;
        options.gc_rate = config.gc_rate.0;
        options.checkpoint_records = config.checkpoint_records;
        options.salvage = config.salvage || salvage;
        options.io_backend = config.io_backend.into();
        options.io_timeout = config.io_timeout;
        options.commit = config.commit.into();
        options
    }

    /// Says in the log what was opened.
    fn log_opened(&self, store: &Store, armless: bool) {
        let known = store.info();
        let name = &known.name;
        let (traced, kept) = self.slower_than(armless);
        info!(
            store = name,
            path = %known.path.display(),
            uuid = %known.uuid,
            layout = known.layout.name(),
            block_size = known.block_size,
            backend = known.backend.name(),
            disk = known.disk.map(|disk| disk.to_string()),
            durable_by = known.durable_by,
            commit = known.commit.name(),
            trace_slower_than = traced.map(tracing::field::display),
            flight_slower_than = kept.map(tracing::field::display),
            lumps = known.replay.lumps,
            // The end mark is no record to whoever reads this.
            records = known.replay.records.saturating_sub(1),
            replay_ms = known.replay.elapsed_ns / 1_000_000,
            "opened"
        );
        if let Some(from) = &known.taken_from {
            warn!(store = name, %from, "taken over from another machine");
        }
        if let Some(medium) = known.volatile {
            warn!(store = name, "NOT DURABLE: it is {medium}");
        }
        for found in known.mended.iter().take(SALVAGE_LOGGED) {
            warn!(store = name, "damage that opening got over: {found}");
        }
        if let Some(tail) = &known.unsettled {
            log_unsettled(name, tail);
        }
        if let Some(report) = &known.salvage {
            log_salvage(name, report);
        }
    }
}

impl Opener {
    /// Requests of a store that are traced because they are slow take so long, and those that the
    /// flight recorder keeps; `None`: nothing is traced, or kept.
    fn slower_than(&self, armless: bool) -> (Option<Span>, Option<Span>) {
        let config = &self.config;
        let (traced, kept) = (&config.otlp_endpoint, &config.flight_recorder);
        let traced = traced
            .as_ref()
            .map(|_| config.trace_slower_than.of(TRACE_AUTO, !armless));
        let kept = kept
            .as_ref()
            .map(|_| config.flight_slower_than.of(FLIGHT_AUTO, !armless));
        (traced.map(Span), kept.map(Span))
    }

    /// The objects of a store that S3 serves.
    fn objects(&self, spec: &StoreSpec, store: &Store) -> Result<Option<Objects>, ServerError> {
        let config = &self.config;
        if !config.serves_s3(&spec.name) {
            return Ok(None);
        }
        let options = ObjectOptions {
            durability: config.durability.into(),
            memory_wait: config.body_timeout,
            ..ObjectOptions::default()
        };
        let opened = Objects::open(store.clone(), options);
        let (objects, found) = opened.map_err(|source| ServerError::OpenObjects {
            name: spec.name.clone(),
            source: source.into(),
        })?;
        info!(
            store = spec.name,
            buckets = found.buckets,
            objects = found.objects,
            blocks = found.blocks,
            uploads = found.uploads,
            unreadable = found.unreadable,
            swept_records = found.swept_records,
            swept_pieces = found.swept_pieces,
            ms = found.elapsed_ns / 1_000_000,
            "objects opened for S3"
        );
        Ok(Some(objects))
    }
}

/// Says what opening made of a last batch that was not settled.
fn log_unsettled(store: &str, tail: &UnsettledTail) {
    let UnsettledTail {
        ring_position,
        puts,
        outcome,
        lumps,
    } = tail;
    let lumps: Vec<String> = lumps.iter().map(ToString::to_string).collect();
    let (outcome, lumps) = (outcome.name(), lumps.join(" "));
    match tail.outcome {
        TailOutcome::Whole => info!(
            store,
            ring_position, puts, outcome, "the data of the last puts is there"
        ),
        TailOutcome::Dropped => warn!(
            store,
            ring_position,
            puts,
            outcome,
            lumps,
            "data of the last puts is missing: the power went before they were acknowledged, and \
             the journal ends before them"
        ),
        TailOutcome::Damaged => warn!(
            store,
            ring_position,
            puts,
            outcome,
            lumps,
            "data of the last puts is damaged; they may have been acknowledged, so they are kept, \
             and reading these lumps fails: restore them from copies"
        ),
    }
}

/// Tells what salvage mode has done with a store.
fn log_salvage(store: &str, report: &SalvageReport) {
    if report.is_clean() {
        info!(store, "salvage: nothing is wrong; leave the option out");
        return;
    }
    for found in report.findings.iter().take(SALVAGE_LOGGED) {
        warn!(
            store,
            action = found.action.name(),
            "salvage: {}",
            found.finding
        );
    }
    if let Some(cut) = &report.cut {
        warn!(
            store,
            ring_position = cut.ring_position,
            records_kept = cut.records_kept,
            bytes_behind = cut.bytes_behind,
            records_behind = cut.records_behind,
            bytes_searched = cut.bytes_searched,
            "salvage: the log was cut; intact records behind may be lost ones or older rounds of the ring"
        );
    }
    warn!(
        store,
        findings = report.total,
        dropped_lumps = report.dropped_lumps,
        lumps = report.lumps,
        repaired = report.repaired,
        "salvage: done; from now on the store opens without it"
    );
}

/// Target of a path: a device or file has one identity under every name.
#[derive(PartialEq, Eq)]
pub(super) enum PathIdentity {
    Device(u64),
    File { filesystem: u64, inode: u64 },
}

pub(super) fn identity(path: &Path) -> Option<PathIdentity> {
    let meta = std::fs::metadata(path).ok()?;
    Some(match meta.st_rdev() {
        0 => PathIdentity::File {
            filesystem: meta.st_dev(),
            inode: meta.st_ino(),
        },
        device => PathIdentity::Device(device),
    })
}

/// Refuses two names for one device or file.
pub(crate) fn check_distinct(stores: &[StoreSpec]) -> Result<(), ServerError> {
    let mut seen: Vec<(PathIdentity, &StoreSpec)> = Vec::new();
    for spec in stores {
        // A path that leads nowhere is the engine's to refuse, with its own words.
        let Some(id) = identity(&spec.path) else {
            continue;
        };
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == id) {
            return Err(ServerError::SameDevice {
                first: first.name.clone(),
                second: spec.name.clone(),
                path: spec.path.clone(),
            });
        }
        seen.push((id, spec));
    }
    Ok(())
}
