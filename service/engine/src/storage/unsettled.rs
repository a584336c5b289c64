//! Finds out whether the data of an unsettled batch is whole (FORMAT.md section 8.1).

use std::ops::Deref;

use super::journal::FoundEnd;
use crate::error::Error;
use crate::format::mend::mend;
use crate::format::proof::{self, is_one_bit, one_bit_explains};
use crate::format::record::{Decoded, Record};
use crate::format::seal::{Proof, Seal, UnsettledSeal};
use crate::format::sums::{Chunks, PayloadSums};
use crate::format::trailer::{MAX_OVERHEAD_LEN, NONCE_LEN, Trailer, nonce_in};
use crate::format::verify::Subject;
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::mutant::{self, Mutant};
use crate::options::{TailOutcome, UnsettledTail};
use crate::units::RingPosition;

/// Bytes of data read at a time.
const PIECE: u64 = 1024 * 1024;

/// Where the journal ends, whatever stands there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    pub(crate) tail: RingPosition,
    pub(crate) seal: Seal,
}

/// What to do with the last batch.
pub(crate) enum Judged {
    /// It counts; there is a report if it was not settled.
    Counts(Option<UnsettledTail>),
    /// It does not: the journal ends before it.
    Dropped(UnsettledTail, LogEnd),
}

/// Judges the last batch of a journal with this end. `read`: whole units of `unit` bytes.
pub(crate) fn judge_end<B: Deref<Target = [u8]>>(
    geometry: &Geometry,
    end: &FoundEnd,
    unit: u64,
    mut read: impl FnMut(u64, u64) -> Result<B, Error>,
) -> Judged {
    let Some(seal) = end.unsettled else {
        return Judged::Counts(None);
    };
    let tail = judge(geometry, (end.tail, unit), &seal, &mut read);
    if tail.outcome != TailOutcome::Dropped {
        return Judged::Counts(Some(tail));
    }
    let end = LogEnd {
        tail: RingPosition(tail.ring_position),
        seal: seal.without_batch(),
    };
    Judged::Dropped(tail, end)
}

/// State of the data of one put.
enum Data {
    /// Its nonce, its samples, and whether the rest fits: not if one bit of it has flipped.
    Found(Found),
    /// There are other bytes.
    Missing,
    /// The device cannot read all of it.
    Unreadable,
}

struct Found {
    token: u64,
    words: Vec<(u64, u64)>,
    damaged: bool,
}

/// The puts of a batch that its proof is about: of its last `checked` records of kind Put those that
/// no later record makes void. The blocks of the others may have other bytes by now. `None`: there
/// are not so many.
pub(crate) fn proved_puts(records: &[Record<'_>], checked: u16) -> Option<Vec<(LumpId, Portion)>> {
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
                if !mutant::is(Mutant::ProvesVoid) {
                    puts.retain(|(other, _)| *other != id);
                }
                if others == 0 {
                    puts.push((id, portion));
                }
                others = others.saturating_sub(1);
            }
            _ if mutant::is(Mutant::ProvesVoid) => {}
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
fn judge<B: Deref<Target = [u8]>>(
    geometry: &Geometry,
    (tail, unit): (RingPosition, u64),
    unsettled: &UnsettledSeal,
    read: &mut impl FnMut(u64, u64) -> Result<B, Error>,
) -> UnsettledTail {
    let len = unsettled.seal.log_end.saturating_sub(unsettled.begin);
    let begin = RingPosition(tail.0.saturating_sub(len));
    let mut report = UnsettledTail {
        ring_position: begin.0,
        puts: unsettled.proof.puts.into(),
        outcome: TailOutcome::Whole,
        lumps: Vec::new(),
    };
    let Some(puts) = puts_between(geometry, (begin, tail), unit, unsettled.proof.puts, read) else {
        // Its records are not what was written, and nothing says that its data is not.
        report.outcome = TailOutcome::Damaged;
        return report;
    };
    let mut sum = Proof::default();
    let (mut missing, mut unreadable, mut words) = (false, false, Vec::new());
    for put in puts {
        let damaged = match examine(geometry, put, read) {
            Data::Found(found) => {
                sum = sum.with(found.token, put);
                words.extend(found.words);
                found.damaged
            }
            Data::Missing => {
                missing = true;
                true
            }
            Data::Unreadable => {
                unreadable = true;
                true
            }
        };
        if damaged {
            report.lumps.push(put.0);
        }
    }
    let excess = sum.sum.wrapping_sub(unsettled.proof.sum);
    let is_proved =
        || excess == 0 || mutant::is(Mutant::ForgetsNonces) || one_bit_explains(excess, &words);
    let whole = !missing && (unreadable || is_proved());
    let trusts = mutant::is(Mutant::TrustsData);
    report.outcome = match (whole, report.lumps.is_empty()) {
        _ if trusts => TailOutcome::Whole,
        (true, false) if mutant::is(Mutant::CutsRot) => TailOutcome::Dropped,
        (true, true) => TailOutcome::Whole,
        (true, false) => TailOutcome::Damaged,
        (false, _) => TailOutcome::Dropped,
    };
    report
}

/// The puts that the proof of the records between two places is about.
fn puts_between<B: Deref<Target = [u8]>>(
    geometry: &Geometry,
    (begin, tail): (RingPosition, RingPosition),
    unit: u64,
    checked: u16,
    read: &mut impl FnMut(u64, u64) -> Result<B, Error>,
) -> Option<Vec<(LumpId, Portion)>> {
    let start = begin.0 - begin.0 % unit.max(1);
    let end = tail.0.next_multiple_of(unit.max(1));
    let bytes = read(geometry.ring_byte(RingPosition(start)).0, end - start).ok()?;
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
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
pub(crate) fn records_in(bytes: &[u8]) -> Vec<Record<'_>> {
    let (mut records, mut rest) = (Vec::new(), bytes);
    while let Ok(Decoded::Record { record, len }) = Record::decode(rest) {
        records.push(record);
        rest = rest.get(len..).unwrap_or_default();
    }
    records
}

/// Looks at the data of a put.
fn examine<B: Deref<Target = [u8]>>(
    geometry: &Geometry,
    (id, portion): (LumpId, Portion),
    read: &mut impl FnMut(u64, u64) -> Result<B, Error>,
) -> Data {
    if portion.check_within(geometry.data_blocks()).is_err() {
        return Data::Missing;
    }
    let block_size = geometry.block_size();
    let (start, len) = (
        geometry.portion_offset(portion).0,
        portion.byte_len(block_size).0,
    );
    let subject = Subject::own(id, portion, block_size);
    let Ok(last) = read(start + len - block_size.bytes(), block_size.bytes()) else {
        return Data::Unreadable;
    };
    let Some(End {
        payload_len,
        trailer,
        nonce,
        flipped,
    }) = End::of(subject, &last)
    else {
        return Data::Missing;
    };
    let mut sums = PayloadSums::new(payload_len);
    let (mut words, mut done) = (Vec::new(), 0);
    while done < payload_len {
        // To the end of the portion, which ends with a unit.
        let Ok(bytes) = read(start + done, PIECE.min(len - done)) else {
            return Data::Unreadable;
        };
        let left = usize::try_from(payload_len - done).unwrap_or(usize::MAX);
        let payload = bytes.get(..left.min(bytes.len())).unwrap_or_default();
        let first = done / crate::units::SECTOR_LEN;
        words.extend(proof::words(first, payload));
        sums.update(payload);
        done += PIECE;
    }
    let damaged = match difference(payload_len, sums, &trailer) {
        Difference::None => flipped,
        Difference::OneBit => true,
        Difference::More => return Data::Missing,
    };
    let token = proof::token(nonce, proof::sum(words.iter().copied()));
    Data::Found(Found {
        token,
        words,
        damaged,
    })
}

/// The last bytes of a lump of ours.
struct End {
    payload_len: u64,
    trailer: Trailer,
    nonce: u64,
    /// True: one bit of it has flipped.
    flipped: bool,
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
        if let Some(end) = decode(last, false) {
            return Some(end);
        }
        let end = last.len().checked_sub(MAX_OVERHEAD_LEN + NONCE_LEN)?;
        let mut last = last.get(end..)?.to_vec();
        (0..last.len() * 8).find_map(|bit| {
            let (at, mask) = (bit / 8, 1 << (bit % 8));
            *last.get_mut(at)? ^= mask;
            let end = decode(&last, true);
            *last.get_mut(at)? ^= mask;
            end
        })
    }
}

/// How a payload differs from what its trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    None,
    OneBit,
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
            let len = len.min(payload_len.saturating_sub(number * len));
            if is_one_bit(stored ^ found, len) {
                Difference::OneBit
            } else {
                Difference::More
            }
        }
        _ => Difference::More,
    }
}
