//! The common ground of the owner's parts: the state of the store, its disk, and what other
//! threads see of it.

mod trial;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::admission::overload::Overload;
use super::admission::pace::Pace;
use super::admission::{Admission, AdmissionLimits};
use super::command::{Stage, TimedReply};
use super::finisher::Finisher;
use super::inbox::Gate;
use super::io_table::{IoTable, Tag};
use crate::buffer::AlignedBuf;
use crate::clock::{duration_ns, monotonic_ns};
use crate::error::{Error, claim_lost};
use crate::finding::{Finding, FindingKind};
use crate::format::claim;
use crate::format::copies::{CheckedCopy, FoundCopy};
use crate::format::journal_header::ScrubMark;
use crate::format::seal::LogSum;
use crate::format::verify::Subject;
use crate::format::{Portion, Seal};
use crate::health::{BAD_PLACES, Condition, Health, StoreState, hang_reason};
use crate::lump::LumpId;
use crate::opened::{Pin, Released};
use crate::options::StoreOptions;
use crate::payload::pieces::Unused;
use crate::scrub::{FINDINGS, ScrubControl};
use crate::stats::Counters;
use crate::storage::Storage;
use crate::storage::index::IndexEntry;
use crate::units::RingPosition;

/// Shared by the handles of a store and its owner thread.
#[derive(Debug)]
pub(crate) struct OwnerShared {
    pub(crate) counters: Arc<Counters>,
    /// Counts the waiting requests and refuses early.
    pub(crate) admission: Arc<Admission>,
    /// Open while the owner thread takes commands.
    pub(crate) gate: Arc<Gate>,
    /// Set once the store takes no changes any more: the reason.
    pub(crate) failed: OnceLock<Arc<str>>,
    /// True: puts and deletes are refused until that is taken back.
    pub(crate) frozen: AtomicBool,
    /// State of the store, by what its disk says.
    pub(crate) condition: Arc<Condition>,
    pub(crate) scrub: ScrubControl,
    /// Blocks of lumps that were open.
    pub(crate) released: Arc<Released>,
    /// Blocks of lumps that came in and were not put.
    pub(crate) unused: Arc<Unused>,
}

impl OwnerShared {
    pub(crate) fn new(options: &StoreOptions) -> Self {
        let counters = Arc::<Counters>::default();
        let limits = AdmissionLimits {
            hard: options.queue_limit.max(1),
            threshold: options.overload_threshold.max(1),
            recovers_at: overload(options).recovers_at(),
        };
        Self {
            admission: Arc::new(Admission::new(limits, Arc::clone(&counters))),
            counters,
            gate: Arc::default(),
            failed: OnceLock::new(),
            frozen: AtomicBool::new(false),
            condition: Arc::new(Condition::new(options.io_timeout)),
            scrub: ScrubControl::default(),
            released: Arc::default(),
            unused: Arc::default(),
        }
    }
}

pub(super) fn overload(options: &StoreOptions) -> Overload {
    Overload::new(
        options.overload_threshold,
        duration_ns(options.overload_after),
    )
}

/// Limits of the owner thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Data I/Os in flight.
    pub(crate) data_ios: usize,
    /// True: the disk has an arm. It goes shorter ways the more it knows of; any other gets a few MiB at
    /// a time.
    pub(crate) has_arm: bool,
    /// False: the kernel says that it has none.
    pub(crate) may_have_arm: bool,
    /// Changes and syncs accepted and not finished.
    pub(crate) pending: usize,
    /// Why nothing is written; `None`: it may be.
    pub(crate) read_only: Option<&'static str>,
    /// An I/O in flight for longer hangs; zero: none does.
    pub(crate) io_timeout: Duration,
    /// Budget of the collection in bytes a second; 0: no limit.
    pub(crate) gc_rate: u64,
    /// Puts go to runs where they can.
    pub(crate) runs: bool,
}

/// Changes and syncs that are accepted and not finished.
#[derive(Default)]
pub(super) struct Unfinished {
    count: usize,
    /// Bytes of the records of the puts among them.
    record_bytes: u64,
    /// Ids of these puts; one id may be put several times at once.
    putting: BTreeMap<LumpId, u32>,
    /// Told when there are none.
    pub(super) settling: Vec<TimedReply<()>>,
}

impl Unfinished {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn begin(&mut self) {
        self.count += 1;
    }

    /// Answers those who wait for the end of all of them.
    pub(super) fn settle(&mut self) {
        if self.count == 0 {
            let settled = self.settling.drain(..);
            settled.for_each(|reply| reply.send(Ok(()), Stage::Sched));
        }
    }

    pub(super) fn end(&mut self) {
        self.count -= 1;
    }

    /// A put whose room in the journal is [reserved](Ctx::reserve_record).
    pub(super) fn begin_put(&mut self, id: LumpId) {
        self.count += 1;
        *self.putting.entry(id).or_default() += 1;
    }

    pub(super) fn end_put(&mut self, id: LumpId, record_len: u64) {
        self.count -= 1;
        self.record_bytes -= record_len;
        if let Some(count) = self.putting.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.putting.remove(&id);
            }
        }
    }

    pub(super) fn puts(&self, id: LumpId) -> bool {
        self.putting.contains_key(&id)
    }

    /// True: a lump with `start <= id < end` is being put.
    pub(super) fn puts_any(&self, start: LumpId, end: LumpId) -> bool {
        self.putting.range(start..end).next().is_some()
    }

    /// Gives back room that was reserved for a put which is not begun.
    pub(super) fn unreserve(&mut self, record_len: u64) {
        self.record_bytes -= record_len;
    }
}

/// The checked copies name an end of the journal that is no older than this while it grows. A lost
/// write of the ring is not found if the power goes before they do.
const COPIES_AFTER_NS: u64 = 5_000_000_000;

/// Whether the target is still what was opened is looked at this often while there is something to do.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// The header blocks. Head, scrub mark and the checked copies share them, so one write is under way
/// at most.
#[derive(Debug, Default)]
pub(super) struct HeaderBlock {
    pub(super) busy: bool,
    /// How far the scrubber has come: written with every head.
    pub(super) mark: ScrubMark,
    /// Log offset of the journal's end in the checked copies; `None`: there are none.
    pub(super) copied: Option<u64>,
    /// When the copies were written last.
    copied_ns: u64,
    /// An end of the journal that no power cut can undo.
    durable: Seal,
    /// The end that was written last, and how many writes had ended then.
    visible: (Seal, u64),
    /// Bad places have come that the header block does not tell of.
    pub(super) lacks_places: bool,
}

impl HeaderBlock {
    /// `end`: the durable end of the journal.
    pub(super) fn new(mark: ScrubMark, copied: Option<u64>, end: Seal) -> Self {
        Self {
            mark,
            copied,
            copied_ns: monotonic_ns(),
            durable: end,
            visible: (end, 0),
            ..Self::default()
        }
    }
}

/// Handed to the parts of the owner in each of their steps.
pub(crate) struct Ctx {
    pub(super) storage: Storage,
    pub(super) io: IoTable,
    pub(super) finisher: Finisher,
    pub(super) shared: Arc<OwnerShared>,
    pub(super) limits: Limits,
    /// How long requests take lately.
    pub(super) pace: Pace,
    pub(super) unfinished: Unfinished,
    pub(super) header: HeaderBlock,
    /// State of the store as it was told last.
    pub(super) health: Health,
    /// No more commands are taken; what was accepted is finished.
    pub(super) closing: bool,
    /// Blocks have come free since the puts that wait for some were tried last.
    pub(super) freed: bool,
    /// Why no change is taken until the disk takes a write of the journal; `None`: it does.
    pub(super) journal_refused: Option<Arc<str>>,
    pub(super) target: TargetLook,
}

/// Device or file, as it was found to be.
#[derive(Default)]
pub(super) struct TargetLook {
    /// Why there is less of it than the store has.
    shrunk: Option<Arc<str>>,
    /// Why its path does not lead to it any more.
    stray: Option<Arc<str>>,
    looked_ns: u64,
}

impl Ctx {
    pub(super) fn failure(&self) -> Option<Error> {
        let reason = self.shared.failed.get()?;
        Some(Error::Failed {
            reason: Arc::clone(reason),
        })
    }

    pub(super) fn refuses_changes(&self) -> Option<Error> {
        if let Some(reason) = self.limits.read_only {
            return Some(Error::ReadOnly { reason });
        }
        let lost = self.journal_refused.as_ref().or(self.target.stray.as_ref());
        let lost = lost.map(|reason| Error::OutOfService {
            reason: Arc::clone(reason),
        });
        self.failure().or(lost)
    }

    /// Looks whether device or file are still what was opened, once a second.
    pub(super) fn look_at_target(&mut self, now_ns: u64) {
        if now_ns >= self.target.looked_ns.saturating_add(LOOK_EVERY_NS) {
            let needed = self.storage.geometry.end().0;
            self.target = TargetLook {
                shrunk: self.io.device.shrunk(needed),
                stray: self.io.device.stray(),
                looked_ns: now_ns,
            };
        }
    }

    /// When a target that is not what was opened is looked at again.
    pub(super) fn target_due_ns(&self) -> Option<u64> {
        let look = &self.target;
        let changed = look.shrunk.is_some() || look.stray.is_some();
        changed.then(|| look.looked_ns.saturating_add(LOOK_EVERY_NS))
    }

    /// State of the store by what is known at this time.
    pub(super) fn judged(&self, now_ns: u64) -> Health {
        if let Some(reason) = &self.target.shrunk {
            return Health::new(StoreState::Failed, reason);
        }
        if let Some(out) = self.io.judge.out() {
            return out.clone();
        }
        if let Some(io) = self.io.hanging(now_ns) {
            let reason = hang_reason(&io, self.limits.io_timeout);
            return Health::new(StoreState::Failed, &reason.into());
        }
        if let Some(reason) = self.shared.failed.get() {
            return Health::new(StoreState::ReadOnly, reason);
        }
        if let Some(reason) = self.limits.read_only {
            return Health::new(StoreState::ReadOnly, &reason.into());
        }
        if let Some(why) = self.io.judge.refuses_writes() {
            return Health::new(StoreState::ReadOnly, &trial::reason(why));
        }
        if let Some(reason) = self.journal_refused.as_ref().or(self.target.stray.as_ref()) {
            return Health::new(StoreState::ReadOnly, reason);
        }
        let places = self.storage.data.bad_places().len();
        if places >= BAD_PLACES {
            let reason = format!("the disk has refused to write {places} places; replace it");
            return Health::new(StoreState::Degraded, &reason.into());
        }
        match self.io.judge.last_error() {
            Some(reason) => Health::new(StoreState::Degraded, reason),
            None => Health::default(),
        }
    }

    /// True: nothing may be written.
    pub(super) fn writes_nothing(&self) -> bool {
        self.limits.read_only.is_some() || self.shared.failed.get().is_some()
    }

    /// Sets room in the journal aside for the record of a put.
    pub(super) fn reserve_record(&mut self, record_len: u64) -> Result<(), Error> {
        let journal = &mut self.storage.journal;
        let live = self.storage.index.record_bytes() + self.unfinished.record_bytes;
        if live + record_len > journal.live_limit(record_len) {
            let capacity = journal.capacity();
            let reserve = capacity - journal.live_limit(record_len).min(capacity);
            let used = (live + reserve).min(capacity);
            return Err(Error::JournalFull {
                needed: record_len,
                used,
                capacity,
            });
        }
        journal.note_record(record_len);
        self.unfinished.record_bytes += record_len;
        Ok(())
    }

    /// The blocks of a lump that is no more come back when that is durable.
    pub(super) fn release(&mut self, old: Option<IndexEntry>) {
        if let Some(portion) = old.and_then(IndexEntry::portion) {
            self.storage.data.defer(portion);
        }
    }

    /// A read of these blocks has ended.
    pub(super) fn unpin(&mut self, portion: Portion) {
        self.freed |= self.storage.data.unpin(portion);
    }

    /// A read of these blocks that was to end goes on until this is dropped.
    pub(super) fn keep_open(&mut self, portion: Portion) -> Pin {
        self.storage.data.keep_open(portion);
        Pin {
            portion,
            released: Arc::clone(&self.shared.released),
            waker: self.io.device.backend.waker(),
        }
    }

    /// Lets go of the blocks of lumps that are read no more, or will not be put.
    pub(super) fn let_go(&mut self) {
        for portion in self.shared.unused.take() {
            self.storage.data.free_unused(portion);
            self.freed = true;
        }
        for portion in self.shared.released.take() {
            self.freed |= self.storage.data.closed(portion);
        }
    }

    /// Expectations of a portion's bytes, for whoever verifies them.
    pub(super) fn subject(&self, id: LumpId, portion: Portion, entry: IndexEntry) -> Subject {
        let Storage {
            geometry, journal, ..
        } = &self.storage;
        let block_size = geometry.block_size();
        Subject {
            id,
            blocks: portion.len(),
            block_size,
            provenance: journal.provenance(entry),
            expected_len: entry.payload_len(block_size),
        }
    }

    /// Reads the first unit of the store, to see whether the disk is well, unless that is under way.
    pub(super) fn try_disk(&mut self) {
        if !self.io.judge.trial_begins() {
            return;
        }
        let offset = self.storage.geometry.base().0;
        let len = u64::from(self.io.device.alignment);
        self.io.read(Tag::Trial, offset, len, Vec::new());
    }

    /// Writes both header blocks, which must not be busy, with this head and a sum of the log there or
    /// behind it. The claim is looked at first: an image that somebody else has opened or overwritten
    /// has other headers.
    pub(super) fn write_header(&mut self, tag: Tag, head: (RingPosition, LogSum)) {
        self.header.busy = true;
        let end = self.durable_end();
        let bytes = self.storage.header_blocks(head, self.header.mark, end);
        let blocks = self.io.pool.copy_of(&bytes);
        let before = self.header.copied.replace(end.log_end);
        self.header.copied_ns = monotonic_ns();
        self.header.lacks_places = false;
        let offset = self.storage.geometry.base().0;
        if self.storage.claim.is_none() {
            return self.io.write((tag, false), offset, blocks, Vec::new());
        }
        let look = Tag::Claim(Box::new((tag, blocks)), before);
        let len = u64::from(self.io.device.alignment);
        self.io.read(look, offset, len, Vec::new());
    }

    /// The header block was read: writes these blocks if it is this store's still, or cannot be read.
    /// `copied`: log offset of the journal's end in its checked copy.
    pub(super) fn claim_read(
        &mut self,
        (tag, blocks): (Tag, AlignedBuf),
        copied: Option<u64>,
        sector: Option<&AlignedBuf>,
    ) -> Result<(), Error> {
        if let Some(sector) = sector {
            let found = claim::decode(sector);
            // An older one is there when the image was overwritten by a copy.
            let copy = FoundCopy::of_block(sector).intact();
            let is_older = |(copied, copy): (u64, CheckedCopy)| copied != copy.seal.log_end;
            let is_older = copied.zip(copy).is_some_and(is_older);
            if found != self.storage.claim || is_older {
                let other = found.filter(|_| !is_older);
                return Err(claim_lost(&self.io.device.path, other));
            }
        }
        let offset = self.storage.geometry.base().0;
        self.io.write((tag, false), offset, blocks, Vec::new());
        Ok(())
    }

    /// The journal has an end that was just written.
    pub(super) fn end_written(&mut self) {
        let written = self.io.written();
        self.header.durable = self.durable_end();
        self.header.visible = (self.storage.journal.end_seal(), written);
    }

    /// The last end of the journal that is known to be durable: the checked copies prove it, so that
    /// a write which the disk loses later is found (FORMAT.md section 5.7).
    fn durable_end(&self) -> Seal {
        let (end, written) = self.header.visible;
        if self.io.is_durable(written) {
            end
        } else {
            self.header.durable
        }
    }

    /// True: the headers lack bad places; or the journal has an end of its own that the copies in
    /// the headers do not tell of, and they are missing, or it is time, or the store is closed.
    pub(super) fn headers_are_old(&self) -> bool {
        let due = self.copies_due_ns();
        let is_time = due.is_some_and(|due_ns| due_ns <= monotonic_ns());
        let is_sealed = self.storage.journal.is_sealed();
        let old = match self.header.copied {
            None => true,
            Some(copied) if self.closing => copied != self.storage.journal.log_end(),
            Some(_) => is_time,
        };
        self.header.lacks_places || (old && is_sealed)
    }

    /// When the copies are to be written, because the journal has a newer durable end.
    pub(super) fn copies_due_ns(&self) -> Option<u64> {
        let log_end = self.durable_end().log_end;
        let is_newer = self.header.copied.is_some_and(|copied| copied != log_end);
        is_newer.then(|| self.header.copied_ns.saturating_add(COPIES_AFTER_NS))
    }

    /// Sets a place aside that the disk refused to write, and tells of it.
    pub(super) fn set_aside(&mut self, portion: Portion, id: LumpId, why: &Error) {
        self.storage.data.set_aside(portion);
        self.header.lacks_places = true;
        let (kind, geometry) = (FindingKind::Write, &self.storage.geometry);
        self.report(Finding::of_portion(
            kind,
            geometry,
            id,
            portion,
            why.to_string(),
        ));
    }

    /// Tells of the places that were set aside before the store was opened.
    pub(super) fn report_bad_places(&self) {
        let geometry = &self.storage.geometry;
        let block_size = geometry.block_size().bytes();
        for (start, blocks) in self.storage.data.bad_places() {
            let offset = geometry.data_offset().0 + start * block_size;
            let why = "the disk refused to write here before the store was opened: nothing is put \
                       there";
            let (kind, len) = (FindingKind::Write, blocks * block_size);
            self.report(Finding::new(kind, offset, len, why));
        }
    }

    /// Tells of damage, where the scrubber tells of what it finds.
    pub(super) fn report(&self, finding: Finding) {
        let mut status = self.shared.scrub.locked();
        status.findings.add(finding, FINDINGS);
    }

    /// Shows the present numbers to other threads; `spare`: blocks of runs that no put has.
    pub(super) fn publish(&self, spare: u64) {
        let (counters, storage) = (&self.shared.counters, &self.storage);
        let block_size = storage.geometry.block_size().bytes();
        let allocator = storage.data.allocator();
        counters.lumps.set(storage.index.len());
        counters
            .data_capacity_bytes
            .set(storage.geometry.data_len().0);
        counters
            .data_used_bytes
            .set((storage.data.used_blocks() - spare) * block_size);
        counters
            .bad_bytes
            .set(storage.data.bad_blocks() * block_size);
        counters
            .bad_places
            .set(storage.data.bad_places().len() as u64);
        counters
            .largest_free_bytes
            .set(allocator.largest() * block_size);
        counters.free_extents.set(allocator.extents());
        counters
            .fragmentation_ppm
            .set(allocator.fragmentation_ppm());
        counters
            .index_memory_bytes
            .set(storage.index.memory_bytes());
        counters
            .journal_capacity_bytes
            .set(storage.journal.capacity());
        counters.journal_used_bytes.set(storage.journal.used());
        counters
            .journal_live_bytes
            .set(storage.index.record_bytes());
        counters.pending.set(self.unfinished.count() as u64);
        counters.in_flight_ios.set(self.io.len() as u64);
    }
}
