//! Reclaims the head of the ring.
//!
//! A chunk of the ring is read from the head; each record in it is either garbage or is appended
//! again at the tail. A record is live if and only if the index names its very position. When
//! the relocated ones are durable, the head may move past the chunk. The decision is made when a
//! batch is put together and relocated records come first in it, so at that moment the index says
//! exactly what the journal says: no change of the same id can be between.

use std::collections::VecDeque;
use std::ops::Range;

use super::Journal;
use super::writer::Batch;
use crate::error::Error;
use crate::format::record::{Decoded, MAX_RECORD_LEN, Record};
use crate::lump::LumpId;
use crate::storage::index::{Entry, Index};
use crate::units::RingPosition;

/// Bytes read at a time; more than the longest record.
const CHUNK: u64 = 256 * 1024;
/// Bytes relocated in one batch, so that clients' records do not wait long behind them.
const BATCH_LIMIT: usize = 128 * 1024;

const _: () = assert!(CHUNK > 2 * MAX_RECORD_LEN as u64);

/// A record that was found near the head.
#[derive(Debug)]
struct Scanned {
    position: RingPosition,
    /// The lump it is about, if it can be live at all.
    id: Option<LumpId>,
    /// Its bytes in the chunk.
    bytes: Range<usize>,
    /// Position of the record after it.
    next: RingPosition,
}

/// A live record that a batch appends again.
#[derive(Debug)]
pub(crate) struct Relocation {
    pub(crate) id: LumpId,
    pub(crate) from: RingPosition,
    pub(crate) to: RingPosition,
}

/// What a batch took over from the collector.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) relocations: Vec<Relocation>,
    pub(crate) dropped: u64,
}

/// Where the collection is.
#[derive(Debug)]
pub(crate) struct Collector {
    chunk: Vec<u8>,
    scanned: VecDeque<Scanned>,
    /// Everything before this is dealt with; the head may move here once that is durable.
    position: RingPosition,
    /// The tail when the chunk was read: the chunk knows nothing of what came later.
    scan_until: RingPosition,
    /// Bytes dealt with since open, to see that a whole round has gained nothing.
    passed: u64,
}

impl Collector {
    pub(crate) fn new(head: RingPosition) -> Self {
        Self {
            chunk: Vec::new(),
            scanned: VecDeque::new(),
            position: head,
            scan_until: head,
            passed: 0,
        }
    }

    /// Everything before this is dealt with.
    pub(crate) fn position(&self) -> RingPosition {
        self.position
    }

    /// Bytes dealt with since open.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// True: the last chunk has been dealt with.
    pub(crate) fn needs_chunk(&self) -> bool {
        self.scanned.is_empty()
    }

    /// What to read next: ring bytes `start..end`, whole units. `None`: nothing before the tail.
    pub(crate) fn next_read(&mut self, journal: &Journal) -> Option<(RingPosition, u64)> {
        let from = self.position.0;
        if self.position == journal.tail {
            return None;
        }
        self.scan_until = journal.tail;
        let start = from - from % journal.unit;
        let end = if journal.tail.0 > from {
            journal.tail.0
        } else {
            journal.ring_len
        };
        let end = end.min(from + CHUNK).next_multiple_of(journal.unit);
        Some((RingPosition(start), end - start))
    }

    /// Takes a chunk that was read from `start`.
    ///
    /// # Errors
    /// [`Error::CorruptJournal`]: the bytes are not the records that once were there.
    pub(crate) fn scan(&mut self, start: RingPosition, bytes: &[u8]) -> Result<(), Error> {
        self.chunk = bytes.to_vec();
        let mut position = self.position;
        while position != self.scan_until {
            let Some(at) = usize::try_from(position.0.wrapping_sub(start.0)).ok() else {
                break;
            };
            let Some(rest) = self.chunk.get(at..) else {
                break;
            };
            let corrupt = |why: String| Error::CorruptJournal {
                ring_position: position.0,
                why,
            };
            let (record, len) = match Record::decode(rest) {
                Ok(Decoded::Record { record, len }) => (record, len),
                Ok(Decoded::NeedMore { .. }) => break,
                Err(error) => return Err(corrupt(error.to_string())),
            };
            let (id, next) = match record {
                Record::Put { id, .. } | Record::Embed { id, .. } => (Some(id), None),
                Record::Delete { .. } | Record::DeleteRange { .. } => (None, None),
                Record::GoToFront => (None, Some(RingPosition(0))),
                Record::EndOfRecords => {
                    return Err(corrupt("the journal ends before its tail".to_owned()));
                }
            };
            let wraps = next.is_some();
            let next = next.unwrap_or(RingPosition(position.0 + len as u64));
            self.scanned.push_back(Scanned {
                position,
                id,
                bytes: at..at + len,
                next,
            });
            position = next;
            if wraps {
                break;
            }
        }
        if self.scanned.is_empty() && position != self.scan_until {
            let why = "the record is longer than the ring allows".to_owned();
            return Err(Error::CorruptJournal {
                ring_position: position.0,
                why,
            });
        }
        Ok(())
    }

    /// Appends the live records that fit, with `keep` bytes left over, to an empty batch and passes
    /// over garbage. To be called
    /// only when everything in the index is durable.
    pub(crate) fn fill(
        &mut self,
        index: &Index,
        journal: &Journal,
        batch: &mut Batch,
        keep: u64,
    ) -> Taken {
        let mut taken = Taken::default();
        while let Some(front) = self.scanned.front() {
            let live = front
                .id
                .filter(|&id| index.get(id).map(Entry::record) == Some(front.position));
            match live {
                None => taken.dropped += 1,
                Some(_) if batch.len() > BATCH_LIMIT => break,
                Some(id) => {
                    let bytes = &self.chunk[front.bytes.clone()];
                    let Some(to) = batch.append(journal, bytes, keep) else {
                        break;
                    };
                    taken.relocations.push(Relocation {
                        id,
                        from: front.position,
                        to,
                    });
                }
            }
            self.passed += journal.distance(front.position, front.next);
            self.position = front.next;
            self.scanned.pop_front();
        }
        taken
    }
}
