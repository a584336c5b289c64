//! Clients that each have one get under way and ask for the next when it is answered, in virtual
//! time: the real engine, its real owner loop, and no thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::{Driver, Error, LumpId, RequestCtx, RequestId, Store, StoreOptions};
use lumpscope_platter::drive::Drive;
use serde::Serialize;

use super::disk::EmulatedDisk;
use super::{Case, image};
use crate::human;

/// Lumps on the disk.
const LUMPS: u64 = 16_384;

/// Bytes of a disk without an arm.
const FLAT_BYTES: u64 = 1 << 40;

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// Result of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OrderRun {
    /// Gets a second of virtual time.
    pub(super) rate: f64,
    pub(super) mean_ns: f64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
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

type Answers = Arc<Mutex<Vec<(u64, Result<(), Error>)>>>;

struct Clients {
    store: Store,
    driver: Driver,
    disk: EmulatedDisk,
    random: fastrand::Rng,
    answers: Answers,
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
        for started in self.disk.take_started() {
            for (_, older) in self.under_way.range_mut(..started) {
                older.overtaken += u64::from(!older.started);
            }
            if let Some(get) = self.under_way.get_mut(&started) {
                get.started = true;
            }
        }
        let answers =
            std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
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

const CONTRADICTION: &str = "the measurement contradicts itself";

/// Runs one case. The same seed asks for the same lumps, wherever they are answered from.
pub(super) fn run(drive: Option<&Drive>, case: &Case, seed: u64) -> anyhow::Result<OrderRun> {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = drive.map_or(FLAT_BYTES, |drive| drive.sectors * 512);
    let image = image::scattered(size, LUMPS, case.size, &mut random)?;
    let disk = EmulatedDisk::new(drive, case.drive_order, size, image)?;
    let (store, driver) = Store::open_stepped(disk.device(), options(case))?;
    let begun_ns = disk.now_ns();
    let mut clients = Clients {
        store,
        driver,
        disk,
        random,
        answers: Answers::default(),
        under_way: BTreeMap::new(),
        asked: 0,
        most: (0, 0),
    };
    for _ in 0..case.in_flight {
        clients.ask()?;
    }
    let latencies = Histogram::<u64>::new(DIGITS);
    let mut latencies = latencies.context(CONTRADICTION)?;
    while latencies.len() < case.requests {
        let done = clients.step()?;
        if done.is_empty() && !clients.disk.advance() {
            bail!("{CONTRADICTION}: {}", "gets wait, and the disk is idle");
        }
        for get in done {
            let recorded = latencies.record(clients.disk.now_ns() - get.since_ns);
            recorded.context(CONTRADICTION)?;
            clients.ask()?;
        }
    }
    // Who has waited to the end counts as well.
    for get in clients.under_way.values() {
        clients.most.0 = clients.most.0.max(get.overtaken);
        clients.most.1 = clients.most.1.max(get.answered_before);
    }
    let took_ns = clients.disk.now_ns() - begun_ns;
    Ok(OrderRun {
        rate: 1e9 / human::as_float(took_ns) * human::as_float(latencies.len()),
        mean_ns: latencies.mean(),
        p99_ns: latencies.value_at_quantile(0.99),
        max_ns: latencies.max(),
        overtaken: clients.most.0,
        answered_before: clients.most.1,
    })
}
