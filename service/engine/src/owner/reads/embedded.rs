//! Reads the embedded lumps from the ring, a large piece at a time.
//!
//! A record is that of a lump if and only if the index names its very position. What the
//! collection moves while this goes on is met again at the tail; what is read is pinned.

use super::Reads;
use crate::buffer::AlignedBuf;
use crate::error::Error;
use crate::format::record::{Decoded, MAX_RECORD_LEN, Record};
use crate::owner::command::read::EmbeddedRead;
use crate::owner::command::{Stage, TimedReply};
use crate::owner::ctx::Ctx;
use crate::owner::io_table::Tag;
use crate::request::{EmbeddedPage, LumpRange};
use crate::storage::Storage;
use crate::units::{RingPosition, to_usize};

/// Bytes read at a time; more than the longest record.
const CHUNK: u64 = 1024 * 1024;

const _: () = assert!(CHUNK > 2 * MAX_RECORD_LEN as u64);

impl Reads {
    pub(in crate::owner) fn embedded(
        &self,
        ctx: &mut Ctx,
        range: LumpRange,
        from: u64,
        mut reply: TimedReply<EmbeddedPage>,
    ) {
        reply.timing.lap(Stage::Sched);
        let journal = &ctx.storage.journal;
        // What the head has passed is garbage, or stands at the tail.
        let offset = from.max(journal.log_offset_of(journal.head()));
        if offset >= journal.log_end() {
            let mut page = EmbeddedPage::default();
            add_unrecorded(ctx, range, &mut page);
            return reply.send(Ok(page), Stage::Index);
        }
        let position = RingPosition(offset % journal.capacity());
        let tail = journal.tail();
        let (start, len) = journal.chunk(position, tail, CHUNK);
        ctx.storage.journal.pin(position);
        reply.timing.lap(Stage::Index);
        let read = EmbeddedRead {
            range,
            position,
            offset,
            start: start.0,
            tail,
            reply,
        };
        let byte = ctx.storage.geometry.ring_byte(start).0;
        let tag = Tag::Embedded(Box::new(read));
        ctx.io.read(tag, byte, len, Vec::new());
    }

    pub(in crate::owner) fn embedded_read(
        &self,
        ctx: &mut Ctx,
        read: EmbeddedRead,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        ctx.storage.journal.unpin(read.position);
        let page =
            result.and_then(|()| embedded_in(ctx, &read, buf.as_deref().unwrap_or_default()));
        read.reply.send(page, Stage::Data);
    }
}

/// The lumps whose records are in the bytes of a piece of the ring.
fn embedded_in(ctx: &Ctx, read: &EmbeddedRead, bytes: &[u8]) -> Result<EmbeddedPage, Error> {
    let mut page = EmbeddedPage::default();
    let (mut position, mut offset) = (read.position, read.offset);
    while position != read.tail {
        let at = to_usize(position.0 - read.start);
        let corrupt = |why: String| Error::CorruptJournal {
            ring_position: position.0,
            why,
        };
        let (record, len) = match Record::decode(bytes.get(at..).unwrap_or_default()) {
            Ok(Decoded::Record { record, len }) => (record, len),
            Ok(Decoded::NeedMore { .. }) if position != read.position => break,
            Ok(Decoded::NeedMore { .. }) => {
                return Err(corrupt(
                    "the record is longer than the ring allows".to_owned(),
                ));
            }
            Err(error) => return Err(corrupt(error.to_string())),
        };
        match record {
            Record::EndOfRecords => {
                return Err(corrupt("the journal ends before its tail".to_owned()));
            }
            Record::GoToFront => {
                offset += ctx.storage.journal.capacity() - position.0;
                break;
            }
            Record::Embed { id, data } if read.range.contains(id) => {
                let entry = ctx.storage.index.get(id);
                if entry.is_some_and(|entry| entry.record() == position) {
                    page.lumps.push((id, data.as_slice().to_vec()));
                }
            }
            _ => {}
        }
        position.0 += len as u64;
        offset += len as u64;
    }
    page.next = (offset < ctx.storage.journal.log_end()).then_some(offset);
    if page.next.is_none() {
        add_unrecorded(ctx, read.range, &mut page);
    }
    Ok(page)
}

/// Those whose records are to follow the last one in the ring.
fn add_unrecorded(ctx: &Ctx, range: LumpRange, page: &mut EmbeddedPage) {
    let Storage {
        index, unrecorded, ..
    } = &ctx.storage;
    for id in unrecorded.all_embedded().filter(|&id| range.contains(id)) {
        let record = index
            .get(id)
            .and_then(|entry| unrecorded.embedded(id, entry));
        if let Some(Ok(Decoded::Record { record, .. })) = record.map(Record::decode)
            && let Record::Embed { data, .. } = record
            && page.lumps.iter().all(|(known, _)| *known != id)
        {
            page.lumps.push((id, data.as_slice().to_vec()));
        }
    }
}
