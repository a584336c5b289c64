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
use lumpscope_lab::load::{Load, Measured, Meter, Promise, SAMPLES};

use crate::storage::{ENGINE, check, durability, lump_len};

/// Looks at the answers before the looking thread sleeps between them.
const EAGER_LOOKS: u32 = 2000;
/// Its sleep then; far less than a request to a disk that is so slow.
const PAUSE: Duration = Duration::from_micros(20);

type Answer<T> = Box<dyn Future<Item = T, Error = cannyls::Error>>;

/// Waits for one answer.
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

/// Keeps `depth` requests under way until `next` has none left; they tell their bytes.
fn in_window(
    depth: usize,
    meter: &mut Meter,
    mut next: impl FnMut() -> Option<Answer<u64>>,
) -> Result<()> {
    let mut window: Vec<(Instant, Answer<u64>)> = Vec::with_capacity(depth);
    let (mut more, mut looks) = (true, 0);
    loop {
        while more && window.len() < depth {
            let begin = Instant::now();
            match next() {
                Some(request) => window.push((begin, request)),
                None => more = false,
            }
        }
        if window.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        let before = window.len();
        while let Some((begin, answer)) = window.get_mut(at) {
            if let Async::Ready(bytes) = answer.poll()? {
                meter.request(bytes, begin.elapsed());
                drop(window.swap_remove(at));
            } else {
                at += 1;
            }
        }
        if window.len() < before {
            looks = 0;
        } else {
            rest(&mut looks);
        }
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
    let handle = device.handle();
    let mut puts = Meter::new();
    let mut next = 0;
    while next < load.count && (next == 0 || puts.timed() < load.time) {
        let end = load.count.min(next + load.batch());
        next = put_batch(&handle, load, next..end, &mut puts)?;
    }
    let get = if gets {
        Some(read(&handle, load, next)?)
    } else {
        None
    };
    stop(device)?;
    Ok(PeerReport {
        engine: ENGINE.to_owned(),
        durability: durability(load).to_owned(),
        put: Some(puts.finish()),
        get,
    })
}

/// Gets of lumps that are there.
pub(crate) fn gets_only<N>(nvm: N, load: &Load) -> Result<PeerReport>
where
    N: NonVolatileMemory + Send + 'static,
{
    let device = start(Storage::open(nvm)?)?;
    let get = read(&device.handle(), load, load.count)?;
    stop(device)?;
    Ok(PeerReport {
        engine: ENGINE.to_owned(),
        durability: durability(load).to_owned(),
        put: None,
        get: Some(get),
    })
}

/// Puts a batch that was prepared; answers the id after the last one that was put.
fn put_batch(
    handle: &DeviceHandle,
    load: &Load,
    ids: std::ops::Range<u64>,
    meter: &mut Meter,
) -> Result<u64> {
    let mut lumps = Vec::new();
    for id in ids.clone() {
        let mut data = handle.allocate_lump_data(usize::try_from(load.size)?)?;
        load.payload(id, data.as_bytes_mut());
        lumps.push(data);
    }
    // What is left over is given back outside the timed part.
    let mut lumps = lumps.into_iter();
    let left = load.time.saturating_sub(meter.timed());
    let (mut next, size, begin) = (ids.start, load.size, Instant::now());
    in_window(load.depth, meter, || {
        if next > 0 && begin.elapsed() >= left {
            return None;
        }
        let put = handle
            .request()
            .put(LumpId::new(next.into()), lumps.next()?);
        next += 1;
        Some(Box::new(put.map(move |_| size)))
    })?;
    meter.timed_since(begin);
    Ok(next)
}

fn read(handle: &DeviceHandle, load: &Load, lumps: u64) -> Result<Measured> {
    ensure!(lumps > 0, "there is nothing to get");
    let mut meter = Meter::new();
    let order = load.order(lumps);
    let mut turns = order.iter().cycle();
    let begin = Instant::now();
    in_window(load.depth, &mut meter, || {
        if begin.elapsed() >= load.time {
            return None;
        }
        let get = handle.request().get(LumpId::new((*turns.next()?).into()));
        Some(Box::new(get.map(|data| lump_len(data.as_ref()))))
    })?;
    meter.timed_since(begin);
    for &id in order.iter().take(SAMPLES) {
        let data: Option<LumpData> = wait(handle.request().get(LumpId::new(id.into())))?;
        check(load, id, data.as_ref())?;
    }
    Ok(meter.finish())
}
