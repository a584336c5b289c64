//! The original's `Device`: a thread that owns the storage and takes requests from others.
//!
//! Its answers wake only fibers of the `fibers` library, which on two cores spend more on waking
//! than on the request. So one thread looks at all answers in turn, which costs the original
//! nothing: its own thread always finds the next request waiting.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cannyls::deadline::Deadline;
use cannyls::device::{Device, DeviceHandle};
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::NonVolatileMemory;
use cannyls::storage::{Storage, StorageBuilder};
use futures01::{Async, Future};
use lumpscope_lab::engine::PeerReport;
use lumpscope_lab::load::{Engine, Load, Meter, Promise};

use crate::storage::{ENGINE, durability, lump_len, report};

/// Looks at the answers before the looking thread sleeps between them.
const EAGER_LOOKS: u32 = 2000;
/// Its sleep then; far less than a request to a disk that is so slow.
const PAUSE: Duration = Duration::from_micros(20);

type Answer<T> = Box<dyn Future<Item = T, Error = cannyls::Error>>;

fn wait<T>(mut answer: impl Future<Item = T, Error = cannyls::Error>) -> Result<T> {
    let mut looks = 0;
    loop {
        if let Async::Ready(item) = answer.poll()? {
            return Ok(item);
        }
        rest(&mut looks);
    }
}

fn rest(looks: &mut u32) {
    *looks += 1;
    if *looks < EAGER_LOOKS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(PAUSE);
    }
}

/// The device under a load.
struct Window<'a> {
    handle: DeviceHandle,
    load: &'a Load,
    in_flight: Vec<(Instant, Answer<u64>)>,
}

impl<'a> Window<'a> {
    fn new(device: &Device, load: &'a Load) -> Window<'a> {
        Window {
            handle: device.handle(),
            load,
            in_flight: Vec::with_capacity(load.depth),
        }
    }

    /// Waits until at most so many requests are in flight.
    fn shrink(&mut self, most: usize, meter: &mut Meter) -> Result<()> {
        let mut looks = 0;
        while self.in_flight.len() > most {
            let before = self.in_flight.len();
            let mut at = 0;
            while let Some((begin, answer)) = self.in_flight.get_mut(at) {
                if let Async::Ready(bytes) = answer.poll()? {
                    meter.request(bytes, begin.elapsed());
                    drop(self.in_flight.swap_remove(at));
                } else {
                    at += 1;
                }
            }
            if self.in_flight.len() == before {
                rest(&mut looks);
            }
        }
        Ok(())
    }

    fn submit(
        &mut self,
        meter: &mut Meter,
        request: impl FnOnce(&DeviceHandle) -> Answer<u64>,
    ) -> Result<()> {
        self.shrink(self.load.depth.max(1) - 1, meter)?;
        let begin = Instant::now();
        self.in_flight.push((begin, request(&self.handle)));
        Ok(())
    }
}

impl Engine for Window<'_> {
    type Lump = LumpData;

    const NAME: &'static str = ENGINE;

    fn lump(&mut self, bytes: &[u8]) -> Result<LumpData> {
        Ok(self.handle.allocate_lump_data_with_bytes(bytes)?)
    }

    fn put(&mut self, id: u64, lump: LumpData, meter: &mut Meter) -> Result<()> {
        let size = self.load.size;
        self.submit(meter, |handle| {
            let put = handle.request().put(LumpId::new(id.into()), lump);
            Box::new(put.map(move |_| size))
        })
    }

    fn get(&mut self, id: u64, meter: &mut Meter) -> Result<()> {
        self.submit(meter, |handle| {
            let get = handle.request().get(LumpId::new(id.into()));
            Box::new(get.map(|data| lump_len(data.as_ref())))
        })
    }

    fn drain(&mut self, meter: &mut Meter) -> Result<()> {
        self.shrink(0, meter)
    }

    fn holds(&mut self, id: u64, bytes: &[u8]) -> Result<bool> {
        let data = wait(self.handle.request().get(LumpId::new(id.into())))?;
        Ok(data.is_some_and(|data: LumpData| data.as_bytes() == bytes))
    }
}

fn start<N>(storage: Storage<N>) -> Result<Device>
where
    N: NonVolatileMemory + Send + 'static,
{
    let device = Device::spawn(|| Ok(storage));
    wait(
        device
            .handle()
            .request()
            .wait_for_running()
            .head(LumpId::new(0)),
    )?;
    Ok(device)
}

/// Ends the device and waits for that, because it holds the file until then.
fn stop(device: Device) -> Result<()> {
    device.stop(Deadline::Immediate);
    wait(device)
}

/// Runs the load and measures it.
pub(crate) fn run<N>(nvm: N, load: &Load, gets: bool) -> Result<PeerReport>
where
    N: NonVolatileMemory + Send + 'static,
{
    let mut builder = StorageBuilder::new();
    if load.promise != Promise::Buffered {
        builder.journal_sync_interval(0);
    }
    let device = start(builder.open(nvm)?)?;
    let measured = report(&mut Window::new(&device, load), load, gets)?;
    stop(device)?;
    Ok(measured)
}

/// Gets of lumps that are there.
pub(crate) fn gets_only<N>(nvm: N, load: &Load) -> Result<PeerReport>
where
    N: NonVolatileMemory + Send + 'static,
{
    ensure!(load.count > 0, "there is nothing to get");
    let device = start(Storage::open(nvm)?)?;
    let get = load.gets(&mut Window::new(&device, load), load.count, || Ok(()))?;
    stop(device)?;
    Ok(PeerReport {
        engine: ENGINE.to_owned(),
        durability: durability(load).to_owned(),
        put: None,
        get: Some(get),
    })
}
