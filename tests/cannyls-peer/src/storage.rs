//! The original's `Storage`, used directly: one request at a time.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cannyls::block::BlockSize;
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::{FileNvm, NonVolatileMemory};
use cannyls::storage::{Storage, StorageBuilder};
use lumpscope_lab::engine::PeerReport;
use lumpscope_lab::load::{Load, Meter, Promise, SAMPLES};

/// Version of the crate, as its dependency is pinned.
pub(crate) const ENGINE: &str = "cannyls 0.10.0";

/// Makes an empty storage in an existing file or on a device. The crate formats only files that it
/// creates, so it does that with a sparse one, whose head is then copied.
pub(crate) fn format(path: &Path, capacity: u64, block_size: u16) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a directory for a new image")?;
    let image = folder.path().join("image.lusf");
    create(FileNvm::create(&image, capacity)?, block_size)?;
    let mut head = Vec::new();
    File::open(&image)?.read_to_end(&mut head)?;
    // Whole blocks, for devices that know no smaller unit.
    head.resize(head.len().next_multiple_of(4096), 0);
    let target = OpenOptions::new().write(true).open(path)?;
    target.write_all_at(&head, 0)?;
    target.sync_all()?;
    Ok(())
}

/// Makes an empty storage in fresh memory.
pub(crate) fn create<N: NonVolatileMemory>(nvm: N, block_size: u16) -> Result<()> {
    let block_size = BlockSize::new(block_size)?;
    StorageBuilder::new().block_size(block_size).create(nvm)?;
    Ok(())
}

/// Puts all lumps of a load, and leaves everything on the disk.
pub(crate) fn fill<N: NonVolatileMemory>(nvm: N, load: &Load) -> Result<()> {
    let mut storage = Storage::open(nvm)?;
    for id in 0..load.count {
        let data = lump(&storage, load, id)?;
        storage.put(&LumpId::new(id.into()), &data)?;
    }
    storage.journal_sync()?;
    Ok(())
}

fn lump<N: NonVolatileMemory>(storage: &Storage<N>, load: &Load, id: u64) -> Result<LumpData> {
    let mut data = storage.allocate_lump_data(usize::try_from(load.size)?)?;
    load.payload(id, data.as_bytes_mut());
    Ok(data)
}

/// Runs the load and measures it.
pub(crate) fn run<N: NonVolatileMemory>(nvm: N, load: &Load, gets: bool) -> Result<PeerReport> {
    let mut storage = Storage::open(nvm)?;
    let mut puts = Meter::new();
    let mut next = 0;
    while next < load.count && (next == 0 || puts.timed() < load.time) {
        let end = load.count.min(next + load.batch());
        let lumps: Vec<LumpData> = (next..end)
            .map(|id| lump(&storage, load, id))
            .collect::<Result<_>>()?;
        let left = load.time.saturating_sub(puts.timed());
        let begin = Instant::now();
        for data in &lumps {
            if next > 0 && begin.elapsed() >= left {
                break;
            }
            let started = Instant::now();
            storage.put(&LumpId::new(next.into()), data)?;
            if load.promise != Promise::Buffered {
                storage.journal_sync()?;
            }
            puts.request(load.size, started.elapsed());
            next += 1;
        }
        puts.timed_since(begin);
    }
    let get = if gets {
        Some(read(&mut storage, load, next)?.finish())
    } else {
        None
    };
    Ok(PeerReport {
        engine: ENGINE.to_owned(),
        durability: durability(load).to_owned(),
        put: Some(puts.finish()),
        get,
    })
}

fn read<N: NonVolatileMemory>(storage: &mut Storage<N>, load: &Load, lumps: u64) -> Result<Meter> {
    let mut meter = Meter::new();
    let order = load.order(lumps);
    let begin = Instant::now();
    for &id in order.iter().cycle() {
        if begin.elapsed() >= load.time {
            break;
        }
        let started = Instant::now();
        let data = storage.get(&LumpId::new(id.into()))?;
        meter.request(lump_len(data.as_ref()), started.elapsed());
    }
    meter.timed_since(begin);
    for &id in order.iter().take(SAMPLES) {
        let data = storage.get(&LumpId::new(id.into()))?;
        check(load, id, data.as_ref())?;
    }
    Ok(meter)
}

/// Bytes of what a get found.
pub(crate) fn lump_len(data: Option<&LumpData>) -> u64 {
    data.map_or(0, |data| data.as_bytes().len() as u64)
}

/// Insists that a lump is what was put.
pub(crate) fn check(load: &Load, id: u64, data: Option<&LumpData>) -> Result<()> {
    let mut expected = vec![0; usize::try_from(load.size)?];
    load.payload(id, &mut expected);
    let found = data.map(LumpData::as_bytes);
    ensure!(
        found == Some(&expected[..]),
        "lump {id} was read back with other bytes than were put"
    );
    Ok(())
}

/// How puts come to their promise, for the report.
pub(crate) fn durability(load: &Load) -> &'static str {
    match (load.promise, load.depth) {
        (Promise::Synced, 0 | 1) => {
            "Storage::put, then Storage::journal_sync: one fdatasync for data and record"
        }
        (Promise::Synced, _) => {
            "Device with journal_sync_interval(0): one fdatasync for data and record within each put"
        }
        (Promise::Written, _) => {
            "data and record written within each put, nothing flushed (sync of the file hidden)"
        }
        (Promise::Buffered, _) => {
            "data written, record in memory for up to 4096 puts (the crate's default)"
        }
    }
}
