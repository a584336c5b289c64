//! The simulated device itself: what is in flight, what a read sees, what a power cut leaves.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::fault::{Fault, FaultKind, Lie};
use super::options::{SimOptions, Survivors};
use super::pages::Pages;
use crate::declaration::IoOp;
use crate::device::{Completion, Io, IoProgress, Next, WriteCache};
use crate::random::Random;
use crate::units::to_usize;

/// Data I/Os between two that are hit by a lie that strikes now and then.
const LIE_EVERY: u64 = 60;

/// Virtual time that passes until the next process has the disk.
const RESTART_NS: u64 = 1_000_000;

/// A write that a power cut may undo, whole or in part.
#[derive(Clone)]
struct Cached {
    /// Which I/O wrote it.
    number: u64,
    offset: u64,
    bytes: Arc<[u8]>,
    /// When it ended, counted in ends; `None`: it is in flight.
    ended: Option<u64>,
}

/// An I/O that has not ended.
struct Flight {
    io: Io,
    /// The backend that is told of its end.
    opening: u64,
    number: u64,
    due_ns: u64,
    /// Ends before its submission: what a flush covers.
    covers: u64,
    fault: Option<FaultKind>,
    progress: IoProgress,
}

/// The disk with its cache, its I/Os in flight and its faults.
pub(super) struct SimCore {
    pub(super) options: SimOptions,
    pub(super) size: u64,
    pub(super) now_ns: u64,
    pub(super) random: Random,
    pub(super) faults: Vec<Fault>,
    /// Byte ranges that cannot be read until they are written again.
    pub(super) unreadable: Vec<Range<u64>>,
    /// I/Os after which the device is gone: all later ones fail.
    pub(super) dies_after: u64,
    /// True: no I/O ends.
    pub(super) hangs: bool,
    /// Backends made so far.
    pub(super) openings: u64,
    /// I/Os submitted.
    pub(super) submitted: u64,
    /// I/Os that a fault has hit.
    pub(super) faults_hit: u64,
    /// Violations of the contract by the user of the device.
    pub(super) violations: Vec<String>,
    /// Bytes that a read returns.
    live: Pages,
    /// Bytes that survive a power cut for certain.
    durable: Pages,
    /// The difference between the two and what is in flight, in the order of submission.
    cached: Vec<Cached>,
    flights: Vec<Flight>,
    ends: u64,
    busy_until_ns: u64,
}

impl SimCore {
    pub(super) fn new(size: u64, image: &[u8], options: SimOptions) -> Self {
        let mut durable = Pages::default();
        durable.write(0, image);
        Self::on(durable.clone(), durable, size, options)
    }

    fn on(live: Pages, durable: Pages, size: u64, options: SimOptions) -> Self {
        Self {
            random: Random::new(options.seed),
            options,
            size,
            now_ns: 0,
            faults: Vec::new(),
            unreadable: Vec::new(),
            dies_after: u64::MAX,
            hangs: false,
            openings: 0,
            submitted: 0,
            faults_hit: 0,
            violations: Vec::new(),
            live,
            durable,
            cached: Vec::new(),
            flights: Vec::new(),
            ends: 0,
            busy_until_ns: 0,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Writes, or parts of them, that a power cut may undo now.
    pub(super) fn uncertain(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn submit(&mut self, io: Io, opening: u64) {
        let number = self.submitted;
        self.submitted += 1;
        self.check(&io);
        let mut fault = self
            .faults
            .iter_mut()
            .find_map(|fault| fault.hits(io.op, io.offset).then_some(fault.kind));
        self.faults_hit += u64::from(fault.is_some());
        if number >= self.dies_after {
            fault = Some(FaultKind::Errno(libc::EIO));
        }
        if let (IoOp::Write, Some(buf)) = (io.op, io.buf.as_deref())
            && number < self.dies_after
            && let Some(offset) = self.landing(&io, fault)
        {
            let mut bytes = buf.to_vec();
            if let Some(FaultKind::LostUnit(lost)) = fault {
                self.keep_old(offset, &mut bytes, lost);
            }
            self.cached.push(Cached {
                number,
                offset,
                bytes: Arc::from(bytes),
                ended: None,
            });
        }
        let due_ns = self.due(&io);
        self.flights.push(Flight {
            io,
            opening,
            number,
            due_ns,
            covers: self.ends,
            fault,
            progress: IoProgress { done: 0 },
        });
    }

    /// The unit at `lost`, if it is in this write, becomes what stands there.
    fn keep_old(&self, offset: u64, bytes: &mut [u8], lost: u64) {
        let unit = to_usize(self.options.unit);
        let at = lost
            .checked_sub(offset)
            .and_then(|at| usize::try_from(at).ok());
        if let Some(kept) = at.and_then(|at| bytes.get_mut(at..at + unit)) {
            self.live.read(lost, kept);
        }
    }

    /// Where the bytes of a write go; `None`: nowhere.
    fn landing(&self, io: &Io, fault: Option<FaultKind>) -> Option<u64> {
        match fault {
            Some(FaultKind::Lost) => None,
            Some(FaultKind::Misdirected(to)) => {
                let to = to.min(self.size.saturating_sub(io.len()));
                Some(to - to % u64::from(self.options.unit))
            }
            _ => Some(io.offset),
        }
    }

    /// Notes what direct I/O would refuse, and what no order of ends makes right.
    fn check(&mut self, io: &Io) {
        let unit = u64::from(self.options.unit);
        let end = io.offset.saturating_add(io.len());
        let wrong = if !io.offset.is_multiple_of(unit) || !io.len().is_multiple_of(unit) {
            "is not whole units"
        } else if self.options.is_block_device && end > self.size {
            "ends after the device"
        } else if io.op == IoOp::Write && self.flights.iter().any(|other| overlap(&other.io, io)) {
            "overlaps a write in flight"
        } else {
            return;
        };
        self.violations
            .push(format!("{:?} of bytes {}..{end} {wrong}", io.op, io.offset));
    }

    fn due(&mut self, io: &Io) -> u64 {
        let latency = &self.options.latency;
        let range = match io.op {
            IoOp::Read => &latency.read_ns,
            IoOp::Write => &latency.write_ns,
            IoOp::Flush => &latency.flush_ns,
        };
        let service = range.start + self.random.below(range.end.saturating_sub(range.start));
        if latency.one_at_a_time {
            self.busy_until_ns = self.busy_until_ns.max(self.now_ns) + service;
            self.busy_until_ns
        } else {
            self.now_ns + service
        }
    }

    /// When the next I/O in flight ends, of this opening or of any; `None`: none is in flight.
    pub(super) fn next_due_ns(&self, opening: Option<u64>) -> Option<u64> {
        if self.hangs {
            return None;
        }
        let is_of = |flight: &&Flight| opening.is_none_or(|one| flight.opening == one);
        let flights = self.flights.iter().filter(is_of);
        flights.map(|flight| flight.due_ns).min()
    }

    /// Ends one I/O of an opening that is due by now. I/Os that take a second turn are not ended yet.
    pub(super) fn end_one(&mut self, opening: u64) -> Option<Completion> {
        if self.hangs {
            return None;
        }
        loop {
            let (at, _) = self
                .flights
                .iter()
                .enumerate()
                .filter(|(_, flight)| flight.opening == opening && flight.due_ns <= self.now_ns)
                .min_by_key(|(_, flight)| (flight.due_ns, flight.number))?;
            let mut flight = self.flights.remove(at);
            if flight.io.op == IoOp::Write && self.lies(Lie::Forgets) {
                continue;
            }
            let Some(result) = self.carry_out(&mut flight) else {
                flight.due_ns = self.due(&flight.io);
                self.flights.push(flight);
                continue;
            };
            self.ends += 1;
            return Some(Completion {
                token: flight.io.token,
                buf: flight.io.buf,
                result,
            });
        }
    }

    fn lies(&mut self, lie: Lie) -> bool {
        self.options.lie == lie && self.random.below(LIE_EVERY) == 0
    }

    /// `None`: it goes on with what is left of it.
    fn carry_out(&mut self, flight: &mut Flight) -> Option<io::Result<()>> {
        if let Some(FaultKind::Short(bytes)) = flight.fault.take_if(|fault| fault.is_short()) {
            let unit = to_usize(self.options.unit);
            let moved = to_usize(bytes);
            return match flight
                .progress
                .advance(&mut flight.io, moved, (unit, false))
            {
                Next::Continue => None,
                Next::Failed(errno) => Some(self.fail(flight, errno)),
                Next::Finished => Some(self.transfer(flight)),
            };
        }
        Some(match flight.fault {
            Some(FaultKind::Errno(errno)) => self.fail(flight, errno),
            _ => self.transfer(flight),
        })
    }

    fn transfer(&mut self, flight: &mut Flight) -> io::Result<()> {
        match flight.io.op {
            IoOp::Read => self.read(&mut flight.io),
            IoOp::Write => {
                self.land(flight.number);
                self.settle_if_promised(flight);
                Ok(())
            }
            IoOp::Flush => {
                self.flush(flight.covers);
                Ok(())
            }
        }
    }

    fn read(&mut self, io: &mut Io) -> io::Result<()> {
        let range = io.offset..io.offset + io.len();
        if self
            .unreadable
            .iter()
            .any(|bad| bad.start < range.end && range.start < bad.end)
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let elsewhere = self.lies(Lie::ReadsElsewhere);
        let shift = if elsewhere {
            u64::from(self.options.unit)
        } else {
            0
        };
        if let Some(buf) = io.buf.as_mut() {
            self.live.read(io.offset + shift, buf);
        }
        Ok(())
    }

    /// The write is done: reads see it.
    fn land(&mut self, number: u64) {
        let ended = self.ends;
        let Some(cached) = self
            .cached
            .iter_mut()
            .find(|cached| cached.number == number)
        else {
            return;
        };
        cached.ended = Some(ended);
        let (offset, end) = (cached.offset, cached.offset + cached.bytes.len() as u64);
        self.live.write(offset, &cached.bytes);
        self.size = self.size.max(end);
        self.unreadable = std::mem::take(&mut self.unreadable)
            .into_iter()
            .flat_map(|bad| [bad.start..bad.end.min(offset), bad.start.max(end)..bad.end])
            .filter(|bad| !bad.is_empty())
            .collect();
    }

    /// A write that has landed is durable if it was forced, or if there is no cache.
    fn settle_if_promised(&mut self, flight: &Flight) {
        let forced = flight.io.forced && self.options.lie != Lie::ForcesNothing;
        if forced || self.options.cache == WriteCache::Through {
            self.settle(flight.number);
        }
    }

    /// The write is durable; nothing that an older one left there comes back.
    fn settle(&mut self, number: u64) {
        let Some(at) = self
            .cached
            .iter()
            .position(|cached| cached.number == number)
        else {
            return;
        };
        let settled = self.cached.remove(at);
        let unit = to_usize(self.options.unit);
        let end = settled.offset + settled.bytes.len() as u64;
        self.durable.write(settled.offset, &settled.bytes);
        let (apart, overlapped): (Vec<_>, Vec<_>) = std::mem::take(&mut self.cached)
            .into_iter()
            .partition(|old| {
                let old_end = old.offset + old.bytes.len() as u64;
                old.ended.is_none() || old_end <= settled.offset || end <= old.offset
            });
        self.cached = apart;
        for old in overlapped {
            for (sector, bytes) in old.bytes.chunks(unit).enumerate() {
                let offset = old.offset + (sector * unit) as u64;
                if !(settled.offset..end).contains(&offset) {
                    self.cached.push(Cached {
                        offset,
                        bytes: Arc::from(bytes),
                        ..old.clone()
                    });
                }
            }
        }
        self.cached
            .sort_by_key(|cached| (cached.number, cached.offset));
    }

    /// Every write that ended before the flush began is durable.
    fn flush(&mut self, covers: u64) {
        if self.options.lie == Lie::IgnoresFlushes {
            return;
        }
        let mut spared = usize::from(self.options.lie == Lie::FlushForgetsOne);
        let durable = &mut self.durable;
        self.cached.retain(|cached| {
            let covered = cached.ended.is_some_and(|ended| ended < covers);
            if !covered {
                return true;
            }
            if spared > 0 {
                spared -= 1;
                return true;
            }
            durable.write(cached.offset, &cached.bytes);
            false
        });
    }

    /// A write may have reached the disk in part; of what a flush should have covered the device
    /// may drop any part at once.
    fn fail(&mut self, flight: &Flight, errno: i32) -> io::Result<()> {
        let failed = Err(io::Error::from_raw_os_error(errno));
        if flight.number >= self.dies_after {
            return failed;
        }
        match flight.io.op {
            IoOp::Read => {}
            IoOp::Write => self.keep_some(|cached| cached.number == flight.number),
            IoOp::Flush => {
                self.keep_some(|cached| cached.ended.is_some_and(|ended| ended < flight.covers));
            }
        }
        failed
    }

    /// Of the chosen writes any sectors remain, as ended ones.
    fn keep_some(&mut self, chosen: impl Fn(&Cached) -> bool) {
        let unit = to_usize(self.options.unit);
        let ended = Some(self.ends);
        for cached in std::mem::take(&mut self.cached) {
            if !chosen(&cached) {
                self.cached.push(cached);
                continue;
            }
            let per_mille = [0, 500, 1000][self.random.index(3)];
            for (number, sector) in cached.bytes.chunks(unit).enumerate() {
                if self.random.chance(per_mille) {
                    self.cached.push(Cached {
                        number: cached.number,
                        offset: cached.offset + (number * unit) as u64,
                        bytes: Arc::from(sector),
                        ended,
                    });
                }
            }
        }
        self.rebuild_live();
    }

    fn rebuild_live(&mut self) {
        self.live = self.durable.clone();
        for cached in self.cached.iter().filter(|cached| cached.ended.is_some()) {
            self.live.write(cached.offset, &cached.bytes);
        }
    }

    /// The device as it is when the power is back.
    pub(super) fn power_cut(&self, survivors: Survivors, random: &mut Random) -> Self {
        let mut durable = self.durable.clone();
        let unit = match self.options.lie {
            Lie::TearsUnits => self.options.unit / 2,
            _ => self.options.unit,
        };
        let unit = to_usize(unit);
        let sectors: usize = self
            .cached
            .iter()
            .map(|cached| cached.bytes.len().div_ceil(unit))
            .sum();
        let one = random.index(sectors);
        let mut at = 0;
        let mut end = self.size;
        for cached in &self.cached {
            let whole = match survivors {
                Survivors::Writes(per_mille) => random.chance(per_mille),
                _ => true,
            };
            for (number, sector) in cached.bytes.chunks(unit).enumerate() {
                let survives = match survivors {
                    Survivors::None => false,
                    Survivors::All => true,
                    Survivors::Sectors(per_mille) => random.chance(per_mille),
                    Survivors::Writes(_) => whole,
                    Survivors::AllButOneSector => at != one,
                    Survivors::OneSector => at == one,
                };
                at += 1;
                if survives {
                    let offset = cached.offset + (number * unit) as u64;
                    durable.write(offset, sector);
                    end = end.max(offset + sector.len() as u64);
                }
            }
        }
        self.restarted(durable.clone(), durable, end, random)
    }

    /// The device as the next process finds it: writes in flight land or not, sector by sector; a
    /// power cut may still undo what no flush covered.
    pub(super) fn process_death(&self, random: &mut Random) -> Self {
        let mut core = self.restarted(self.live.clone(), self.durable.clone(), self.size, random);
        core.cached.clone_from(&self.cached);
        for cached in &mut core.cached {
            cached.ended = cached.ended.map(|_| 0);
        }
        core.ends = 1;
        core.keep_some(|cached| cached.ended.is_none());
        core
    }

    fn restarted(&self, live: Pages, durable: Pages, size: u64, random: &mut Random) -> Self {
        let mut options = self.options.clone();
        options.seed = random.next();
        let mut core = Self::on(live, durable, size, options);
        core.unreadable.clone_from(&self.unreadable);
        core.now_ns = self.now_ns + RESTART_NS;
        core
    }

    pub(super) fn peek(&self, offset: u64, to: &mut [u8]) {
        self.live.read(offset, to);
    }

    /// Changes bytes in all copies the device has, as rot does.
    pub(super) fn alter(&mut self, offset: u64, change: impl Fn(&mut u8)) {
        let mut byte = [0];
        for pages in [&mut self.live, &mut self.durable] {
            pages.read(offset, &mut byte);
            change(&mut byte[0]);
            pages.write(offset, &byte);
        }
        for cached in &mut self.cached {
            let at = offset.checked_sub(cached.offset);
            let at = at.and_then(|at| usize::try_from(at).ok());
            if at.is_some_and(|at| at < cached.bytes.len()) {
                let mut bytes = cached.bytes.to_vec();
                if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
                    change(byte);
                }
                cached.bytes = Arc::from(bytes);
            }
        }
    }
}

impl FaultKind {
    fn is_short(self) -> bool {
        matches!(self, Self::Short(_))
    }
}

fn overlap(one: &Io, two: &Io) -> bool {
    one.op == IoOp::Write
        && one.offset < two.offset.saturating_add(two.len())
        && two.offset < one.offset.saturating_add(one.len())
}
