//! One arm at work.

use super::destage::Destage;
use super::reading::Ahead;
use super::request::{Request, RequestError, Served};
use super::shingles::Shingles;
use super::{CachePolicy, Counts, LATEST_NS, Move, Overlap, PartialSectors, Policy};
use crate::cache::{Append, Breaks, Extents, Segments, Streams};
use crate::drive::{Drive, DriveError, SECTOR};
use crate::mechanics::{Approach, Mechanics, Track};
use crate::trace::Op;

/// Sectors that are taken into the cache, or out of it, at a time: how finely the two wait for each
/// other.
pub(super) const STEP: u64 = 512;

/// A part of a drive with an arm of its own, and its share of the drive's memory.
#[derive(Debug, Clone)]
pub(super) struct Arm {
    pub(super) drive: Drive,
    pub(super) policy: Policy,
    pub(super) mechanics: Mechanics,
    /// Where the head is when it is free.
    pub(super) head: Track,
    pub(super) head_free_ns: u64,
    pub(super) bus_free_ns: u64,
    /// The latest time that a request came.
    latest_ns: u64,
    /// When the last request was done.
    pub(super) done_ns: u64,
    pub(super) dirty: Extents,
    pub(super) streams: Streams,
    pub(super) breaks: Breaks,
    pub(super) destage: Destage,
    pub(super) ahead: Option<Ahead>,
    pub(super) segments: Segments,
    /// `None`: its tracks do not overlap.
    pub(super) shingles: Option<Shingles>,
    pub(super) counts: Counts,
    /// `None`: nobody wants to know.
    pub(super) moves: Option<Vec<Move>>,
}

impl Arm {
    pub(super) fn new(drive: &Drive, policy: Policy) -> Result<Arm, DriveError> {
        Ok(Arm {
            mechanics: Mechanics::new(drive)?,
            drive: drive.clone(),
            policy,
            head: Track::default(),
            head_free_ns: 0,
            bus_free_ns: 0,
            latest_ns: 0,
            done_ns: 0,
            dirty: Extents::default(),
            streams: Streams::default(),
            breaks: Breaks::default(),
            destage: Destage::default(),
            ahead: None,
            segments: Segments::default(),
            shingles: Shingles::new(drive),
            counts: Counts::default(),
            moves: None,
        })
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty.sectors() * SECTOR
    }

    pub(super) fn serve(&mut self, now_ns: u64, request: &Request) -> Result<Served, RequestError> {
        request.check(self.drive.sectors)?;
        let now_ns = now_ns.max(self.latest_ns);
        let busy_ns = now_ns.max(self.head_free_ns).max(self.bus_free_ns);
        if busy_ns > LATEST_NS {
            return Err(RequestError::TooLate { at_ns: busy_ns });
        }
        self.latest_ns = now_ns;
        let begin_ns = now_ns.max(self.bus_free_ns);
        let mut served = Served {
            arrived_ns: now_ns,
            begin_ns,
            done_ns: begin_ns + self.drive.overhead_ns,
            overhead_ns: self.drive.overhead_ns,
            wait_ns: begin_ns - now_ns,
            ..Served::default()
        };
        self.bus_free_ns = served.done_ns;
        self.advance(served.done_ns);
        self.interrupt_idle();
        self.counts.requests += 1;
        match request.op {
            Op::Read if request.sectors > 0 => self.read(request, &mut served),
            Op::Write if request.sectors > 0 => {
                if self.policy.goes_through(request) {
                    self.write_media(request, &mut served);
                } else {
                    self.write_cache(request, &mut served);
                }
            }
            Op::Flush => self.flush(&mut served),
            Op::Read | Op::Write | Op::Discard => served.cached = true,
        }
        self.done_ns = self.done_ns.max(served.done_ns);
        Ok(served)
    }

    pub(super) fn positioning_ns(&self, now_ns: u64, request: &Request) -> u64 {
        let (start, end) = (request.sector, request.end());
        let write = match request.op {
            Op::Read if self.dirty.covers(start, end) || self.segments.covers(start, end) => {
                return 0;
            }
            Op::Read => false,
            Op::Write if self.policy.goes_through(request) => true,
            Op::Write | Op::Flush | Op::Discard => return 0,
        };
        let at_ns = now_ns.max(self.head_free_ns).min(LATEST_NS);
        let pieces = self.pieces(start, end);
        let address = pieces.first().map_or(start, |(_, _, address)| *address);
        let approach = self.mechanics.approach(self.head, at_ns, address, write);
        approach.total_ns()
    }

    pub(super) fn bus_ns(&self, sectors: u64) -> u64 {
        let bits = u128::from(sectors) * u128::from(SECTOR) * 1_000_000_000;
        let ns = bits.div_ceil(u128::from(self.drive.bus_rate));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Whole physical sectors around a stretch.
    pub(super) fn physical(&self, start: u64, end: u64) -> (u64, u64) {
        let unit = self.drive.physical_sectors();
        (start - start % unit, end.next_multiple_of(unit))
    }

    /// Moves the head to `sector`, from `at_ns` on; when it begins to pass.
    pub(super) fn go_to(&mut self, at_ns: u64, sector: u64, write: bool) -> Approach {
        let approach = self.mechanics.approach(self.head, at_ns, sector, write);
        self.counts.seeks += u64::from(approach.cylinders > 0);
        self.counts.seek_ns += approach.seek_ns;
        if let Some(moves) = self.moves.as_mut().filter(|_| approach.cylinders > 0) {
            let seek_ns = approach.seek_ns;
            moves.push(Move { sector, seek_ns });
        }
        self.head = self.mechanics.track_of(sector);
        self.head_free_ns = at_ns + approach.total_ns();
        approach
    }

    /// Takes a write into memory.
    fn write_cache(&mut self, request: &Request, served: &mut Served) {
        let (start, end) = (request.sector, request.end());
        self.overwritten(served.done_ns, start, end);
        if let Some(overlap) = self.policy.overlap {
            self.judge(overlap, start, end);
        }
        let mut now_ns = served.done_ns;
        let mut at = start;
        while at < end {
            let until = end.min(at + STEP);
            let room_ns = self.make_room(now_ns, until - at);
            served.wait_ns += room_ns - now_ns;
            self.counts.cache_full_ns += room_ns - now_ns;
            let took_ns = self.bus_ns(until - at);
            served.transfer_ns += took_ns;
            now_ns = room_ns + took_ns;
            self.dirty.insert(at, until);
            self.begin_batch(now_ns);
            at = until;
        }
        served.cached = true;
        served.done_ns = now_ns;
        self.bus_free_ns = now_ns;
    }

    fn judge(&mut self, overlap: Overlap, start: u64, end: u64) {
        let physical = self.drive.physical_sectors();
        let window = overlap.window_bytes / SECTOR;
        match self.streams.judge(start, end, physical, window) {
            Append::Clean => {}
            Append::Absorbed => self.counts.overlaps_absorbed += 1,
            Append::Late => self.breaks.add(self.physical(start, end).0),
        }
    }

    /// Writes to the platters while the host waits.
    fn write_media(&mut self, request: &Request, served: &mut Served) {
        let (start, end) = (request.sector, request.end());
        self.overwritten(served.done_ns, start, end);
        self.finish_run();
        self.head_free_ns = served.done_ns.max(self.head_free_ns);
        self.stop_ahead(self.head_free_ns);
        let (first, last) = self.physical(start, end);
        let (mut until, address) = self.place(first, last);
        let begin_ns = self.head_free_ns;
        let mut approach = self.go_to(begin_ns, address, true);
        let partial = (first, last) != (start, end);
        if partial && self.policy.partial != PartialSectors::Free {
            approach.rotation_ns += self.lose_revolution();
            self.counts.partial_revolutions += 1;
        }
        let mut pass = self
            .mechanics
            .pass(address, until - first, self.head_free_ns, u64::MAX);
        self.written(first, until, pass.end_ns, pass.track);
        while until < last {
            let from = until;
            let (to, address) = self.place(from, last);
            until = to;
            approach.add(self.go_to(self.head_free_ns, address, true));
            pass = self
                .mechanics
                .pass(address, until - from, self.head_free_ns, u64::MAX);
            self.written(from, until, pass.end_ns, pass.track);
        }
        self.counts.media_writes += 1;
        self.dirty.remove(start, end);
        self.breaks.forget(start, end);
        let received_ns = served.done_ns + self.bus_ns(end - start);
        served.wait_ns += begin_ns - served.done_ns;
        served.seek_ns = approach.seek_ns;
        served.rotation_ns = approach.rotation_ns;
        served.cylinders = approach.cylinders;
        served.done_ns = received_ns.max(pass.end_ns);
        served.transfer_ns = served.done_ns - begin_ns - approach.total_ns();
        self.bus_free_ns = received_ns;
    }

    /// Writes out all that is dirty. Nothing else is taken meanwhile, as the command of ATA wants.
    fn flush(&mut self, served: &mut Served) {
        self.drain(served.done_ns);
        if self.policy.cache == CachePolicy::WriteThrough && self.dirty.is_empty() {
            return;
        }
        let done_ns = served.done_ns.max(self.head_free_ns);
        served.wait_ns += done_ns - served.done_ns;
        served.done_ns = done_ns;
        self.bus_free_ns = done_ns;
    }

    pub(super) fn lose_revolution(&mut self) -> u64 {
        let revolution_ns = self.mechanics.revolution_ns();
        self.head_free_ns += revolution_ns;
        revolution_ns
    }

    pub(super) fn written(&mut self, first: u64, last: u64, end_ns: u64, track: Track) {
        self.head = track;
        self.head_free_ns = end_ns;
        self.counts.media_sectors_written += last - first;
    }
}
