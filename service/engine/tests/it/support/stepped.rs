//! A stepped store on a simulated disk, and what a test does with one.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use lumpscope_engine::device::Device;
use lumpscope_engine::device::sim::{Latency, SimDisk, SimOptions, blank_image};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{
    CollectOutcome, CommitMode, Driver, Durability, Error, LumpData, LumpId, OnDone, Opened,
    Placement, PutOutcome, RequestCtx, Store, StoreOptions,
};

use super::{buf, content, ctx};

/// A disk, a store on it and its driver, in virtual time.
pub struct Stepped {
    pub disk: SimDisk,
    pub store: Store,
    pub driver: Driver,
    /// Expected content of each lump.
    pub model: BTreeMap<u128, Vec<u8>>,
}

/// An answer that may still be to come.
pub type Answer<T> = Receiver<Result<T, Error>>;

pub fn answer<T: Send + 'static>() -> (OnDone<T>, Answer<T>) {
    let (told, answer) = channel();
    let on_done = Box::new(move |result, _| drop(told.send(result)));
    (on_done, answer)
}

/// I/Os that end in the order they came, each after a fixed time.
pub const fn steady(read_ns: u64, write_ns: u64) -> Latency {
    Latency {
        read_ns: read_ns..read_ns + 1,
        write_ns: write_ns..write_ns + 1,
        flush_ns: write_ns..write_ns + 1,
        one_at_a_time: false,
    }
}

/// A disk with an empty store.
pub fn disk(ring_blocks: u64, data_blocks: u64, latency: Latency) -> SimDisk {
    let block_size = BlockSize::MIN;
    let image = blank_image(block_size, ring_blocks, data_blocks, [7; 16]);
    let options = SimOptions {
        latency,
        ..SimOptions::default()
    };
    SimDisk::new(&image, options)
}

impl Stepped {
    pub fn open(disk: SimDisk, options: StoreOptions) -> Self {
        let device: Device = disk.device();
        let (store, driver) = Store::open_stepped(device, options).unwrap();
        Self {
            disk,
            store,
            driver,
            model: BTreeMap::new(),
        }
    }

    /// Does everything that can be done now.
    pub fn step(&mut self) {
        assert!(self.driver.step(self.disk.now_ns()), "the store is open");
    }

    /// Time goes on until something happens. False: nothing ever will.
    pub fn pass(&self) -> bool {
        let next = [self.disk.next_due_ns(), self.driver.due_ns()];
        let next = next.into_iter().flatten().min();
        if let Some(next) = next {
            self.disk.advance_to(next);
        }
        next.is_some()
    }

    /// One step, and time goes on until something happens. False: nothing ever will.
    pub fn advance(&mut self) -> bool {
        self.step();
        self.pass()
    }

    /// Goes on until no I/O is in flight.
    pub fn settle(&mut self) {
        self.until(|it| it.disk.in_flight() == 0);
    }

    /// Goes on until `done`, which must come to pass.
    pub fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..2_000_000 {
            self.step();
            if done(self) {
                return;
            }
            assert!(self.pass(), "nothing happens any more");
        }
        panic!("it goes on for ever");
    }

    /// Goes on until there is an answer.
    pub fn wait<T>(&mut self, answer: &Answer<T>) -> Result<T, Error> {
        let mut got = None;
        self.until(|_| {
            got = answer.try_recv().ok();
            got.is_some()
        });
        got.unwrap()
    }

    pub fn submit_put(&mut self, id: u128, len: usize, placement: Placement) -> Answer<PutOutcome> {
        let bytes = content(id, self.disk.now_ns(), len);
        let buf = buf(&self.store, &bytes);
        self.model.insert(id, bytes);
        let (done, answer) = answer();
        let (id, synced) = (LumpId(id), Durability::Synced);
        self.store
            .submit_put(ctx(), id, buf, placement, synced, done)
            .unwrap();
        answer
    }

    pub fn put(&mut self, id: u128, len: usize, placement: Placement) {
        let answer = self.submit_put(id, len, placement);
        self.wait(&answer).unwrap();
    }

    pub fn submit_get(&self, id: u128) -> Answer<LumpData> {
        let (on_done, answer) = answer();
        self.store.submit_get(ctx(), LumpId(id), on_done).unwrap();
        answer
    }

    pub fn delete(&mut self, id: u128) {
        let (on_done, answer) = answer();
        let durability = Durability::Synced;
        self.store
            .submit_delete(ctx(), LumpId(id), durability, on_done)
            .unwrap();
        self.wait(&answer).unwrap();
        self.model.remove(&id);
    }

    pub fn submit_open(&self, id: u128, ctx: RequestCtx) -> Answer<Opened> {
        let (done, answer) = answer();
        let whole = (0, u64::MAX);
        self.store
            .submit_open(ctx, LumpId(id), whole, done)
            .unwrap();
        answer
    }

    pub fn submit_collect(&self) -> Answer<CollectOutcome> {
        let (on_done, answer) = answer();
        self.store.submit_collect(on_done).unwrap();
        answer
    }

    /// Every lump is there with its content.
    pub fn check_all(&mut self) {
        for (id, bytes) in self.model.clone() {
            let answer = self.submit_get(id);
            assert_eq!(&self.wait(&answer).unwrap()[..], bytes, "lump {id}");
        }
    }

    /// Closes the store in order; the disk remains.
    pub fn close(mut self) -> SimDisk {
        self.driver.begin_close();
        for _ in 0..100_000 {
            if !self.driver.step(self.disk.now_ns()) {
                return self.disk;
            }
            let next = [self.disk.next_due_ns(), self.driver.due_ns()];
            let next = next.into_iter().flatten().min();
            self.disk
                .advance_to(next.expect("closing waits for nothing"));
        }
        panic!("closing goes on for ever");
    }
}

/// Options of a store that commits so.
pub fn options(commit: CommitMode) -> StoreOptions {
    StoreOptions {
        commit,
        ..StoreOptions::new("sim")
    }
}

/// A disk of these bytes, on which all takes a microsecond.
pub fn disk_of(image: &[u8]) -> SimDisk {
    let options = SimOptions {
        latency: steady(1000, 1000),
        ..SimOptions::default()
    };
    SimDisk::new(image, options)
}

/// All bytes of the disk, also those that are not flushed.
pub fn bytes(store: &Stepped) -> Vec<u8> {
    store.disk.bytes(0..store.disk.size())
}

/// Puts these bytes into the data region.
pub fn put(store: &mut Stepped, id: u128, payload: &[u8]) {
    let buf = buf(&store.store, payload);
    let (on_done, told) = answer();
    let (ctx, durability) = (RequestCtx::default(), Durability::Synced);
    store
        .store
        .submit_put(ctx, LumpId(id), buf, Placement::Data, durability, on_done)
        .unwrap();
    store.wait(&told).unwrap();
}
