//! Our engine under a load, without a network.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use lumpscope_engine::{
    Durability, Error, LumpBuf, LumpData, LumpId, PutOptions, RequestCtx, Store,
};

use crate::failure::wrong_bytes;
use crate::load::{Load, Measured, Meter, Promise, SAMPLES};
use crate::process::Interrupt;

/// One request that has ended.
struct Ended {
    begin: Instant,
    end: Instant,
    result: Result<u64, Error>,
}

/// Tells the measuring thread that a request has ended.
struct Done {
    begin: Instant,
    ended: Sender<Ended>,
}

impl Done {
    /// To be called by the engine; the time of the call counts.
    fn tell(self, result: Result<u64, Error>) {
        let end = Instant::now();
        let (begin, ended) = (self.begin, self.ended);
        // Nobody listens any more when the run has failed.
        let _ = ended.send(Ended { begin, end, result });
    }
}

/// Keeps a number of requests in flight.
struct Window<'a> {
    depth: usize,
    in_flight: usize,
    sender: Sender<Ended>,
    ended: Receiver<Ended>,
    meter: &'a mut Meter,
}

impl<'a> Window<'a> {
    fn new(depth: usize, meter: &'a mut Meter) -> Self {
        let (sender, ended) = unbounded();
        Window {
            depth,
            in_flight: 0,
            sender,
            ended,
            meter,
        }
    }

    /// Submits one request as soon as there is room for it.
    fn submit(&mut self, submit: impl FnOnce(Done) -> Result<(), Error>) -> anyhow::Result<()> {
        while self.in_flight >= self.depth.max(1) {
            self.take_one()?;
        }
        self.in_flight += 1;
        submit(Done {
            begin: Instant::now(),
            ended: self.sender.clone(),
        })?;
        Ok(())
    }

    fn take_one(&mut self) -> anyhow::Result<()> {
        // The window holds a sender, so the channel is never closed.
        let Ok(Ended { begin, end, result }) = self.ended.recv() else {
            return Ok(());
        };
        self.in_flight -= 1;
        self.meter.request(result?, end - begin);
        Ok(())
    }

    fn drain(mut self) -> anyhow::Result<()> {
        while self.in_flight > 0 {
            self.take_one()?;
        }
        Ok(())
    }
}

/// Puts lumps 0, 1, 2 ... until the load's count or time is reached.
///
/// # Errors
/// The engine refuses one, or a signal came.
pub(super) fn puts(store: &Store, load: &Load, interrupt: &Interrupt) -> anyhow::Result<Measured> {
    let mut meter = Meter::new();
    let mut next = 0;
    while next < load.count && (next == 0 || meter.timed() < load.time) {
        interrupt.check()?;
        let end = load.count.min(next + load.batch());
        // What is left over is given back outside the timed part.
        let mut bufs = prepare(store, load, next..end)?.into_iter();
        let left = load.time.saturating_sub(meter.timed());
        let begin = Instant::now();
        let mut window = Window::new(load.depth, &mut meter);
        for buf in bufs.by_ref() {
            if next > 0 && begin.elapsed() >= left {
                break;
            }
            let id = load.lump(next);
            window.submit(|done| put(store, load, (id, buf), done))?;
            next += 1;
        }
        window.drain()?;
        meter.timed_since(begin);
    }
    Ok(meter.finish())
}

fn prepare(store: &Store, load: &Load, ids: std::ops::Range<u64>) -> anyhow::Result<Vec<LumpBuf>> {
    let mut payload = vec![0; usize::try_from(load.size).unwrap_or(usize::MAX)];
    ids.map(|put| {
        load.payload(load.lump(put), &mut payload);
        let mut buf = store.lump_buf(load.size)?;
        buf.extend(&payload)?;
        Ok(buf)
    })
    .collect()
}

fn put(store: &Store, load: &Load, (id, buf): (u64, LumpBuf), done: Done) -> Result<(), Error> {
    let durability = match load.promise {
        Promise::Synced => Durability::Synced,
        Promise::Written | Promise::Buffered => Durability::Journaled,
    };
    let options = PutOptions {
        durability,
        ..PutOptions::default()
    };
    let (ctx, id, size) = (RequestCtx::default(), LumpId(id.into()), load.size);
    let done = Box::new(move |result: Result<_, _>, _| done.tell(result.map(|_| size)));
    store.submit_put_with(ctx, id, buf, options, done)
}

/// Gets the lumps in random order, again and again, until the load's time is reached, but each at
/// least once when there are few. A sample is compared byte by byte afterwards.
///
/// # Errors
/// The engine refuses one, what it returns is wrong, or a signal came.
pub(super) fn gets(
    store: &Store,
    load: &Load,
    lumps: u64,
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    let mut meter = Meter::new();
    let order = load.order(lumps);
    let begin = Instant::now();
    let mut window = Window::new(load.depth, &mut meter);
    for &id in order.iter().cycle() {
        if begin.elapsed() >= load.time {
            break;
        }
        interrupt.check()?;
        let (ctx, id) = (RequestCtx::default(), LumpId(id.into()));
        window.submit(|done| {
            let length = move |result: Result<LumpData, _>| result.map(|lump| lump.len() as u64);
            store.submit_get(
                ctx,
                id,
                Box::new(move |result, _| done.tell(length(result))),
            )
        })?;
    }
    window.drain()?;
    meter.timed_since(begin);
    let mut payload = vec![0; usize::try_from(load.size).unwrap_or(usize::MAX)];
    for &id in order.iter().take(SAMPLES) {
        load.payload(id, &mut payload);
        if store.get(RequestCtx::default(), LumpId(id.into()))?[..] != payload {
            return Err(wrong_bytes("lumpscope", id));
        }
    }
    Ok(meter.finish())
}
