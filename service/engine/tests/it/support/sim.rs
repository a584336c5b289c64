//! The engine's simulated disk as most tests use it: under a store with its own threads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use lumpscope_engine::device::sim::{self, FaultKind, Latency, SimOptions};
use lumpscope_engine::device::{Completion, Device, Io, IoBackend, Wait, Waker};
use lumpscope_engine::{CommitMode, Error, IoBackendKind, IoOp, Store, StoreOptions};

pub const SECTOR: usize = 512;

/// A write or flush that has ended well, in the order of the ends.
#[derive(Clone, Debug)]
pub enum DiskEvent {
    Write { offset: usize, bytes: Vec<u8> },
    Flush,
}

/// A disk that keeps what is written for the next opening.
pub struct SimDisk {
    image: Vec<u8>,
    /// Sector size in bytes; to be set before the first opening.
    pub unit: u32,
    /// I/Os end in random order, from this seed; to be set before the first opening. `None`: they
    /// end as they came.
    pub shuffle: Option<u64>,
    disk: OnceLock<sim::SimDisk>,
    events: Option<Arc<Mutex<Vec<DiskEvent>>>>,
}

impl SimDisk {
    pub fn new(image: Vec<u8>) -> Self {
        Self {
            image,
            unit: SECTOR as u32,
            shuffle: None,
            disk: OnceLock::new(),
            events: None,
        }
    }

    /// One that remembers every write and flush.
    pub fn recording(image: Vec<u8>) -> Self {
        Self {
            events: Some(Arc::default()),
            ..Self::new(image)
        }
    }

    /// Events recorded by the disk.
    pub fn events(&self) -> Vec<DiskEvent> {
        let events = self.events.as_ref().map(|events| events.lock().unwrap());
        events.map_or_else(Vec::new, |events| events.clone())
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

    /// Bytes that a read would return.
    pub fn bytes(&self) -> Vec<u8> {
        let disk = self.disk();
        disk.bytes(0..disk.size())
    }

    /// Makes the n-th I/O of this kind fail (0 = the next) and all later ones, and no others. Only those that begin
    /// before byte `below`: the journal lies before the data.
    pub fn fail(&self, op: IoOp, after: u64, errno: i32, below: u64) {
        self.heal();
        self.disk().inject(sim::Fault {
            within: 0..below,
            skip: after,
            ..sim::Fault::always(op, FaultKind::Errno(errno))
        });
    }

    /// Makes no more I/Os fail.
    pub fn heal(&self) {
        self.disk().heal();
    }

    /// Makes all I/Os fail from now on; [`heal`](Self::heal) ends that.
    pub fn break_down(&self, errno: i32) {
        for op in [IoOp::Read, IoOp::Write, IoOp::Flush] {
            let fault = sim::Fault::always(op, FaultKind::Errno(errno));
            self.disk().inject(fault);
        }
    }

    /// Makes writes fail for want of space that begin within these bytes.
    pub fn have_no_space(&self, within: Range<u64>) {
        self.disk().inject(sim::Fault {
            within,
            ..sim::Fault::always(IoOp::Write, FaultKind::Errno(libc::ENOSPC))
        });
    }

    /// Makes the next I/O of this kind fail.
    pub fn fail_once(&self, op: IoOp) {
        self.disk().inject(sim::Fault {
            times: 1,
            ..sim::Fault::always(op, FaultKind::Errno(5))
        });
    }

    /// Makes reads of these bytes fail until they are written again.
    pub fn make_unreadable(&self, bytes: Range<u64>) {
        self.disk().make_unreadable(bytes);
    }

    /// Makes all writes fail that begin within these bytes.
    pub fn refuse_writes(&self, within: Range<u64>) {
        self.disk().inject(sim::Fault {
            within,
            ..sim::Fault::always(IoOp::Write, FaultKind::Errno(5))
        });
    }

    /// From now on no I/O ends, or those in flight end as they are due.
    pub fn hang(&self, hangs: bool) {
        self.disk().hang(hangs);
    }

    pub fn device(&self) -> Device {
        let mut device = self.disk().device();
        if let Some(events) = &self.events {
            device.backend = Box::new(Recorder {
                inner: device.backend,
                events: Arc::clone(events),
                in_flight: HashMap::new(),
            });
        }
        device
    }

    pub fn open(&self) -> Result<Store, Error> {
        self.open_as(CommitMode::default())
    }

    pub fn open_as(&self, commit: CommitMode) -> Result<Store, Error> {
        self.open_with(StoreOptions {
            commit,
            ..StoreOptions::new("sim")
        })
    }

    pub fn open_with(&self, options: StoreOptions) -> Result<Store, Error> {
        Store::open_on(self.device(), options)
    }
}

/// Remembers what its disk has done.
struct Recorder {
    inner: Box<dyn IoBackend>,
    events: Arc<Mutex<Vec<DiskEvent>>>,
    /// Kind and offset by token.
    in_flight: HashMap<u64, (IoOp, u64)>,
}

impl IoBackend for Recorder {
    fn kind(&self) -> IoBackendKind {
        self.inner.kind()
    }

    fn submit(&mut self, io: Io) {
        self.in_flight.insert(io.token, (io.op, io.offset));
        self.inner.submit(io);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        let before = ended.len();
        self.inner.wait(ended, wait);
        for end in &ended[before..] {
            let (op, offset) = self.in_flight.remove(&end.token).unwrap();
            let event = match (op, &end.buf) {
                _ if end.result.is_err() => continue,
                (IoOp::Write, Some(buf)) => DiskEvent::Write {
                    offset: usize::try_from(offset).unwrap(),
                    bytes: buf.to_vec(),
                },
                (IoOp::Flush, _) => DiskEvent::Flush,
                _ => continue,
            };
            self.events.lock().unwrap().push(event);
        }
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
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
