//! Writing out the cache: in the order of the disk, from the outside to the inside and again from
//! the outside (C-SCAN).
//!
//! It begins when `destage_at_bytes` are dirty, and goes on until nothing is; or when the drive has
//! had no command for `destage_idle_ns`; or when a flush asks for it. What lies in a row is one run,
//! of at most `destage_run_bytes`, and a read waits until the run under the head has ended.
//!
//! The part of a physical sector at the end of a run is left for later, as more may follow it,
//! unless the drive is idle or flushes.

use super::PartialSectors;
use super::arm::{Arm, STEP};
use crate::cache::{Breaks, Streams};
use crate::drive::SECTOR;

/// Why the drive writes out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// It does not, but for the rest of a run.
    #[default]
    Rest,
    /// Enough is dirty.
    Batch,
    /// Nobody wants anything.
    Idle,
}

/// The stretch being written out; whole physical sectors.
#[derive(Debug, Clone, Copy)]
struct Run {
    next: u64,
    end: u64,
    /// Where the head finds the next one.
    address: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Destage {
    mode: Mode,
    run: Option<Run>,
    /// Where the sweep over the disk has come to.
    sweep: u64,
    /// Begin of a part of a physical sector that waits for its rest.
    held: Option<u64>,
    /// Sectors under the head, which keep their room until then.
    leaving: u64,
    left_ns: u64,
}

impl Arm {
    /// True: a batch is being written out.
    pub(super) fn destaging(&self) -> bool {
        self.destage.mode == Mode::Batch || self.destage.run.is_some()
    }

    /// Does what the drive does by itself until `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) {
        loop {
            if self.destage.run.is_none() && self.destage.mode == Mode::Rest {
                let idle_ns = self.done_ns.max(self.head_free_ns) + self.drive.destage_idle_ns;
                if self.dirty.is_empty() || idle_ns >= now_ns {
                    if self.dirty.is_empty() {
                        self.clean_while_idle(now_ns);
                    }
                    return;
                }
                self.destage.mode = Mode::Idle;
                self.free_head(idle_ns);
            }
            if self.head_free_ns >= now_ns {
                return;
            }
            if !self.write_out() {
                self.destage.mode = Mode::Rest;
            }
        }
    }

    /// A command has come: a drive that was idle is no longer.
    pub(super) fn interrupt_idle(&mut self) {
        if self.destage.mode == Mode::Idle {
            self.destage.mode = Mode::Rest;
        }
    }

    /// Begins to write out at `now_ns` if enough is dirty.
    pub(super) fn begin_batch(&mut self, now_ns: u64) {
        let enough = self.dirty_bytes() >= self.drive.destage_at_bytes;
        if enough && self.destage.mode != Mode::Batch {
            self.destage.mode = Mode::Batch;
            if self.destage.run.is_none() {
                self.free_head(now_ns);
            }
        }
    }

    fn free_head(&mut self, now_ns: u64) {
        self.stop_ahead(now_ns.max(self.head_free_ns));
        self.head_free_ns = self.head_free_ns.max(now_ns);
    }

    /// When the cache has room for so many sectors, from `now_ns` on.
    pub(super) fn make_room(&mut self, mut now_ns: u64, sectors: u64) -> u64 {
        let capacity = self.drive.cache_bytes / SECTOR;
        loop {
            self.advance(now_ns);
            let leaving = match self.destage.left_ns > now_ns {
                true => self.destage.leaving,
                false => 0,
            };
            if self.dirty.sectors() + leaving + sectors <= capacity {
                return now_ns;
            }
            if leaving > 0 {
                now_ns = self.destage.left_ns;
                continue;
            }
            if self.destage.run.is_none() {
                self.free_head(now_ns);
            }
            if !self.write_out() {
                return now_ns;
            }
        }
    }

    /// Lets the run under the head end.
    pub(super) fn finish_run(&mut self) {
        while self.destage.run.is_some() && self.write_out() {}
    }

    /// Writes out everything from `now_ns` on.
    pub(super) fn drain(&mut self, now_ns: u64) {
        self.write_all(now_ns, Mode::Idle);
    }

    /// Writes out what is dirty before the head goes elsewhere to read. What is on the platters then
    /// is in no window of the overlap rule any more.
    pub(super) fn write_before_read(&mut self, now_ns: u64) {
        self.write_all(now_ns, Mode::Batch);
        self.streams = Streams::default();
        self.breaks = Breaks::default();
    }

    fn write_all(&mut self, now_ns: u64, mode: Mode) {
        if self.dirty.is_empty() && self.destage.run.is_none() {
            return;
        }
        if self.destage.run.is_none() {
            self.free_head(now_ns);
        }
        self.destage.mode = mode;
        while self.write_out() {}
        self.destage.mode = Mode::Rest;
    }

    /// Writes out the next step of the run, or the first of the next one, from when the head is
    /// free. False: nothing is to be written.
    fn write_out(&mut self) -> bool {
        let Some(mut run) = self.destage.run.or_else(|| self.next_run()) else {
            return false;
        };
        if self.breaks.take(run.next) {
            self.lose_revolution();
            self.counts.overlap_revolutions += 1;
        }
        let until = run.end.min(run.next + STEP);
        let until = self.breaks.after(run.next, until).unwrap_or(until);
        let first_ns = {
            let approach = self
                .mechanics
                .approach(self.head, self.head_free_ns, run.address, true);
            self.head_free_ns + approach.total_ns()
        };
        let pass = self
            .mechanics
            .pass(run.address, until - run.next, first_ns, u64::MAX);
        let before = self.dirty.sectors();
        self.dirty.remove(run.next, until);
        self.destage.leaving = before - self.dirty.sectors();
        self.destage.left_ns = pass.end_ns;
        self.written(run.next, until, pass.end_ns, pass.track);
        run.address += until - run.next;
        run.next = until;
        self.destage.sweep = until;
        self.destage.run = (run.next < run.end).then_some(run);
        true
    }

    /// Chooses the next run and moves the head to it.
    fn next_run(&mut self) -> Option<Run> {
        let (start, end) = self.choose()?;
        let drain = self.destage.mode == Mode::Idle;
        let unit = self.drive.physical_sectors();
        let longest = (self.drive.destage_run_bytes / SECTOR).max(unit);
        let mut end = end.min(start.saturating_add(longest));
        let whole = end - end % unit;
        if !drain && whole > start && whole < end {
            self.destage.held = Some(whole);
            end = whole;
        }
        let (first, whole) = self.physical(start, end);
        let (last, address) = self.place(first, whole);
        self.go_to(self.head_free_ns, address, true);
        self.counts.media_writes += 1;
        // What does not fit there is the next run.
        let partial = first != start || (last == whole && whole != end);
        if partial && self.policy.partial == PartialSectors::ReadFirst {
            self.lose_revolution();
            self.counts.partial_revolutions += 1;
            // One turn is enough to read the rest and to wait for a rewritten start.
            self.breaks.take(first);
        }
        Some(Run {
            next: first,
            end: last,
            address,
        })
    }

    /// The next dirty extent of the sweep.
    fn choose(&self) -> Option<(u64, u64)> {
        let unit = self.drive.physical_sectors();
        let drain = self.destage.mode == Mode::Idle;
        let waits =
            |start: u64, end: u64| !drain && self.destage.held == Some(start) && end - start < unit;
        let mut found = self.dirty.next_from(self.destage.sweep);
        if let Some((start, end)) = found.filter(|(start, end)| waits(*start, *end)) {
            found = self.dirty.next_from(start.max(end));
        }
        if found.is_none() {
            found = self.dirty.next_from(0);
            if let Some((_, end)) = found.filter(|(start, end)| waits(*start, *end)) {
                found = self.dirty.next_from(end);
            }
        }
        found
    }
}
