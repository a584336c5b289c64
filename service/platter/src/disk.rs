//! A drive at work: requests in, times out.
//!
//! A [`Disk`] is a state and arithmetic; it has no thread and no clock, and the same requests at the
//! same times give the same answers anywhere. What the drive does by itself, reading ahead and
//! writing out its cache, is worked out when the next request comes.
//!
//! ```
//! use lumpscope_platter::disk::{Disk, Policy, Request};
//! use lumpscope_platter::drive;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let drive = drive::by_name("st1000dm003").ok_or("no such drive")?;
//! let mut disk = Disk::new(&drive, Policy::default())?;
//! let served = disk.serve(0, &Request::read(1_000_000_000, 8))?;
//! assert!(served.seek_ns > 8_000_000, "half the disk away");
//! assert_eq!(served.done_ns, served.parts_ns());
//! # Ok(())
//! # }
//! ```

mod destage;
mod reading;
mod request;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::cache::{Append, Breaks, Extents, Segments, Streams};
use crate::drive::{Drive, DriveError, SECTOR};
use crate::mechanics::{Mechanics, Track};
use crate::trace::Op;

use destage::Destage;
use reading::Ahead;
pub use request::{Request, RequestError, Served};

/// Requests are not served after this time, about 146 years.
pub const LATEST_NS: u64 = 1 << 62;
/// Sectors that are taken into the cache, or out of it, at a time: how finely the two wait for each
/// other.
const STEP: u64 = 512;

/// When a write is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// When the drive has it in memory.
    WriteBack,
    /// When it is on the platters.
    WriteThrough,
}

/// When a write of a part of a physical sector costs a revolution, in which the rest of the sector
/// is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartialSectors {
    /// Never: as if the drive knew the rest.
    Free,
    /// When it is written through, not when it comes from the cache.
    WriteThroughOnly,
    /// Always.
    ReadFirst,
}

/// The overlap rule: **a hypothesis**, with a window that was fitted to published tables and never
/// measured on a drive.
///
/// A write that begins within the last physical sector of a write before it is an append that
/// rewrites the end of what it appends to. While not more than the window has been written since the
/// stream began, the drive merges the two in its cache, at no cost. Behind the window the end counts
/// as on its way to the platters: the new write waits there for one whole revolution, and a new
/// window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Overlap {
    /// Bytes of a stream within which rewrites are absorbed.
    pub window_bytes: u64,
}

impl Default for Overlap {
    /// The window that explains the published tables best: 3 MiB.
    fn default() -> Overlap {
        Overlap {
            window_bytes: 3 << 20,
        }
    }
}

/// How the drive's firmware is set, or thought to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy {
    /// When a write is done.
    pub cache: CachePolicy,
    /// The overlap rule; `None`: rewritten ends cost nothing.
    pub overlap: Option<Overlap>,
    /// Cost of parts of physical sectors.
    pub partial: PartialSectors,
    /// False: it reads nothing that was not asked for.
    pub read_ahead: bool,
    /// True: before the head reads what was asked for, it writes out what is dirty, but for the part
    /// of a physical sector that waits for its rest. **A hypothesis** about drives that are asked for
    /// reads and writes in turns.
    #[serde(default)]
    pub write_before_read: bool,
}

impl Default for Policy {
    /// As drives are delivered, without the overlap rule.
    fn default() -> Policy {
        Policy {
            cache: CachePolicy::WriteBack,
            overlap: None,
            partial: PartialSectors::ReadFirst,
            read_ahead: true,
            write_before_read: false,
        }
    }
}

impl Policy {
    /// Makes writes complete only when they are on the platters.
    #[must_use]
    pub fn write_through(self) -> Policy {
        Policy {
            cache: CachePolicy::WriteThrough,
            ..self
        }
    }

    /// Adds the overlap rule.
    #[must_use]
    pub fn with_overlap(self) -> Policy {
        Policy {
            overlap: Some(Overlap::default()),
            ..self
        }
    }
}

/// Counts of a disk's work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests served.
    pub requests: u64,
    /// Reads that needed the platters.
    pub media_reads: u64,
    /// Stretches written to the platters.
    pub media_writes: u64,
    /// Sectors written to the platters.
    pub media_sectors_written: u64,
    /// Times that the arm moved.
    pub seeks: u64,
    /// Time that the arm moved.
    pub seek_ns: u64,
    /// Revolutions lost to read the rest of physical sectors.
    pub partial_revolutions: u64,
    /// Rewritten ends that were absorbed.
    pub overlaps_absorbed: u64,
    /// Revolutions lost to rewritten ends.
    pub overlap_revolutions: u64,
    /// Time that writes waited for room in the cache.
    pub cache_full_ns: u64,
}

/// One movement of the arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The sector that it went to.
    pub sector: u64,
    /// Nanoseconds until it was on that sector's cylinder, settled.
    pub seek_ns: u64,
}

/// A drive at work.
#[derive(Debug, Clone)]
pub struct Disk {
    drive: Drive,
    policy: Policy,
    mechanics: Mechanics,
    /// Where the head is when it is free.
    head: Track,
    head_free_ns: u64,
    bus_free_ns: u64,
    /// The latest time that a request came.
    latest_ns: u64,
    /// When the last request was done.
    done_ns: u64,
    dirty: Extents,
    streams: Streams,
    breaks: Breaks,
    destage: Destage,
    ahead: Option<Ahead>,
    segments: Segments,
    counts: Counts,
    /// `None`: nobody wants to know.
    moves: Option<Vec<Move>>,
}

impl Disk {
    /// A disk at time 0: the head is outside, the cache is empty.
    ///
    /// # Errors
    /// The drive makes no sense.
    pub fn new(drive: &Drive, policy: Policy) -> Result<Disk, DriveError> {
        Ok(Disk {
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
            counts: Counts::default(),
            moves: None,
        })
    }

    /// The drive that it is.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// How it is set.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Counts of its work so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Keeps every movement of the arm from now on, 16 bytes each, for [`Disk::moves`].
    pub fn keep_moves(&mut self) {
        self.moves.get_or_insert_default();
    }

    /// Movements of the arm since [`Disk::keep_moves`], in their order.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        self.moves.as_deref().unwrap_or_default()
    }

    /// Bytes in the cache that are not on the platters, as of the last request.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.sectors() * SECTOR
    }

    /// Cylinders of the drive.
    #[must_use]
    pub fn cylinders(&self) -> u64 {
        self.mechanics.cylinders()
    }

    /// Nanoseconds of a seek over so many cylinders, for reading.
    #[must_use]
    pub fn seek_ns(&self, cylinders: u64) -> u64 {
        let most = self.mechanics.cylinders().saturating_sub(1);
        self.mechanics.seek_ns(cylinders.min(most))
    }

    /// The cylinder of a sector; of one beyond the end: the last.
    #[must_use]
    pub fn cylinder_of(&self, sector: u64) -> u64 {
        let last = self.drive.sectors.saturating_sub(1);
        self.mechanics.track_of(sector.min(last)).cylinder
    }

    /// When the head is free for the next request, as far as is known now.
    #[must_use]
    pub fn head_free_ns(&self) -> u64 {
        self.head_free_ns
    }

    /// Serves a request that comes at `now_ns`; a time before that of the request before counts as
    /// that one. Requests are served in the order in which they are given: commands and data pass
    /// over the interface one after the other, and so does the head serve what needs the platters;
    /// but a write into the cache does not wait for a read that is under way.
    ///
    /// # Errors
    /// The request goes beyond the end of the drive, or comes after [`LATEST_NS`]. The disk is as it
    /// was.
    pub fn serve(&mut self, now_ns: u64, request: &Request) -> Result<Served, RequestError> {
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
                if self.policy.cache == CachePolicy::WriteThrough || request.fua {
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

    /// Estimates how long the head would need from when it is free until the request's first sector
    /// passes, for whoever orders a queue; 0 for what needs no head. The disk is left as it is.
    #[must_use]
    pub fn positioning_ns(&self, now_ns: u64, request: &Request) -> u64 {
        if request.check(self.drive.sectors).is_err() || request.sectors == 0 {
            return 0;
        }
        let (start, end) = (request.sector, request.end());
        let write = match request.op {
            Op::Read if self.dirty.covers(start, end) || self.segments.covers(start, end) => {
                return 0;
            }
            Op::Read => false,
            Op::Write if self.goes_through(request) => true,
            Op::Write | Op::Flush | Op::Discard => return 0,
        };
        let at_ns = now_ns.max(self.head_free_ns).min(LATEST_NS);
        let approach = self.mechanics.approach(self.head, at_ns, start, write);
        approach.total_ns()
    }

    /// Whether a write needs the head before it is done.
    #[must_use]
    pub fn goes_through(&self, request: &Request) -> bool {
        request.op == Op::Write && (self.policy.cache == CachePolicy::WriteThrough || request.fua)
    }

    fn bus_ns(&self, sectors: u64) -> u64 {
        let bits = u128::from(sectors) * u128::from(SECTOR) * 1_000_000_000;
        let ns = bits.div_ceil(u128::from(self.drive.bus_rate));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Whole physical sectors around a stretch.
    fn physical(&self, start: u64, end: u64) -> (u64, u64) {
        let unit = self.drive.physical_sectors();
        (start - start % unit, end.next_multiple_of(unit))
    }

    /// Moves the head to `sector`, from `at_ns` on; when it begins to pass.
    fn go_to(&mut self, at_ns: u64, sector: u64, write: bool) -> crate::mechanics::Approach {
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
        let begin_ns = served.done_ns.max(self.head_free_ns);
        self.stop_ahead(begin_ns);
        let (first, last) = self.physical(start, end);
        let approach = self.go_to(begin_ns, first, true);
        let mut rotation_ns = approach.rotation_ns;
        let partial = (first, last) != (start, end);
        if partial && self.policy.partial != PartialSectors::Free {
            rotation_ns += self.lose_revolution();
            self.counts.partial_revolutions += 1;
        }
        let pass = self
            .mechanics
            .pass(first, last - first, self.head_free_ns, u64::MAX);
        self.written(first, last, pass.end_ns, pass.track);
        self.counts.media_writes += 1;
        self.dirty.remove(start, end);
        self.breaks.forget(start, end);
        let received_ns = served.done_ns + self.bus_ns(end - start);
        served.wait_ns += begin_ns - served.done_ns;
        served.seek_ns = approach.seek_ns;
        served.rotation_ns = rotation_ns;
        served.cylinders = approach.cylinders;
        served.done_ns = received_ns.max(pass.end_ns);
        served.transfer_ns = served.done_ns - begin_ns - approach.seek_ns - rotation_ns;
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

    fn lose_revolution(&mut self) -> u64 {
        let revolution_ns = self.mechanics.revolution_ns();
        self.head_free_ns += revolution_ns;
        revolution_ns
    }

    fn written(&mut self, first: u64, last: u64, end_ns: u64, track: Track) {
        self.head = track;
        self.head_free_ns = end_ns;
        self.counts.media_sectors_written += last - first;
    }
}
