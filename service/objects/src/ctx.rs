//! The context of a request: what the engine is told of it, and the sum of the engine's times.

use std::sync::{Arc, Mutex, PoisonError};

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

    /// Adds what one call of the engine cost the request: it was waited for so long.
    pub(crate) fn waited(self, used: EngineTimes, ns: u64) {
        if let Some(times) = self.times {
            times.add(used.within(ns));
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

/// The engine's times for one request so far.
#[derive(Debug, Default)]
pub struct Times(Mutex<EngineTimes>);

impl Times {
    fn add(&self, used: EngineTimes) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += used;
    }

    /// The sum of the calls that are done.
    #[must_use]
    pub fn sum(&self) -> EngineTimes {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
