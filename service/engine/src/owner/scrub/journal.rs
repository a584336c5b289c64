//! The journal at the begin of a pass: every record from the head to the tail is read and compared
//! with its checksum. When one is damaged the collection goes round once, which writes what is
//! needed anew, from memory.

use super::{FAIR_PAUSE, Scrub};
use crate::buffer::AlignedBuf;
use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::finding::{Finding, FindingKind};
use crate::format::mend::mend;
use crate::format::record::{Decoded, PREFIX_LEN, Record};
use crate::owner::ctx::Ctx;
use crate::owner::io_table::Tag;
use crate::units::{RingPosition, to_usize};

/// Bytes read at a time; more than the longest record.
const CHUNK: u64 = 256 * 1024;

impl Scrub {
    /// Starts the read of the next records. False: the journal has been read.
    pub(super) fn read_journal(&mut self, ctx: &mut Ctx, now_ns: u64) -> bool {
        let journal = &ctx.storage.journal;
        let Some(mut position) = self.journal else {
            return false;
        };
        if journal.distance(journal.head(), position) > journal.used() {
            // The collection has passed it, and has read it.
            position = journal.head();
        }
        let tail = journal.tail();
        if position == tail {
            self.journal = None;
            return false;
        }
        let (start, len) = journal.chunk(position, tail, CHUNK);
        self.budget.spend(len, now_ns);
        self.busy = true;
        self.read_began_ns = now_ns;
        // Nothing overwrites what is being read.
        ctx.storage.journal.pin(position);
        let offset = ctx.storage.geometry.ring_byte(start).0;
        self.journal = Some(position);
        self.journal_end = tail;
        ctx.io
            .read(Tag::ScrubJournal(position), offset, len, Vec::new());
        true
    }

    /// Records from `position` on were read. True: one is damaged.
    pub(in crate::owner) fn journal_read(
        &mut self,
        ctx: &mut Ctx,
        position: RingPosition,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) -> bool {
        self.busy = false;
        ctx.storage.journal.unpin(position);
        let journal = &ctx.storage.journal;
        let bytes = buf.as_deref().unwrap_or_default();
        let now_ns = monotonic_ns();
        let took_ns = now_ns.saturating_sub(self.read_began_ns);
        self.fair_ns = now_ns.saturating_add(took_ns.saturating_mul(FAIR_PAUSE));
        let in_unit = to_usize(position.0 % journal.unit());
        let walked = result.map_err(|error| (position, FindingKind::Read, error.to_string()));
        let walked = walked.and_then(|()| {
            let bytes = bytes.get(in_unit..).unwrap_or_default();
            walk(bytes, position, self.journal_end)
                .map_err(|(at, why)| (at, FindingKind::Record, why))
        });
        match walked {
            Ok(next) => {
                self.journal = (next != self.journal_end).then_some(next);
                false
            }
            Err((at, kind, why)) => {
                self.journal = None;
                let why =
                    format!("{why}; the collection goes round and writes what is needed anew");
                let (geometry, len) = (&ctx.storage.geometry, PREFIX_LEN as u64);
                ctx.report(Finding::of_record(kind, geometry, at, len, why));
                true
            }
        }
    }
}

/// Follows records from the front of `bytes`, up to the end of the journal or of the bytes. Returns
/// the place of the next one, or that of a damaged one.
fn walk(
    bytes: &[u8],
    begin: RingPosition,
    end: RingPosition,
) -> Result<RingPosition, (RingPosition, String)> {
    let mut at = 0;
    let position = |at: usize| RingPosition(begin.0 + at as u64);
    while position(at) != end {
        let rest = bytes.get(at..).unwrap_or_default();
        match Record::decode(rest) {
            Ok(Decoded::Record {
                record: Record::GoToFront,
                ..
            }) => return Ok(RingPosition(0)),
            Ok(Decoded::Record { record, len }) if record != Record::EndOfRecords => at += len,
            Ok(Decoded::NeedMore { .. }) if at > 0 => break,
            Ok(_) => {
                let why = "the record leads out of the journal".to_owned();
                return Err((position(at), why));
            }
            Err(error) => match mend(rest) {
                // Embedded data: the lump is looked at in its turn.
                Some(mended) if mended.flipped.is_none() => at += mended.record.len(),
                _ => return Err((position(at), error.to_string())),
            },
        }
    }
    Ok(position(at))
}
