//! A store without threads on a disk in virtual time.

use std::time::Duration;

use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::device::sim::{Latency, SimDisk};
use lumpscope_engine::{
    DeleteOutcome, Driver, Durability, Error, LumpData, LumpId, OnDone, Placement, PutCondition,
    PutOptions, PutOutcome, RequestCtx, Store, StoreOptions, StoreStats,
};

use super::stepped::{Answer, answer, disk, steady};
use super::{buf, ctx};

/// Reads and writes take a millisecond, a flush a second.
pub const READ_NS: u64 = 1_000_000;
pub const FLUSH_NS: u64 = 1_000_000_000;

pub struct Timed {
    pub store: Store,
    pub driver: Driver,
    pub disk: SimDisk,
}

impl Timed {
    pub fn new(options: StoreOptions) -> Self {
        let latency = Latency {
            flush_ns: FLUSH_NS..FLUSH_NS + 1,
            ..steady(READ_NS, READ_NS)
        };
        Self::on(disk(64, 2000, latency), options)
    }

    pub fn on(disk: SimDisk, options: StoreOptions) -> Self {
        let (store, driver) = Store::open_stepped(disk.device(), options).unwrap();
        Self {
            store,
            driver,
            disk,
        }
    }

    /// Sends a request now.
    pub fn send<T: Send + 'static>(
        &self,
        submit: impl FnOnce(&Store, OnDone<T>) -> Result<(), Error>,
    ) -> Result<Answer<T>, Error> {
        let _time = virtual_time(self.disk.now_ns());
        let (on_done, answer) = answer();
        submit(&self.store, on_done)?;
        Ok(answer)
    }

    /// Does what can be done now.
    pub fn step(&mut self) {
        assert!(self.driver.step(self.disk.now_ns()), "the store is open");
    }

    /// Lets `time` pass, I/O by I/O.
    pub fn pass(&mut self, time: Duration) {
        let end = self.disk.now_ns() + u64::try_from(time.as_nanos()).unwrap();
        self.step();
        while self.disk.next_due_ns().is_some_and(|due| due <= end) {
            self.disk.advance();
            self.step();
        }
        self.disk.advance_to(end);
        self.step();
    }

    /// Lets time pass until the disk has nothing to do.
    pub fn settle(&mut self) {
        self.step();
        while self.disk.advance() {
            self.step();
        }
    }

    /// The numbers as they are now.
    pub fn stats(&mut self) -> StoreStats {
        self.step();
        self.store.stats()
    }

    /// Puts and waits.
    pub fn put(&mut self, id: u128, bytes: &[u8]) {
        let answer = self.begin_put(id, bytes, PutOptions::default());
        self.settle();
        answer.try_recv().unwrap().unwrap();
    }

    pub fn begin_put(&self, id: u128, bytes: &[u8], options: PutOptions) -> Answer<PutOutcome> {
        let buf = buf(&self.store, bytes);
        self.send(|store, done| store.submit_put_with(ctx(), LumpId(id), buf, options, done))
            .unwrap()
    }

    pub fn begin_get(&self, id: u128, ctx: RequestCtx) -> Answer<LumpData> {
        self.send(|store, done| store.submit_get(ctx, LumpId(id), done))
            .unwrap()
    }

    pub fn begin_delete(&self, id: u128) -> Answer<DeleteOutcome> {
        let synced = Durability::Synced;
        self.send(|store, done| store.submit_delete(ctx(), LumpId(id), synced, done))
            .unwrap()
    }

    /// Gets and waits.
    pub fn get(&mut self, id: u128) -> Option<Vec<u8>> {
        let answer = self.begin_get(id, ctx());
        self.settle();
        match answer.try_recv().unwrap() {
            Ok(lump) => Some(lump.to_vec()),
            Err(Error::NotFound { .. }) => None,
            Err(error) => panic!("get {id:x}: {error}"),
        }
    }
}

pub const IF_ABSENT: PutOptions = PutOptions {
    placement: Some(Placement::Data),
    durability: Durability::Synced,
    condition: PutCondition::IfAbsent,
};
