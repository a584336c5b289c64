//! An owner without a thread of its own, for tests and simulators.

use super::Owner;
use crate::clock;
use crate::device::Wait;

/// Runs an open store on the caller's thread, step by step ([`Store::open_stepped`]).
///
/// Callbacks are called in [`step`](Driver::step). Only the `submit_*` verbs of the store can be
/// used: the others would wait for a step that cannot come. Dropping the driver is the death of
/// the process: nothing more is written, and no callback is called.
///
/// [`Store::open_stepped`]: crate::Store::open_stepped
pub struct Driver {
    /// `None` once the store is closed.
    owner: Option<Owner>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("open", &self.owner.is_some())
            .finish()
    }
}

impl Driver {
    pub(crate) fn new(owner: Owner) -> Self {
        Self { owner: Some(owner) }
    }

    /// Does everything that can be done without waiting at `now_ns` of the monotonic clock, a
    /// virtual one if the caller likes. False: the store is closed and everything is done.
    pub fn step(&mut self, now_ns: u64) -> bool {
        let _time = clock::virtual_time(now_ns);
        let Some(mut owner) = self.owner.take() else {
            return false;
        };
        while owner.turn(Wait::No) {
            if !owner.is_done() && !owner.has_more_commands() {
                self.owner = Some(owner);
                return true;
            }
        }
        owner.end();
        false
    }

    /// When there will be something to do even if no I/O ends and no request comes, in nanoseconds
    /// of the same clock: work in the background that waits for its budget, a request that is late.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.owner.as_ref().and_then(Owner::wakes_ns)
    }

    /// Begins what [`Store::close`](crate::Store::close) does; it is done when a step says so.
    pub fn begin_close(&mut self) {
        if let Some(owner) = &mut self.owner {
            owner.begin_close();
        }
    }
}
