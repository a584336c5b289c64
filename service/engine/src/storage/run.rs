//! Finds the puts of a run that have no records yet (FORMAT.md section 8.2), and writes these.

use std::collections::{BTreeMap, BTreeSet};

use super::Storage;
use super::index::IndexEntry;
use super::io::BlockingIo;
use super::journal::gc::Relocation;
use super::journal::writer::Batch;
use super::journal::{FoundEnd, Journal};
use super::lumps::Lumps;
use super::salvage::write_batch;
use super::unrecorded::Unrecorded;
use super::unsettled::{DataState, Flip, PIECE, examine};
use crate::error::Error;
use crate::format::record::{Decoded, MAX_RECORD_LEN, PUT_LEN, Record};
use crate::format::run::{Annex, Link, OpenRun};
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::mutant::{self, Mutant};
use crate::options::{TailOutcome, UnsettledTail};
use crate::request::LumpRange;
use crate::units::{BlockCount, BlockIndex, RingPosition, to_usize};

/// Findings in the run that the end of a journal names.
#[derive(Debug)]
pub(crate) struct FoundRun {
    /// The puts that count, in their order.
    puts: Vec<FoundPut>,
    /// Bits of their data to be flipped back.
    pub(crate) flips: Vec<Flip>,
    pub(crate) report: UnsettledTail,
}

/// A put that was found.
#[derive(Debug)]
struct FoundPut {
    id: LumpId,
    portion: Portion,
    annex: Option<Annex>,
}

impl FoundPut {
    /// Bytes of records beside that of the data.
    fn records(&self) -> &[u8] {
        self.annex.as_ref().map_or(&[], |annex| &annex.records)
    }
}

/// A put by its link.
#[derive(Clone, Copy)]
struct Linked {
    link: Link,
    portion: Portion,
    /// Bytes from the link to the end.
    from_end: usize,
}

/// Reads the run. `None`: the journal names none.
fn find_puts(io: &mut BlockingIo<'_>, geometry: &Geometry, end: &FoundEnd) -> Option<FoundRun> {
    let run = end.run?;
    let mut links = links_of(io, geometry, run);
    let durable = links.values().map(|put| put.link.durable).max();
    let durable = durable.unwrap_or(0);
    let mut found = FoundRun {
        puts: Vec::new(),
        flips: Vec::new(),
        report: UnsettledTail {
            ring_position: end.tail.0,
            puts: 0,
            outcome: TailOutcome::Whole,
            lumps: Vec::new(),
        },
    };
    let log_end = end.seal.map_or(0, |seal| seal.log_end);
    let mut number = run.number;
    loop {
        let Some(linked) = links.remove(&number) else {
            // A link that is gone: the put was durable if a later one says so.
            let next = links.keys().next().copied();
            match next.filter(|_| number < durable && !mutant::is(Mutant::CutsRot)) {
                Some(next) => number = next,
                None => break,
            }
            found.report.outcome = TailOutcome::Damaged;
            continue;
        };
        let Linked { link, portion, .. } = linked;
        let annex = link.annexed.then(|| annex_of(io, geometry, linked));
        let is_torn = matches!(annex, Some(None));
        let put = FoundPut {
            id: link.id,
            portion,
            // What cannot be known is no reason to lose an older lump.
            annex: annex.map(|annex| {
                annex.unwrap_or(Annex {
                    if_absent: true,
                    records: Vec::new(),
                })
            }),
        };
        let was_durable = number < durable && !mutant::is(Mutant::CutsRot);
        match examine(io, geometry, (link.id, portion)) {
            // What was answered before it is not there.
            _ if link.log_end > log_end && !mutant::is(Mutant::ForgetsLog) => {
                found.report.outcome = TailOutcome::Dropped;
                break;
            }
            DataState::Found { samples, flip, .. } if samples == link.samples && !is_torn => {
                found.flips.extend(flip);
                found.keep(put, flip.is_some());
            }
            DataState::Unreadable => found.keep(put, true),
            _ if mutant::is(Mutant::TrustsData) => found.keep(put, false),
            _ if was_durable => found.keep(put, true),
            _ => {
                // Torn: nobody was told of it, nor of those behind it.
                found.report.outcome = TailOutcome::Dropped;
                break;
            }
        }
        number += 1;
    }
    if !links.is_empty() {
        found.report.outcome = TailOutcome::Dropped;
    }
    found.report.puts = found.puts.len() as u64;
    Some(found)
}

impl FoundRun {
    /// Applies the puts to the state that a journal with this tail has brought about.
    fn apply(&self, tail: RingPosition, lumps: &mut Lumps) -> Unrecorded {
        let Lumps { index, outside, .. } = lumps;
        let mut unrecorded = Unrecorded::default();
        for put in &self.puts {
            let FoundPut { id, portion, .. } = *put;
            let if_absent = put.annex.as_ref().is_some_and(|annex| annex.if_absent);
            // It was refused, when its turn came.
            if if_absent && index.get(id).is_some() && !mutant::is(Mutant::ForgetsConditions) {
                continue;
            }
            outside.forget(id);
            index.insert(id, IndexEntry::data(tail, portion, None));
            let mut changed = vec![id];
            let mut rest = put.records();
            while let Ok(Decoded::Record { record, len }) = Record::decode(rest) {
                let bytes = rest.get(..len).unwrap_or_default();
                match record {
                    Record::Embed { id, data } => {
                        let len = u16::try_from(data.as_slice().len()).unwrap_or(u16::MAX);
                        outside.forget(id);
                        index.insert(id, IndexEntry::embedded(tail, len));
                        unrecorded.note_embedded(id, tail, bytes.to_vec());
                        changed.push(id);
                    }
                    Record::Delete { id } => {
                        outside.forget(id);
                        index.remove(id);
                        changed.push(id);
                    }
                    _ => break,
                }
                rest = rest.get(len..).unwrap_or_default();
            }
            let bytes = (PUT_LEN + put.records().len()) as u64;
            unrecorded.note(changed.into_iter(), bytes);
        }
        unrecorded
    }

    fn keep(&mut self, put: FoundPut, damaged: bool) {
        if damaged {
            self.report.outcome = TailOutcome::Damaged;
            self.report.lumps.push(put.id);
        }
        self.puts.push(put);
    }

    /// How many of the first puts have records of at most so many bytes, one for the data of a lump.
    fn puts_within(&self, most: u64) -> usize {
        let (mut seen, mut bytes) = (BTreeSet::new(), 0);
        let fits = |put: &&FoundPut| {
            bytes += if seen.insert(put.id) { PUT_LEN } else { 0 } + put.records().len();
            bytes as u64 <= most
        };
        self.puts.iter().take_while(fits).count()
    }

    /// Leaves out the last puts, for whose records there is no room: no store has answered them.
    fn truncate(&mut self, most: usize) {
        if self.puts.len() > most {
            self.puts.truncate(most);
            self.report.outcome = TailOutcome::Dropped;
            self.report.puts = most as u64;
        }
    }
}

/// The links in a run of puts that may have no record, by their numbers.
fn links_of(io: &mut BlockingIo<'_>, geometry: &Geometry, run: OpenRun) -> BTreeMap<u64, Linked> {
    let block = geometry.block_size().bytes();
    let mut links = BTreeMap::new();
    let end = run.start.saturating_add(run.blocks.into());
    let (mut at, end) = (run.start, end.min(geometry.data_blocks()));
    let at_once = (PIECE / block).max(1);
    while at < end {
        let count = at_once.min(end - at);
        let offset = geometry.data_offset().0 + at * block;
        // Where a block cannot be read, the others are read one by one.
        let pieces = match io.read(offset, count * block) {
            Ok(bytes) => vec![(at, bytes)],
            Err(_) => (0..count)
                .filter_map(|n| Some((at + n, io.read(offset + n * block, block).ok()?)))
                .collect(),
        };
        for (first, bytes) in pieces {
            let blocks = bytes.chunks(to_usize(block));
            for (number, bytes) in (first..).zip(blocks) {
                let put = Link::find(bytes, run.key).and_then(|link| linked(link, run, number));
                if let Some(put) = put {
                    links.entry(put.link.number).or_insert(put);
                }
            }
        }
        at += count;
    }
    links
}

/// The put whose last block is this one; `None`: a link cannot say so.
fn linked((link, from_end): (Link, usize), run: OpenRun, last: u64) -> Option<Linked> {
    let start = (last + 1).checked_sub(link.blocks.into())?;
    let portion = Portion::new(BlockIndex(start), BlockCount(link.blocks)).ok()?;
    (run.start <= start && run.number <= link.number).then_some(Linked {
        link,
        portion,
        from_end,
    })
}

/// The annex before a link; `None`: it is not whole.
fn annex_of(io: &mut BlockingIo<'_>, geometry: &Geometry, linked: Linked) -> Option<Annex> {
    let Linked {
        link,
        portion,
        from_end,
    } = linked;
    portion.check_within(geometry.data_blocks()).ok()?;
    let block_size = geometry.block_size();
    let len = portion.byte_len(block_size).0;
    let most = (from_end + Annex::len_with(u16::MAX.into())) as u64;
    let most = most.next_multiple_of(block_size.bytes()).min(len);
    let start = geometry.portion_offset(portion).0 + len - most;
    let bytes = io.read(start, most).ok()?;
    Annex::decode(bytes.get(..bytes.len().checked_sub(from_end)?)?, &link)
}

/// Applies the puts of the run that the end of a journal names, as if their records stood there.
/// `used`: bytes of the ring between head and tail.
pub(crate) fn apply(
    io: &mut BlockingIo<'_>,
    (geometry, used): (&Geometry, u64),
    end: &FoundEnd,
    lumps: &mut Lumps,
) -> Option<(FoundRun, Unrecorded)> {
    let mut run = find_puts(io, geometry, end)?;
    let free = geometry.ring_len().0.saturating_sub(used);
    let room = |largest| Journal::room_for_puts(free, largest, io.unit());
    // A record for each lump, as the store has counted them that has answered.
    if run.puts_within(room(MAX_RECORD_LEN as u64)) < run.puts.len() {
        let records = lumps.index.range(LumpRange::ALL);
        let largest = records.map(|(_, entry)| entry.record_len()).max();
        let most = room(largest.unwrap_or(0).max(PUT_LEN as u64));
        run.truncate(run.puts_within(most));
    }
    let unrecorded = run.apply(end.tail, lumps);
    Some((run, unrecorded))
}

/// Writes the records of puts that were found, and with them an end that names no run.
///
/// # Errors
/// [`Error::NoRoomForRepair`]: nothing was written. [`Error::Io`], [`Error::NoSpace`]: opening finds
/// these puts again.
pub(crate) fn write_records(io: &mut BlockingIo<'_>, storage: &mut Storage) -> Result<(), Error> {
    let Storage {
        index,
        journal,
        unrecorded,
        ..
    } = storage;
    let mut batch = Batch::new(journal);
    let places = unrecorded.append(index, journal, &mut batch);
    let places = places.ok_or(Error::NoRoomForRepair {
        needed: unrecorded.bytes(),
        ring_position: journal.tail().0,
    })?;
    write_batch(io, &storage.geometry, journal, batch)?;
    for Relocation { id, to, .. } in places {
        index.update(id, |entry| entry.moved_to(to, false));
    }
    *unrecorded = Unrecorded::default();
    Ok(())
}
