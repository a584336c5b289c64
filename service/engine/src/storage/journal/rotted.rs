//! Damaged records that the collection reaches: the index knows what those say that matter.

use std::collections::BTreeMap;

use super::Journal;
use super::gc::Scanned;
use crate::finding::{Finding, FindingKind};
use crate::format::Geometry;
use crate::format::mend::{condemn, mend};
use crate::format::record::{Decoded, EMBED_PREFIX_LEN, EmbeddedData, Record};
use crate::lump::LumpId;
use crate::request::LumpRange;
use crate::storage::index::{Index, IndexEntry};
use crate::units::{ByteLen, RingPosition, to_usize};

/// A damaged record, or several side by side of which none matters.
#[derive(Debug)]
pub(crate) struct Rotted {
    position: RingPosition,
    len: u64,
    /// The lump it is about, if it has to be kept.
    lump: Option<LumpId>,
    /// True: the data of an embedded lump is damaged.
    lost: bool,
}

impl Rotted {
    /// Finding for the reports.
    pub(crate) fn finding(&self, geometry: &Geometry) -> Finding {
        let why = match (self.lost, self.lump) {
            (true, _) => "the data of an embedded lump is damaged: restore the lump from a copy",
            (false, Some(_)) => "the record is damaged; the collection writes it anew from memory",
            (false, None) => "the journal is damaged here; nothing that stands here is needed",
        };
        let kind = FindingKind::Record;
        let finding = Finding::of_record(kind, geometry, self.position, self.len, why);
        match self.lump {
            Some(id) => finding.about(id),
            None => finding,
        }
    }
}

/// The records that matter in a stretch of the ring, by their distance from its begin.
pub(super) struct RingStretch {
    begin: RingPosition,
    end: RingPosition,
    ring_len: ByteLen,
    live: BTreeMap<u64, (LumpId, IndexEntry)>,
}

/// A damaged record in the chunk.
pub(super) struct Damaged {
    pub(super) scanned: Scanned,
    pub(super) rotted: Rotted,
}

impl RingStretch {
    /// Goes through the whole index: damage is rare.
    pub(super) fn new(
        index: &Index,
        journal: &Journal,
        (begin, end): (RingPosition, RingPosition),
    ) -> Self {
        let len = journal.distance(begin, end);
        let live = index.range(LumpRange::ALL).filter_map(|(id, entry)| {
            let distance = journal.distance(begin, entry.record());
            (distance < len).then_some((distance, (id, entry)))
        });
        Self {
            begin,
            end,
            ring_len: ByteLen(journal.capacity()),
            live: live.collect(),
        }
    }

    /// True: what stands at a position, where these bytes begin, is the record that the index knows
    /// there, or damage that does not matter.
    pub(super) fn is_as_known(&self, bytes: &[u8], position: RingPosition) -> bool {
        let known = self.live.get(&self.distance(position));
        match (Record::decode(bytes), known) {
            (Ok(Decoded::Record { record, .. }), Some((lump, entry))) => match record {
                Record::Put { id, portion } => id == *lump && entry.portion() == Some(portion),
                Record::Embed { id, .. } => id == *lump && entry.portion().is_none(),
                _ => false,
            },
            (Ok(Decoded::Record { record, .. }), None) => record != Record::EndOfRecords,
            _ => false,
        }
    }

    /// True: embedded lumps are among the first `len` bytes.
    pub(super) fn has_embedded(&self, len: u64) -> bool {
        let mut within = self.live.range(..len);
        within.any(|(_, (_, entry))| entry.portion().is_none())
    }

    fn distance(&self, position: RingPosition) -> u64 {
        self.begin.distance_to(position, self.ring_len)
    }

    /// The damaged record at `position`, which is byte `at` of the chunk. If it matters its bytes
    /// in the chunk are those to be written again. `trust`: what stands there may say where the next
    /// one is.
    pub(super) fn damaged(
        &self,
        chunk: &mut Vec<u8>,
        at: usize,
        position: RingPosition,
        trust: bool,
    ) -> Damaged {
        let from = self.distance(position);
        let mut lost = false;
        let mut id = None;
        let (len, next) = match self.live.get(&from) {
            Some(&(lump, entry)) => {
                id = Some(lump);
                let len = to_usize(entry.record_len());
                chunk.resize(chunk.len().max(at + len), 0);
                if let Some(bytes) = chunk.get_mut(at..at + len) {
                    lost = rewrite(bytes, lump, entry);
                }
                (len, RingPosition(position.0 + len as u64))
            }
            None => {
                let bytes = chunk.get(at..).filter(|_| trust).unwrap_or_default();
                let next = self.next_of_garbage(bytes, position);
                (0, next)
            }
        };
        let stretch = self.distance(next).saturating_sub(from);
        let scanned = Scanned {
            position,
            id,
            bytes: at..at + len,
            next,
            is_mark: false,
            is_intact: false,
            marks_open: false,
        };
        let rotted = Rotted {
            position,
            len: if next > position { stretch } else { 0 },
            lump: id,
            lost,
        };
        Damaged { scanned, rotted }
    }

    /// Where the next record is to be looked for: behind this one, if it is understood, else at the
    /// next one that matters.
    fn next_of_garbage(&self, bytes: &[u8], position: RingPosition) -> RingPosition {
        let from = self.distance(position);
        let next_live = self.live.range(from + 1..).next();
        let next_live = next_live.map(|(distance, _)| *distance);
        let until = next_live.unwrap_or_else(|| self.distance(self.end));
        if let Some(mended) = mend(bytes) {
            let next = match Record::decode(&mended.record) {
                Ok(Decoded::Record { record, len }) => match record {
                    Record::GoToFront => Some(RingPosition(0)),
                    Record::EndOfRecords => None,
                    _ => Some(RingPosition(position.0 + len as u64)),
                },
                _ => None,
            };
            let fits = |next: &RingPosition| (from + 1..=until).contains(&self.distance(*next));
            if let Some(next) = next.filter(fits) {
                return next;
            }
        }
        RingPosition((self.begin.0 + until) % self.ring_len.0)
    }
}

/// Makes damaged bytes the record of a lump. True: its data is damaged; it stays known as that.
pub(crate) fn rewrite(bytes: &mut [u8], id: LumpId, entry: IndexEntry) -> bool {
    if let Some(portion) = entry.portion() {
        bytes.copy_from_slice(&Record::Put { id, portion }.to_bytes());
        return false;
    }
    let (stored, data) = (
        bytes.first_chunk::<4>().copied(),
        bytes.get(EMBED_PREFIX_LEN..).unwrap_or_default().to_vec(),
    );
    let Ok(data) = EmbeddedData::new(&data) else {
        return true;
    };
    // The checksum of the data as it stands; the data is sound if that is the one which stands there,
    // give or take a bit.
    let sound = Record::Embed { id, data }.to_bytes();
    let flipped = sound.iter().zip(stored.unwrap_or_default());
    let flipped: u32 = flipped.map(|(now, was)| (now ^ was).count_ones()).sum();
    bytes.copy_from_slice(&sound);
    if flipped > 1 {
        condemn(bytes);
    }
    flipped > 1
}
