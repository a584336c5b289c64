//! The emulated disk below the engine, in virtual time.
//!
//! A drive with its own queue, as `lumpscope-platter` models it, or a disk without an arm, which
//! serves several requests at a time and is as near to every place. Time passes only when the driver
//! of the measurement says so: what comes out depends on nothing else.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumpscope_engine::device::{Completion, Device, Io, IoBackend, Wait, Waker};
use lumpscope_engine::{IoBackendKind, IoOp};
use lumpscope_platter::disk::{Disk, Policy, Request};
use lumpscope_platter::drive::Drive;
use lumpscope_platter::queue::{Order, Queueing, Station};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// Bytes of the physical sectors of an emulated drive, and of a disk without an arm.
const ALIGNMENT: u32 = 4096;

/// Alignment of memory in bytes.
const MEMORY_ALIGNMENT: usize = 512;

/// Time of each request on a disk without an arm, in nanoseconds.
const FLAT_NS: u64 = 80_000;

/// Transfer rate, in bytes per nanosecond.
const FLAT_BYTES_PER_NS: u64 = 2;

/// How many requests it serves at a time.
const FLAT_AT_ONCE: usize = 8;

/// A disk without an arm.
#[derive(Default)]
struct Flat {
    /// Times at which each of its parts is free.
    free_ns: [u64; FLAT_AT_ONCE],
    /// Tokens by the time they end.
    under_way: BTreeMap<(u64, u64), ()>,
}

impl Flat {
    fn submit(&mut self, now_ns: u64, token: u64, len: u64) {
        // There always is one.
        if let Some(part) = self.free_ns.iter_mut().min() {
            *part = (*part).max(now_ns) + FLAT_NS + len / FLAT_BYTES_PER_NS;
            self.under_way.insert((*part, token), ());
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|(&(ns, _), ())| ns)
    }
}

/// The mechanism that serves requests.
enum Mechanism {
    Platter(Box<Station>),
    Flat(Flat),
}

struct DiskState {
    mechanism: Mechanism,
    size: u64,
    /// The first bytes; behind them are zeros that nobody has written.
    image: Vec<u8>,
    now_ns: u64,
    under_way: HashMap<u64, Io>,
    ended: Vec<Completion>,
    /// Requests whose I/O was handed over, in that order.
    started: Vec<u64>,
}

/// A handle on the disk.
#[derive(Clone)]
pub(super) struct EmulatedDisk(Arc<Mutex<DiskState>>);

fn request(io: &Io) -> Request {
    let sector = io.offset / SECTOR;
    let sectors = u32::try_from(io.len() / SECTOR).unwrap_or(u32::MAX);
    match io.op {
        IoOp::Read => Request::read(sector, sectors),
        IoOp::Write => Request::write(sector, sectors),
        IoOp::Flush => Request::flush(),
    }
}

impl DiskState {
    fn submit(&mut self, io: Io) {
        self.started.extend(io.requests.iter().map(|id| id.0));
        let (token, now_ns) = (io.token, self.now_ns);
        let taken = match &mut self.mechanism {
            Mechanism::Platter(station) => station.submit(now_ns, token, &request(&io)),
            Mechanism::Flat(flat) => {
                flat.submit(now_ns, token, io.len());
                Ok(())
            }
        };
        match taken {
            Ok(()) => drop(self.under_way.insert(token, io)),
            Err(error) => self.ended.push(Completion {
                token,
                buf: io.buf,
                result: Err(std::io::Error::other(error)),
            }),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match &self.mechanism {
            Mechanism::Platter(station) => station.next_ns(),
            Mechanism::Flat(flat) => flat.next_ns(),
        }
    }

    /// Lets time pass until then.
    fn advance_to(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        let mut tokens = Vec::new();
        match &mut self.mechanism {
            Mechanism::Platter(station) => {
                // At the end of virtual time, after a hundred years, nothing ends any more.
                let _ = station.advance(self.now_ns, |done| tokens.push(done.id));
            }
            Mechanism::Flat(flat) => {
                while let Some(first) = flat.under_way.first_entry()
                    && first.key().0 <= self.now_ns
                {
                    tokens.push(first.remove_entry().0.1);
                }
            }
        }
        for token in tokens {
            if let Some(io) = self.under_way.remove(&token) {
                let completion = self.end(io);
                self.ended.push(completion);
            }
        }
    }

    /// Lets time pass until something has ended. False: nothing is under way.
    fn advance(&mut self) -> bool {
        while self.ended.is_empty() {
            let Some(next_ns) = self.next_ns() else {
                return false;
            };
            self.advance_to(next_ns);
        }
        true
    }

    fn end(&self, mut io: Io) -> Completion {
        if let (IoOp::Read, Some(buf)) = (io.op, io.buf.as_mut()) {
            let from = usize::try_from(io.offset).unwrap_or(usize::MAX);
            let known = self.image.get(from..).unwrap_or_default();
            let both = known.len().min(buf.len());
            buf[..both].copy_from_slice(&known[..both]);
            buf[both..].fill(0);
        }
        Completion {
            token: io.token,
            buf: io.buf,
            result: Ok(()),
        }
    }
}

impl EmulatedDisk {
    /// A disk that begins with `image`; without a drive: one without an arm, of `size` bytes.
    pub(super) fn new(
        drive: Option<&Drive>,
        order: Order,
        size: u64,
        image: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let mechanism = match drive {
            Some(drive) => {
                let queueing = Queueing {
                    order,
                    ..Queueing::default()
                };
                let disk = Disk::new(drive, Policy::default())?;
                Mechanism::Platter(Box::new(Station::new(disk, queueing)))
            }
            None => Mechanism::Flat(Flat::default()),
        };
        Ok(Self(Arc::new(Mutex::new(DiskState {
            mechanism,
            size,
            image,
            now_ns: 0,
            under_way: HashMap::new(),
            ended: Vec::new(),
            started: Vec::new(),
        }))))
    }

    fn core(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn device(&self) -> Device {
        Device {
            path: PathBuf::from("emulated"),
            size: self.core().size,
            is_block_device: false,
            alignment: ALIGNMENT,
            memory_alignment: MEMORY_ALIGNMENT,
            backend: Box::new(self.clone()),
        }
    }

    /// Virtual time in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.core().now_ns
    }

    /// Lets time pass until an I/O has ended. False: none is under way.
    pub(super) fn advance(&self) -> bool {
        self.core().advance()
    }

    /// The requests whose I/O was handed over since it was asked last, in that order.
    pub(super) fn take_started(&self) -> Vec<u64> {
        std::mem::take(&mut self.core().started)
    }
}

impl IoBackend for EmulatedDisk {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn submit(&mut self, io: Io) {
        self.core().submit(io);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        let mut core = self.core();
        // A stepped store never waits but while it opens, and then for an I/O.
        if wait != Wait::No {
            core.advance();
        }
        ended.append(&mut core.ended);
    }

    fn waker(&self) -> Waker {
        Waker::new(|| {})
    }
}
