//! Opens a store: device, replay of the journal, threads.

#[cfg(test)]
mod checkpoints;

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::unbounded;

use crate::buffer::BufferPool;
use crate::clock::wall_ns;
use crate::device::{self, Device, DeviceFacts};
use crate::error::Error;
use crate::format::label;
use crate::format::trailer::max_payload;
use crate::medium::VolatileMedium;
use crate::mutant::{self, Mutant};
use crate::options::{CommitMode, IoBackendKind, StoreInfo, StoreOptions};
use crate::owner::finisher::Finisher;
use crate::owner::io_table::IoTable;
use crate::owner::{Checkpointer, Driver, Limits, Owner, OwnerShared, Restored};
use crate::stats::Counters;
use crate::storage::claim::{self, HeldClaim};
use crate::storage::io::{BlockingIo, memory_alignment};
use crate::storage::recover::{Recovered, recover};
use crate::storage::run;
use crate::storage::salvage::repair;
use crate::storage::unsettled;
use crate::store::{Store, StoreInner};

/// Data I/Os in flight that make sense for a pool of threads.
const THREADS_DEPTH: usize = 32;

impl Store {
    /// Opens the store on the device or file `path` and replays its journal; on a read-only device,
    /// read-only.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::InUse`], [`Error::Claimed`], [`Error::Unsupported`], [`Error::Corrupt`],
    /// [`Error::CorruptJournal`], [`Error::NoRoomForRepair`], [`Error::System`], [`Error::Io`].
    pub fn open(path: &Path, mut options: StoreOptions) -> Result<Self, Error> {
        options.read_only |= DeviceFacts::of(path).is_some_and(|facts| facts.read_only);
        Self::open_on(device::open(path, &options)?, options)
    }

    /// Opens the store on a device given by the caller, for instance a simulated disk.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(device: Device, options: StoreOptions) -> Result<Self, Error> {
        let (store, owner) = prepare(device, options, Finisher::start)?;
        let thread = std::thread::Builder::new()
            .name("lump-owner".to_owned())
            .spawn(move || owner.run())
            .map_err(Error::system(START_THREADS, &store.info().path))?;
        let mut slot = store
            .inner
            .owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *slot = Some(thread);
        drop(slot);
        Ok(store)
    }

    /// Opens the store on a device given by the caller, without any thread: the caller drives it.
    /// For tests and simulators, which need every run to be the same.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_stepped(device: Device, options: StoreOptions) -> Result<(Self, Driver), Error> {
        let (store, owner) = prepare(device, options, |counters| Ok(Finisher::inline(counters)))?;
        store.inner.shared.condition.leave_to_owner();
        Ok((store, Driver::new(owner)))
    }
}

/// Action that fails if there is no thread, for a message.
const START_THREADS: &str = "cannot start the threads of";

/// Recovers a store and builds what runs it; no thread of the owner yet.
fn prepare(
    mut device: Device,
    options: StoreOptions,
    finisher: impl FnOnce(&Arc<Counters>) -> io::Result<Finisher>,
) -> Result<(Store, Owner), Error> {
    let pool = BufferPool::with_budget(
        memory_alignment(&device),
        options.buffer_budget,
        options.get_budget,
    );
    let mut next_token = 1;
    let mut io = BlockingIo::new(&mut device, &pool, &mut next_token).within(options.io_timeout);
    let (recovered, claim) = match ready(&mut io, &options) {
        Ok(ready) => ready,
        Err(error) => {
            if error.is_time_over() {
                let_go(device);
            }
            return Err(error);
        }
    };
    let mut info = store_info(&device, &recovered, &options);
    info.taken_from = claim.as_ref().and_then(|claim| claim.replaced.clone());
    let block_size = recovered.storage.header.block_size;
    let shared = Arc::new(OwnerShared::new(&options));
    let finisher = finisher(&shared.counters).map_err(Error::system(START_THREADS, &info.path))?;
    let limits = limits(&info, &options);
    let queue_depth = limits.data_ios as u64;
    // Bounded by the admission.
    let (commands, receiver) = unbounded();
    let waker = device.backend.waker();
    pool.set_reader(waker.clone());
    let told = (&shared.condition, &shared.counters);
    let table = IoTable::new(device, &pool, next_token, told, options.io_timeout);
    if options.scrub_rate > 0 {
        shared.scrub.start(options.scrub_rate, false);
    }
    let checkpoint = Checkpointer::new(
        recovered.checkpoint,
        options.checkpoint_records,
        (info.replay.records, info.replay.bytes),
        &recovered.storage,
    );
    let owner = Owner::new(
        Restored {
            storage: recovered.storage,
            scrub_mark: recovered.scrub_mark.unwrap_or_default(),
            copied: recovered.copied,
            checkpoint,
            claim,
        },
        table,
        finisher,
        receiver,
        Arc::clone(&shared),
        limits,
        &options,
    );
    let inner = StoreInner {
        info,
        block_size,
        pool,
        commands: Some(commands),
        waker,
        queue_depth,
        piece_bytes: (!options.read_only && options.piece_bytes > 0).then_some(options.piece_bytes),
        shared,
        generation: AtomicU64::new(wall_ns()),
        owner: Mutex::new(None),
    };
    let store = Store {
        inner: Arc::new(inner),
    };
    Ok((store, owner))
}

fn limits(info: &StoreInfo, options: &StoreOptions) -> Limits {
    let depth = match info.backend {
        IoBackendKind::Threads => options.queue_depth.min(THREADS_DEPTH),
        IoBackendKind::Uring | IoBackendKind::Custom => options.queue_depth,
    };
    let read_only = if info.disk.is_some_and(|disk| disk.read_only) {
        "the device is read-only (blockdev --setrw ends that); open the store again then"
    } else {
        "it was opened so; reopen it for writing"
    };
    Limits {
        data_ios: depth.max(1),
        pending: options.queue_limit.max(1),
        read_only: options.read_only.then_some(read_only),
        io_timeout: options.io_timeout,
        gc_rate: options.gc_rate,
        runs: info.commit == CommitMode::Runs,
        has_arm: DeviceFacts::has_arm(info.disk),
        may_have_arm: info.disk.is_none() || DeviceFacts::has_arm(info.disk),
    }
}

/// Claims the store, reads it, and makes it fit for use.
fn ready(
    io: &mut BlockingIo<'_>,
    options: &StoreOptions,
) -> Result<(Recovered, Option<HeldClaim>), Error> {
    // Before anything is read that another machine may be changing.
    let held = claim::take(io, options)?;
    match read_and_mend(io, options) {
        Ok(recovered) => Ok((recovered, held)),
        Err(error) => claim::release(io, held, Err(error)),
    }
}

fn read_and_mend(io: &mut BlockingIo<'_>, options: &StoreOptions) -> Result<Recovered, Error> {
    let mut recovered = recover(io, options.salvage)?;
    let named = name(&mut recovered, options);
    if !options.read_only {
        make_good(io, &mut recovered, named)?;
    }
    Ok(recovered)
}

/// Names an image without a name; true: it has to be written now. In an image without a seal of
/// ours, it is with the first seal.
fn name(recovered: &mut Recovered, options: &StoreOptions) -> bool {
    let storage = &mut recovered.storage;
    let unnamed =
        options.admission.is_some() && storage.name.is_none() && label::is_name(&options.name);
    if unnamed && !options.read_only {
        storage.name = Some(options.name.clone());
    }
    unnamed && recovered.seal.is_some()
}

/// Closes a device that hangs when it has answered: the kernel has memory of it until then.
fn let_go(device: Device) {
    let closing = std::thread::Builder::new().name("lump-closing".to_owned());
    // Without a thread it is closed here, however long that takes.
    let _ = closing.spawn(move || drop(device));
}

/// Makes what was found the state that a power cut leaves, and damage good.
///
/// `named`: the headers are to be written, because the image has got a name.
fn make_good(io: &mut BlockingIo<'_>, recovered: &mut Recovered, named: bool) -> Result<(), Error> {
    io.flush()?;
    unsettled::flip_back(io, &recovered.data_flips)?;
    if mutant::is(Mutant::ClosesEarly) {
        recovered.storage.settle(io)?;
    }
    if !recovered.storage.unrecorded.is_empty() {
        run::write_records(io, &mut recovered.storage)?;
    }
    let mut damaged = named || !recovered.mended.is_empty();
    let storage = &mut recovered.storage;
    if let Some(salvaged) = &mut recovered.salvaged {
        repair(io, storage, salvaged)?;
        damaged |= salvaged.report.repaired;
    }
    if damaged {
        let mark = recovered.scrub_mark.unwrap_or_default();
        storage.mend(io, mark, &recovered.flips)?;
        recovered.copied = Some(storage.journal.log_end());
    } else if recovered.unsettled.is_some() {
        storage.settle(io)?;
    }
    Ok(())
}

fn store_info(device: &Device, recovered: &Recovered, options: &StoreOptions) -> StoreInfo {
    let geometry = &recovered.storage.geometry;
    let block_size = geometry.block_size();
    let disk = DeviceFacts::of(&device.path);
    let forces = device.backend.forces_writes();
    StoreInfo {
        name: options.name.clone(),
        path: device.path.clone(),
        layout: recovered.layout,
        block_size: block_size.get(),
        max_lump_bytes: max_payload(block_size),
        uuid: uuid::Uuid::from_bytes(recovered.storage.header.uuid),
        image_name: recovered.storage.name.clone(),
        base_offset: geometry.base(),
        data_capacity: geometry.data_len().0,
        journal_capacity: geometry.ring_len().0,
        backend: device.backend.kind(),
        queue_policy: options.queue_policy,
        disk,
        volatile: VolatileMedium::of_path(&device.path),
        durable_by: disk.unwrap_or_default().used(forces),
        commit: options.commit,
        logical_block_size: device.alignment,
        taken_from: None,
        sealed: recovered.seal.is_some(),
        replay: recovered.replay,
        mended: recovered.mended.clone(),
        unsettled: recovered.unsettled.clone(),
        salvage: recovered
            .salvaged
            .as_ref()
            .map(|salvaged| salvaged.report.clone()),
    }
}
