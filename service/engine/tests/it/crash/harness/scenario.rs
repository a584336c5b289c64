//! The store and the load that a seed stands for.

use lumpscope_engine::device::WriteCache;
use lumpscope_engine::device::sim::{Latency, Lie, Random, SimDisk, SimOptions, blank_image};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{CommitMode, StoreOptions};

/// Block size of the store, unit of the disk.
const SIZES: [(u16, u32); 4] = [(512, 512), (1536, 512), (4096, 512), (4096, 4096)];

/// One history before it is run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub block_size: u16,
    pub unit: u32,
    pub ring_blocks: u64,
    pub data_blocks: u64,
    /// Ids are 0 to this.
    pub ids: u64,
    /// Requests of the history.
    pub requests: u64,
    /// Most requests in flight.
    pub in_flight: usize,
    /// Most I/Os for data in flight.
    pub queue_depth: usize,
    /// Largest lump in bytes.
    pub largest: u64,
    /// Of a thousand puts in the data region this many are written while they come in.
    pub pieces: u64,
    /// Of a thousand puts this many are embedded.
    pub embedded: u64,
    /// Of a thousand changes this many are deletes.
    pub deletes: u64,
    /// Of a thousand changes this many ask for `Journaled` only.
    pub journaled: u64,
    /// Power cuts after each event, when there is something to lose.
    pub cuts: u64,
    /// Offers of the disk beside flushes.
    pub cache: WriteCache,
    pub fua: bool,
    pub commit: CommitMode,
    pub lie: Lie,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::derive(seed, &[1]);
        let (block_size, unit) = SIZES[random.index(SIZES.len())];
        let block = u64::from(block_size);
        // From rings that hold a handful of records to some that go round only a few times; the
        // reserve for deletes takes some units of each.
        let spare = [600, 4 * 1024, 16 * 1024][random.index(3)];
        let ring = 3 * u64::from(unit) + random.below(spare);
        let data = 4 * 1024 + random.below(40 * 1024);
        Self {
            seed,
            block_size,
            unit,
            ring_blocks: ring.div_ceil(block),
            data_blocks: data / block + 4,
            ids: 4 + random.below(28),
            requests: 60 + random.below(140),
            in_flight: 1 + random.index(12),
            queue_depth: 1 + random.index(8),
            largest: [200, 1200, 3 * block, 6 * block][random.index(4)],
            pieces: [0, 300, 700][Random::derive(seed, &[7]).index(3)],
            embedded: [0, 100, 300, 600][random.index(4)],
            deletes: [100, 250, 400][random.index(3)],
            journaled: [0, 200, 500, 1000][random.index(4)],
            cuts: 3,
            cache: WriteCache::Back,
            fua: false,
            commit: CommitMode::Ordered,
            lie: Lie::None,
        }
    }

    /// The empty disk.
    pub fn disk(&self) -> SimDisk {
        let block_size = BlockSize::new(self.block_size).expect("one of SIZES");
        let image = blank_image(block_size, self.ring_blocks, self.data_blocks, [7; 16]);
        let options = SimOptions {
            seed: Random::derive(self.seed, &[2]).next(),
            unit: self.unit,
            is_block_device: self.seed.is_multiple_of(2),
            cache: self.cache,
            fua: self.fua,
            latency: Latency::any_order(),
            lie: self.lie,
        };
        SimDisk::new(&image, options)
    }

    /// First byte of the data region.
    pub fn data_start(&self) -> u64 {
        (2 + self.ring_blocks) * u64::from(self.block_size)
    }

    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            queue_depth: self.queue_depth,
            queue_limit: 64,
            commit: self.commit,
            piece_bytes: 2 * u64::from(self.block_size),
            ..StoreOptions::new("sim")
        }
    }

    /// As a line, for reports.
    pub fn describe(&self) -> String {
        format!(
            "blocks of {}, unit {}, ring {}, data {}, {} ids, {} requests, {} at a time, depth {}",
            self.block_size,
            self.unit,
            self.ring_blocks * u64::from(self.block_size),
            self.data_blocks * u64::from(self.block_size),
            self.ids,
            self.requests,
            self.in_flight,
            self.queue_depth
        )
    }
}
