//! Threads that verify what was read and answer gets, so that the owner thread never touches
//! payload bytes, except the few of a small lump: to verify these takes less time than to wake
//! another thread.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

use crate::stats::Counters;

/// Bytes that the owner's thread verifies by itself: about a microsecond's work.
const SMALL: usize = 16 * 1024;
/// Threads of a store; each verifies several GB/s.
const THREADS: usize = 2;

thread_local! {
    static ENGINE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one that must not wait for the engine.
pub(super) fn mark_engine_thread() {
    ENGINE_THREAD.set(true);
}

/// True: the calling thread belongs to an engine.
pub(crate) fn on_engine_thread() -> bool {
    ENGINE_THREAD.get()
}

/// Work on bytes that are in memory.
type Job = Box<dyn FnOnce(&Counters) + Send>;

/// The threads. They end when the handle is dropped.
pub(crate) struct Finisher {
    /// `None`: there are no threads (any more), the caller does it all.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl Finisher {
    pub(crate) fn start(counters: &Arc<Counters>) -> std::io::Result<Self> {
        // Bounded by the I/Os in flight.
        let (sender, queue) = crossbeam_channel::unbounded::<Job>();
        let mut finisher = Self {
            queue: Some(sender),
            threads: Vec::with_capacity(THREADS),
            counters: Arc::clone(counters),
        };
        for number in 0..THREADS {
            let (queue, counters) = (queue.clone(), Arc::clone(counters));
            let thread = std::thread::Builder::new()
                .name(format!("lump-finish-{number}"))
                .spawn(move || {
                    mark_engine_thread();
                    queue.iter().for_each(|job| job(&counters));
                })?;
            finisher.threads.push(thread);
        }
        Ok(finisher)
    }

    /// One without threads: the owner's thread does the work, for stepped stores.
    pub(crate) fn inline(counters: &Arc<Counters>) -> Self {
        Self {
            queue: None,
            threads: Vec::new(),
            counters: Arc::clone(counters),
        }
    }

    /// Runs a job that touches `len` bytes: here if they are few.
    pub(super) fn run(&self, len: usize, job: impl FnOnce(&Counters) + Send + 'static) {
        match &self.queue {
            Some(queue) if len > SMALL => {
                // The receivers live as long as the threads, and they end only after the sender.
                let _ = queue.send(Box::new(job));
            }
            _ => job(&self.counters),
        }
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
