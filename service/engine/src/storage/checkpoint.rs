//! Loads the index from a checkpoint, if there is one that can be trusted (FORMAT.md section 12).
//!
//! Nothing here makes opening fail: whatever is wrong with a checkpoint is a reason to replay the
//! whole journal instead.

use super::index::{Filler, Index, IndexEntry};
use super::io::{BlockingIo, Stream};
use super::log_sum::KnownSum;
use super::recover::{Before, FoundStore, Replayed};
use crate::crc32c;
use crate::format::checkpoint::{Area, CHUNK_LEN, CheckpointHeader, HEADER_SPACE, read_chunk};
use crate::format::mark::MARK_LEN;
use crate::format::seal::LogSum;
use crate::options::CheckpointUse;
use crate::units::RingPosition;

/// Where the next checkpoint goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointPlace {
    pub(crate) area: Area,
    /// Its sequence number.
    pub(crate) sequence: u64,
}

/// Headers of the checkpoints of a store.
pub(super) struct Headers {
    /// `None`: there is no place for checkpoints.
    area: Option<Area>,
    /// True: the area is behind the image of a block device.
    is_device: bool,
    /// The newest first; those of an area that is only reserved, too.
    headers: Vec<CheckpointHeader>,
    /// Why there is none.
    why: CheckpointUse,
}

impl Headers {
    /// Those with rows.
    pub(super) fn newest(&self) -> impl Iterator<Item = &CheckpointHeader> {
        self.headers.iter().filter(|header| header.sequence > 0)
    }
}

/// Reads the headers of both slots.
pub(super) fn read_headers(io: &mut BlockingIo<'_>, store: &FoundStore) -> Headers {
    let device = io.device();
    let is_device = device.is_block_device || store.geometry.base().0 > 0;
    let area = Area::of(&store.geometry, is_device, device.size);
    let area = area.filter(|_| HEADER_SPACE.is_multiple_of(io.unit()));
    let mut why = CheckpointUse::Absent;
    let mut headers: Vec<CheckpointHeader> = Vec::new();
    for (area, slot) in area.iter().flat_map(|area| [(area, 0), (area, 1)]) {
        match read_header(io, store, area.slot(slot)) {
            Ok(header) if header.sequence == 0 || header.sequence % 2 == slot => {
                headers.push(header);
            }
            Ok(_) => why = CheckpointUse::Damaged,
            Err(CheckpointUse::Absent) => {}
            Err(reason) => why = reason,
        }
    }
    headers.sort_unstable_by_key(|header| std::cmp::Reverse(header.sequence));
    Headers {
        area,
        is_device,
        headers,
        why,
    }
}

/// Finds the place for checkpoints, and the state of the store by the newest one that is good; not
/// unless they are to be trusted.
pub(super) fn find(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    found: Headers,
    trust: bool,
) -> (Option<CheckpointPlace>, Result<Replayed, CheckpointUse>) {
    let Headers {
        area,
        is_device,
        mut headers,
        mut why,
    } = found;
    // Nothing is ever written behind an image on a device where creation reserved nothing.
    let Some(area) = area.filter(|_| !is_device || !headers.is_empty()) else {
        return (None, Err(why));
    };
    let newest = headers.first().map_or(0, |header| header.sequence);
    let place = newest
        .checked_add(1)
        .map(|sequence| CheckpointPlace { area, sequence });
    if !trust {
        return (place, Err(CheckpointUse::Salvage));
    }
    headers.retain(|header| header.sequence > 0);
    for (number, header) in headers.iter().enumerate() {
        match load(io, store, &area, header) {
            Ok(replayed) => return (place, Ok(replayed)),
            Err(reason) if number == 0 => why = reason,
            Err(_) => {}
        }
    }
    (place, Err(why))
}

/// The header of a slot of this store.
fn read_header(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    slot: u64,
) -> Result<CheckpointHeader, CheckpointUse> {
    if slot + HEADER_SPACE > io.device().size {
        return Err(CheckpointUse::Absent);
    }
    let bytes = io
        .read(slot, HEADER_SPACE)
        .map_err(|_| CheckpointUse::Unreadable)?;
    if bytes.iter().all(|&byte| byte == 0) {
        return Err(CheckpointUse::Absent);
    }
    let header = CheckpointHeader::decode(&bytes).map_err(|_| CheckpointUse::Damaged)?;
    if header.uuid != store.uuid {
        return Err(CheckpointUse::OtherStore);
    }
    Ok(header)
}

/// The state of the store by one checkpoint.
fn load(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    area: &Area,
    header: &CheckpointHeader,
) -> Result<Replayed, CheckpointUse> {
    let ring_len = store.geometry.ring_len().0;
    let first = header.log_begin.checked_rem(ring_len);
    let Some(first) =
        first.filter(|_| header.log_begin <= header.log_end && area.has_room(header.lumps))
    else {
        return Err(CheckpointUse::Damaged);
    };
    if store
        .ends
        .is_some_and(|ends| ends.seal.log_end < header.log_end)
    {
        return Err(CheckpointUse::AheadOfLog);
    }
    let mut before = read_chunks(io, store, area, header)?;
    before.sums = header.log_sum.map(|sum| KnownSum {
        epoch: header.epoch,
        sum: LogSum {
            at: header.log_begin,
            sum,
        },
    });
    let replayed = store
        .replay(io, RingPosition(first), before)
        .map_err(|_| CheckpointUse::NoRecords)?;
    let end = &replayed.applied.end;
    let seal = end
        .seal
        .filter(|seal| seal.epoch == header.epoch)
        .ok_or(CheckpointUse::OtherEpoch)?;
    let used = store.head.distance_to(end.tail, store.geometry.ring_len());
    if seal.log_end < header.log_end {
        return Err(CheckpointUse::AheadOfLog);
    }
    match seal.log_end.checked_sub(used) {
        Some(head) if head <= header.log_begin => Ok(replayed),
        _ => Err(CheckpointUse::Overtaken),
    }
}

fn read_chunks(
    io: &mut BlockingIo<'_>,
    store: &FoundStore,
    area: &Area,
    header: &CheckpointHeader,
) -> Result<Before, CheckpointUse> {
    let start = area.slot(header.sequence) + HEADER_SPACE;
    // Not more than a slot, as `Area::has_room` has found.
    let end = start + header.chunks() * CHUNK_LEN as u64;
    if end > io.device().size {
        return Err(CheckpointUse::Damaged);
    }
    let mut stream = Stream::new(start, end);
    let mut filler = Filler::new(Index::new(&store.geometry));
    let (mut number, mut crcs, mut marked) = (0, 0, 0);
    while let Some(piece) = stream.next(io).map_err(|_| CheckpointUse::Unreadable)? {
        for chunk in piece.chunks(CHUNK_LEN) {
            let (crc, rows) =
                read_chunk(chunk, header.sequence, number).map_err(|_| CheckpointUse::Damaged)?;
            crcs = crc32c::append(crcs, &crc.to_be_bytes());
            number += 1;
            for row in rows {
                let row = row.map_err(|_| CheckpointUse::Damaged)?;
                let entry = IndexEntry::of_row(&row, &store.geometry);
                let Some(entry) = entry.filter(|&entry| filler.push(row.id, entry)) else {
                    return Err(CheckpointUse::Damaged);
                };
                marked += u64::from(entry.is_marked());
            }
        }
    }
    let index = filler.finish();
    let whole = index.len() == header.lumps && crcs == header.chunks_crc;
    let before = Before {
        index,
        mark_bytes: marked * MARK_LEN as u64,
        sums: None,
    };
    whole.then_some(before).ok_or(CheckpointUse::Damaged)
}
