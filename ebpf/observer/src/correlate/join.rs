//! The declared I/Os, by place and by time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use smallvec::SmallVec;

use crate::api::Op;
use crate::event::{BlockOp, Event, Maker, Submission};
use crate::extents::Placement;

use super::Declared;
use super::found::{Ids, Match, Ranges, take_range};

/// Declared I/Os kept at once; beyond that the oldest are dropped.
const MAX_IOS: usize = 65_536;
/// An I/O stays this long after its end: its events may come later.
const LINGER_NS: u64 = 100_000_000;
/// One that lacks block requests stays so long: completions that no program was shown are found
/// within a second on a disk that has become idle.
const LATE_NS: u64 = 3_000_000_000;
/// So many of these; with more, the oldest do not stay. Where events are sampled, nearly all I/Os
/// lack some.
const MAX_LACKING: usize = 8192;
/// An I/O that nobody ends is dropped after this time...
const ABANDONED_NS: u64 = 120_000_000_000;
/// ...looked for this often.
const SWEEP_NS: u64 = 1_000_000_000;

/// Pieces of runs are of these lengths at most, in sectors, and kept apart by length: a look-up goes
/// through everything of a kind that begins less than the longest of them below, so long ones must
/// not make it go through many short ones. A longer run is kept in several pieces...
const LENGTHS: [u64; 3] = [256, 4096, 65_536];
/// ...at most so many; beyond that, in longer ones.
const MAX_PIECES: u64 = 2048;

/// A declared I/O, and what is known of its block requests.
#[derive(Debug)]
pub(super) struct Io {
    declared: Declared,
    dev: u32,
    end_ns: Option<u64>,
    /// Bytes of it that lie on the disk; 0 for a flush.
    pub(super) on_disk: u64,
    /// Bytes of it that block requests have covered.
    covered: u64,
    /// A flush of the disk served it.
    flushed: bool,
    /// Some of its block requests may be another's, or another's its own.
    guessed: bool,
    /// Its pieces: index of their length, and first sector.
    starts: SmallVec<[(usize, u64); 1]>,
}

impl std::ops::Deref for Io {
    type Target = Declared;

    fn deref(&self) -> &Declared {
        &self.declared
    }
}

/// Parts of the runs of I/Os' sectors, of one kind.
#[derive(Debug, Default)]
struct Pieces {
    /// (disk, first sector, serial number of the I/O) -> sectors.
    all: BTreeMap<(u32, u64, u64), u64>,
    /// None ever declared was longer, in sectors.
    longest: u64,
}

/// The declared I/Os, by place and by time.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    next: u64,
    ios: BTreeMap<u64, Io>,
    /// By [`LENGTHS`].
    pieces: [Pieces; LENGTHS.len()],
    by_token: HashMap<(usize, u64), u64>,
    /// Serial numbers of flushes that have not ended.
    flushing: BTreeSet<u64>,
    /// Those that have, by their beginnings.
    flushes: BTreeSet<(u64, u64)>,
    /// None of these took longer.
    longest_flush_ns: u64,
    /// I/Os that have ended: when, and their serial numbers, about in this order.
    ended: VecDeque<(u64, u64)>,
    /// Those of them that still lacked block requests when they should have had all.
    lacking: VecDeque<(u64, u64)>,
    swept_ns: u64,
    pub(super) dropped: u64,
}

impl Joiner {
    pub(super) fn io(&self, serial: u64) -> Option<&Io> {
        self.ios.get(&serial)
    }

    pub(super) fn declare(&mut self, io: Declared, placement: &Placement) -> &Io {
        if self.ios.len() >= MAX_IOS
            && let Some((&oldest, _)) = self.ios.first_key_value()
        {
            self.drop_oldest(oldest);
        }
        let serial = self.next;
        self.next += 1;
        self.by_token.insert((io.store, io.token), serial);
        if io.op == Op::Flush {
            self.flushing.insert(serial);
        }
        let mut io = Io {
            declared: io,
            dev: placement.dev,
            end_ns: None,
            on_disk: 0,
            covered: 0,
            flushed: false,
            guessed: false,
            starts: SmallVec::new(),
        };
        io.on_disk = self.add_pieces(serial, &mut io, placement);
        self.ios.entry(serial).insert_entry(io).into_mut()
    }

    /// The I/Os that have not ended.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &Declared> {
        let ios = self.ios.values().filter(|io| io.end_ns.is_none());
        ios.map(|io| &io.declared)
    }

    /// The I/O, if it is known.
    pub(super) fn finish(&mut self, store: usize, token: u64, end_ns: u64) -> Option<&Declared> {
        let serial = self.by_token.remove(&(store, token))?;
        let io = self.ios.get_mut(&serial)?;
        io.end_ns = Some(end_ns);
        if self.flushing.remove(&serial) {
            self.flushes.insert((io.begin_ns, serial));
            let took_ns = end_ns.saturating_sub(io.begin_ns);
            self.longest_flush_ns = self.longest_flush_ns.max(took_ns);
        }
        self.ended.push_back((end_ns, serial));
        // A time that is far off, as a recording may hold, must not keep the rest.
        if self.ended.len() > 2 * MAX_IOS {
            self.ended.pop_front();
        }
        Some(&io.declared)
    }

    /// One that has ended was only waiting for what may come late: no loss.
    fn drop_oldest(&mut self, serial: u64) {
        let under_way = self.ios.get(&serial).is_some_and(|io| io.end_ns.is_none());
        self.dropped += u64::from(under_way);
        self.remove(serial);
    }

    /// A store lies elsewhere now: its declared I/Os get new pieces besides their old ones.
    pub(super) fn replace(&mut self, store: usize, placement: &Placement) {
        let mut ios = std::mem::take(&mut self.ios);
        for (serial, io) in &mut ios {
            if io.store == store {
                self.add_pieces(*serial, io, placement);
            }
        }
        self.ios = ios;
    }

    /// The declared I/Os that a block request was made for; flushes: see [`super::flushes`].
    pub(super) fn find(&mut self, event: &Event) -> Match {
        match event.op {
            BlockOp::Read | BlockOp::Write => self.find_data(event),
            _ => Match::default(),
        }
    }

    /// All request ids of a match, each once, in the order of declaration.
    pub(super) fn requests_of(&self, found: &Match) -> Ids {
        let mut ids = Ids::new();
        for io in found.parts.iter().filter_map(|part| self.ios.get(&part.io)) {
            for id in &io.requests {
                if !ids.contains(id) {
                    ids.push(*id);
                }
            }
        }
        ids
    }

    /// Tokens of the I/Os in a match, with the indices of their stores.
    pub(super) fn names_of(&self, found: &Match) -> impl Iterator<Item = Submission> {
        let ios = found.parts.iter().filter_map(|part| self.ios.get(&part.io));
        ios.map(|io| Submission {
            store: io.store,
            token: io.token,
        })
    }

    /// The stores whose I/Os are in a match, each once.
    pub(super) fn stores_of(&self, found: &Match) -> Vec<usize> {
        let ios = found.parts.iter().filter_map(|part| self.ios.get(&part.io));
        let mut stores: Vec<usize> = ios.map(|io| io.store).collect();
        stores.sort_unstable();
        stores.dedup();
        stores
    }

    /// Whether a match has I/Os that belong to the store itself.
    pub(super) fn is_for_store(&self, found: &Match) -> bool {
        let mut ios = found.parts.iter().filter_map(|part| self.ios.get(&part.io));
        ios.any(|io| io.requests.is_empty())
    }

    /// Forgets I/Os whose block requests are all known. Takes time for those that are due only.
    pub(super) fn expire(&mut self, until_ns: u64) {
        let due = |queue: &mut VecDeque<(u64, u64)>, stays_ns: u64| {
            let is_due = |(end, _): &mut (u64, u64)| end.saturating_add(stays_ns) < until_ns;
            queue.pop_front_if(is_due)
        };
        while let Some((end, serial)) = due(&mut self.ended, LINGER_NS) {
            if !self.ios.get(&serial).is_some_and(Io::lacks) {
                self.remove(serial);
                continue;
            }
            self.lacking.push_back((end, serial));
            if self.lacking.len() > MAX_LACKING
                && let Some((_, oldest)) = self.lacking.pop_front()
            {
                self.remove(oldest);
            }
        }
        while let Some((_, serial)) = due(&mut self.lacking, LATE_NS) {
            self.remove(serial);
        }
        if until_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = until_ns;
            self.sweep(until_ns);
        }
    }

    /// Drops I/Os that nobody ends.
    fn sweep(&mut self, until_ns: u64) {
        let abandoned =
            |io: &Io| io.end_ns.is_none() && io.begin_ns.saturating_add(ABANDONED_NS) < until_ns;
        let all = self.ios.iter().filter(|(_, io)| abandoned(io));
        let old: Vec<u64> = all.map(|(serial, _)| *serial).collect();
        for serial in old {
            self.dropped += 1;
            self.remove(serial);
        }
    }

    /// Its place names the declared I/Os; who made it, which of them, and whether any.
    fn find_data(&mut self, event: &Event) -> Match {
        let (from, to) = (event.sector, event.end_sector());
        let mut candidates = self.candidates(event);
        let mut found = Match::default();
        match event.maker() {
            Maker::Own => {}
            Maker::Foreign => {
                // What was merged into it may be ours.
                let lacking = candidates.iter().map(|(serial, ..)| *serial);
                let lacking = lacking.filter(|_| event.merged);
                let lacking = lacking.filter(|serial| self.ios[serial].lacks());
                found.doubted = lacking.collect();
                found.rest = (to - from) * 512;
                return found;
            }
            // An I/O that has all its bytes asked for no more.
            Maker::Unknown => candidates.retain(|(serial, ..)| self.ios[serial].lacks()),
        }
        let submission = event.submission.filter(|_| event.own);
        let named = |serial: &u64| submission.is_some_and(|s| self.ios[serial].is(s));
        let conflict = submission.is_some() && !candidates.iter().any(|(io, ..)| named(io));
        // When several asked for the same sectors: first the one that the submission names, then
        // one that still lacks bytes, then the one declared last before the block request was made.
        candidates.sort_by_key(|(serial, ..)| {
            let io = &self.ios[serial];
            (!named(serial), !io.lacks(), std::cmp::Reverse(io.begin_ns))
        });
        let named = candidates.first().map(|(io, ..)| *io).filter(named);
        let mut free = Ranges::from_slice(&[(from, to)]);
        for at in 0..candidates.len() {
            let (serial, start, end) = candidates[at];
            let bytes = take_range(&mut free, start, end) * 512;
            if bytes == 0 {
                continue;
            }
            let io = &self.ios[&serial];
            let too_many = io.covered + bytes > io.len;
            let contested = || {
                let others = candidates.iter().filter(|(other, ..)| *other != serial);
                let overlap = others.filter(|(_, low, high)| *low < end && start < *high);
                let mut ios = overlap.map(|(other, ..)| &self.ios[other]);
                ios.any(|other| other.lacks() || other.guessed)
            };
            let unknown = conflict || event.maker() == Maker::Unknown;
            let uncertain = named != Some(serial) && (unknown || too_many || contested());
            found.add(serial, bytes, uncertain);
            if let Some(io) = self.ios.get_mut(&serial) {
                io.covered += bytes;
                io.guessed |= uncertain;
            }
        }
        found.rest = free.iter().map(|(start, end)| (end - start) * 512).sum();
        found
    }

    /// The I/Os that asked for sectors of a block request and were under way when it was: serial
    /// number, first sector, and the one after the last. Until it was sent, a block request took in
    /// what was asked for after it had been made.
    fn candidates(&self, event: &Event) -> SmallVec<[(u64, u64, u64); 4]> {
        let (from, to) = (event.sector, event.end_sector());
        let sent = event.issue_ns.filter(|_| event.merged);
        let (first_ns, last_ns) = (sent.unwrap_or(event.first_ns()), event.last_ns());
        let near = self.pieces.iter().flat_map(|pieces| {
            let low = (event.dev, from.saturating_sub(pieces.longest), 0);
            pieces.all.range(low..(event.dev, to, 0))
        });
        let mut candidates = SmallVec::new();
        for (&(_, sector, serial), &sectors) in near {
            let (start, end) = (sector.max(from), sector.saturating_add(sectors).min(to));
            if start >= end {
                continue;
            }
            let fits = self
                .ios
                .get(&serial)
                .is_some_and(|io| block_op(io.op) == event.op && io.lasts_over(first_ns, last_ns));
            if fits {
                candidates.push((serial, start, end));
            }
        }
        candidates
    }

    /// The declared flushes of a disk that lasted over a time.
    pub(super) fn flushes_over(&self, dev: u32, from_ns: u64, to_ns: u64) -> Ids {
        let waits = |io: &Io| io.dev == dev && io.lasts_over(from_ns, to_ns);
        let since_ns = to_ns.saturating_sub(self.longest_flush_ns);
        let begun = (since_ns.min(from_ns), 0)..=(from_ns, u64::MAX);
        let ended = self.flushes.range(begun).map(|(_, serial)| serial);
        let known = self.flushing.iter().chain(ended);
        let known = known.filter(|serial| self.ios.get(serial).is_some_and(waits));
        let mut known: Ids = known.copied().collect();
        known.sort_unstable();
        known
    }

    /// True: one of the declared flushes had not ended at a time.
    pub(super) fn any_open(&self, flushes: &[u64], at_ns: u64) -> bool {
        let open = |io: &Io| io.end_ns.is_none_or(|end| end > at_ns);
        flushes.iter().any(|s| self.ios.get(s).is_some_and(open))
    }

    /// Whether an I/O is the one that a submission names.
    pub(super) fn is_named(&self, serial: u64, submission: Submission) -> bool {
        self.ios.get(&serial).is_some_and(|io| io.is(submission))
    }

    /// True: a flush is known to have been made for this I/O.
    pub(super) fn was_flushed(&self, serial: u64) -> bool {
        self.ios
            .get(&serial)
            .is_some_and(|io| io.flushed && !io.guessed)
    }

    /// These I/Os were served by a flush of the disk.
    pub(super) fn flushed(&mut self, flushes: &[u64], uncertain: bool) -> Match {
        let mut found = Match::default();
        for serial in flushes {
            found.add(*serial, 0, uncertain);
            if let Some(io) = self.ios.get_mut(serial) {
                io.guessed = uncertain && (io.guessed || !io.flushed);
                io.flushed = true;
            }
        }
        found
    }

    /// Answers how many bytes of it lie on the disk.
    fn add_pieces(&mut self, serial: u64, io: &mut Io, placement: &Placement) -> u64 {
        if io.op == Op::Flush || io.dev != placement.dev {
            return 0;
        }
        let mut bytes: u64 = 0;
        for run in placement.runs(io.offset, io.len) {
            bytes = bytes.saturating_add(run.sectors.saturating_mul(512));
            let fits = LENGTHS.iter().position(|most| run.sectors <= *most);
            let kind = fits.unwrap_or(LENGTHS.len() - 1);
            let length = LENGTHS[kind].max(run.sectors.div_ceil(MAX_PIECES));
            let pieces = &mut self.pieces[kind];
            pieces.longest = pieces.longest.max(length.min(run.sectors));
            let mut done = 0;
            while done < run.sectors {
                let (sector, sectors) = (run.sector.saturating_add(done), run.sectors - done);
                pieces
                    .all
                    .insert((io.dev, sector, serial), sectors.min(length));
                io.starts.push((kind, sector));
                done = done.saturating_add(length);
            }
        }
        bytes
    }

    fn remove(&mut self, serial: u64) {
        let Some(io) = self.ios.remove(&serial) else {
            return;
        };
        if io.op == Op::Flush && !self.flushing.remove(&serial) {
            self.flushes.remove(&(io.begin_ns, serial));
        }
        if self.by_token.get(&(io.store, io.token)) == Some(&serial) {
            self.by_token.remove(&(io.store, io.token));
        }
        for (kind, start) in io.starts {
            self.pieces[kind].all.remove(&(io.dev, start, serial));
        }
    }
}

/// The block operation that a declared operation makes.
fn block_op(op: Op) -> BlockOp {
    match op {
        Op::Read => BlockOp::Read,
        Op::Write => BlockOp::Write,
        Op::Flush => BlockOp::Flush,
    }
}

impl Io {
    /// True: the submission names it.
    fn is(&self, submission: Submission) -> bool {
        (self.store, self.token) == (submission.store, submission.token)
    }

    /// True: block requests of it are not known.
    fn lacks(&self) -> bool {
        match self.op {
            Op::Read | Op::Write => self.covered < self.len,
            Op::Flush => !self.flushed,
        }
    }

    fn lasts_over(&self, from_ns: u64, to_ns: u64) -> bool {
        self.begin_ns <= from_ns && self.end_ns.is_none_or(|end| to_ns <= end)
    }
}
