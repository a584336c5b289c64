//! Opens what is on the disk: finds the image, checks its header, replays the journal.
//!
//! Runs on the thread that opens the store, before there is an owner thread, with one read at a
//! time. Nothing is written; the caller flushes once, so that what was read is what a power cut
//! leaves.

use std::sync::Arc;

use super::Storage;
use super::allocator::Overlap;
use super::data_region::DataRegion;
use super::index::{Entry, Index};
use super::journal::{Found, FoundEnd, Journal};
use crate::buffer::{AlignedBuf, BufferPool};
use crate::clock::monotonic_ns;
use crate::device::{Device, Io, Wait};
use crate::error::Error;
use crate::format::header::Header;
use crate::format::journal_header::{JournalHeader, ScrubMark};
use crate::format::mark::{Mark, Marks};
use crate::format::record::{Decoded, END_OF_RECORDS_LEN, Record};
use crate::format::seal::SEALED_END_LEN;
use crate::format::{Geometry, Portion, Seal, minfs};
use crate::layout::{self, HeadError};
use crate::options::{Layout, ReplaySummary};
use crate::request::{IoOp, IoPurpose, LumpRange, Placement};
use crate::units::{BlockSize, ByteOffset, RingPosition};

/// Bytes of the ring read at a time.
const READ_AHEAD: u64 = 1024 * 1024;
/// Bytes in which the header of either layout lies.
const PEEK: u64 = layout::HEAD_LEN as u64;
/// Bytes read of them at each place where a header can be.
const HEADER_PEEK: u64 = 4096;

/// A store as found on the disk.
pub(crate) struct Recovered {
    pub(crate) storage: Storage,
    pub(crate) layout: Layout,
    pub(crate) header: Header,
    /// The seal at the journal's end; `None`: another engine wrote there last.
    pub(crate) seal: Option<Seal>,
    /// How far the scrubber had come.
    pub(crate) scrub_mark: Option<ScrubMark>,
    pub(crate) replay: ReplaySummary,
}

/// One I/O at a time, waited for.
pub(crate) struct BlockingIo<'a> {
    pub(crate) device: &'a mut Device,
    pub(crate) pool: &'a Arc<BufferPool>,
    pub(crate) next_token: &'a mut u64,
}

impl BlockingIo<'_> {
    fn run(
        &mut self,
        op: IoOp,
        offset: u64,
        buf: Option<AlignedBuf>,
    ) -> Result<Option<AlignedBuf>, Error> {
        let token = *self.next_token;
        *self.next_token += 1;
        let purpose = if op == IoOp::Flush {
            IoPurpose::Flush
        } else {
            IoPurpose::Recovery
        };
        let io = Io {
            token,
            op,
            offset,
            buf,
            purpose,
            requests: Vec::new(),
        };
        let len = io.len();
        self.device.backend.submit(io);
        let mut ended = Vec::with_capacity(1);
        let completion = loop {
            self.device.backend.wait(&mut ended, Wait::Forever);
            if let Some(completion) = ended.pop() {
                break completion;
            }
        };
        completion
            .result
            .map_err(|source| Error::from_io(op, offset, len, source))?;
        Ok(completion.buf)
    }

    /// Reads whole units.
    fn read(&mut self, offset: u64, len: u64) -> Result<AlignedBuf, Error> {
        let buf = self.pool.get(usize::try_from(len).unwrap_or(usize::MAX));
        self.run(IoOp::Read, offset, Some(buf))?
            .ok_or(Error::Closed)
    }

    /// Makes what was read the state that a power cut leaves.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.run(IoOp::Flush, 0, None).map(|_| ())
    }

    fn unit(&self) -> u64 {
        u64::from(self.device.alignment)
    }
}

/// Reads the store on a device.
pub(crate) fn recover(io: &mut BlockingIo<'_>) -> Result<Recovered, Error> {
    let started_ns = monotonic_ns();
    let (layout, base, header) = find_image(io)?;
    let geometry = Geometry::new(base, &header);
    check_device(io.device, &geometry)?;
    let (head, scrub_mark) = read_head(io, &geometry)?;
    let mut replay = Replay {
        reader: RingReader {
            window: Vec::new(),
            window_start: 0,
        },
        index: Index::new(&geometry),
        records: 0,
        bytes: 0,
        marks: Marks::default(),
        mark_bytes: 0,
    };
    let tail = replay.run(io, &geometry, head)?;
    let end = replay.reader.end(io, &geometry, header.uuid, tail)?;
    let seal = end.seal;
    let index = replay.index;
    let (data, largest_record) = used_blocks(&index, &geometry, io.device)?;
    let found = Found {
        uuid: header.uuid,
        head,
        end,
        largest_record,
        mark_bytes: replay.mark_bytes,
    };
    let journal = Journal::new(&geometry, io.unit(), found);
    let summary = ReplaySummary {
        records: replay.records,
        bytes: replay.bytes,
        lumps: index.len(),
        elapsed_ns: monotonic_ns().saturating_sub(started_ns),
    };
    let storage = Storage {
        geometry,
        index,
        data,
        journal,
    };
    Ok(Recovered {
        storage,
        layout,
        header,
        seal,
        scrub_mark,
        replay: summary,
    })
}

/// Finds the header: at byte 0, or in the file of a minfs.
fn find_image(io: &mut BlockingIo<'_>) -> Result<(Layout, ByteOffset, Header), Error> {
    let unit = io.unit();
    let size = io.device.size.next_multiple_of(unit).max(unit);
    // Only what matters is read: whatever lies around it may be unreadable.
    let mut head = vec![0; usize::try_from(PEEK.min(size)).unwrap_or(0)];
    for start in [0, minfs::FILE_OFFSET] {
        let len = HEADER_PEEK
            .next_multiple_of(unit)
            .min(size.saturating_sub(start));
        if start > 0 && (len == 0 || minfs::Superblock::decode(&head).is_err()) {
            continue;
        }
        let bytes = io.read(start, len)?;
        let at = usize::try_from(start).unwrap_or(usize::MAX);
        if let Some(place) = head.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    }
    layout::recognise(&head).map_err(|error| match error {
        HeadError::Header { base, source } => {
            let why = source.to_string();
            Error::Corrupt {
                what: "the header",
                offset: base.0,
                why,
            }
        }
        HeadError::NoImage => Error::NotAStore {
            path: io.device.path.clone(),
            why: error.to_string(),
        },
        HeadError::NoStore => {
            let why = layout::describe_other(&io.device.path);
            Error::NotAStore {
                path: io.device.path.clone(),
                why,
            }
        }
    })
}

/// Refuses a store that the device cannot hold or address.
fn check_device(device: &Device, geometry: &Geometry) -> Result<(), Error> {
    let unit = u64::from(device.alignment);
    let block_size = geometry.block_size();
    let base = geometry.base();
    if !block_size.bytes().is_multiple_of(unit) || !base.0.is_multiple_of(unit) {
        let why = format!(
            "direct I/O needs multiples of {unit} bytes here, but the store begins at byte {base} \
             and its blocks have {block_size}; copy the store to a device with smaller sectors"
        );
        return Err(Error::Unsupported {
            path: device.path.clone(),
            why,
        });
    }
    if device.is_block_device && geometry.end().0 > device.size {
        let why = format!(
            "the header says the store ends at byte {}, but the device has only {}",
            geometry.end(),
            device.size
        );
        return Err(Error::Corrupt {
            what: "the header",
            offset: geometry.base().0,
            why,
        });
    }
    Ok(())
}

fn read_head(
    io: &mut BlockingIo<'_>,
    geometry: &Geometry,
) -> Result<(RingPosition, Option<ScrubMark>), Error> {
    let offset = geometry.journal_header_offset().0;
    let block = io.read(offset, geometry.block_size().bytes())?;
    let header =
        JournalHeader::decode(&block, geometry.ring_len()).map_err(|error| Error::Corrupt {
            what: "the journal header",
            offset,
            why: error.to_string(),
        })?;
    Ok((header.ring_head, ScrubMark::decode(&block)))
}

/// Reads the ring in large pieces.
struct RingReader {
    window: Vec<u8>,
    /// Ring position of the window's first byte: start of a unit.
    window_start: u64,
}

impl RingReader {
    /// At least `total` bytes from `position`, or all up to the end of the ring.
    fn at(
        &mut self,
        io: &mut BlockingIo<'_>,
        geometry: &Geometry,
        position: RingPosition,
        total: u64,
    ) -> Result<&[u8], Error> {
        let ring_len = geometry.ring_len().0;
        let wanted = ring_len.min(position.0 + total);
        let window_end = self.window_start + self.window.len() as u64;
        if position.0 < self.window_start || wanted > window_end {
            let start = position.0 - position.0 % io.unit();
            let end = wanted
                .max(start + READ_AHEAD)
                .next_multiple_of(io.unit())
                .min(ring_len);
            let offset = geometry.ring_byte(RingPosition(start)).0;
            let needed = wanted.next_multiple_of(io.unit());
            let bytes = match io.read(offset, end - start) {
                // A sector behind the end of the journal may be unreadable, and does not matter.
                Err(Error::Io { .. }) if needed < end => io.read(offset, needed - start)?,
                result => result?,
            };
            self.window = bytes.to_vec();
            self.window_start = start;
        }
        let at = usize::try_from(position.0 - self.window_start).unwrap_or(usize::MAX);
        Ok(self.window.get(at..).unwrap_or_default())
    }

    /// The end of the journal at `tail`, with the seal behind it if there is one.
    fn end(
        &mut self,
        io: &mut BlockingIo<'_>,
        geometry: &Geometry,
        uuid: [u8; 16],
        tail: RingPosition,
    ) -> Result<FoundEnd, Error> {
        let bytes = self.at(io, geometry, tail, SEALED_END_LEN as u64)?;
        let behind: Vec<u8> = bytes
            .iter()
            .copied()
            .take(SEALED_END_LEN)
            .skip(END_OF_RECORDS_LEN)
            .collect();
        let tail_bytes = self.bytes_before(tail, io.unit());
        let store = (uuid, geometry.ring_len().0);
        Ok(FoundEnd::new(store, tail, tail_bytes, &behind))
    }

    /// The bytes from the start of the unit of `position` to it; it must be in the window.
    fn bytes_before(&self, position: RingPosition, unit: u64) -> Vec<u8> {
        let at = |byte: u64| usize::try_from(byte - self.window_start).unwrap_or(usize::MAX);
        let start = position.0 - position.0 % unit;
        self.window
            .get(at(start)..at(position.0))
            .unwrap_or_default()
            .to_vec()
    }
}

struct Replay {
    reader: RingReader,
    index: Index,
    records: u64,
    bytes: u64,
    marks: Marks,
    mark_bytes: u64,
}

impl Replay {
    /// Applies all records from `head` on and returns the position of the `EndOfRecords`.
    fn run(
        &mut self,
        io: &mut BlockingIo<'_>,
        geometry: &Geometry,
        head: RingPosition,
    ) -> Result<RingPosition, Error> {
        let mut position = head;
        let mut wrapped = false;
        let mut total = 1;
        loop {
            let corrupt = |why| Error::CorruptJournal {
                ring_position: position.0,
                why,
            };
            let bytes = self.reader.at(io, geometry, position, total)?;
            let decoded = Record::decode(bytes).map_err(|error| corrupt(error.to_string()))?;
            let (record, len) = match decoded {
                Decoded::Record { record, len } => (record, len as u64),
                Decoded::NeedMore { total: more } => {
                    if position.0 + more as u64 > geometry.ring_len().0 {
                        let why = "the record reaches beyond the end of the ring".to_owned();
                        return Err(corrupt(why));
                    }
                    total = more as u64;
                    continue;
                }
            };
            if wrapped && position < head && position.0 + len > head.0 {
                return Err(corrupt(
                    "the record runs into the head of the ring".to_owned(),
                ));
            }
            total = 1;
            self.records += 1;
            self.bytes += len;
            let foreign = self.marks.pass(&record);
            match record {
                Record::EndOfRecords => return Ok(position),
                Record::GoToFront if wrapped || head.0 == 0 => {
                    return Err(corrupt("a second round of the ring".to_owned()));
                }
                Record::GoToFront => {
                    wrapped = true;
                    position = RingPosition(0);
                    continue;
                }
                Record::Put { id, portion } => {
                    portion
                        .check_within(geometry.data_blocks())
                        .map_err(|error| Error::CorruptJournal {
                            ring_position: position.0,
                            why: error.to_string(),
                        })?;
                    let entry = Entry::data(position, portion, None).marked(foreign);
                    self.index.insert(id, entry);
                }
                Record::Embed { id, data } => {
                    let len = u16::try_from(data.as_slice().len()).unwrap_or(u16::MAX);
                    self.index.insert(id, Entry::embedded(position, len));
                }
                Record::Delete { id } => {
                    self.index.remove(id);
                }
                Record::DeleteRange { start, end } => {
                    if Mark::of(&record).is_some() {
                        self.mark_bytes += len;
                    }
                    self.index.remove_range(start, end, |_| {});
                }
            }
            position = RingPosition(position.0 + len);
        }
    }
}

/// The blocks that lumps live in, checked, and the bytes of the largest live record.
fn used_blocks(
    index: &Index,
    geometry: &Geometry,
    device: &Device,
) -> Result<(DataRegion, u64), Error> {
    let mut portions: Vec<Portion> = Vec::new();
    let mut largest_record = 0;
    for (_, entry) in index.range(LumpRange::ALL) {
        match entry.placement() {
            Placement::Data => portions.extend(entry.portion()),
            Placement::Embedded => largest_record = largest_record.max(entry.record_len()),
        }
    }
    portions.sort_unstable();
    if let Some(last) = portions.last() {
        let end = geometry.portion_offset(*last).0 + last.byte_len(geometry.block_size()).0;
        if end > device.size {
            let why = format!(
                "it ends at byte {end} but the file has only {}",
                device.size
            );
            let offset = geometry.portion_offset(*last).0;
            return Err(Error::Corrupt {
                what: "the last lump",
                offset,
                why,
            });
        }
    }
    let claimed = |Overlap { block }| Error::Corrupt {
        what: "the data region",
        offset: geometry.data_offset().0 + block * geometry.block_size().bytes(),
        why: format!("block {block} belongs to two lumps"),
    };
    let data = DataRegion::new(geometry.data_blocks(), portions).map_err(claimed)?;
    Ok((data, largest_record))
}

/// The smallest memory alignment that suits a device and a block size.
pub(crate) fn memory_alignment(device: &Device) -> usize {
    let unit = usize::try_from(device.alignment).unwrap_or(BlockSize::MIN.get().into());
    device.memory_alignment.max(unit).max(1).next_power_of_two()
}
