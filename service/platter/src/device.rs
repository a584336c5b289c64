//! The modelled disk as a device of the engine: bytes in memory, times from the model.
//!
//! In virtual time it is for tests and simulations: a store with threads lets time pass whenever it
//! waits, a stepped store gets it from whoever steps it. In real time it sleeps for as long as the
//! model says, or a fraction of that, so that a store feels what it will be like.
//!
//! It has no power cuts and no faults; for these there is the engine's own simulated disk.
//!
//! ```
//! use lumpscope_engine::device::sim::blank_image;
//! use lumpscope_engine::units::BlockSize;
//! use lumpscope_engine::{Durability, LumpId, Placement, RequestCtx, Store, StoreOptions};
//! use lumpscope_platter::device::{DeviceOptions, PlatterDevice};
//! use lumpscope_platter::{disk::Policy, drive};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let drive = drive::by_name("st1000dm003").ok_or("no such drive")?;
//! let disk = PlatterDevice::new(&drive, Policy::default(), DeviceOptions::default())?;
//! disk.put(0, &blank_image(BlockSize::MIN, 64, 2000, [7; 16]))?;
//! let store = Store::open_on(disk.device(), StoreOptions::new("platter"))?;
//! let mut lump = store.lump_buf(5)?;
//! lump.extend(b"hello")?;
//! store.put(RequestCtx::default(), LumpId(1), lump, Placement::Data, Durability::Synced)?;
//! assert!(disk.now_ns() > 10_000_000, "the flushes took a few turns");
//! # Ok(())
//! # }
//! ```

mod pages;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lumpscope_engine::IoBackendKind;
use lumpscope_engine::IoOp;
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_engine::device::{Completion, Device, Io, IoBackend, Wait, Waker};
use rustix::io::Errno;

use crate::disk::{Counts, Disk, Policy, Request};
use crate::drive::{Drive, DriveError, SECTOR};
use crate::queue::{Done, Queueing, Station};
use crate::trace::Op;

use pages::Pages;

/// Source of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Nobody's: it passes when the device is waited for, or when it is told to.
    Virtual,
    /// Everybody's; the disk is so many times as fast as the model. 1: as slow as it is.
    Real {
        /// Nanoseconds of the model in one of the clock.
        speed: NonZeroU32,
    },
}

/// How a device behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Source of time.
    pub time: Time,
    /// The drive's queue.
    pub queueing: Queueing,
    /// Bytes of memory for what is written; a write that needs more fails with ENOSPC.
    pub memory: u64,
    /// True: the drive takes writes past its cache (FUA).
    pub fua: bool,
}

impl Default for DeviceOptions {
    /// Virtual time, requests as they come, 1 GiB.
    fn default() -> DeviceOptions {
        DeviceOptions {
            time: Time::Virtual,
            queueing: Queueing::default(),
            memory: 1 << 30,
            fua: false,
        }
    }
}

/// A modelled disk in memory. Clones are handles to the same disk.
#[derive(Debug, Clone)]
pub struct PlatterDevice {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    rung: Mutex<bool>,
    bell: Condvar,
    time: Time,
    fua: bool,
    epoch: Instant,
}

#[derive(Debug)]
struct Core {
    station: Station,
    pages: Pages,
    flights: HashMap<u64, Io>,
    ended: VecDeque<Completion>,
    submitted: u64,
}

impl PlatterDevice {
    /// An empty disk at time 0: all bytes are zeros.
    ///
    /// # Errors
    /// The drive makes no sense.
    pub fn new(
        drive: &Drive,
        policy: Policy,
        options: DeviceOptions,
    ) -> Result<PlatterDevice, DriveError> {
        let disk = Disk::new(drive, policy)?;
        let core = Core {
            station: Station::new(disk, options.queueing),
            pages: Pages::new(options.memory),
            flights: HashMap::new(),
            ended: VecDeque::new(),
            submitted: 0,
        };
        let shared = Shared {
            core: Mutex::new(core),
            rung: Mutex::new(false),
            bell: Condvar::new(),
            time: options.time,
            fua: options.fua,
            epoch: Instant::now(),
        };
        Ok(PlatterDevice {
            shared: Arc::new(shared),
        })
    }

    /// Puts bytes on the disk in no time, for instance an empty store.
    ///
    /// # Errors
    /// They go beyond the end of the disk, or need more memory than there may be.
    pub fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut core = self.shared.core();
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > core.station.disk().drive().bytes()) {
            return Err(Errno::INVAL.into());
        }
        core.pages.write(offset, bytes)
    }

    /// The disk as a store opens it. One at a time.
    #[must_use]
    pub fn device(&self) -> Device {
        let core = self.shared.core();
        let drive = core.station.disk().drive();
        Device {
            path: PathBuf::from(format!("platter:{}", drive.name)),
            size: drive.bytes(),
            is_block_device: true,
            alignment: 512,
            memory_alignment: 512,
            backend: Box::new(PlatterBackend {
                shared: Arc::clone(&self.shared),
            }),
        }
    }

    /// The model's time in nanoseconds since the disk was made.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.reach_now().station.now_ns()
    }

    /// When something happens next, in the model's time; `None`: no I/O is in flight.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        self.shared.core().station.next_ns()
    }

    /// In virtual time: lets it pass until something happens. False: no I/O is in flight.
    pub fn advance(&self) -> bool {
        let due = self.next_due_ns();
        if let Some(due) = due {
            self.advance_to(due);
        }
        due.is_some()
    }

    /// In virtual time: lets it pass until `now_ns`; it never goes back.
    pub fn advance_to(&self, now_ns: u64) {
        if self.shared.time == Time::Virtual {
            self.shared.core().advance(now_ns);
        }
    }

    /// Counts of the disk's work so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.core().station.disk().counts()
    }
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The core, after all that has happened until now.
    fn reach_now(&self) -> MutexGuard<'_, Core> {
        let mut core = self.core();
        if let Time::Real { speed } = self.time {
            let real = self.epoch.elapsed().as_nanos();
            let model = real.saturating_mul(u128::from(speed.get()));
            core.advance(u64::try_from(model).unwrap_or(u64::MAX));
        }
        core
    }

    /// How long it is from now until this time of the model.
    fn until(&self, due_ns: u64) -> Duration {
        match self.time {
            Time::Virtual => Duration::ZERO,
            Time::Real { speed } => Duration::from_nanos(due_ns.div_ceil(u64::from(speed.get())))
                .saturating_sub(self.epoch.elapsed()),
        }
    }
}

impl Core {
    fn submit(&mut self, io: Io) {
        let number = self.submitted;
        self.submitted += 1;
        let request = match request(&io) {
            Some(request) => request,
            None => return self.fail(io, Errno::INVAL),
        };
        let now_ns = self.station.now_ns();
        match self.station.submit(now_ns, number, &request) {
            Ok(()) => {
                self.flights.insert(number, io);
            }
            Err(_) => self.fail(io, Errno::INVAL),
        }
    }

    fn fail(&mut self, io: Io, errno: Errno) {
        self.ended.push_back(Completion {
            token: io.token,
            buf: io.buf,
            result: Err(errno.into()),
        });
    }

    fn advance(&mut self, to_ns: u64) {
        let mut ends: Vec<Done> = Vec::new();
        let result = self.station.advance(to_ns, |done| ends.push(done));
        for done in ends {
            if let Some(io) = self.flights.remove(&done.id) {
                self.end(io);
            }
        }
        if result.is_err() {
            // The end of virtual time: nothing that is in flight will ever be done.
            for (_, io) in std::mem::take(&mut self.flights) {
                self.fail(io, Errno::IO);
            }
        }
    }

    /// Moves the bytes of an I/O that is done.
    fn end(&mut self, io: Io) {
        let Io {
            token,
            op,
            offset,
            mut buf,
            ..
        } = io;
        let result = match (op, &mut buf) {
            (IoOp::Read, Some(buf)) => {
                self.pages.read(offset, buf);
                Ok(())
            }
            (IoOp::Write, Some(buf)) => self.pages.write(offset, buf),
            _ => Ok(()),
        };
        self.ended.push_back(Completion { token, buf, result });
    }
}

/// Request to the model; `None`: not whole sectors, or too long.
fn request(io: &Io) -> Option<Request> {
    let len = io.len();
    if !io.offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
        return None;
    }
    let op = match io.op {
        IoOp::Read => Op::Read,
        IoOp::Write => Op::Write,
        IoOp::Flush => Op::Flush,
    };
    Some(Request {
        op,
        fua: io.forced,
        sector: io.offset / SECTOR,
        sectors: u32::try_from(len / SECTOR).ok()?,
    })
}

/// One opening of the disk.
struct PlatterBackend {
    shared: Arc<Shared>,
}

impl PlatterBackend {
    /// Moves I/Os that have ended; in virtual time, with `wait`, time passes until one has. True:
    /// there was one.
    fn collect(&self, ended: &mut Vec<Completion>, wait: bool) -> bool {
        let mut core = self.shared.reach_now();
        loop {
            if !core.ended.is_empty() {
                ended.extend(core.ended.drain(..));
                return true;
            }
            match core.station.next_ns() {
                Some(due_ns) if wait && self.shared.time == Time::Virtual => core.advance(due_ns),
                _ => return false,
            }
        }
    }

    /// Waits for the bell; true: it rang.
    fn sleep(&self, limit: Option<Duration>) -> bool {
        let rung = self.shared.rung.lock();
        let rung = rung.unwrap_or_else(PoisonError::into_inner);
        let bell = &self.shared.bell;
        let mut rung = match limit {
            Some(limit) => {
                bell.wait_timeout_while(rung, limit, |rung| !*rung)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => bell
                .wait_while(rung, |rung| !*rung)
                .unwrap_or_else(PoisonError::into_inner),
        };
        std::mem::take(&mut *rung)
    }
}

impl IoBackend for PlatterBackend {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn forces_writes(&self) -> bool {
        self.shared.fua
    }

    fn submit(&mut self, io: Io) {
        self.shared.reach_now().submit(io);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        loop {
            if self.collect(ended, wait != Wait::No) || wait == Wait::No {
                return;
            }
            let limit = match wait {
                Wait::No => Some(Duration::ZERO),
                Wait::Forever => None,
                Wait::Until(ns) => Some(Duration::from_nanos(ns.saturating_sub(monotonic_ns()))),
            };
            let next_ns = self.shared.core().station.next_ns();
            let due = next_ns.map(|due_ns| self.shared.until(due_ns));
            let shorter = match (limit, due) {
                (Some(limit), Some(due)) => Some(limit.min(due)),
                (limit, due) => limit.or(due),
            };
            let rang = self.sleep(shorter);
            // A choice of the drive ends nobody's wait.
            if rang || limit.is_some_and(|limit| due.is_none_or(|due| limit <= due)) {
                self.collect(ended, false);
                return;
            }
        }
    }

    fn waker(&self) -> Waker {
        let shared = Arc::downgrade(&self.shared);
        Waker::new(move || {
            if let Some(shared) = shared.upgrade() {
                *shared.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
                shared.bell.notify_one();
            }
        })
    }
}

impl Drop for PlatterBackend {
    fn drop(&mut self) {
        // As at the end of a process: the device carries out what it has been given.
        let mut core = self.shared.core();
        while let Some(due_ns) = core.station.next_ns() {
            core.advance(due_ns);
            if core.flights.is_empty() {
                break;
            }
        }
        core.ended.clear();
    }
}
