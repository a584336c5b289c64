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

mod arm;
mod destage;
mod reading;
mod request;
mod shingles;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::drive::{Drive, DriveError, SECTOR};
use crate::mechanics;
use crate::trace::Op;

use arm::Arm;
pub use request::{Request, RequestError, Served};

/// Requests are not served after this time, about 146 years.
pub const LATEST_NS: u64 = 1 << 62;

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

    /// Whether a write needs the head before it is done.
    fn goes_through(&self, request: &Request) -> bool {
        request.op == Op::Write && (self.cache == CachePolicy::WriteThrough || request.fua)
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
    /// Bands of overlapping tracks that were written anew.
    #[serde(default)]
    pub bands_cleaned: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        for (sum, part) in [
            (&mut self.requests, other.requests),
            (&mut self.media_reads, other.media_reads),
            (&mut self.media_writes, other.media_writes),
            (&mut self.media_sectors_written, other.media_sectors_written),
            (&mut self.seeks, other.seeks),
            (&mut self.seek_ns, other.seek_ns),
            (&mut self.partial_revolutions, other.partial_revolutions),
            (&mut self.overlaps_absorbed, other.overlaps_absorbed),
            (&mut self.overlap_revolutions, other.overlap_revolutions),
            (&mut self.cache_full_ns, other.cache_full_ns),
            (&mut self.bands_cleaned, other.bands_cleaned),
        ] {
            *sum += part;
        }
    }
}

/// One movement of an arm.
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
    /// One an actuator, from the first sectors to the last.
    arms: Vec<Arm>,
    /// Sectors of each but the last, which has the rest.
    each: u64,
    /// The interface is one for all.
    bus_free_ns: u64,
    /// The latest time that a request came.
    latest_ns: u64,
    requests: u64,
    /// `None`: nobody wants to know.
    moves: Option<Vec<Move>>,
}

impl Disk {
    /// A disk at time 0: the heads are outside, the cache is empty.
    ///
    /// # Errors
    /// The drive makes no sense.
    pub fn new(drive: &Drive, policy: Policy) -> Result<Disk, DriveError> {
        mechanics::check(drive)?;
        let parts = drive.by_actuator();
        Ok(Disk {
            each: parts.first().map_or(drive.sectors, |part| part.sectors),
            arms: parts
                .iter()
                .map(|part| Arm::new(part, policy))
                .collect::<Result<_, _>>()?,
            drive: drive.clone(),
            policy,
            bus_free_ns: 0,
            latest_ns: 0,
            requests: 0,
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
        let mut counts = Counts::default();
        self.arms.iter().for_each(|arm| counts.add(&arm.counts));
        // One that goes to several arms is one.
        counts.requests = self.requests;
        counts
    }

    /// Keeps every movement of an arm from now on, 16 bytes each, for [`Disk::moves`].
    pub fn keep_moves(&mut self) {
        self.moves.get_or_insert_default();
        for arm in &mut self.arms {
            arm.moves.get_or_insert_default();
        }
    }

    /// Movements of the arms since [`Disk::keep_moves`], those of each arm in their order.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        self.moves.as_deref().unwrap_or_default()
    }

    /// Bytes in the cache that are not on the platters, as of the last request.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.arms.iter().map(Arm::dirty_bytes).sum()
    }

    /// Bytes that wait in the log of a drive of overlapping tracks, as of the last request.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        let shingles = self.arms.iter().filter_map(|arm| arm.shingles.as_ref());
        shingles.map(|one| one.waiting() * SECTOR).sum()
    }

    /// Cylinders that an arm crosses.
    #[must_use]
    pub fn cylinders(&self) -> u64 {
        self.first().mechanics.cylinders()
    }

    /// Nanoseconds of a seek over so many cylinders, for reading.
    #[must_use]
    pub fn seek_ns(&self, cylinders: u64) -> u64 {
        let most = self.cylinders().saturating_sub(1);
        self.first().mechanics.seek_ns(cylinders.min(most))
    }

    /// The cylinder of a sector; of one beyond the end: the last.
    #[must_use]
    pub fn cylinder_of(&self, sector: u64) -> u64 {
        let last = self.drive.sectors.saturating_sub(1);
        let (arm, sector) = self.place(sector.min(last));
        self.arms[arm].mechanics.track_of(sector).cylinder
    }

    /// The arm of a sector, from 0.
    pub(crate) fn arm_of(&self, sector: u64) -> usize {
        self.place(sector).0
    }

    /// When the head that a request needs first is free, as far as is known now.
    #[must_use]
    pub fn head_free_ns(&self, request: &Request) -> u64 {
        self.arms[self.arm_of(request.sector)].head_free_ns
    }

    /// Serves a request that comes at `now_ns`; a time before that of the request before counts as
    /// that one. Requests are served in the order in which they are given: commands and data pass
    /// over the interface one after the other, and so does each head serve what needs its platters;
    /// but a write into the cache does not wait for a read that is under way.
    ///
    /// # Errors
    /// The request goes beyond the end of the drive, or comes after [`LATEST_NS`]. The disk is as it
    /// was.
    pub fn serve(&mut self, now_ns: u64, request: &Request) -> Result<Served, RequestError> {
        request.check(self.drive.sectors)?;
        let now_ns = now_ns.max(self.latest_ns);
        let parts = self.parts(request);
        let busy = parts.iter().map(|(arm, _)| self.arms[*arm].head_free_ns);
        let busy_ns = busy.max().unwrap_or(0).max(now_ns).max(self.bus_free_ns);
        if busy_ns > LATEST_NS {
            return Err(RequestError::TooLate { at_ns: busy_ns });
        }
        self.latest_ns = now_ns;
        self.requests += 1;
        // All arms are told to flush by one command; parts of a request follow each other.
        let (mut bus_free_ns, mut last) = (self.bus_free_ns, Served::default());
        for (number, part) in parts {
            let arm = &mut self.arms[number];
            arm.bus_free_ns = match request.op {
                Op::Flush => self.bus_free_ns,
                _ => bus_free_ns,
            };
            let served = arm.serve(now_ns, &part)?;
            bus_free_ns = bus_free_ns.max(arm.bus_free_ns);
            if served.done_ns >= last.done_ns {
                last = served;
            }
            if let (Some(all), Some(moves)) = (&mut self.moves, &mut arm.moves) {
                let first = u64::try_from(number).unwrap_or(0) * self.each;
                all.extend(moves.drain(..).map(|one| Move {
                    sector: one.sector + first,
                    ..one
                }));
            }
        }
        self.bus_free_ns = bus_free_ns;
        Ok(last)
    }

    /// Estimates how long the head would need from when it is free until the request's first sector
    /// passes, for whoever orders a queue; 0 for what needs no head. The disk is left as it is.
    #[must_use]
    pub fn positioning_ns(&self, now_ns: u64, request: &Request) -> u64 {
        if request.check(self.drive.sectors).is_err() || request.sectors == 0 {
            return 0;
        }
        let first = self.parts(request).into_iter().next();
        first.map_or(0, |(arm, part)| {
            self.arms[arm].positioning_ns(now_ns, &part)
        })
    }

    /// Whether a write needs the head before it is done.
    #[must_use]
    pub fn goes_through(&self, request: &Request) -> bool {
        self.policy.goes_through(request)
    }

    fn first(&self) -> &Arm {
        // There is one at least: a drive has an actuator.
        &self.arms[0]
    }

    /// Number of the arm of a sector, and the sector's among those of the arm.
    fn place(&self, sector: u64) -> (usize, u64) {
        let last = self.arms.len() - 1;
        let arm = usize::try_from(sector / self.each).map_or(last, |arm| arm.min(last));
        (arm, sector - u64::try_from(arm).unwrap_or(0) * self.each)
    }

    /// What each arm does for a request.
    fn parts(&self, request: &Request) -> Vec<(usize, Request)> {
        if request.op == Op::Flush {
            return (0..self.arms.len()).map(|arm| (arm, *request)).collect();
        }
        let mut parts = Vec::new();
        let (mut at, mut left) = (request.sector, u64::from(request.sectors));
        loop {
            let (arm, sector) = self.place(at);
            let room = match arm + 1 == self.arms.len() {
                true => left,
                false => left.min(self.each - sector),
            };
            let sectors = u32::try_from(room).unwrap_or(u32::MAX);
            let part = Request {
                sector,
                sectors,
                ..*request
            };
            parts.push((arm, part));
            (at, left) = (at + room, left - room);
            if left == 0 {
                return parts;
            }
        }
    }
}
