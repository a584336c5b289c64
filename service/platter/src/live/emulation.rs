//! The disk in real time: each request gets its end from the model when it comes, and its answer
//! so that it is there when that time has come (see [`Way`]).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use super::awake::Awake;
use super::bad_spots::BadSpot;
use super::clock::Clock;
use super::log::{Counts, Lateness, Ledger, Log};
use super::memory::Memory;
use super::way::Way;
use crate::disk::{Disk, Request};
use crate::drive::SECTOR;

/// The last part of a wait is spent looking at the clock: a timer is this much late.
const SPIN: Duration = Duration::from_micros(40);
/// How long nobody may want anything of the disk until the processors may sleep again.
const REST: Duration = Duration::from_millis(100);
/// Buffers for reads that are kept for the next one.
const SPARE_BUFFERS: usize = 4;

/// Answer to a completed request.
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
    /// When the answer is to be given, so that it is there when the request is done.
    due: Instant,
    /// Virtual nanoseconds of its way.
    back_ns: u64,
    number: u64,
    /// The request touched a bad spot.
    fails: bool,
    answer: Answer,
}

impl Pending {
    /// It can be answered without a look at the data.
    fn is_ready(&self) -> bool {
        self.fails || self.answer.is_ready()
    }
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
    /// When the last request came: the model takes them in order.
    latest_ns: u64,
    /// Somebody wanted something since this was looked at.
    used: bool,
    bad_spots: Vec<BadSpot>,
    /// `None`: it is being measured, and everything is answered at once.
    way: Option<Way>,
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
                latest_ns: 0,
                used: false,
                bad_spots: Vec::new(),
                way: Some(Way::default()),
            }),
            sooner: Condvar::new(),
        }
    }

    /// From now on requests that touch one of these places fail, and no others.
    pub(super) fn set_bad_spots(&self, spots: Vec<BadSpot>) {
        self.lock().bad_spots = spots;
    }

    /// Places where requests fail.
    pub(super) fn bad_spots(&self) -> Vec<BadSpot> {
        self.lock().bad_spots.clone()
    }

    /// Sets how long requests and answers are under way; `None`: reads are answered at once from
    /// now on, and nothing is noted, so that it can be measured. Only for a disk that nobody uses.
    pub(super) fn set_way(&self, way: Option<Way>) {
        self.lock().way = way;
    }

    /// How long requests and answers are under way.
    pub(super) fn way(&self) -> Way {
        self.lock().way.unwrap_or_default()
    }

    /// Lets the model serve a request that was here at `seen`, and has it answered in time.
    pub(super) fn take(&self, seen: Instant, request: &Request, answer: Answer) {
        let mut state = self.lock();
        state.used = true;
        let Some(way) = state.way else {
            drop(state);
            self.sooner.notify_one();
            return answer.give_at_once();
        };
        let bytes = u64::from(request.sectors) * SECTOR;
        let there_ns = self.clock.virtual_of(way.there(request.op, bytes));
        let came_ns = self.clock.virtual_at(seen).saturating_sub(there_ns);
        let arrived_ns = came_ns.max(state.latest_ns);
        let Ok(served) = state.disk.serve(arrived_ns, request) else {
            // The file has no such sectors; the model says the same.
            drop(state);
            answer.fail();
            return;
        };
        state.latest_ns = arrived_ns;
        let number = state.ledger.taken(arrived_ns, request, &served);
        let fails = state.bad_spots.iter().any(|spot| spot.is_hit_by(request));
        state.ledger.counts.failed += u64::from(fails);
        let back_ns = self.clock.virtual_of(way.back(request.op, bytes));
        let due = self.clock.moment_of(served.done_ns.saturating_sub(back_ns));
        let first = state.pending.peek().is_none_or(|head| due < head.due);
        state.pending.push(Pending {
            due,
            back_ns,
            number,
            fails,
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
        let mut awake = Awake::default();
        loop {
            let mut next = self.next(&mut awake);
            if !next.is_ready() {
                // Fetched while there is time; something else may become due before it.
                next.answer
                    .fetch(&self.memory, spare.pop().unwrap_or_default());
                self.lock().pending.push(next);
                continue;
            }
            while Instant::now() < next.due {
                std::hint::spin_loop();
            }
            let there_ns = self.clock.virtual_at(Instant::now()) + next.back_ns;
            // Giving it is a part of its way.
            let late = next.due.elapsed();
            let buffer = match next.fails {
                true => next.answer.fail(),
                false => next.answer.give(),
            };
            self.lock().ledger.answered(next.number, there_ns, late);
            if spare.len() < SPARE_BUFFERS {
                spare.extend(buffer);
            }
        }
    }

    /// The next that is due at once, or whose data must be fetched.
    fn next(&self, awake: &mut Awake) -> Pending {
        let mut state = self.lock();
        loop {
            if state.used && !awake.is_held() {
                drop(state);
                awake.hold();
                state = self.lock();
                continue;
            }
            let wait = state.pending.peek().map(|head| match head.is_ready() {
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
                None => self.wait_for_any(state, awake),
            };
        }
    }

    /// Waits for somebody to want something, and lets the processors sleep if that takes long.
    fn wait_for_any<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        awake: &mut Awake,
    ) -> MutexGuard<'a, State> {
        if !awake.is_held() {
            let waited = self.sooner.wait(state);
            return waited.unwrap_or_else(PoisonError::into_inner);
        }
        let waited = self.sooner.wait_timeout(state, REST);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && state.pending.is_empty() && !std::mem::take(&mut state.used) {
            awake.rest();
        }
        state
    }

    /// Counts of the work, and the lateness of the answers.
    pub(super) fn counts(&self) -> (Counts, Lateness) {
        let state = self.lock();
        (state.ledger.counts.clone(), state.ledger.lateness())
    }

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

    /// Says that it is done, of a disk that holds nothing.
    fn give_at_once(mut self) {
        if let Answer::Read { length, data, .. } = &mut self {
            *data = Some(vec![0; *length]);
        }
        self.give();
    }

    /// Says that it cannot be done, and gives back a read's buffer.
    fn fail(self) -> Option<Vec<u8>> {
        match self {
            Answer::Read { reply, data, .. } => {
                reply.error(Errno::EIO);
                return data;
            }
            Answer::Written { reply, .. } => reply.error(Errno::EIO),
            Answer::Flushed(reply) => reply.error(Errno::EIO),
        }
        None
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
