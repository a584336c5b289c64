//! The disk in real time: each request gets its end from the model when it comes, and its answer
//! when that time has come.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use super::clock::Clock;
use super::log::{Counts, Lateness, Ledger, Log};
use super::memory::Memory;
use crate::disk::{Disk, Request};

/// The last part of a wait is spent looking at the clock: a timer is this much late.
const SPIN: Duration = Duration::from_micros(40);
/// Buffers for reads that are kept for the next one.
const SPARE_BUFFERS: usize = 4;

/// What is said when a request is done.
#[derive(Debug)]
pub(super) enum Answer {
    /// To a read: these bytes. They are fetched when the answer is the next one.
    Read {
        reply: ReplyData,
        offset: u64,
        length: usize,
        data: Option<Vec<u8>>,
    },
    /// To a write: so many bytes.
    Written { reply: ReplyWrite, length: u32 },
    /// To a flush.
    Flushed(ReplyEmpty),
}

#[derive(Debug)]
struct Pending {
    due: Instant,
    number: u64,
    answer: Answer,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        self.number == other.number
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Pending) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    /// The heap's greatest is the one that is due first.
    fn cmp(&self, other: &Pending) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

#[derive(Debug)]
struct State {
    disk: Disk,
    pending: BinaryHeap<Pending>,
    ledger: Ledger,
}

/// An emulated disk: model, data, and what waits for its time.
#[derive(Debug)]
pub(super) struct Emulation {
    pub(super) memory: Memory,
    clock: Clock,
    state: Mutex<State>,
    /// Something is due earlier than what was waited for.
    sooner: Condvar,
}

impl Emulation {
    pub(super) fn new(disk: Disk, memory: Memory, clock: Clock) -> Emulation {
        Emulation {
            memory,
            clock,
            state: Mutex::new(State {
                disk,
                pending: BinaryHeap::new(),
                ledger: Ledger::new(),
            }),
            sooner: Condvar::new(),
        }
    }

    /// Lets the model serve a request, and has it answered in time.
    pub(super) fn take(&self, request: &Request, answer: Answer) {
        let mut state = self.lock();
        let arrived_ns = self.clock.virtual_at(Instant::now());
        let Ok(served) = state.disk.serve(arrived_ns, request) else {
            // The file has no such sectors; the model says the same.
            drop(state);
            return answer.fail();
        };
        let number = state.ledger.taken(arrived_ns, request, &served);
        let due = self.clock.moment_of(served.done_ns);
        let first = state.pending.peek().is_none_or(|head| due < head.due);
        state.pending.push(Pending {
            due,
            number,
            answer,
        });
        if first {
            self.sooner.notify_one();
        }
    }

    /// Counts a write for which there is no memory.
    pub(super) fn refused(&self) {
        self.lock().ledger.counts.refused += 1;
    }

    /// Answers what is due, for ever.
    pub(super) fn answer_all(&self) -> ! {
        let mut spare: Vec<Vec<u8>> = Vec::with_capacity(SPARE_BUFFERS);
        loop {
            let mut next = self.next();
            if !next.answer.is_ready() {
                // Fetched while there is time; something else may become due before it.
                next.answer
                    .fetch(&self.memory, spare.pop().unwrap_or_default());
                self.lock().pending.push(next);
                continue;
            }
            while Instant::now() < next.due {
                std::hint::spin_loop();
            }
            let replied_ns = self.clock.virtual_at(Instant::now());
            let buffer = next.answer.give();
            let late = next.due.elapsed();
            self.lock().ledger.answered(next.number, replied_ns, late);
            if spare.len() < SPARE_BUFFERS {
                spare.extend(buffer);
            }
        }
    }

    /// The next that is due at once, or whose data must be fetched.
    fn next(&self) -> Pending {
        let mut state = self.lock();
        loop {
            let wait = state
                .pending
                .peek()
                .map(|head| match head.answer.is_ready() {
                    true => head.due.saturating_duration_since(Instant::now() + SPIN),
                    false => Duration::ZERO,
                });
            state = match wait {
                Some(Duration::ZERO) => match state.pending.pop() {
                    Some(pending) => return pending,
                    None => continue,
                },
                Some(wait) => {
                    let waited = self.sooner.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.sooner.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// What was done, and how late the answers were.
    pub(super) fn counts(&self) -> (Counts, Lateness) {
        let state = self.lock();
        (state.ledger.counts.clone(), state.ledger.lateness())
    }

    /// What was asked for.
    pub(super) fn log(&self) -> Log {
        self.lock().ledger.log()
    }

    /// Real time since the disk was made.
    pub(super) fn age(&self) -> Duration {
        self.clock.age()
    }

    /// A thread that panics ends the process, so nobody sees what it left.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn is_ready(&self) -> bool {
        !matches!(self, Answer::Read { data: None, .. })
    }

    fn fetch(&mut self, memory: &Memory, mut buffer: Vec<u8>) {
        if let Answer::Read {
            offset,
            length,
            data,
            ..
        } = self
        {
            buffer.resize(*length, 0);
            // An empty buffer is a failed read.
            if memory.read(&mut buffer, *offset).is_err() {
                buffer.clear();
            }
            *data = Some(buffer);
        }
    }

    /// Says that it cannot be done.
    fn fail(self) {
        match self {
            Answer::Read { reply, .. } => reply.error(Errno::EIO),
            Answer::Written { reply, .. } => reply.error(Errno::EIO),
            Answer::Flushed(reply) => reply.error(Errno::EIO),
        }
    }

    /// Says it to the kernel, and gives back a read's buffer.
    fn give(self) -> Option<Vec<u8>> {
        match self {
            Answer::Read {
                reply,
                length,
                data,
                ..
            } => {
                match data.as_deref() {
                    Some(bytes) if bytes.len() == length => reply.data(bytes),
                    _ => reply.error(Errno::EIO),
                }
                data
            }
            Answer::Written { reply, length } => {
                reply.written(length);
                None
            }
            Answer::Flushed(reply) => {
                reply.ok();
                None
            }
        }
    }
}
