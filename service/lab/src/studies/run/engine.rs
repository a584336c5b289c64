//! A workload on our engine, in this process.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Context as _;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::{Store, StoreOptions};

use super::RunStats;
use crate::load::runner::{self, Durability, RunOptions, Target};
use crate::process::Interrupt;
use crate::workload::{CommandStream, Sizing};

/// Most requests in flight.
pub(crate) const MOST_CLIENTS: usize = 1024;

/// How a workload is run on our engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineRun {
    pub(crate) sizing: Sizing,
    /// Bytes of a block of the store.
    pub(crate) block_size: u16,
    pub(crate) durability: Durability,
    pub(crate) options: RunOptions,
    /// Reopen the store at the end and compare all that lives.
    pub(crate) verify: bool,
}

/// Makes a store; the bytes of its data. A device or file that carries anything is refused, unless it
/// is ours to `force`.
pub(crate) fn make(
    path: &Path,
    sizing: &Sizing,
    block_size: u16,
    force: bool,
) -> anyhow::Result<Range<u64>> {
    let options = CreateOptions {
        capacity: Some(sizing.capacity_bytes),
        block_size,
        journal_ratio: sizing.journal_ratio,
        force,
        // It lives for as long as the run.
        volatile: true,
        ..CreateOptions::default()
    };
    let geometry = format(path, &options)?.geometry;
    Ok(geometry.data_offset().0..geometry.end().0)
}

fn open(path: &Path) -> anyhow::Result<Store> {
    let options = StoreOptions {
        queue_limit: 2 * MOST_CLIENTS,
        // A queue that is long because it was asked for is no overload.
        overload_threshold: 2 * MOST_CLIENTS + 1,
        ..StoreOptions::new("bench")
    };
    Store::open(path, options).with_context(|| path.display().to_string())
}

/// Runs the commands on a store that [`make`] has made, and closes it. The engine's threads are
/// started by the calling thread, and see the mounts that it sees.
///
/// # Errors
/// The first command that fails or is answered wrong ends it.
pub(crate) fn on_engine(
    stream: &CommandStream,
    path: &Path,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let runtime = super::runtime()?;
    let store = open(path)?;
    let engine = format!(
        "lumpscope {}, {}",
        env!("CARGO_PKG_VERSION"),
        store.info().backend.name()
    );
    let target = |store: Store| Target::Engine {
        store,
        durability: run.durability,
    };
    let on = target(store.clone());
    let finished = Arc::new(AtomicU64::new(0));
    let outcome =
        runtime.block_on(interrupt.or_stop(runner::run(stream, &on, &run.options, finished)))?;
    drop(on);
    store.close().with_context(|| path.display().to_string())?;
    let verified = if run.verify {
        let store = open(path)?;
        let on = target(store.clone());
        let verify = runner::verify_survivors(stream, &on);
        let verified = runtime.block_on(interrupt.or_stop(verify))?;
        drop(on);
        store.close().with_context(|| path.display().to_string())?;
        Some(verified)
    } else {
        None
    };
    let durability = super::promise(run.durability).to_owned();
    Ok(RunStats::new(engine, durability, outcome, verified))
}
