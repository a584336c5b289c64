//! Finds out whether the data of an unsettled batch is whole (FORMAT.md section 8.1).

use super::io::BlockingIo;
use super::journal::FoundEnd;
use crate::error::Error;
use crate::format::bytes::with_bit_flipped;
use crate::format::mend::mend;
use crate::format::proof::{self, is_nonce_bit, one_bit};
use crate::format::record::{Decoded, Record};
use crate::format::seal::{Proof, Seal, UnsettledSeal};
use crate::format::sums::{Chunks, PayloadSums};
use crate::format::trailer::{MAX_OVERHEAD_LEN, NONCE_LEN, Trailer, nonce_in};
use crate::format::verify::Subject;
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::mutant::{self, Mutant};
use crate::options::{TailOutcome, UnsettledTail};
use crate::units::{RingPosition, to_usize};

/// Bytes of data read at a time.
pub(super) const PIECE: u64 = 1024 * 1024;

/// Where the journal ends, whatever stands there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    pub(crate) tail: RingPosition,
    pub(crate) seal: Seal,
}

/// A batch that counts: a report if it was not settled, and bits of its data to be flipped back.
pub(crate) type Unsettled = (Option<UnsettledTail>, Vec<Flip>);

/// A byte of the device, and its bits that are wrong.
pub(crate) type Flip = (u64, u8);

/// Judges the last batch of a journal with this end; an error: it does not count, and the journal ends
/// before it.
pub(crate) fn judge_end(
    io: &mut BlockingIo<'_>,
    geometry: &Geometry,
    end: &FoundEnd,
) -> Result<Unsettled, (UnsettledTail, LogEnd)> {
    let Some(seal) = end.unsettled else {
        return Ok((None, Vec::new()));
    };
    let (tail, flips) = judge(io, geometry, end.tail, &seal);
    if tail.outcome != TailOutcome::Dropped {
        return Ok((Some(tail), flips));
    }
    let end = LogEnd {
        tail: RingPosition(tail.ring_position),
        seal: seal.without_batch(),
    };
    Err((tail, end))
}

/// Flips bits of the data back, before the batch is settled.
///
/// # Errors
/// [`Error::Io`], [`Error::NoSpace`].
pub(crate) fn flip_back(io: &mut BlockingIo<'_>, flips: &[Flip]) -> Result<(), Error> {
    for &(byte, mask) in flips {
        io.flip(byte, mask)?;
    }
    if flips.is_empty() { Ok(()) } else { io.flush() }
}

/// State of the data of one put.
pub(super) enum DataState {
    /// Its nonce, the sum of its samples, and the bit that has to be flipped back for the rest to fit.
    Found {
        nonce: u64,
        samples: u64,
        flip: Option<Flip>,
    },
    /// There are other bytes.
    Missing,
    /// The device cannot read all of it.
    Unreadable,
}

/// The puts of a batch that its proof is about: of its last `checked` records of kind Put those that
/// no later record makes void. The blocks of the others may have other bytes by now. `None`: there
/// are not so many.
fn proved_puts(records: &[Record<'_>], checked: u16) -> Option<Vec<(LumpId, Portion)>> {
    let is_put = |record: &&Record<'_>| matches!(record, Record::Put { .. });
    let mut others = records
        .iter()
        .filter(is_put)
        .count()
        .checked_sub(checked.into())?;
    let mut puts: Vec<(LumpId, Portion)> = Vec::new();
    for record in records {
        match *record {
            Record::Put { id, portion } => {
                puts.retain(|(other, _)| *other != id);
                if others == 0 {
                    puts.push((id, portion));
                }
                others = others.saturating_sub(1);
            }
            Record::Embed { id, .. } | Record::Delete { id } => {
                puts.retain(|(other, _)| *other != id);
            }
            Record::DeleteRange { start, end } => {
                puts.retain(|(other, _)| !(start..end).contains(other));
            }
            Record::GoToFront | Record::EndOfRecords => {}
        }
    }
    Some(puts)
}

/// Compares the puts of an unsettled batch, which ends at `tail`, with their data.
fn judge(
    io: &mut BlockingIo<'_>,
    geometry: &Geometry,
    tail: RingPosition,
    unsettled: &UnsettledSeal,
) -> (UnsettledTail, Vec<Flip>) {
    let len = unsettled.seal.log_end.saturating_sub(unsettled.begin);
    let begin = RingPosition(tail.0.saturating_sub(len));
    let mut report = UnsettledTail {
        ring_position: begin.0,
        puts: unsettled.proof.puts.into(),
        outcome: TailOutcome::Whole,
        lumps: Vec::new(),
    };
    let Some(puts) = puts_between(io, geometry, (begin, tail), unsettled.proof.puts) else {
        // Its records are not what was written, and nothing says that its data is not.
        report.outcome = TailOutcome::Damaged;
        return (report, Vec::new());
    };
    let mut sum = Proof::default();
    let (mut missing, mut unreadable, mut flips) = (false, false, Vec::new());
    for put in puts {
        let damaged = match examine(io, geometry, put) {
            DataState::Found {
                nonce,
                samples,
                flip,
            } => {
                sum = sum.with(proof::token(nonce, samples), put);
                flips.extend(flip);
                flip.is_some()
            }
            DataState::Missing => {
                missing = true;
                true
            }
            DataState::Unreadable => {
                unreadable = true;
                true
            }
        };
        if damaged {
            report.lumps.push(put.0);
        }
    }
    let excess = sum.sum.wrapping_sub(unsettled.proof.sum);
    let is_proved = || excess == 0 || mutant::is(Mutant::ForgetsNonces) || is_nonce_bit(excess);
    let whole = !missing && (unreadable || is_proved());
    let trusts = mutant::is(Mutant::TrustsData);
    report.outcome = match (whole, report.lumps.is_empty()) {
        _ if trusts => TailOutcome::Whole,
        (true, false) if mutant::is(Mutant::CutsRot) => TailOutcome::Dropped,
        (true, true) => TailOutcome::Whole,
        (true, false) => TailOutcome::Damaged,
        (false, _) => TailOutcome::Dropped,
    };
    if trusts || mutant::is(Mutant::LeavesRot) {
        flips.clear();
    }
    (report, flips)
}

/// The puts that the proof of the records between two places is about.
fn puts_between(
    io: &mut BlockingIo<'_>,
    geometry: &Geometry,
    (begin, tail): (RingPosition, RingPosition),
    checked: u16,
) -> Option<Vec<(LumpId, Portion)>> {
    let start = begin.0 - begin.0 % io.unit();
    let end = tail.0.next_multiple_of(io.unit());
    let bytes = io
        .read(geometry.ring_byte(RingPosition(start)).0, end - start)
        .ok()?;
    let bytes = bytes.get(to_usize(begin.0 - start)..to_usize(tail.0 - start));
    let mut bytes = bytes?.to_vec();
    // A record of which a bit has flipped is made good here, too: the proof is about what it says.
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        if Record::decode(rest).is_err()
            && let Some(mended) = mend(rest)
        {
            let len = mended.record.len().min(rest.len());
            rest[..len].copy_from_slice(&mended.record[..len]);
        }
        match Record::decode(rest) {
            Ok(Decoded::Record { len, .. }) => at += len,
            _ => break,
        }
    }
    proved_puts(&records_in(bytes.get(..at)?), checked)
}

/// The records that bytes are.
fn records_in(bytes: &[u8]) -> Vec<Record<'_>> {
    let (mut records, mut rest) = (Vec::new(), bytes);
    while let Ok(Decoded::Record { record, len }) = Record::decode(rest) {
        records.push(record);
        rest = rest.get(len..).unwrap_or_default();
    }
    records
}

/// Looks at the data of a put.
pub(super) fn examine(
    io: &mut BlockingIo<'_>,
    geometry: &Geometry,
    (id, portion): (LumpId, Portion),
) -> DataState {
    if portion.check_within(geometry.data_blocks()).is_err() {
        return DataState::Missing;
    }
    let block_size = geometry.block_size();
    let (start, len) = (
        geometry.portion_offset(portion).0,
        portion.byte_len(block_size).0,
    );
    let subject = Subject::own(id, portion, block_size);
    let Ok(last) = io.read(start + len - block_size.bytes(), block_size.bytes()) else {
        return DataState::Unreadable;
    };
    let Some(End {
        payload_len,
        trailer,
        nonce,
        flipped,
    }) = End::of(subject, &last)
    else {
        return DataState::Missing;
    };
    let mut sums = PayloadSums::new(payload_len);
    let (mut words, mut done) = (Vec::new(), 0);
    while done < payload_len {
        // To the end of the portion, which ends with a unit.
        let Ok(bytes) = io.read(start + done, PIECE.min(len - done)) else {
            return DataState::Unreadable;
        };
        let left = to_usize(payload_len - done);
        let payload = bytes.get(..left.min(bytes.len())).unwrap_or_default();
        let first = done / crate::units::SECTOR_LEN;
        words.extend(proof::words(first, payload));
        sums.update(payload);
        done += PIECE;
    }
    let mut flip = flipped.map(|(at, mask)| (start + len - block_size.bytes() + at, mask));
    match difference(payload_len, sums, &trailer) {
        Difference::None => {}
        Difference::OneBit(at, mask) if flip.is_none() => {
            proof::flip(&mut words, (at, mask), payload_len);
            flip = Some((start + at, mask));
        }
        Difference::OneBit(..) | Difference::More => return DataState::Missing,
    }
    let samples = proof::sum(words);
    DataState::Found {
        nonce,
        samples,
        flip,
    }
}

/// The last bytes of a lump of ours.
struct End {
    payload_len: u64,
    trailer: Trailer,
    nonce: u64,
    /// The bit of the last block that has flipped.
    flipped: Option<Flip>,
}

impl End {
    fn of(subject: Subject, last: &[u8]) -> Option<Self> {
        let decode = |last: &[u8], flipped| match subject.judge_end(last) {
            Ok((payload_len, Some(trailer))) => {
                let nonce = nonce_in(last, payload_len)?;
                Some(Self {
                    payload_len,
                    trailer,
                    nonce,
                    flipped,
                })
            }
            _ => None,
        };
        if let Some(end) = decode(last, None) {
            return Some(end);
        }
        let end = last.len().checked_sub(MAX_OVERHEAD_LEN + NONCE_LEN)?;
        let from = end as u64;
        with_bit_flipped(last.get(end..)?, |last, (at, mask)| {
            decode(last, Some((from + at as u64, mask)))
        })
    }
}

/// How a payload differs from what its trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    None,
    /// This bit of this byte.
    OneBit(u64, u8),
    More,
}

fn difference(payload_len: u64, sums: PayloadSums, trailer: &Trailer) -> Difference {
    let (whole, table) = sums.finish();
    if whole == trailer.payload_crc && table == trailer.chunk_crcs {
        return Difference::None;
    }
    let chunks = Chunks::of(payload_len);
    let (stored, found, len) = if table.is_empty() {
        (vec![trailer.payload_crc], vec![whole], payload_len)
    } else {
        (trailer.chunk_crcs.clone(), table, chunks.chunk_len())
    };
    let mut differing = (0..).zip(stored.iter().zip(&found));
    let mut differing = differing
        .by_ref()
        .filter(|(_, (stored, found))| stored != found);
    match (differing.next(), differing.next()) {
        (Some((number, (stored, found))), None) => {
            let start = number * len;
            let len = len.min(payload_len.saturating_sub(start));
            let bit = one_bit(stored ^ found, len);
            bit.map_or(Difference::More, |(at, mask)| {
                Difference::OneBit(start + at, mask)
            })
        }
        _ => Difference::More,
    }
}
