//! Lumps whose last change was made in a run and has no record in the journal yet
//! (FORMAT.md section 8.2). In the index they stand at the tail of the journal.

use std::collections::{BTreeSet, HashMap};

use super::index::{Index, IndexEntry};
use super::journal::Journal;
use super::journal::gc::Relocation;
use super::journal::writer::Batch;
use crate::format::record::Record;
use crate::lump::LumpId;
use crate::units::RingPosition;

/// These lumps, those that are gone among them.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded {
    lumps: BTreeSet<LumpId>,
    /// Most bytes of their records, and how many puts there were.
    bytes: u64,
    puts: usize,
    /// Those whose records are in the batch in flight, with the same figures.
    recording: (BTreeSet<LumpId>, u64, usize),
    /// Records of the embedded ones, encoded, and where they stand in the index: nothing else has
    /// their bytes.
    embedded: HashMap<LumpId, (RingPosition, Vec<u8>)>,
}

impl Unrecorded {
    /// A put is applied that has changed these lumps; its records take so many bytes.
    pub(crate) fn note(&mut self, lumps: impl Iterator<Item = LumpId>, bytes: u64) {
        self.lumps.extend(lumps);
        self.bytes += bytes;
        self.puts += 1;
    }

    /// An embedded lump was put with this record, where the journal ends at `tail`.
    pub(crate) fn note_embedded(&mut self, id: LumpId, tail: RingPosition, record: Vec<u8>) {
        self.embedded.insert(id, (tail, record));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lumps.is_empty()
    }

    /// Most bytes of the records that are to be written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts whose records are to be written.
    pub(crate) fn puts(&self) -> usize {
        self.puts
    }

    /// The record of a lump with this entry; `None`: it is not embedded, or its record is in the
    /// journal.
    pub(crate) fn embedded(&self, id: LumpId, entry: IndexEntry) -> Option<&[u8]> {
        let (tail, record) = self.embedded.get(&id)?;
        let is_it = entry.portion().is_none() && entry.record() == *tail;
        is_it.then_some(record.as_slice())
    }

    /// All such lumps.
    pub(crate) fn all_embedded(&self) -> impl Iterator<Item = LumpId> {
        self.embedded.keys().copied()
    }

    /// Appends the records of all; `None`: no room. Says where those are of lumps that there are.
    pub(crate) fn append(
        &self,
        index: &Index,
        journal: &Journal,
        batch: &mut Batch,
    ) -> Option<Vec<Relocation>> {
        let from = journal.tail();
        let mut relocations = Vec::new();
        for &id in &self.lumps {
            let entry = index.get(id);
            let record = match entry.map(|entry| entry.portion()) {
                Some(Some(portion)) => Record::Put { id, portion }.to_bytes(),
                Some(None) => self.embedded.get(&id)?.1.clone(),
                None => Record::Delete { id }.to_bytes(),
            };
            let to = batch.append(journal, &record, 0)?;
            relocations.extend(entry.map(|_| Relocation {
                id,
                from,
                to,
                marked: false,
            }));
        }
        Some(relocations)
    }

    /// The records of all are in the batch that begins.
    pub(crate) fn begin_recording(&mut self) {
        let lumps = std::mem::take(&mut self.lumps);
        self.recording = (lumps, self.bytes, self.puts);
        (self.bytes, self.puts) = (0, 0);
    }

    /// That batch is durable, and applied.
    pub(crate) fn recorded(&mut self) {
        let (recording, ..) = std::mem::take(&mut self.recording);
        for id in recording {
            if !self.lumps.contains(&id) {
                self.embedded.remove(&id);
            }
        }
    }

    /// That batch was given up.
    pub(crate) fn not_recorded(&mut self) {
        let (mut recording, bytes, puts) = std::mem::take(&mut self.recording);
        self.lumps.append(&mut recording);
        self.bytes += bytes;
        self.puts += puts;
    }
}
