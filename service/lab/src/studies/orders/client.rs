//! Clients that each have one get under way and ask for the next when it is answered, in virtual
//! time: the real engine, its real owner loop, and no thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::device::{Completion, Device, Io, IoBackend, Wait, Waker};
use lumpscope_engine::{
    Driver, Error, IoBackendKind, LumpId, RequestCtx, RequestId, Store, StoreOptions,
};
use lumpscope_platter::device::{DeviceOptions, PlatterDevice};
use lumpscope_platter::disk::Policy;
use lumpscope_platter::drive::Drive;
use lumpscope_platter::queue::Queueing;

use super::{Case, image};
use crate::human;
use crate::load::{Latency, Meter};

/// Lumps on the disk.
const LUMPS: u64 = 16_384;

/// Result of one run.
#[derive(Clone, Debug)]
pub(super) struct OrderRun {
    /// Gets a second of virtual time.
    pub(super) rate: f64,
    pub(super) latency: Latency,
    /// Most others that the engine has started before an older get that waited.
    pub(super) overtaken: u64,
    /// Most others that were answered before an older one: what the drive's own queue has added.
    pub(super) answered_before: u64,
}

/// One get under way.
struct Get {
    since_ns: u64,
    overtaken: u64,
    answered_before: u64,
    started: bool,
}

/// What has come to pass since it was asked last, in that order.
type Recent<T> = Arc<Mutex<Vec<T>>>;

fn take<T>(recent: &Recent<T>) -> Vec<T> {
    std::mem::take(&mut *recent.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A device that notes which requests it is handed I/Os of.
struct Noted {
    below: Box<dyn IoBackend>,
    started: Recent<u64>,
}

impl IoBackend for Noted {
    fn kind(&self) -> IoBackendKind {
        self.below.kind()
    }

    fn submit(&mut self, io: Io) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.extend(io.requests.iter().map(|id| id.0));
        self.below.submit(io);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        self.below.wait(ended, wait);
    }

    fn waker(&self) -> Waker {
        self.below.waker()
    }
}

struct Clients {
    store: Store,
    driver: Driver,
    disk: PlatterDevice,
    started: Recent<u64>,
    random: fastrand::Rng,
    answers: Recent<(u64, Result<(), Error>)>,
    under_way: BTreeMap<u64, Get>,
    asked: u64,
    most: (u64, u64),
}

impl Clients {
    fn ask(&mut self) -> anyhow::Result<()> {
        let now_ns = self.disk.now_ns();
        let _time = virtual_time(now_ns);
        let number = self.asked;
        self.asked += 1;
        let answers = Arc::clone(&self.answers);
        let on_done = Box::new(move |result: Result<_, Error>, _| {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((number, result.map(drop)));
        });
        let ctx = RequestCtx {
            id: RequestId(number),
            ..RequestCtx::default()
        };
        let id = LumpId(self.random.u64(0..LUMPS).into());
        self.store.submit_get(ctx, id, on_done)?;
        let get = Get {
            since_ns: now_ns,
            overtaken: 0,
            answered_before: 0,
            started: false,
        };
        self.under_way.insert(number, get);
        Ok(())
    }

    /// Does what can be done now; the gets that were answered.
    fn step(&mut self) -> anyhow::Result<Vec<Get>> {
        self.driver.step(self.disk.now_ns());
        for started in take(&self.started) {
            for (_, older) in self.under_way.range_mut(..started) {
                older.overtaken += u64::from(!older.started);
            }
            if let Some(get) = self.under_way.get_mut(&started) {
                get.started = true;
            }
        }
        let answers = take(&self.answers);
        let mut done = Vec::with_capacity(answers.len());
        for (number, result) in answers {
            result?;
            for (_, older) in self.under_way.range_mut(..number) {
                older.answered_before += 1;
            }
            let Some(get) = self.under_way.remove(&number) else {
                continue;
            };
            self.most.0 = self.most.0.max(get.overtaken);
            self.most.1 = self.most.1.max(get.answered_before);
            done.push(get);
        }
        Ok(done)
    }
}

fn options(case: &Case) -> StoreOptions {
    StoreOptions {
        queue_policy: case.policy,
        queue_depth: case.at_disk,
        max_overtakes: case.max_overtakes,
        read_only: true,
        ..StoreOptions::new("orders")
    }
}

/// Runs one case. The same seed asks for the same lumps, wherever they are answered from.
pub(super) fn run(drive: &Drive, case: &Case, seed: u64) -> anyhow::Result<OrderRun> {
    let mut random = fastrand::Rng::with_seed(seed);
    let queueing = Queueing {
        order: case.drive_order,
        ..Queueing::default()
    };
    let device = DeviceOptions {
        queueing,
        ..DeviceOptions::default()
    };
    let disk = PlatterDevice::new(drive, Policy::default(), device)?;
    disk.put(
        0,
        &image::scattered(drive.bytes(), LUMPS, case.size, &mut random)?,
    )?;
    let (below, started) = (disk.device(), Recent::default());
    let device = Device {
        backend: Box::new(Noted {
            below: below.backend,
            started: Arc::clone(&started),
        }),
        ..below
    };
    let (store, driver) = Store::open_stepped(device, options(case))?;
    let begun_ns = disk.now_ns();
    let mut clients = Clients {
        store,
        driver,
        disk,
        started,
        random,
        answers: Recent::default(),
        under_way: BTreeMap::new(),
        asked: 0,
        most: (0, 0),
    };
    for _ in 0..case.in_flight {
        clients.ask()?;
    }
    let mut meter = Meter::new();
    while meter.latencies().len() < case.requests {
        let done = clients.step()?;
        if done.is_empty() && !clients.disk.advance() {
            bail!("gets wait, and the disk is idle");
        }
        for get in done {
            let took_ns = clients.disk.now_ns() - get.since_ns;
            meter.request(case.size, Duration::from_nanos(took_ns));
            clients.ask()?;
        }
    }
    // Who has waited to the end counts as well.
    for get in clients.under_way.values() {
        clients.most.0 = clients.most.0.max(get.overtaken);
        clients.most.1 = clients.most.1.max(get.answered_before);
    }
    let took_ns = clients.disk.now_ns() - begun_ns;
    let measured = meter.finish();
    Ok(OrderRun {
        rate: 1e9 / human::as_float(took_ns) * human::as_float(measured.requests),
        latency: measured.latency,
        overtaken: clients.most.0,
        answered_before: clients.most.1,
    })
}
