//! Our engine under a load, without a network.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use lumpscope_engine::{
    Durability, Error, LumpBuf, LumpData, LumpId, PutOptions, RequestCtx, Store,
};

use crate::load::{Engine, Load, Measured, Meter, Promise};
use crate::process::Interrupt;

/// One request that has ended.
struct CompletedRequest {
    begin: Instant,
    end: Instant,
    result: Result<u64, Error>,
}

/// Tells the measuring thread that a request has ended.
struct CompletionSender {
    begin: Instant,
    ended: Sender<CompletedRequest>,
}

impl CompletionSender {
    /// To be called by the engine; the time of the call counts.
    fn tell(self, result: Result<u64, Error>) {
        let end = Instant::now();
        let (begin, ended) = (self.begin, self.ended);
        // Nobody listens any more when the run has failed.
        let _ = ended.send(CompletedRequest { begin, end, result });
    }
}

/// Keeps a number of requests in flight.
struct Window<'a> {
    store: &'a Store,
    load: &'a Load,
    in_flight: usize,
    sender: Sender<CompletedRequest>,
    ended: Receiver<CompletedRequest>,
}

impl<'a> Window<'a> {
    fn new(store: &'a Store, load: &'a Load) -> Self {
        let (sender, ended) = unbounded();
        Window {
            store,
            load,
            in_flight: 0,
            sender,
            ended,
        }
    }

    /// Submits one request as soon as there is room for it.
    fn submit(
        &mut self,
        meter: &mut Meter,
        submit: impl FnOnce(&Store, CompletionSender) -> Result<(), Error>,
    ) -> anyhow::Result<()> {
        while self.in_flight >= self.load.depth.max(1) {
            self.take_one(meter)?;
        }
        self.in_flight += 1;
        let done = CompletionSender {
            begin: Instant::now(),
            ended: self.sender.clone(),
        };
        submit(self.store, done)?;
        Ok(())
    }

    fn take_one(&mut self, meter: &mut Meter) -> anyhow::Result<()> {
        // The window holds a sender, so the channel is never closed.
        let Ok(CompletedRequest { begin, end, result }) = self.ended.recv() else {
            return Ok(());
        };
        self.in_flight -= 1;
        meter.request(result?, end - begin);
        Ok(())
    }
}

impl Engine for Window<'_> {
    type Lump = LumpBuf;

    const NAME: &'static str = "lumpscope";

    fn lump(&mut self, bytes: &[u8]) -> anyhow::Result<LumpBuf> {
        let mut buf = self.store.lump_buf(self.load.size)?;
        buf.extend(bytes)?;
        Ok(buf)
    }

    /// One at a time with the verb that waits, as a caller does who has nothing else to do.
    fn put(&mut self, id: u64, buf: LumpBuf, meter: &mut Meter) -> anyhow::Result<()> {
        let options = PutOptions {
            durability: match self.load.promise {
                Promise::Synced => Durability::Synced,
                Promise::Written | Promise::Buffered => Durability::Journaled,
            },
            ..PutOptions::default()
        };
        let (ctx, id, size) = (RequestCtx::default(), LumpId(id.into()), self.load.size);
        let waits = self.load.depth == 1;
        self.submit(meter, |store, done| {
            if waits {
                done.tell(store.put_with(ctx, id, buf, options).map(|_| size));
                return Ok(());
            }
            let done = Box::new(move |result: Result<_, _>, _| done.tell(result.map(|_| size)));
            store.submit_put_with(ctx, id, buf, options, done)
        })
    }

    fn get(&mut self, id: u64, meter: &mut Meter) -> anyhow::Result<()> {
        let (ctx, id) = (RequestCtx::default(), LumpId(id.into()));
        let length = |lump: LumpData| lump.len() as u64;
        let waits = self.load.depth == 1;
        self.submit(meter, |store, done| {
            if waits {
                done.tell(store.get(ctx, id).map(length));
                return Ok(());
            }
            let done = Box::new(move |result: Result<_, _>, _| done.tell(result.map(length)));
            store.submit_get(ctx, id, done)
        })
    }

    fn drain(&mut self, meter: &mut Meter) -> anyhow::Result<()> {
        while self.in_flight > 0 {
            self.take_one(meter)?;
        }
        Ok(())
    }

    fn holds(&mut self, id: u64, bytes: &[u8]) -> anyhow::Result<bool> {
        let lump = self.store.get(RequestCtx::default(), LumpId(id.into()))?;
        Ok(lump[..] == *bytes)
    }
}

/// [`Load::puts`] on a store.
pub(super) fn puts(store: &Store, load: &Load, interrupt: &Interrupt) -> anyhow::Result<Measured> {
    load.puts(&mut Window::new(store, load), || interrupt.check())
}

/// [`Load::gets`] of a store.
pub(super) fn gets(
    store: &Store,
    load: &Load,
    lumps: u64,
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    load.gets(&mut Window::new(store, load), lumps, || interrupt.check())
}
