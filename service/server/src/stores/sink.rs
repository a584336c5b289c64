//! Between engine and observer: each disk I/O the engine declares is passed on with the index of
//! its store. Runs on engine threads, so it only converts and hands over.

use lumpscope_engine::{IoDeclaration, IoOp, IoPurpose, IoSink};
use lumpscope_observer::{Declared, Observer, Op, Purpose};

use crate::usdt;

/// Receives the I/O declarations of one store.
pub(super) struct DiskSink {
    observer: Observer,
    store: usize,
}

impl DiskSink {
    /// `store` is the store's position in the observer's options.
    #[must_use]
    pub(super) fn new(observer: Observer, store: usize) -> Self {
        Self { observer, store }
    }
}

impl IoSink for DiskSink {
    fn submitted(&self, io: &IoDeclaration<'_>) {
        self.observer.declare(Declared {
            store: self.store,
            token: io.token,
            requests: io.requests.iter().map(|id| id.0).collect(),
            purpose: match io.purpose {
                IoPurpose::LumpData => Purpose::Data,
                IoPurpose::Journal => Purpose::Journal,
                IoPurpose::JournalHeader => Purpose::Header,
                IoPurpose::Flush => Purpose::Flush,
                IoPurpose::Recovery => Purpose::Recovery,
                IoPurpose::Scrub => Purpose::Scrub,
                IoPurpose::Checkpoint => Purpose::Checkpoint,
            },
            op: match io.op {
                IoOp::Read => Op::Read,
                IoOp::Write => Op::Write,
                IoOp::Flush => Op::Flush,
            },
            offset: io.offset,
            len: io.len,
            begin_ns: io.begin_ns,
        });
        usdt::io(io);
    }

    fn entering(&self, token: u64) {
        self.observer.entering(self.store, token);
    }

    fn drives_ring(&self) {
        self.observer.drives_ring(self.store);
    }

    fn left(&self) {
        self.observer.left();
    }

    fn completed(&self, token: u64, end_ns: u64, error: Option<i32>) {
        self.observer
            .finish(self.store, token, end_ns, error.is_none());
    }
}
