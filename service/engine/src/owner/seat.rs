//! Where the owner is driven: by its own thread, or by a caller that waits for an answer.
//!
//! The owner's thread leaves the owner here while nothing is in flight. A caller that waits takes it
//! and drives it until its answer has come, which saves both changes of thread; it leaves behind
//! what is still under way, and the owner's thread goes on with that. One thread at a time has the
//! owner. Whoever finds it gone rings: who has it looks once more before it waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};

use super::{Owner, as_engine_thread};
use crate::clock::monotonic_ns;
use crate::device::Wait;
use crate::error::Error;
use crate::waker::Waker;

/// The place of one store's owner.
pub(crate) struct Seat {
    state: Mutex<State>,
    /// The owner's thread is wanted.
    called: Condvar,
    /// Ends the wait of who has the owner.
    bell: Waker,
}

#[derive(Default)]
struct State {
    /// `None`: somebody drives it.
    owner: Option<Box<Owner>>,
    /// True: there may be something to do.
    is_wanted: bool,
    /// When the owner's thread, which waits, looks by itself; `None`: it does not.
    looks_at_ns: Option<u64>,
    /// True: the store is closed, or a thread has died with the owner.
    is_over: bool,
}

impl Seat {
    /// Of an owner whose waits `bell` ends.
    pub(crate) fn new(bell: Waker) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            called: Condvar::new(),
            bell,
        })
    }

    /// Tells whoever drives the owner, or will, that there is something to do.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        let seat = Arc::clone(self);
        Waker::new(move || seat.call())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What [`waker`](Self::waker) does.
    pub(crate) fn call(&self) {
        let mut state = self.state();
        state.is_wanted = true;
        let is_here = state.owner.is_some();
        drop(state);
        if is_here {
            self.called.notify_one();
        } else {
            self.bell.wake();
        }
    }

    /// Work of the owner's thread, until the store is closed.
    fn serve(self: &Arc<Self>, owner: Owner) {
        let mut driving = Driving::new(self, Box::new(owner));
        loop {
            match driving.turn() {
                Turn::Busy => continue,
                Turn::Still => driving.leave(),
                Turn::Last => return driving.end(),
            }
            match self.wait() {
                Some(owner) => driving.owner = Some(owner),
                None => return,
            }
        }
    }

    /// Waits until the owner's thread is wanted; `None`: the store is closed.
    fn wait(&self) -> Option<Box<Owner>> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            let due_ns = state.owner.as_ref().and_then(|owner| owner.wakes_ns());
            let left_ns = due_ns.map(|due_ns| due_ns.saturating_sub(monotonic_ns()));
            if (state.is_wanted || left_ns == Some(0))
                && let Some(owner) = state.take()
            {
                return Some(owner);
            }
            state.looks_at_ns = due_ns;
            state = match left_ns {
                Some(left_ns) => {
                    let left = Duration::from_nanos(left_ns);
                    let woken = self.called.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.called.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Waits for an answer to a command that was sent, and drives the owner meanwhile if nobody does.
    pub(crate) fn answer<T>(
        self: &Arc<Self>,
        answer: &Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        // A command that is dropped unanswered was still queued when the store closed.
        let closed = Err(Error::Closed);
        let taken = self.state().take();
        let Some(owner) = taken else {
            self.call();
            return answer.recv().unwrap_or(closed);
        };
        let mut driving = Driving::new(self, owner);
        loop {
            let turn = as_engine_thread(|| driving.turn());
            if turn == Turn::Last {
                driving.end();
            }
            match answer.try_recv() {
                Err(TryRecvError::Empty) if turn == Turn::Busy => {}
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return closed,
                Ok(answer) => return answer,
            }
        }
        drop(driving);
        answer.recv().unwrap_or(closed)
    }
}

impl Owner {
    /// Runs until the store is closed.
    pub(crate) fn run(self, seat: &Arc<Seat>) {
        as_engine_thread(|| seat.serve(self));
    }

    /// When there is something to do though no I/O ends and no command comes.
    pub(super) fn wakes_ns(&self) -> Option<u64> {
        let due = [self.due_ns(), self.waiting.due_ns()];
        due.into_iter().flatten().min()
    }

    /// True: it would wait for commands and for a time, and for no I/O.
    fn is_still(&self) -> bool {
        !self.has_more_commands() && self.ctx.io.len() == 0 && !self.ctx.closing
    }
}

impl State {
    /// Takes the owner, who looks for commands first.
    fn take(&mut self) -> Option<Box<Owner>> {
        let mut owner = self.owner.take()?;
        self.is_wanted = false;
        owner.more_commands = true;
        Some(owner)
    }
}

/// How a turn has left the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Busy,
    /// It waits for commands and for a time, and for no I/O.
    Still,
    /// The store is closed.
    Last,
}

/// The owner while a thread drives it. It goes back, or is over if a turn panics.
struct Driving<'a> {
    seat: &'a Arc<Seat>,
    owner: Option<Box<Owner>>,
    turns: bool,
}

impl<'a> Driving<'a> {
    fn new(seat: &'a Arc<Seat>, owner: Box<Owner>) -> Self {
        Self {
            seat,
            owner: Some(owner),
            turns: false,
        }
    }

    fn turn(&mut self) -> Turn {
        let Some(owner) = &mut self.owner else {
            return Turn::Last;
        };
        self.turns = true;
        let goes_on = owner.turn(Wait::Forever);
        self.turns = false;
        match (goes_on, owner.is_still()) {
            (false, _) => Turn::Last,
            (true, true) => Turn::Still,
            (true, false) => Turn::Busy,
        }
    }

    /// Puts the owner back. The owner's thread is called if there is work, or will be before it
    /// looks by itself.
    fn leave(&mut self) {
        let Some(owner) = self.owner.take() else {
            return;
        };
        let (is_still, due_ns) = (owner.is_still(), owner.wakes_ns());
        let mut state = self.seat.state();
        state.is_wanted |= !is_still;
        let is_early = due_ns.is_some_and(|due_ns| state.looks_at_ns.is_none_or(|at| due_ns < at));
        state.owner = Some(owner);
        let calls = state.is_wanted || is_early;
        drop(state);
        if calls {
            self.seat.called.notify_one();
        }
    }

    /// Ends the owner: the store is closed.
    fn end(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.end();
        }
        self.over();
    }

    fn over(&self) {
        self.seat.state().is_over = true;
        self.seat.called.notify_one();
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if self.turns {
            self.owner = None;
            self.over();
        }
        self.leave();
    }
}
