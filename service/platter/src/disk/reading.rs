//! Reads, and what the drive reads beyond them.

use super::arm::Arm;
use super::{Request, Served};
use crate::drive::SECTOR;
use crate::mechanics::Approach;

/// The head goes on reading behind the last read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// First sector that is in memory.
    start: u64,
    /// Sector that the head had come to.
    at: u64,
    /// When it had.
    at_ns: u64,
    /// Sector at which it stops.
    limit: u64,
}

impl Arm {
    pub(super) fn read(&mut self, request: &Request, served: &mut Served) {
        let (start, end) = (request.sector, request.end());
        let ready_ns = served.done_ns;
        if self.dirty.covers(start, end) || self.segments.covers(start, end) {
            self.hand_over(ready_ns, end - start, served);
            return;
        }
        if let Some(read_ns) = self.read_on(ready_ns, start, end) {
            self.hand_over(ready_ns, end - start, served);
            served.done_ns = served.done_ns.max(read_ns);
            served.transfer_ns = served.done_ns - ready_ns;
            return;
        }
        self.finish_run();
        if self.policy.write_before_read {
            self.write_before_read(ready_ns);
        }
        let begin_ns = ready_ns.max(self.head_free_ns);
        self.stop_ahead(begin_ns);
        let mut approach = Approach::default();
        let (mut read_ns, mut in_place) = (begin_ns, true);
        for (from, to, address) in self.pieces(start, end) {
            approach.add(self.go_to(read_ns, address, false));
            let pass = self
                .mechanics
                .pass(address, to - from, self.head_free_ns, u64::MAX);
            self.head = pass.track;
            self.head_free_ns = pass.end_ns;
            (read_ns, in_place) = (pass.end_ns, address == from);
        }
        self.counts.media_reads += 1;
        served.wait_ns += begin_ns - ready_ns;
        served.seek_ns = approach.seek_ns;
        served.rotation_ns = approach.rotation_ns;
        served.cylinders = approach.cylinders;
        // The data leaves while it is read; a slow interface makes it later.
        let left_ns = ready_ns + self.bus_ns(end - start);
        served.done_ns = read_ns.max(left_ns);
        served.transfer_ns = served.done_ns - begin_ns - approach.total_ns();
        let ahead = Ahead {
            start,
            at: end,
            at_ns: read_ns,
            limit: self.limit(end),
        };
        if self.policy.read_ahead && in_place && !self.destaging() {
            self.ahead = Some(ahead);
        } else {
            self.keep(ahead);
        }
    }

    fn hand_over(&mut self, ready_ns: u64, sectors: u64, served: &mut Served) {
        let took_ns = self.bus_ns(sectors);
        served.cached = true;
        served.transfer_ns = took_ns;
        served.done_ns = ready_ns + took_ns;
        self.bus_free_ns = served.done_ns;
    }

    /// When the last of these has been read, if the head is on its way to them.
    fn read_on(&mut self, ready_ns: u64, start: u64, end: u64) -> Option<u64> {
        let mut ahead = self.ahead?;
        self.catch_up(&mut ahead, ready_ns);
        if start < ahead.start || start > ahead.at || self.next_logged(start) < end {
            return None;
        }
        if ahead.at == ahead.limit {
            // It had stopped: the next sector has to come again.
            ahead.at_ns = ahead.at_ns.max(ready_ns);
        }
        let mut read_ns = ready_ns;
        if end > ahead.at {
            let missing = end - ahead.at;
            let first_ns = self.next_ns(&ahead);
            let pass = self.mechanics.pass(ahead.at, missing, first_ns, u64::MAX);
            ahead.at = end;
            ahead.at_ns = pass.end_ns;
            read_ns = pass.end_ns;
            self.head = pass.track;
            self.head_free_ns = self.head_free_ns.max(pass.end_ns);
        }
        ahead.limit = self.limit(end).max(ahead.at);
        ahead.start = ahead.start.max(self.oldest(ahead.at).min(start));
        self.ahead = Some(ahead);
        Some(read_ns)
    }

    /// When the sector that it has come to begins to pass: at once, after a switch of the head, or
    /// after a turn.
    fn next_ns(&self, ahead: &Ahead) -> u64 {
        let head = self.mechanics.track_of(ahead.at.saturating_sub(1));
        let approach = self.mechanics.approach(head, ahead.at_ns, ahead.at, false);
        ahead.at_ns + approach.total_ns()
    }

    /// Lets the head read on until `now_ns`.
    fn catch_up(&self, ahead: &mut Ahead, now_ns: u64) {
        let left = ahead.limit - ahead.at;
        if left == 0 || now_ns <= ahead.at_ns {
            return;
        }
        let first_ns = self.next_ns(ahead);
        if first_ns >= now_ns {
            return;
        }
        let pass = self.mechanics.pass(ahead.at, left, first_ns, now_ns);
        if pass.sectors > 0 {
            ahead.at += pass.sectors;
            ahead.at_ns = pass.end_ns;
        }
    }

    /// The head is needed elsewhere; what it has read is kept.
    pub(super) fn stop_ahead(&mut self, now_ns: u64) {
        if let Some(mut ahead) = self.ahead.take() {
            self.catch_up(&mut ahead, now_ns);
            self.head = self.mechanics.track_of(ahead.at.saturating_sub(1));
            self.keep(ahead);
        }
    }

    fn keep(&mut self, ahead: Ahead) {
        let start = ahead.start.max(self.oldest(ahead.at));
        let most = usize::try_from(self.drive.read_segments).unwrap_or(usize::MAX);
        self.segments.keep(start, ahead.at, most);
    }

    /// Sectors further back have been dropped.
    fn oldest(&self, end: u64) -> u64 {
        end.saturating_sub(self.drive.read_ahead_bytes / SECTOR)
    }

    fn limit(&self, end: u64) -> u64 {
        let ahead = self.drive.read_ahead_bytes / SECTOR;
        let last = self.drive.sectors.min(self.next_logged(end));
        end.saturating_add(ahead).min(last).max(end)
    }

    /// The next sector from this one on that is not in its place; `u64::MAX`: all are.
    fn next_logged(&self, sector: u64) -> u64 {
        let next = self
            .shingles
            .as_ref()
            .and_then(|one| one.next_logged(sector));
        next.unwrap_or(u64::MAX)
    }

    /// These sectors are written at `now_ns`: what was read of them is worth nothing.
    pub(super) fn overwritten(&mut self, now_ns: u64, start: u64, end: u64) {
        let touches = |ahead: Ahead| start < ahead.limit && ahead.start < end;
        if self.ahead.is_some_and(touches) {
            self.stop_ahead(now_ns);
        }
        self.segments.forget(start, end);
    }
}
