//! The engine's simulated disk as most tests use it: under a store with its own threads.

use std::sync::OnceLock;

use lumpscope_engine::device::Device;
use lumpscope_engine::device::sim::{self, FaultKind, Latency, SimOptions};
use lumpscope_engine::{Error, IoOp, Store, StoreOptions};

/// Which I/O fails, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub op: IoOp,
    /// The n-th I/O of this kind fails, 0 = the next; all later ones too.
    pub after: u64,
    pub errno: i32,
    /// Only I/Os that begin before this byte; the journal lies before the data.
    pub below: u64,
}

/// A disk that keeps what is written for the next opening.
#[derive(Debug)]
pub struct SimDisk {
    image: Vec<u8>,
    /// Sector size in bytes; to be set before the first opening.
    pub unit: u32,
    /// I/Os end in random order, from this seed; to be set before the first opening. `None`: they
    /// end as they came.
    pub shuffle: Option<u64>,
    disk: OnceLock<sim::SimDisk>,
}

impl SimDisk {
    pub fn new(image: Vec<u8>) -> Self {
        Self {
            image,
            unit: 512,
            shuffle: None,
            disk: OnceLock::new(),
        }
    }

    fn disk(&self) -> &sim::SimDisk {
        self.disk.get_or_init(|| {
            let options = SimOptions {
                seed: self.shuffle.unwrap_or(0),
                unit: self.unit,
                latency: Latency {
                    one_at_a_time: self.shuffle.is_none(),
                    ..Latency::any_order()
                },
                ..SimOptions::default()
            };
            sim::SimDisk::new(&self.image, options)
        })
    }

    /// What a read would see.
    pub fn bytes(&self) -> Vec<u8> {
        let disk = self.disk();
        disk.bytes(0..disk.size())
    }

    /// Makes I/Os fail from now on, or ends that.
    pub fn fail(&self, fault: Option<Fault>) {
        self.disk().heal();
        if let Some(fault) = fault {
            self.disk().inject(sim::Fault {
                op: fault.op,
                within: 0..fault.below,
                skip: fault.after,
                times: u64::MAX,
                kind: FaultKind::Errno(fault.errno),
            });
        }
    }

    pub fn device(&self) -> Device {
        self.disk().device()
    }

    pub fn open(&self) -> Result<Store, Error> {
        Store::open_on(self.device(), StoreOptions::new("sim"))
    }
}

/// Small reproducible random numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        let mut random = sim::Random::new(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        random.next()
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
