//! The original's `Storage`, used directly: one request at a time.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use cannyls::block::BlockSize;
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::{FileNvm, NonVolatileMemory};
use cannyls::storage::{Storage, StorageBuilder};
use lumpscope_lab::engine::PeerReport;
use lumpscope_lab::load::{Engine, Load, Meter, Promise};

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

/// The storage under a load, one request at a time.
struct Direct<'a, N: NonVolatileMemory> {
    storage: Storage<N>,
    load: &'a Load,
}

impl<N: NonVolatileMemory> Engine for Direct<'_, N> {
    type Lump = LumpData;

    const NAME: &'static str = ENGINE;

    fn lump(&mut self, bytes: &[u8]) -> Result<LumpData> {
        Ok(self.storage.allocate_lump_data_with_bytes(bytes)?)
    }

    fn put(&mut self, id: u64, lump: LumpData, meter: &mut Meter) -> Result<()> {
        let started = Instant::now();
        self.storage.put(&LumpId::new(id.into()), &lump)?;
        if self.load.promise != Promise::Buffered {
            self.storage.journal_sync()?;
        }
        meter.request(self.load.size, started.elapsed());
        Ok(())
    }

    fn get(&mut self, id: u64, meter: &mut Meter) -> Result<()> {
        let started = Instant::now();
        let data = self.storage.get(&LumpId::new(id.into()))?;
        meter.request(lump_len(data.as_ref()), started.elapsed());
        Ok(())
    }

    fn drain(&mut self, _meter: &mut Meter) -> Result<()> {
        Ok(())
    }

    fn holds(&mut self, id: u64, bytes: &[u8]) -> Result<bool> {
        let data = self.storage.get(&LumpId::new(id.into()))?;
        Ok(data.is_some_and(|data| data.as_bytes() == bytes))
    }
}

/// Puts all lumps of a load, and leaves everything on the disk.
pub(crate) fn fill<N: NonVolatileMemory>(nvm: N, load: &Load) -> Result<()> {
    let filling = Load {
        promise: Promise::Buffered,
        time: Duration::MAX,
        ..*load
    };
    let storage = Storage::open(nvm)?;
    let mut direct = Direct {
        storage,
        load: &filling,
    };
    filling.puts(&mut direct, || Ok(()))?;
    direct.storage.journal_sync()?;
    Ok(())
}

/// Runs the load and measures it.
pub(crate) fn run<N: NonVolatileMemory>(nvm: N, load: &Load, gets: bool) -> Result<PeerReport> {
    let storage = Storage::open(nvm)?;
    report(&mut Direct { storage, load }, load, gets)
}

/// Puts, and if they are asked for gets of the same lumps.
pub(crate) fn report(engine: &mut impl Engine, load: &Load, gets: bool) -> Result<PeerReport> {
    let put = load.puts(engine, || Ok(()))?;
    let get = match gets {
        true => Some(load.gets(engine, put.requests, || Ok(()))?),
        false => None,
    };
    Ok(PeerReport {
        engine: ENGINE.to_owned(),
        durability: durability(load).to_owned(),
        put: Some(put),
        get,
    })
}

/// Bytes of what a get found.
pub(crate) fn lump_len(data: Option<&LumpData>) -> u64 {
    data.map_or(0, |data| data.as_bytes().len() as u64)
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
