//! Finds the puts of a run that have no records yet (FORMAT.md section 8.2), and writes these.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::Storage;
use super::index::{Entry, Index};
use super::io::BlockingIo;
use super::journal::writer::Batch;
use super::journal::{FoundEnd, Journal};
use super::outside::Outside;
use super::salvage::write_batch;
use super::unsettled::{Data, Flip, PIECE, examine};
use crate::error::Error;
use crate::format::record::{MAX_RECORD_LEN, PUT_LEN, Record};
use crate::format::run::{Link, OpenRun};
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::mutant::{self, Mutant};
use crate::options::{TailOutcome, UnsettledTail};
use crate::request::LumpRange;
use crate::units::{BlockCount, BlockIndex};

/// Findings in the run that the end of a journal names.
#[derive(Debug)]
pub(crate) struct FoundRun {
    /// The puts that count, in their order.
    pub(crate) puts: Vec<(LumpId, Portion)>,
    /// Bits of their data to be flipped back.
    pub(crate) flips: Vec<Flip>,
    pub(crate) report: UnsettledTail,
}

/// A put by its link.
#[derive(Clone, Copy)]
struct Linked {
    link: Link,
    portion: Portion,
}

/// Reads the run; `read`: whole blocks. `None`: the journal names none.
pub(crate) fn find_puts<B: Deref<Target = [u8]>>(
    geometry: &Geometry,
    end: &FoundEnd,
    mut read: impl FnMut(u64, u64) -> Result<B, Error>,
) -> Option<FoundRun> {
    let run = end.run?;
    let mut links = links_of(geometry, run, &mut read);
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
        let Some(Linked { link, portion }) = links.remove(&number) else {
            // A link that is gone: the put was durable if a later one says so.
            let next = links.keys().next().copied();
            match next.filter(|_| number < durable && !mutant::is(Mutant::CutsRot)) {
                Some(next) => number = next,
                None => break,
            }
            found.report.outcome = TailOutcome::Damaged;
            continue;
        };
        let put = (link.id, portion);
        let was_durable = number < durable && !mutant::is(Mutant::CutsRot);
        match examine(geometry, put, &mut read) {
            // What was answered before it is not there.
            _ if link.log_end > log_end && !mutant::is(Mutant::ForgetsLog) => {
                found.report.outcome = TailOutcome::Dropped;
                break;
            }
            Data::Found { samples, flip, .. } if samples == link.samples => {
                found.flips.extend(flip);
                found.keep(put, flip.is_some());
            }
            Data::Unreadable => found.keep(put, true),
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
    fn keep(&mut self, put: (LumpId, Portion), damaged: bool) {
        self.puts.push(put);
        if damaged {
            self.report.outcome = TailOutcome::Damaged;
            self.report.lumps.push(put.0);
        }
    }

    /// How many of the first puts are of at most so many lumps.
    fn puts_within(&self, lumps: usize) -> usize {
        let mut seen = BTreeSet::new();
        let fits = |(id, _): &&(LumpId, Portion)| {
            seen.insert(*id);
            seen.len() <= lumps
        };
        self.puts.iter().take_while(fits).count()
    }

    /// Leaves out the last puts, for whose records there is no room: no store has answered them.
    pub(crate) fn truncate(&mut self, most: usize) {
        if self.puts.len() > most {
            self.puts.truncate(most);
            self.report.outcome = TailOutcome::Dropped;
            self.report.puts = most as u64;
        }
    }
}

/// The links in a run of puts that may have no record, by their numbers.
fn links_of<B: Deref<Target = [u8]>>(
    geometry: &Geometry,
    run: OpenRun,
    read: &mut impl FnMut(u64, u64) -> Result<B, Error>,
) -> BTreeMap<u64, Linked> {
    let block = geometry.block_size().bytes();
    let mut links = BTreeMap::new();
    let end = run.start.saturating_add(run.blocks.into());
    let (mut at, end) = (run.start, end.min(geometry.data_blocks()));
    let at_once = (PIECE / block).max(1);
    while at < end {
        let count = at_once.min(end - at);
        let offset = geometry.data_offset().0 + at * block;
        // Where a block cannot be read, the others are read one by one.
        let pieces = match read(offset, count * block) {
            Ok(bytes) => vec![(at, bytes)],
            Err(_) => (0..count)
                .filter_map(|n| Some((at + n, read(offset + n * block, block).ok()?)))
                .collect(),
        };
        for (first, bytes) in pieces {
            let blocks = bytes.chunks(usize::try_from(block).unwrap_or(usize::MAX));
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
fn linked(link: Link, run: OpenRun, last: u64) -> Option<Linked> {
    let start = (last + 1).checked_sub(link.blocks.into())?;
    let portion = Portion::new(BlockIndex(start), BlockCount(link.blocks)).ok()?;
    (run.start <= start && run.number <= link.number).then_some(Linked { link, portion })
}

/// Applies the puts of the run that the end of a journal names, as if their records stood there.
/// `used`: bytes of the ring between head and tail.
pub(super) fn apply(
    io: &mut BlockingIo<'_>,
    (geometry, used): (&Geometry, u64),
    end: &FoundEnd,
    (index, outside): (&mut Index, &mut Outside),
) -> Option<FoundRun> {
    let mut run = find_puts(geometry, end, |offset, len| io.read(offset, len))?;
    let free = geometry.ring_len().0.saturating_sub(used);
    let room = |largest| Journal::most_puts(free, largest, io.unit());
    // A record for each lump, as the store has counted them that has answered.
    if run.puts_within(room(MAX_RECORD_LEN as u64)) < run.puts.len() {
        let records = index.range(LumpRange::ALL);
        let largest = records.map(|(_, entry)| entry.record_len()).max();
        let most = room(largest.unwrap_or(0).max(PUT_LEN as u64));
        run.truncate(run.puts_within(most));
    }
    for &(id, portion) in &run.puts {
        outside.forget(id);
        index.insert(id, Entry::data(end.tail, portion, None));
    }
    Some(run)
}

/// Writes the records of puts that were found, and with them an end that names no run.
///
/// # Errors
/// [`Error::NoRoomForRepair`]: nothing was written. [`Error::Io`], [`Error::NoSpace`]: opening finds
/// these puts again.
pub(crate) fn write_records(
    io: &mut BlockingIo<'_>,
    storage: &mut Storage,
    puts: &[(LumpId, Portion)],
) -> Result<(), Error> {
    let Storage { index, journal, .. } = storage;
    let needed = puts.len() as u64 * PUT_LEN as u64;
    let no_room = Error::NoRoomForRepair {
        needed,
        ring_position: journal.tail().0,
    };
    let lumps: BTreeSet<LumpId> = puts.iter().map(|(id, _)| *id).collect();
    let (mut batch, mut places) = (Batch::new(journal), Vec::new());
    for id in lumps {
        let portion = index.get(id).and_then(|entry| entry.portion());
        let record = portion.map(|portion| Record::Put { id, portion }.to_bytes());
        let to = record.and_then(|record| batch.append(journal, &record, 0));
        places.push((id, to.ok_or_else(|| no_room.clone())?));
    }
    write_batch(io, &storage.geometry, journal, batch)?;
    for (id, to) in places {
        index.update(id, |entry| entry.moved_to(to, false));
    }
    Ok(())
}
