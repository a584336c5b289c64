//! The simulated disk behind the interface of all backends.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{Lie, SharedCore, SimOptions};
use crate::clock::monotonic_ns;
use crate::device::{Completion, Io, IoBackend, Wait, Waker, WriteCache};
use crate::options::IoBackendKind;

/// One opening of the disk.
pub(super) struct SimBackend {
    shared: Arc<SharedCore>,
    /// Its I/Os bear this number. A store that was given up may still wait for its own.
    opening: u64,
    /// Rings of the bell that it has heard.
    heard: u64,
}

impl SimBackend {
    pub(super) fn new(shared: Arc<SharedCore>) -> Self {
        let mut core = shared.lock();
        core.openings += 1;
        let opening = core.openings;
        drop(core);
        Self {
            shared,
            opening,
            heard: 0,
        }
    }

    /// Moves I/Os that are due; with `advance` time passes until one is. True: there was one.
    fn collect(&self, ended: &mut Vec<Completion>, advance: bool) -> bool {
        let mut core = self.shared.lock();
        let before = ended.len();
        loop {
            while let Some(completion) = core.end_one(self.opening) {
                ended.push(completion);
            }
            match core.next_due_ns(Some(self.opening)) {
                Some(due_ns) if advance && ended.len() == before => core.now_ns = due_ns,
                _ => return ended.len() > before,
            }
        }
    }

    fn options(&self) -> SimOptions {
        self.shared.lock().options.clone()
    }

    /// Waits for the bell, in real time: nothing is in flight, so no virtual time can pass.
    fn sleep(&mut self, limit: Option<Duration>) {
        let heard = self.heard;
        let rung = self
            .shared
            .rung
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bell = &self.shared.bell;
        let rung = match limit {
            Some(limit) => {
                bell.wait_timeout_while(rung, limit, |rung| *rung == heard)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => bell
                .wait_while(rung, |rung| *rung == heard)
                .unwrap_or_else(PoisonError::into_inner),
        };
        self.heard = *rung;
    }
}

impl IoBackend for SimBackend {
    fn kind(&self) -> IoBackendKind {
        IoBackendKind::Custom
    }

    fn submit(&mut self, io: Io) {
        self.shared.lock().submit(io, self.opening);
    }

    fn wait(&mut self, ended: &mut Vec<Completion>, wait: Wait) {
        if self.collect(ended, wait != Wait::No) {
            return;
        }
        match wait {
            Wait::No => {}
            Wait::Forever => self.sleep(None),
            Wait::Until(ns) => {
                self.sleep(Some(Duration::from_nanos(
                    ns.saturating_sub(monotonic_ns()),
                )));
            }
        }
    }

    fn write_cache(&self) -> WriteCache {
        match self.options().lie {
            Lie::HidesCache => WriteCache::Through,
            _ => self.options().cache,
        }
    }

    fn forces_writes(&self) -> bool {
        self.options().fua
    }

    fn waker(&self) -> Waker {
        let shared = Arc::downgrade(&self.shared);
        Waker::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.ring();
            }
        })
    }
}

impl Drop for SimBackend {
    fn drop(&mut self) {
        // As at the end of a process: the device carries out what it has been given.
        while self.collect(&mut Vec::new(), true) {}
    }
}
