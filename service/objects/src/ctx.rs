//! The context of a request: what the engine is told of it, and the sum of the engine's times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lumpscope_engine::{EngineTimes, RequestCtx};

/// Handed to every verb. One request makes several calls of the engine, some at the same time and
/// some that outlive the request; each adds its times to [`Times`] when it is done.
#[derive(Clone, Copy, Default)]
pub struct Ctx<'a> {
    pub(crate) engine: RequestCtx,
    times: Option<&'a Arc<Times>>,
}

impl<'a> Ctx<'a> {
    /// The context of a request whose times are added to `times`.
    #[must_use]
    pub fn new(engine: RequestCtx, times: &'a Arc<Times>) -> Self {
        Self {
            engine,
            times: Some(times),
        }
    }

    /// Adds the times of one call of the engine.
    pub(crate) fn meter(self) -> impl FnOnce(EngineTimes) + Send + 'static {
        let times = self.times.cloned();
        move |used| {
            if let Some(times) = times {
                times.add(used);
            }
        }
    }
}

impl From<RequestCtx> for Ctx<'_> {
    /// A context whose times nobody asks for.
    fn from(engine: RequestCtx) -> Self {
        Self {
            engine,
            times: None,
        }
    }
}

/// Nanoseconds that the engine has used for one request so far, by stage.
#[derive(Debug, Default)]
pub struct Times {
    sched: AtomicU64,
    index: AtomicU64,
    data: AtomicU64,
    journal: AtomicU64,
}

impl Times {
    fn add(&self, used: EngineTimes) {
        for (sum, ns) in [
            (&self.sched, used.sched_ns),
            (&self.index, used.index_ns),
            (&self.data, used.data_ns),
            (&self.journal, used.journal_ns),
        ] {
            sum.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// The sum of the calls that are done.
    #[must_use]
    pub fn sum(&self) -> EngineTimes {
        EngineTimes {
            sched_ns: self.sched.load(Ordering::Relaxed),
            index_ns: self.index.load(Ordering::Relaxed),
            data_ns: self.data.load(Ordering::Relaxed),
            journal_ns: self.journal.load(Ordering::Relaxed),
        }
    }
}
