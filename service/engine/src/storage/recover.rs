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
use super::headers::{self, FoundHeaders};
use super::index::{Batched, Index};
use super::io::{BlockingIo, RingReader};
use super::journal::{FoundEnd, Journal, JournalFindings};
use super::log_sum::{KnownSum, Summing, differs};
use super::lumps::Lumps;
use super::outside::Outside;
use super::progress::DurableEnds;
use super::run::{self, FoundRun};
use super::salvage::{self, Salvaged};
use super::space::used_blocks;
use super::unrecorded::Unrecorded;
use super::unsettled::{self, Flip, Judged, LogEnd};
use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::finding::salvage::with_hint;
use crate::finding::{Finding, FindingKind};
use crate::format::copies::CheckedCopy;
use crate::format::journal_header::ScrubMark;
use crate::format::mark::Marks;
use crate::format::mend;
use crate::format::mend::Mended;
use crate::format::record::{Decoded, MAX_RECORD_LEN, Record};
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
    let (mut store, copied) = FoundStore::find(io, &mut headers, ends)?;
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
    let (records, bytes) = (replayed.records, replayed.bytes);
    let unrecorded = std::mem::take(&mut replayed.unrecorded);
    let mut mended = headers.findings;
    let cut = salvaged.as_ref().is_some_and(|it| it.report.cut.is_some());
    let (found, index, data, flips) = replayed.into_found(io, &store, cut, &mut mended);
    let seal = found.end.seal;
    let copied = copied.filter(|_| found.sums.is_some());
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
pub(super) struct FoundStore {
    pub(super) geometry: Geometry,
    pub(super) uuid: [u8; 16],
    pub(super) head: RingPosition,
    /// The checked copy that says the same.
    pub(super) copy: Option<CheckedCopy>,
    /// Where the journal ends; `None`: where replay finds an end.
    pub(super) ends: Option<LogEnd>,
    /// How far the journal has come at least.
    pub(super) progress: DurableEnds,
}

/// A store whose journal is replayed.
pub(super) struct Replayed {
    index: Index,
    records: u64,
    bytes: u64,
    pub(super) end: FoundEnd,
    rotted: Vec<Rotted>,
    data: DataRegion,
    largest_record: u64,
    mark_bytes: u64,
    /// The sum of the log at its end; `None`: unknown.
    sum: Option<u32>,
    run: Option<FoundRun>,
    unrecorded: Unrecorded,
}

/// What an end that is not settled has led to: a report, bits to be flipped back.
/// records.
type Unsettled = (Option<UnsettledTail>, Vec<Flip>);

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
        let (mut end, sum) = (self.end, self.sum);
        // They hold if that of the seal follows from them.
        let by_seal = end.seal.and_then(|seal| seal.log_sum);
        let sums = store.sums().filter(|_| sum.is_some() && sum == by_seal);
        told.extend(headers::seal_by_copy(store, &mut end, cut));
        end.widen(&store.geometry, |offset, len| io.read(offset, len));
        let flips = Rotted::make_good(self.rotted, &mut end, told);
        if let Some(seal) = &mut end.seal {
            seal.log_sum = seal.log_sum.or(sum);
        }
        let found = JournalFindings {
            uuid: store.uuid,
            head: store.head,
            end,
            largest_record: self.largest_record,
            mark_bytes: self.mark_bytes,
            sums,
        };
        (found, self.index, self.data, flips)
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
        let unit = io.unit();
        let read = |offset, len| io.read(offset, len);
        match unsettled::judge_end(geometry, &self.end, unit, read) {
            Judged::Counts(tail, flips) => Ok((tail, flips)),
            Judged::Dropped(tail, end) => Err((tail, end)),
        }
    }
}

/// State brought about by the records before those to be replayed.
pub(super) struct Before {
    pub(super) index: Index,
    pub(super) outside: Outside,
    pub(super) mark_bytes: u64,
    /// A sum of the log at their end, or behind it.
    pub(super) sums: Option<KnownSum>,
}

/// Records applied; whether the lumps can be where these say is not looked at yet.
pub(super) struct Applied {
    pub(super) index: Index,
    pub(super) outside: Outside,
    pub(super) records: u64,
    /// Those of them that put a lump.
    pub(super) puts: u64,
    pub(super) bytes: u64,
    pub(super) end: FoundEnd,
    /// Damaged records that were understood.
    pub(super) rotted: Vec<Rotted>,
    mark_bytes: u64,
    sum: Option<u32>,
}

impl Applied {
    /// The state that these records have brought about, and the damaged ones of them.
    pub(super) fn go_on(self) -> (Before, Vec<Rotted>) {
        let before = Before {
            index: self.index,
            outside: self.outside,
            mark_bytes: self.mark_bytes,
            sums: None,
        };
        (before, self.rotted)
    }
}

/// A record that cannot be applied.
pub(super) struct Broken {
    pub(super) error: Error,
    /// Its position.
    pub(super) at: RingPosition,
    /// Where the log ends when nothing that stands at the front of the ring is of this round of
    /// it; else `at`.
    pub(super) cut: RingPosition,
}

impl FoundStore {
    /// Finds the head of the journal. Beside it: log offset of the end in the checked copies.
    fn find(
        io: &mut BlockingIo<'_>,
        headers: &mut FoundHeaders,
        ends: Option<LogEnd>,
    ) -> Result<(Self, Option<u64>), Error> {
        let mut store = Self {
            geometry: headers.geometry,
            uuid: headers.header.uuid,
            head: RingPosition(0),
            copy: None,
            ends,
            progress: DurableEnds::default(),
        };
        let found = headers.ring_head(|copy| headers::leads(io, &store, copy))?;
        (store.head, store.copy) = (found.head, found.copy);
        store.progress = found.progress;
        Ok((store, found.copied))
    }

    /// Applies all records from `start` on, the head or a position behind it, to what those before
    /// it have brought about.
    pub(super) fn replay(
        &self,
        io: &mut BlockingIo<'_>,
        start: RingPosition,
        before: Before,
    ) -> Result<Replayed, Error> {
        let applied = self.apply(io, start, before, None);
        let applied = applied.map_err(|broken| broken.error)?;
        applied.outside.refuse(&self.geometry)?;
        self.prove(io, &applied)?;
        self.finish(io, applied)
    }

    /// Applies the records, up to `stop` if given, where the log is taken to end.
    pub(super) fn apply(
        &self,
        io: &mut BlockingIo<'_>,
        start: RingPosition,
        before: Before,
        stop: Option<RingPosition>,
    ) -> Result<Applied, Box<Broken>> {
        let mut replay = Replay {
            reader: RingReader::new(&self.geometry),
            lumps: Lumps {
                index: Batched::new(before.index),
                outside: before.outside,
                puts: 0,
                mark_bytes: before.mark_bytes,
            },
            records: 0,
            bytes: 0,
            marks: Marks::default(),
            summing: before
                .sums
                .map(|known| Summing::new(known.sum, &self.geometry)),
            position: start,
            go_to_front: None,
            went_round: false,
            rotted: Vec::new(),
        };
        let stop = stop.or(self.ends.map(|ends| ends.tail));
        let end = match replay.run(io, self, stop) {
            Ok(()) if stop.is_some() => {
                let ends = self.ends.filter(|ends| ends.tail == replay.position);
                let end = replay.reader.cut(io, replay.position);
                end.map(|end| FoundEnd {
                    seal: ends.map(|ends| ends.seal),
                    ..end
                })
            }
            Ok(()) => {
                let end = replay.reader.end(io, self.uuid, replay.position);
                let sum = replay.sum();
                let epoch = before.sums.map(|known| known.epoch);
                end.and_then(|end| {
                    let sum = sum.filter(|_| epoch == end.seal.map(|seal| seal.epoch));
                    self.refute(end, sum)
                })
            }
            Err(error) => Err(error),
        };
        let (at, go_to_front) = (replay.position, replay.go_to_front);
        let cut = go_to_front.filter(|_| replay.went_round || at.0 == 0);
        let end = end.map_err(|error| {
            let cut = cut.unwrap_or(at);
            Box::new(Broken { error, at, cut })
        })?;
        let sum = replay.sum();
        Ok(Applied {
            index: replay.lumps.index.finish(),
            outside: replay.lumps.outside,
            records: replay.records,
            puts: replay.lumps.puts,
            bytes: replay.bytes,
            end,
            sum,
            rotted: replay.rotted,
            mark_bytes: replay.lumps.mark_bytes,
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
                let entry = applied.index.get(id)?;
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
        let Applied {
            index,
            outside,
            end,
            ..
        } = &mut applied;
        let used = self.head.distance_to(end.tail, self.geometry.ring_len());
        let run = run::apply(io, (&self.geometry, used), end, (index, outside));
        let (run, unrecorded) = run.map_or_else(Default::default, |(run, unrecorded)| {
            (Some(run), unrecorded)
        });
        let (data, largest_record) = used_blocks(&applied.index, &self.geometry, io.device())?;
        Ok(Replayed {
            index: applied.index,
            records: applied.records,
            bytes: applied.bytes,
            end: applied.end,
            rotted: applied.rotted,
            data,
            largest_record,
            mark_bytes: applied.mark_bytes,
            sum: applied.sum,
            run,
            unrecorded,
        })
    }

    /// The state before any record.
    pub(super) fn nothing(&self) -> Before {
        Before {
            index: Index::new(&self.geometry),
            outside: Outside::default(),
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

struct Replay {
    reader: RingReader,
    lumps: Lumps,
    summing: Option<Summing>,
    records: u64,
    bytes: u64,
    marks: Marks,
    /// The next record's.
    position: RingPosition,
    /// Where the record stands that led to the front of the ring.
    go_to_front: Option<RingPosition>,
    /// True: the records from the front on lead to the head, so they are those of an older round.
    went_round: bool,
    /// Damaged records that were understood.
    rotted: Vec<Rotted>,
}

impl Replay {
    /// Applies the records from `position` on, and leaves it at the `EndOfRecords`, at `stop`, or at
    /// the record that cannot be applied.
    fn run(
        &mut self,
        io: &mut BlockingIo<'_>,
        store: &FoundStore,
        stop: Option<RingPosition>,
    ) -> Result<(), Error> {
        let (ring_len, head) = (store.geometry.ring_len().0, store.head);
        let mut wrapped = self.position < head;
        let mut total = 1;
        while stop != Some(self.position) {
            let position = self.position;
            let corrupt = |why: &str| Error::CorruptJournal {
                ring_position: position.0,
                why: why.to_owned(),
            };
            if self.go_to_front.is_some() && position == head {
                self.went_round = true;
                return Err(corrupt(
                    "the records reach the head of the ring without an end",
                ));
            }
            let bytes = self.reader.at(io, position, total)?;
            let mended;
            let (raw, decoded) = match Record::decode(bytes) {
                Ok(decoded) => (bytes, decoded),
                Err(error) => {
                    mended = self
                        .mend(io, &store.geometry)?
                        .ok_or_else(|| corrupt(&error.to_string()))?;
                    let decoded = Record::decode(&mended);
                    let decoded = decoded.map_err(|error| corrupt(&error.to_string()))?;
                    (mended.as_slice(), decoded)
                }
            };
            let (record, len) = match decoded {
                Decoded::Record { record, len } => (record, len as u64),
                Decoded::NeedMore { total: more } if position.0 + more as u64 <= ring_len => {
                    total = more as u64;
                    continue;
                }
                Decoded::NeedMore { .. } => {
                    return Err(corrupt("the record reaches beyond the end of the ring"));
                }
            };
            if wrapped && position < head && position.0 + len > head.0 {
                return Err(corrupt("the record runs into the head of the ring"));
            }
            total = 1;
            let next = match record {
                Record::GoToFront if wrapped || head.0 == 0 => {
                    return Err(corrupt("a second round of the ring"));
                }
                Record::GoToFront => {
                    wrapped = true;
                    self.go_to_front = Some(position);
                    RingPosition(0)
                }
                _ => RingPosition(position.0 + len),
            };
            self.records += 1;
            self.bytes += len;
            if record == Record::EndOfRecords {
                return Ok(());
            }
            if let Some(summing) = &mut self.summing {
                let is_known = Rotted::is_known(&self.rotted, position);
                summing.add(position, raw.get(..to_usize(len)).filter(|_| is_known));
            }
            let foreign = self.marks.pass(&record);
            self.lumps
                .apply(&store.geometry, position, &record, foreign);
            self.position = next;
        }
        Ok(())
    }
}

impl Replay {
    /// The sum of the log up to the position.
    fn sum(&self) -> Option<u32> {
        self.summing.as_ref()?.sum(self.position)
    }

    /// The bytes of the damaged record at `position`; `None`: it is not understood.
    fn mend(
        &mut self,
        io: &mut BlockingIo<'_>,
        geometry: &Geometry,
    ) -> Result<Option<Vec<u8>>, Error> {
        let position = self.position;
        let bytes = self.reader.at(io, position, MAX_RECORD_LEN as u64)?;
        let Some(mended) = mend::mend(bytes) else {
            return Ok(None);
        };
        self.rotted.push(Rotted {
            position,
            flipped: mended.flipped,
            finding: mended_finding(geometry, position, &mended),
        });
        Ok(Some(mended.record))
    }
}

/// Tells of a damaged record that is understood.
pub(crate) fn mended_finding(
    geometry: &Geometry,
    position: RingPosition,
    mended: &Mended,
) -> Finding {
    let why = match mended.flipped {
        Some((at, mask)) => {
            format!("a bit of the record has flipped (byte {at}, mask {mask:#04x}); it is known")
        }
        None => "the data of an embedded lump is damaged: restore the lump from a copy".to_owned(),
    };
    let len = mended.record.len() as u64;
    let finding = Finding::of_record(FindingKind::Record, geometry, position, len, why);
    match Record::decode(&mended.record) {
        Ok(Decoded::Record {
            record: Record::Put { id, .. } | Record::Embed { id, .. } | Record::Delete { id },
            ..
        }) => finding.about(id),
        _ => finding,
    }
}

/// A record of which a bit has flipped.
pub(super) struct Rotted {
    pub(super) position: RingPosition,
    /// The byte of the record, and the bit; `None`: it is somewhere in the data.
    pub(super) flipped: Option<(usize, u8)>,
    pub(super) finding: Finding,
}

impl Rotted {
    /// Tells of the records, and returns the bits of the ring that are to be flipped back; before
    /// the end of the journal they are.
    fn make_good(
        rotted: Vec<Self>,
        end: &mut FoundEnd,
        told: &mut Vec<Finding>,
    ) -> Vec<(RingPosition, u8)> {
        let flips: Vec<_> = rotted.iter().filter_map(Self::flip).collect();
        end.flip(&flips);
        told.extend(rotted.into_iter().map(|rotted| rotted.finding));
        flips
    }

    /// True: the bytes of the last record, at this position, are what was written.
    fn is_known(rotted: &[Self], position: RingPosition) -> bool {
        let last = rotted.last().filter(|last| last.position == position);
        last.is_none_or(|last| last.flipped.is_some())
    }

    fn flip(&self) -> Option<(RingPosition, u8)> {
        let (at, mask) = self.flipped?;
        Some((RingPosition(self.position.0 + at as u64), mask))
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
