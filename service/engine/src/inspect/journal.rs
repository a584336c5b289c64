//! Walks the ring as replay does, and goes as far as it can.

use super::report::{RecordCounts, RecordInfo};
use super::source::{Bytes, ImageSource};
use crate::error::Error;
use crate::finding::{Blocks, Finding, FindingKind};
use crate::format::Geometry;
use crate::format::mend::{Mended, mend};
use crate::format::record::{Decoded, MAX_RECORD_LEN, PREFIX_LEN, Record, claimed_len};
use crate::format::seal::LogSum;
use crate::lump::LumpId;
use crate::storage::log_sum::Summing;
use crate::storage::recover::mended_finding;
use crate::units::RingPosition;

/// Bytes of the ring read at a time.
const READ_AHEAD: u64 = 1024 * 1024;

/// How a walk ended.
pub(super) struct Walked {
    /// The end mark; `None`: something before it cannot be read.
    pub(super) tail: Option<RingPosition>,
    /// Bytes of all records before the tail or the damage.
    pub(super) bytes: u64,
    pub(super) counts: RecordCounts,
    /// Damage: that which was got over, and that which ended the walk too early.
    pub(super) findings: Vec<Finding>,
    /// Lumps embedded in a record with damaged data, and its place.
    pub(super) damaged: Vec<(LumpId, RingPosition)>,
    /// The sum of the log at the tail; `None`: unknown.
    pub(super) sum: Option<u32>,
}

/// A record with its place.
pub(super) struct Placed<'a> {
    pub(super) position: RingPosition,
    pub(super) len: u64,
    pub(super) record: Record<'a>,
    /// As it was written; `None`: nobody knows.
    bytes: Option<&'a [u8]>,
    /// The fault, and whether it is one of the data.
    pub(super) damage: Option<(Finding, bool)>,
}

impl Placed<'_> {
    /// Why the record cannot belong to a log that begins at `head`. `wrapped`: the log has gone to the
    /// front of the ring before it.
    fn leads_out(&self, head: RingPosition, wrapped: bool) -> Option<&'static str> {
        let position = self.position;
        match self.record {
            Record::GoToFront if wrapped || head.0 == 0 => Some("a second round of the ring"),
            _ if wrapped && position == head => {
                Some("the records reach the head of the ring without an end")
            }
            _ if wrapped && position < head && position.0 + self.len > head.0 => {
                Some("the record runs into the head of the ring")
            }
            _ => None,
        }
    }

    /// As a line of a dump.
    pub(super) fn describe(&self, live: bool) -> RecordInfo {
        let plain = RecordInfo {
            ring_position: self.position.0,
            len: self.len,
            record: "",
            lump: None,
            end: None,
            portion: None,
            data_bytes: None,
            live,
        };
        match self.record {
            Record::EndOfRecords => RecordInfo {
                record: "end_of_records",
                ..plain
            },
            Record::GoToFront => RecordInfo {
                record: "go_to_front",
                ..plain
            },
            Record::Put { id, portion } => RecordInfo {
                record: "put",
                lump: Some(id),
                portion: Some(Blocks::from(portion)),
                ..plain
            },
            Record::Embed { id, data } => RecordInfo {
                record: "embed",
                lump: Some(id),
                data_bytes: Some(data.as_slice().len() as u64),
                ..plain
            },
            Record::Delete { id } => RecordInfo {
                record: "delete",
                lump: Some(id),
                ..plain
            },
            Record::DeleteRange { start, end } => RecordInfo {
                record: "delete_range",
                lump: Some(start),
                end: Some(end),
                ..plain
            },
        }
    }
}

/// A window over the ring.
struct RingWindow<'a> {
    source: &'a ImageSource,
    geometry: &'a Geometry,
    bytes: Option<(u64, Bytes)>,
    mended: Option<Mended>,
}

impl RingWindow<'_> {
    /// At least `total` bytes from `position`, or all up to the end of the ring.
    fn at(&mut self, position: RingPosition, total: u64) -> Result<&[u8], Error> {
        let ring_len = self.geometry.ring_len().0;
        let wanted = ring_len.min(position.0 + total);
        let holds = self.bytes.as_ref().is_some_and(|(start, bytes)| {
            *start <= position.0 && wanted <= start + bytes.len() as u64
        });
        if !holds {
            let end = wanted.max(position.0 + READ_AHEAD).min(ring_len);
            let offset = self.geometry.ring_byte(position).0;
            let bytes = self.source.read(offset, end - position.0)?;
            self.bytes = Some((position.0, bytes));
        }
        Ok(self.bytes.as_ref().map_or(&[], |(start, bytes)| {
            let at = usize::try_from(position.0 - start).unwrap_or(usize::MAX);
            bytes.get(at..).unwrap_or_default()
        }))
    }
}

impl RingWindow<'_> {
    /// The record at a position: its bytes, or those that make it good.
    fn record(&mut self, position: RingPosition, total: u64) -> Result<&[u8], Error> {
        if self.mended.is_none() {
            return self.at(position, total);
        }
        Ok(self.mended.as_ref().map_or(&[], |mended| &mended.record))
    }
}

/// Visits all records from `head` to the end mark, which is included, or up to `ends`, if that is where
/// the journal ends. The visitor may end the walk with `false`.
pub(super) fn walk(
    source: &ImageSource,
    geometry: &Geometry,
    (head, ends): (RingPosition, Option<RingPosition>),
    sums: Option<LogSum>,
    mut visit: impl FnMut(&Placed<'_>) -> bool,
) -> Walked {
    let mut window = RingWindow {
        source,
        geometry,
        bytes: None,
        mended: None,
    };
    let mut walked = Walked {
        tail: None,
        bytes: 0,
        counts: RecordCounts::default(),
        findings: Vec::new(),
        damaged: Vec::new(),
        sum: None,
    };
    let mut summing = sums.map(|sums| Summing::new(sums, geometry));
    let (mut position, mut wrapped) = (head, false);
    while ends != Some(position) {
        let placed = match next(&mut window, position) {
            Ok(placed) => placed,
            Err(finding) => {
                walked.findings.push(*finding);
                return walked;
            }
        };
        if let Some((finding, in_data)) = placed.damage.clone() {
            let lump = finding.lump.filter(|_| in_data);
            walked.damaged.extend(lump.map(|id| (id, position)));
            walked.findings.push(finding);
        }
        if let Some(why) = placed.leads_out(head, wrapped) {
            let found =
                Finding::of_record(FindingKind::Record, geometry, position, placed.len, why);
            walked.findings.push(found);
            return walked;
        }
        if !visit(&placed) {
            return walked;
        }
        if let Some(summing) = summing
            .as_mut()
            .filter(|_| placed.record != Record::EndOfRecords)
        {
            summing.add(position, placed.bytes);
        }
        walked.counts.add(&placed.record);
        match placed.record {
            Record::EndOfRecords => {
                walked.tail = Some(position);
                walked.sum = summing.and_then(|summing| summing.sum(position));
                return walked;
            }
            Record::GoToFront => {
                // What is left of the ring's end is used up too.
                walked.bytes += geometry.ring_len().0 - position.0;
                (position, wrapped) = (RingPosition(0), true);
            }
            _ => {
                walked.bytes += placed.len;
                position = RingPosition(position.0 + placed.len);
            }
        }
    }
    walked.tail = ends;
    walked
}

/// The record at a position.
fn next<'a>(
    window: &'a mut RingWindow<'_>,
    position: RingPosition,
) -> Result<Placed<'a>, Box<Finding>> {
    let geometry = window.geometry;
    let wrong = |kind, len: u64, why: String| {
        Box::new(Finding::of_record(kind, geometry, position, len, why))
    };
    let unreadable = |error: Error| wrong(FindingKind::Read, PREFIX_LEN as u64, error.to_string());
    let mut total = PREFIX_LEN as u64;
    // A record asks for more bytes at most twice: for its prefix, then for its data.
    while let Ok(Decoded::NeedMore { total: more }) =
        Record::decode(window.at(position, total).map_err(unreadable)?)
    {
        if position.0 + more as u64 > geometry.ring_len().0 {
            break;
        }
        total = more as u64;
    }
    window.mended = match Record::decode(window.at(position, total).map_err(unreadable)?) {
        Ok(_) => None,
        Err(_) => mend(
            window
                .at(position, MAX_RECORD_LEN as u64)
                .map_err(unreadable)?,
        ),
    };
    let damage = window.mended.as_ref().map(|mended| {
        let finding = mended_finding(geometry, position, mended);
        (finding, mended.flipped.is_none())
    });
    let bytes = window.record(position, total).map_err(unreadable)?;
    match Record::decode(bytes) {
        Ok(Decoded::Record { record, len }) => {
            let in_data = damage.as_ref().is_some_and(|(_, in_data)| *in_data);
            Ok(Placed {
                position,
                len: len as u64,
                record,
                bytes: bytes.get(..len).filter(|_| !in_data),
                damage,
            })
        }
        Ok(Decoded::NeedMore { .. }) => {
            let left = geometry.ring_len().0 - position.0;
            let why = "the record reaches beyond the end of the ring".to_owned();
            Err(wrong(FindingKind::Record, left, why))
        }
        Err(error) => {
            let len = claimed_len(bytes).unwrap_or(PREFIX_LEN);
            Err(wrong(FindingKind::Record, len as u64, error.to_string()))
        }
    }
}
