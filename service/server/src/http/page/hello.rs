//! First message to a viewer: the service, its words, and the stores.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lumpscope_observer::{OPERATIONS, OWNERS, STAGES};
use serde::Serialize;
use serde_json::json;

use crate::config::PageConfig;
use crate::observed::Asking;

/// Values shared by all viewers.
pub(super) struct Service {
    started_unix_ms: u64,
    config: PageConfig,
}

/// A store, as it lies there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PageStore {
    pub(super) name: String,
    path: String,
    layout: &'static str,
    /// Whole disk below it; empty: unknown.
    device: String,
    backend: &'static str,
    block_size: u32,
    /// Size of that disk in sectors of 512 bytes.
    device_sectors: Option<u64>,
}

impl Service {
    /// A service that starts now.
    pub(super) fn new(config: PageConfig) -> Self {
        Self {
            started_unix_ms: unix_ms(),
            config,
        }
    }

    /// The words of the first event.
    pub(super) fn hello(&self, stores: &[&PageStore]) -> String {
        let rhythm = &self.config.rhythm;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_unix_ms": self.started_unix_ms,
            "now_unix_ms": unix_ms(),
            "frame_ms": milliseconds(rhythm.frame),
            "history_frames": rhythm.history,
            "past_frame_ms": milliseconds(rhythm.past_frame),
            "owners": OWNERS,
            "operations": OPERATIONS,
            "stages": STAGES,
            "trace_url": self.config.trace_url.as_deref().unwrap_or_default(),
            "stores": stores,
        })
        .to_string()
    }
}

/// All stores, those that could not be opened at the end. Reads small files of the kernel, which never waits for a disk.
pub(super) fn stores(asking: &Asking) -> Vec<PageStore> {
    let all = asking.stores.all();
    let of = all.iter().map(|named| {
        let info = named.store.info();
        let status = asking.observer.store_status(&named.name);
        let device = status.and_then(|status| status.device).unwrap_or_default();
        PageStore {
            name: named.name.clone(),
            path: info.path.display().to_string(),
            layout: info.layout.name(),
            backend: info.backend.name(),
            block_size: info.block_size.into(),
            device_sectors: sectors(&device),
            device,
        }
    });
    let failed = asking.stores.failed();
    let not_open = failed.iter().map(|failed| PageStore {
        name: failed.name.clone(),
        path: failed.path.display().to_string(),
        ..PageStore::default()
    });
    of.chain(not_open).collect()
}

/// Size of a disk in sectors of 512 bytes; `None`: unknown.
fn sectors(disk: &str) -> Option<u64> {
    if disk.is_empty() {
        return None;
    }
    let size = fs::read_to_string(format!("/sys/block/{disk}/size")).ok()?;
    size.trim().parse().ok()
}

/// Milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, milliseconds)
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
