//! Finds the header and the ring head of a store, by their checked copies when one has rotted
//! (FORMAT.md section 4.1), and writes them anew.

use super::Storage;
use super::io::BlockingIo;
use super::journal::{FoundEnd, new_epoch};
use super::progress::DurableEnds;
use super::recover::FoundStore;
use super::replay::Route;
use super::unsettled::LogEnd;
use crate::device::Device;
use crate::error::Error;
use crate::finding::{Finding, FindingKind};
use crate::format::bad_places::{self, Places};
use crate::format::claim::{self, Claim};
use crate::format::copies::{CheckedCopy, FoundCopy, ProvenHeader};
use crate::format::header::HEADER_LEN;
use crate::format::journal_header::{JOURNAL_HEADER_LEN, JournalHeader, ScrubMark};
use crate::format::label;
use crate::format::seal::LogSum;
use crate::format::unfinished;
use crate::format::{Geometry, Header, Seal, minfs};
use crate::layout::{self, HeadError};
use crate::options::Layout;
use crate::units::{ByteOffset, RingPosition, to_usize};

/// Bytes in which the header of either layout lies.
const PEEK: u64 = layout::HEAD_LEN as u64;
/// Bytes read of them at each place where a header can be.
const HEADER_PEEK: u64 = 512;

/// Header and ring head as they stand on the disk.
pub(crate) struct FoundHeaders {
    pub(super) layout: Layout,
    pub(super) header: Header,
    pub(crate) geometry: Geometry,
    pub(super) scrub_mark: Option<ScrubMark>,
    /// Places that the disk has refused to write.
    pub(super) bad_places: Places,
    /// The name of the store, from either block.
    pub(super) name: Option<String>,
    /// The claim of a machine.
    pub(super) claim: Option<Claim>,
    /// The ring head as it stands; an error: it cannot be used, or not be read.
    head: Result<RingPosition, Error>,
    /// The copies in the header block and in the journal header block.
    copies: [FoundCopy; 2],
    /// Damage found so far.
    pub(crate) findings: Vec<Finding>,
}

/// Reads both blocks.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Unsupported`], [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn find(io: &mut BlockingIo<'_>) -> Result<FoundHeaders, Error> {
    let (layout, base, proven, head_block) = find_image(io)?;
    check_device(io.device(), &Geometry::new(base, &proven.header))?;
    Ok(FoundHeaders::read(io, (layout, base), proven, &head_block))
}

impl FoundHeaders {
    /// Reads the journal header block. `proven`, `head_block`: from the header block.
    pub(crate) fn read(
        io: &mut BlockingIo<'_>,
        (layout, base): (Layout, ByteOffset),
        proven: ProvenHeader,
        head_block: &[u8],
    ) -> Self {
        let ProvenHeader {
            header,
            copy,
            damaged,
        } = proven;
        let geometry = Geometry::new(base, &header);
        let offset = geometry.journal_header_offset().0;
        let block = io.read(offset, geometry.block_size().bytes());
        let bytes = block.as_deref().unwrap_or_default();
        let (scrub_mark, second) = (ScrubMark::decode(bytes), FoundCopy::of_block(bytes));
        let head = match &block {
            Err(error) => Err(error.clone()),
            Ok(block) => JournalHeader::decode(block, geometry.ring_len())
                .map(|header| header.ring_head)
                .map_err(|error| Error::Corrupt {
                    what: "the journal header",
                    offset,
                    why: error.to_string(),
                }),
        };
        let copies = [copy, second];
        let mut findings = damaged_copies(&geometry, copies);
        if damaged {
            findings.push(header_finding(base));
        }
        Self {
            layout,
            header,
            geometry,
            scrub_mark,
            bad_places: bad_places::decode(head_block),
            name: label::decode(head_block).or_else(|| label::decode(bytes)),
            claim: claim::decode(head_block),
            head,
            copies,
            findings,
        }
    }

    /// The store, with a ring head that is to be believed.
    pub(crate) fn store(
        &mut self,
        io: &mut BlockingIo<'_>,
        ends: Option<LogEnd>,
    ) -> Result<FoundStore, Error> {
        let mut store = FoundStore {
            geometry: self.geometry,
            uuid: self.header.uuid,
            head: RingPosition(0),
            copy: None,
            copied: None,
            ends,
            progress: DurableEnds::default(),
        };
        let stands = self.head.as_ref().ok().copied();
        let leads = |copy: &CheckedCopy| leads(io, &store, copy);
        let chosen = choose_head(&self.geometry, &self.header, self.copies, stands, leads);
        (store.head, store.copy) = match chosen {
            Some(chosen) => chosen,
            None => (self.head.clone()?, None),
        };
        if stands != Some(store.head) {
            let finding = head_finding(&self.geometry, stands, store.head);
            self.findings.push(finding);
        }
        let is_whole = |copy: &FoundCopy| copy.intact().is_some();
        let sound = self.findings.is_empty() && self.copies.iter().all(is_whole);
        let copy = store.copy.filter(|copy| sound && copy.sums.is_some());
        store.copied = copy.map(|copy| copy.seal.log_end);
        store.progress = DurableEnds::of_copies(self.copies);
        Ok(store)
    }
}

/// The ring head by the copies, and the copy that says so; `None`: it is as it stands, if at all.
///
/// The copy beside the head stands for it: who writes the head without it leaves zeros there. The
/// other one counts only if the records from its head lead to the end that it names; then nothing
/// that another engine may have done to the head since matters.
fn choose_head(
    geometry: &Geometry,
    header: &Header,
    copies: [FoundCopy; 2],
    stands: Option<RingPosition>,
    leads: impl FnOnce(&CheckedCopy) -> bool,
) -> Option<(RingPosition, Option<CheckedCopy>)> {
    let in_ring = |copy: &CheckedCopy| {
        let minor = header.minor;
        let same = Header {
            minor,
            ..copy.header
        } == *header;
        same && copy.ring_head.0 < geometry.ring_len().0
    };
    let [first, second] = copies.map(|copy| copy.intact().filter(in_ring));
    // Both are written at once: one that is behind the other was lost, or cut off.
    let is_behind = |second: &CheckedCopy| {
        first.is_some_and(|first| {
            first.seal.epoch == second.seal.epoch && first.log_head > second.log_head
        })
    };
    if let Some(copy) = first
        .filter(|_| second.as_ref().is_some_and(is_behind))
        .or(second)
    {
        return Some((copy.ring_head, Some(copy)));
    }
    let first = first.filter(|copy| stands == Some(copy.ring_head) || leads(copy))?;
    Some((first.ring_head, Some(first)))
}

/// True: the records between the head of a copy and an end of the journal with this seal are those
/// that the copy knows, and more.
pub(super) fn leads_to(copy: &CheckedCopy, used: u64, seal: Option<Seal>) -> bool {
    seal.is_some_and(|seal| {
        seal.epoch == copy.seal.epoch && seal.log_end.checked_sub(used) == Some(copy.log_head)
    })
}

fn damaged_copies(geometry: &Geometry, copies: [FoundCopy; 2]) -> Vec<Finding> {
    use crate::format::copies::{COPY_LEN, COPY_OFFSET};
    let blocks = [
        (FindingKind::Header, geometry.base().0),
        (
            FindingKind::JournalHeader,
            geometry.journal_header_offset().0,
        ),
    ];
    let damaged = blocks.into_iter().zip(copies);
    damaged
        .filter(|(_, copy)| *copy == FoundCopy::Damaged)
        .map(|((kind, block), _)| {
            let why = "the checked copy of header and ring head is damaged; opening the store \
                       writes it anew";
            Finding::new(kind, block + COPY_OFFSET as u64, COPY_LEN as u64, why)
        })
        .collect()
}

pub(crate) fn header_finding(base: ByteOffset) -> Finding {
    let why = "the header is not what its checked copy says; the copy counts, and opening the \
               store writes the header anew";
    Finding::new(FindingKind::Header, base.0, HEADER_LEN as u64, why)
}

fn head_finding(geometry: &Geometry, stands: Option<RingPosition>, head: RingPosition) -> Finding {
    let stands = stands.map_or("no place of the ring".to_owned(), |head| head.0.to_string());
    let why = format!(
        "the ring head is {stands}, and by its checked copy {}; the copy counts, and opening the \
         store writes the head anew",
        head.0
    );
    let offset = geometry.journal_header_offset().0;
    Finding::new(
        FindingKind::JournalHeader,
        offset,
        JOURNAL_HEADER_LEN as u64,
        why,
    )
}

fn seal_finding(geometry: &Geometry, tail: RingPosition) -> Finding {
    let len = crate::format::seal::SEALED_END_LEN as u64;
    let why = "the seal of the journal is damaged; what it said is known all the same, and opening \
               the store writes it anew";
    Finding::of_record(FindingKind::Record, geometry, tail, len, why)
}

/// Finds the header, and the first sector of its block: at byte 0, or in the file of a minfs.
fn find_image(
    io: &mut BlockingIo<'_>,
) -> Result<(Layout, ByteOffset, ProvenHeader, Vec<u8>), Error> {
    let unit = io.unit();
    let size = io.device().size.next_multiple_of(unit).max(unit);
    // Only what matters is read: whatever lies around it may be unreadable.
    let mut head = vec![0; to_usize(PEEK.min(size))];
    for start in [0, minfs::FILE_OFFSET] {
        let len = HEADER_PEEK
            .next_multiple_of(unit)
            .min(size.saturating_sub(start));
        if start > 0 && (len == 0 || minfs::Superblock::decode(&head).is_err()) {
            continue;
        }
        let bytes = io.read(start, len)?;
        let at = to_usize(start);
        if let Some(place) = head.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    }
    let found = layout::recognise(&head).map_err(|error| match error {
        HeadError::Header { base, source } => {
            let why = source.to_string();
            Error::Corrupt {
                what: "the header",
                offset: base.0,
                why,
            }
        }
        HeadError::NoImage => Error::NotAStore {
            path: io.device().path.clone(),
            why: error.to_string(),
        },
        HeadError::NoStore => {
            let why = layout::describe_other(&io.device().path);
            Error::NotAStore {
                path: io.device().path.clone(),
                why,
            }
        }
    });
    let (layout, base, proven) = found?;
    let block = head.get(to_usize(base.0)..);
    let block = block.unwrap_or_default();
    if unfinished::is_marked(block) {
        return Err(Error::Unsupported {
            path: io.device().path.clone(),
            why: unfinished::WHY.to_owned(),
        });
    }
    let sector = block.get(..512).unwrap_or(block).to_vec();
    Ok((layout, base, proven, sector))
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

/// True: the records from the head of the copy lead to the end that it tells of.
pub(super) fn leads(io: &mut BlockingIo<'_>, store: &FoundStore, copy: &CheckedCopy) -> bool {
    let trial = FoundStore {
        head: copy.ring_head,
        ..*store
    };
    let applied = trial.apply(io, trial.head, trial.nothing(), Route::default());
    applied.is_ok_and(|applied| {
        let end = &applied.end;
        let used = copy
            .ring_head
            .distance_to(end.tail, store.geometry.ring_len());
        leads_to(copy, used, end.seal)
    })
}

/// Takes the seal of an end without one from a copy that tells of this end; returns the finding if
/// what stands there is damaged.
///
/// `cut`: the end is where damage begins. Records before it that the copy knows of are those of the
/// engine that it names, so what it says of them still holds.
pub(crate) fn seal_by_copy(store: &FoundStore, end: &mut FoundEnd, cut: bool) -> Option<Finding> {
    let used = store.head.distance_to(end.tail, store.geometry.ring_len());
    if let (None, Some(copy)) = (end.seal, store.copy) {
        end.seal = copy.seal_at(used);
        end.mended = end.seal.is_some();
        let log_end = copy.log_head + used;
        if cut && !end.mended && copy.seal.epoch != 0 && log_end <= copy.seal.log_end {
            end.seal = Some(Seal {
                epoch: new_epoch(),
                log_end,
                foreign_end: copy.seal.foreign_end.min(log_end),
                log_sum: None,
            });
        }
    }
    end.mended.then(|| seal_finding(&store.geometry, end.tail))
}

impl Storage {
    /// The bytes of header block and journal header block, both with a copy.
    ///
    /// `end`: a durable end of the journal.
    pub(crate) fn header_blocks(
        &self,
        (head, sums): (RingPosition, LogSum),
        mark: ScrubMark,
        end: Seal,
    ) -> Vec<u8> {
        let copy = CheckedCopy {
            header: self.header,
            ring_head: head,
            log_head: self.journal.log_offset_of(head),
            seal: end,
            sums: Some(sums),
        };
        let [mut blocks, second] = copy.blocks(self.name.as_deref(), mark);
        bad_places::put_into(&mut blocks, self.data.bad_places());
        claim::put_into(&mut blocks, self.claim.as_ref());
        blocks.extend(second);
        blocks
    }

    /// Writes both header blocks anew, the flipped bits of the ring, and the end of the journal with
    /// its seal.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoSpace`].
    pub(crate) fn mend(
        &self,
        io: &mut BlockingIo<'_>,
        mark: ScrubMark,
        flips: &[(RingPosition, u8)],
    ) -> Result<(), Error> {
        let end = self.journal.sealed_page().map(|(start, _)| start);
        for (position, mask) in flips {
            if end.is_some_and(|start| (start..self.journal.tail()).contains(position)) {
                // It is written whole below.
                continue;
            }
            io.flip(self.geometry.ring_byte(*position).0, *mask)?;
        }
        let head = self.journal.head_and_sums();
        let blocks = self.header_blocks(head, mark, self.journal.end_seal());
        io.write_bytes(self.geometry.base().0, &blocks)?;
        self.settle(io)
    }

    /// Writes the end of the journal with its seal, as that of a settled one, and flushes.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoSpace`].
    pub(crate) fn settle(&self, io: &mut BlockingIo<'_>) -> Result<(), Error> {
        if let Some((position, bytes)) = self.journal.sealed_page() {
            io.write_bytes(self.geometry.ring_byte(position).0, &bytes)?;
        }
        io.flush()
    }
}
