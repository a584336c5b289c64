//! The stores a service owns: opened together, found by name, closed together.

use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use lumpscope_engine::{SalvageReport, Store, StoreOptions};
use lumpscope_observer::Observer;
use tracing::{error, info, warn};

use crate::config::{ServeConfig, StoreSpec};
use crate::error::ServerError;
use crate::observe::DiskSink;

/// Findings of a salvage that are logged; all are counted.
const SALVAGE_LOGGED: usize = 100;

/// One open store.
pub struct NamedStore {
    /// Position in the configuration; the observer's index of the store.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The engine's handle.
    pub store: Store,
}

/// All open stores, in the order in which they were configured or added. Cheap to clone; every clone
/// is the same set, and whoever looks sees it as it is at that moment.
#[derive(Clone)]
pub struct Stores {
    all: Arc<ArcSwap<Vec<Arc<NamedStore>>>>,
}

impl Stores {
    /// Opens every store, one after the other. Blocks. When one fails, those before it are closed.
    ///
    /// # Errors
    /// A device or file given twice, and whatever keeps a store from being opened.
    pub fn open(config: &ServeConfig, observer: &Observer) -> Result<Self, ServerError> {
        check_distinct(&config.stores)?;
        let mut all: Vec<Arc<NamedStore>> = Vec::with_capacity(config.stores.len());
        for (index, spec) in config.stores.iter().enumerate() {
            match open_one(index, spec, config, observer) {
                Ok(store) => all.push(Arc::new(store)),
                Err(error) => {
                    if let Err(closing) = Self::of(all).close() {
                        error!(%closing, "while giving up");
                    }
                    return Err(error);
                }
            }
        }
        Ok(Self::of(all))
    }

    fn of(all: Vec<Arc<NamedStore>>) -> Self {
        Self {
            all: Arc::new(ArcSwap::from_pointee(all)),
        }
    }

    /// The store with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<NamedStore>> {
        let all = self.all.load();
        all.iter().find(|store| store.name == name).cloned()
    }

    /// All stores.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<Arc<NamedStore>>> {
        self.all.load_full()
    }

    /// Names of all stores, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        let all = self.all();
        let names: Vec<&str> = all.iter().map(|store| store.name.as_str()).collect();
        names.join(", ")
    }

    /// Finishes what was accepted, flushes and closes every store. Blocks.
    ///
    /// # Errors
    /// The first store that did not close in order; the others are closed all the same.
    pub fn close(&self) -> Result<(), ServerError> {
        let mut first = None;
        for named in self.all().iter() {
            match named.store.clone().close() {
                Ok(()) => info!(store = named.name, "closed"),
                Err(source) => {
                    error!(store = named.name, %source, "did not close in order");
                    first.get_or_insert(ServerError::CloseStore {
                        name: named.name.clone(),
                        source,
                    });
                }
            }
        }
        first.map_or(Ok(()), Err)
    }
}

fn open_one(
    index: usize,
    spec: &StoreSpec,
    config: &ServeConfig,
    observer: &Observer,
) -> Result<NamedStore, ServerError> {
    let mut options = StoreOptions::new(spec.name.clone());
    options.io_sink = Some(Arc::new(DiskSink::new(observer.clone(), index)));
    options.queue_depth = config.queue_depth;
    options.queue_limit = config.queue_limit;
    options.queue_policy = config.queue_policy;
    options.max_overtakes = config.max_overtakes;
    options.overload_threshold = config.overload_threshold;
    options.overload_after = config.overload_after;
    options.buffer_budget = config.buffer_budget;
    options.scrub_rate = config.scrub_rate;
    options.scrub_interval = config.scrub_interval;
    options.gc_rate = config.gc_rate;
    options.checkpoint_records = config.checkpoint_records;
    options.salvage = config.salvage;
    options.io_backend = config.io_backend;
    let store = Store::open(&spec.path, options).map_err(|source| ServerError::OpenStore {
        name: spec.name.clone(),
        path: spec.path.clone(),
        source,
    })?;
    let known = store.info();
    info!(
        store = spec.name,
        path = %spec.path.display(),
        layout = known.layout.name(),
        block_size = known.block_size,
        backend = known.backend.name(),
        lumps = known.replay.lumps,
        // The end mark is no record to whoever reads this.
        records = known.replay.records.saturating_sub(1),
        replay_ms = known.replay.elapsed_ns / 1_000_000,
        "opened"
    );
    if let Some(report) = &known.salvage {
        log_salvage(&spec.name, report);
    }
    Ok(NamedStore {
        index,
        name: spec.name.clone(),
        store,
    })
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

/// What a path leads to: the same device or file has the same identity under every name.
#[derive(PartialEq, Eq)]
enum Identity {
    Device(u64),
    File { filesystem: u64, inode: u64 },
}

fn identity(path: &Path) -> Option<Identity> {
    let meta = std::fs::metadata(path).ok()?;
    Some(match meta.st_rdev() {
        0 => Identity::File {
            filesystem: meta.st_dev(),
            inode: meta.st_ino(),
        },
        device => Identity::Device(device),
    })
}

fn check_distinct(stores: &[StoreSpec]) -> Result<(), ServerError> {
    let mut seen: Vec<(Identity, &StoreSpec)> = Vec::new();
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
