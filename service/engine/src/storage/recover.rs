//! Opens what is on the disk: finds the image, checks its header, replays the journal.
//!
//! Runs on the thread that opens the store, before there is an owner thread. Nothing is written;
//! the caller flushes once, so that what was read is what a power cut leaves.
//!
//! Beside the index itself opening takes 4 MiB for reading ahead and the map of used blocks (a bit
//! a block, or 8 bytes a lump where that is less) and 12 MiB for changes that are collected, whatever
//! the bytes on the disk say; lumps that claim blocks outside the data region take what others take
//! in the index.

use super::Storage;
use super::checkpoint::{self, CheckpointPlace};
use super::data_region::DataRegion;
use super::headers;
use super::index::Index;
use super::io::{self, BlockingIo};
use super::journal::{FoundEnd, Journal, JournalFindings};
use super::log_sum::{KnownSum, differs};
use super::lumps::Lumps;
use super::progress::DurableEnds;
use super::replay::{Broken, Replay, Rotted, Route};
use super::run::{self, FoundRun};
use super::salvage::{self, Salvaged};
use super::space::used_blocks;
use super::unrecorded::Unrecorded;
use super::unsettled::{self, Flip, LogEnd, Unsettled};
use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::finding::Finding;
use crate::finding::salvage::with_hint;
use crate::format::copies::CheckedCopy;
use crate::format::journal_header::ScrubMark;
use crate::format::record::PREFIX_LEN;
use crate::format::seal::LogSum;
use crate::format::verify::Subject;
use crate::format::{Geometry, Portion, Seal};
use crate::lump::LumpId;
use crate::options::{CheckpointUse, Layout, ReplaySummary, UnsettledTail};
use crate::units::RingPosition;

/// A store as found on the disk.
pub(crate) struct Recovered {
    pub(crate) storage: Storage,
    pub(crate) layout: Layout,
    /// The seal at the journal's end; `None`: another engine wrote there last.
    pub(crate) seal: Option<Seal>,
    /// How far the scrubber had come.
    pub(crate) scrub_mark: Option<ScrubMark>,
    pub(crate) replay: ReplaySummary,
    /// Where the next checkpoint goes; `None`: nowhere.
    pub(crate) checkpoint: Option<CheckpointPlace>,
    /// Findings of salvage mode; `None`: another mode.
    pub(crate) salvaged: Option<Salvaged>,
    /// Damage that was got over: what is on the disk is to be written anew.
    pub(crate) mended: Vec<Finding>,
    /// The bits of the ring that have flipped.
    pub(crate) flips: Vec<(RingPosition, u8)>,
    /// Log offset of the journal's end in the checked copies; `None`: they are missing.
    pub(crate) copied: Option<u64>,
    /// The last batch, if its seal is not settled: the end is to be written anew.
    pub(crate) unsettled: Option<UnsettledTail>,
    /// Bits of its data to be flipped back before that.
    pub(crate) data_flips: Vec<Flip>,
}

/// Reads the store on a device; `salvage`: also one that is damaged (FORMAT.md section 13).
pub(crate) fn recover(io: &mut BlockingIo<'_>, salvage: bool) -> Result<Recovered, Error> {
    match read(io, salvage, None)? {
        ReadOutcome::Done(recovered) => Ok(*recovered),
        ReadOutcome::Torn(tail, end) => match read(io, salvage, Some(end))? {
            ReadOutcome::Done(mut recovered) => {
                recovered.unsettled = Some(tail);
                // They may tell of the batch that is no more.
                recovered.copied = None;
                Ok(*recovered)
            }
            ReadOutcome::Torn(..) => Err(Error::CorruptJournal {
                ring_position: end.tail.0,
                why: "its end is not where its last batch begins".to_owned(),
            }),
        },
    }
}

/// Result of reading a store.
enum ReadOutcome {
    Done(Box<Recovered>),
    /// Data of the last batch is missing, so the journal ends before it.
    Torn(UnsettledTail, LogEnd),
}

fn read(
    io: &mut BlockingIo<'_>,
    salvage: bool,
    ends: Option<LogEnd>,
) -> Result<ReadOutcome, Error> {
    let started_ns = monotonic_ns();
    let mut headers = headers::find(io)?;
    let (geometry, header) = (headers.geometry, headers.header);
    let mut store = headers.store(io, ends)?;
    let checkpoints = checkpoint::read_headers(io, &store);
    let newest = checkpoints.newest();
    newest.for_each(|header| store.progress.add_checkpoint(header));
    let (place, found) = checkpoint::find(io, &store, checkpoints, !salvage);
    let (mut replayed, checkpoint_use, salvaged) = match found {
        Ok(replayed) => (replayed, CheckpointUse::Used, None),
        Err(why) => {
            let (replayed, salvaged) = store.replay_all(io, salvage)?;
            (replayed, why, salvaged)
        }
    };
    let (unsettled, data_flips) = match replayed.judge(io, &geometry) {
        Ok(judged) => judged,
        Err((tail, end)) => return Ok(ReadOutcome::Torn(tail, end)),
    };
    let (records, bytes) = (replayed.applied.records, replayed.applied.bytes);
    let unrecorded = std::mem::take(&mut replayed.unrecorded);
    let mut mended = headers.findings;
    let cut = salvaged.as_ref().is_some_and(|it| it.report.cut.is_some());
    let (found, index, data, flips) = replayed.into_found(io, &store, cut, &mut mended);
    let seal = found.end.seal;
    let copied = store.copied.filter(|_| found.sums.is_some());
    let summary = ReplaySummary {
        records,
        bytes,
        lumps: index.len(),
        checkpoint: checkpoint_use,
        elapsed_ns: monotonic_ns().saturating_sub(started_ns),
    };
    let storage = Storage {
        header,
        name: headers.name,
        claim: headers.claim,
        geometry,
        index,
        data: data.remembering(&headers.bad_places),
        journal: Journal::new(&geometry, io.unit(), found),
        unrecorded,
    };
    Ok(ReadOutcome::Done(Box::new(Recovered {
        storage,
        layout: headers.layout,
        seal,
        scrub_mark: headers.scrub_mark,
        replay: summary,
        checkpoint: place,
        salvaged,
        mended,
        flips,
        copied,
        unsettled,
        data_flips,
    })))
}

/// A store whose headers are read.
pub(crate) struct FoundStore {
    pub(crate) geometry: Geometry,
    pub(crate) uuid: [u8; 16],
    pub(crate) head: RingPosition,
    /// The checked copy that says the same.
    pub(crate) copy: Option<CheckedCopy>,
    /// Log offset of the journal's end that both copies tell of; `None`: they are to be written anew.
    pub(super) copied: Option<u64>,
    /// Where the journal ends; `None`: where replay finds an end.
    pub(crate) ends: Option<LogEnd>,
    /// How far the journal has come at least.
    pub(crate) progress: DurableEnds,
}

/// A store whose journal is replayed.
pub(super) struct Replayed {
    pub(super) applied: Applied,
    data: DataRegion,
    largest_record: u64,
    run: Option<FoundRun>,
    unrecorded: Unrecorded,
}

impl Replayed {
    /// What the journal, the index and the data region are made of, and the bits of the ring that have
    /// flipped. `told`: damage that was got over.
    fn into_found(
        self,
        io: &mut BlockingIo<'_>,
        store: &FoundStore,
        cut: bool,
        told: &mut Vec<Finding>,
    ) -> (JournalFindings, Index, DataRegion, Vec<(RingPosition, u8)>) {
        let Applied {
            mut end,
            sum,
            lumps,
            rotted,
            ..
        } = self.applied;
        // They hold if that of the seal follows from them.
        let by_seal = end.seal.and_then(|seal| seal.log_sum);
        let sums = store.sums().filter(|_| sum.is_some() && sum == by_seal);
        told.extend(headers::seal_by_copy(store, &mut end, cut));
        io::widen(io, &store.geometry, &mut end);
        let flips = Rotted::make_good(rotted, &mut end, told);
        if let Some(seal) = &mut end.seal {
            seal.log_sum = seal.log_sum.or(sum);
        }
        let found = JournalFindings {
            uuid: store.uuid,
            head: store.head,
            end,
            largest_record: self.largest_record,
            mark_bytes: lumps.mark_bytes,
            sums,
        };
        (found, lumps.index, self.data, flips)
    }

    /// Judges the last batch, or takes what was found in the run; an error: the log ends before.
    fn judge(
        &mut self,
        io: &mut BlockingIo<'_>,
        geometry: &Geometry,
    ) -> Result<Unsettled, (UnsettledTail, LogEnd)> {
        if let Some(run) = self.run.take() {
            return Ok((Some(run.report), run.flips));
        }
        unsettled::judge_end(io, geometry, &self.applied.end)
    }
}

/// State brought about by the records before those to be replayed.
pub(super) struct Before {
    pub(super) index: Index,
    pub(super) mark_bytes: u64,
    /// A sum of the log at their end, or behind it.
    pub(super) sums: Option<KnownSum>,
}

/// Records applied; whether the lumps can be where these say is not looked at yet.
pub(super) struct Applied {
    pub(super) lumps: Lumps,
    pub(super) records: u64,
    bytes: u64,
    pub(super) end: FoundEnd,
    /// Damaged records that were understood.
    rotted: Vec<Rotted>,
    sum: Option<u32>,
}

impl FoundStore {
    /// Applies all records from `start` on, the head or a position behind it, to what those before
    /// it have brought about.
    pub(super) fn replay(
        &self,
        io: &mut BlockingIo<'_>,
        start: RingPosition,
        before: Before,
    ) -> Result<Replayed, Error> {
        let applied = self.apply(io, start, before, Route::default());
        let applied = applied.map_err(|broken| broken.error)?;
        applied.lumps.outside.refuse(&self.geometry)?;
        self.prove(io, &applied)?;
        self.finish(io, applied)
    }

    /// Applies the records on a route.
    pub(super) fn apply(
        &self,
        io: &mut BlockingIo<'_>,
        start: RingPosition,
        before: Before,
        route: Route<'_>,
    ) -> Result<Applied, Box<Broken>> {
        let mut lumps = Lumps::new(before.index, before.mark_bytes);
        let sums = before.sums.map(|known| known.sum);
        let mut replay = Replay::new(self, start, sums);
        replay.run(io, route, |placed| {
            lumps.apply(&self.geometry, placed);
            true
        })?;
        let sum = replay.sum();
        let end = replay.end(io, route).and_then(|end| {
            let epoch = end.seal.map(|seal| seal.epoch);
            let is_known = before.sums.map(|known| known.epoch) == epoch;
            match (route.stop, self.ends) {
                (None, None) => self.refute(end, sum.filter(|_| is_known)),
                _ => Ok(end),
            }
        });
        let end = end.map_err(|error| replay.broken(error, PREFIX_LEN as u64))?;
        Ok(Applied {
            lumps: lumps.settled(),
            records: replay.records,
            bytes: replay.bytes,
            end,
            sum,
            rotted: replay.rotted,
        })
    }

    /// Refuses an end that the journal has left behind, or to which the records do not lead. `sum`: of
    /// the log up to there.
    fn refute(&self, end: FoundEnd, sum: Option<u32>) -> Result<FoundEnd, Error> {
        let used = self.head.distance_to(end.tail, self.geometry.ring_len());
        let refuted = self.progress.refutes(self.copy.as_ref(), used, end.seal);
        match refuted.or_else(|| differs(end.seal, sum)) {
            Some(why) => Err(Error::CorruptJournal {
                ring_position: end.tail.0,
                why,
            }),
            None => Ok(end),
        }
    }

    /// Refuses a journal with a put that was made good and counts, but whose lump does not say that
    /// it is the one: several flipped bits can look like one.
    fn prove(&self, io: &mut BlockingIo<'_>, applied: &Applied) -> Result<(), Error> {
        // The puts of an unsettled batch are proved otherwise.
        let unsettled = applied.end.unsettled_records();
        let settled = |rotted: &&Rotted| !unsettled.contains(&rotted.position);
        for rotted in applied.rotted.iter().filter(settled) {
            let Some((id, portion)) = rotted.finding.lump.and_then(|id| {
                let entry = applied.lumps.index.get(id)?;
                let portion = entry.portion()?;
                (entry.record() == rotted.position).then_some((id, portion))
            }) else {
                continue;
            };
            if !self.is_proved(io, id, portion) {
                return Err(Error::CorruptJournal {
                    ring_position: rotted.position.0,
                    why: format!("the put of lump {id} is damaged, and its lump does not prove it"),
                });
            }
        }
        Ok(())
    }

    /// True: the trailer of the lump says that it is this one, of this length.
    pub(super) fn is_proved(&self, io: &mut BlockingIo<'_>, id: LumpId, portion: Portion) -> bool {
        let block_size = self.geometry.block_size();
        let end = self.geometry.portion_offset(portion).0 + portion.byte_len(block_size).0;
        let subject = Subject::own(id, portion, block_size);
        let last = io.read(end - block_size.bytes(), block_size.bytes());
        last.is_ok_and(|last| subject.judge_end(&last).is_ok())
    }

    /// Takes the blocks of all lumps.
    pub(super) fn finish(
        &self,
        io: &mut BlockingIo<'_>,
        mut applied: Applied,
    ) -> Result<Replayed, Error> {
        let (lumps, end) = (&mut applied.lumps, &applied.end);
        let used = self.head.distance_to(end.tail, self.geometry.ring_len());
        let run = run::apply(io, (&self.geometry, used), end, lumps);
        let (run, unrecorded) = run.map_or_else(Default::default, |(run, unrecorded)| {
            (Some(run), unrecorded)
        });
        let (data, largest_record) = used_blocks(&lumps.index, &self.geometry, io.device())?;
        Ok(Replayed {
            applied,
            data,
            largest_record,
            run,
            unrecorded,
        })
    }

    /// The state before any record.
    pub(super) fn nothing(&self) -> Before {
        Before {
            index: Index::new(&self.geometry),
            mark_bytes: 0,
            sums: self.copy.and_then(|copy| {
                let (epoch, sum) = (copy.seal.epoch, copy.sums?);
                Some(KnownSum { epoch, sum })
            }),
        }
    }

    /// The sum of the log that the checked copy has.
    fn sums(&self) -> Option<LogSum> {
        self.copy.and_then(|copy| copy.sums)
    }

    /// All records, without a checkpoint.
    fn replay_all(
        &self,
        io: &mut BlockingIo<'_>,
        salvage: bool,
    ) -> Result<(Replayed, Option<Salvaged>), Error> {
        if salvage {
            let (replayed, salvaged) = salvage::replay(io, self)?;
            return Ok((replayed, Some(salvaged)));
        }
        let replayed = self.replay(io, self.head, self.nothing());
        Ok((replayed.map_err(with_hint)?, None))
    }
}
