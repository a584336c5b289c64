//! Compares bytes with checksums, on the finisher's threads.

use super::{Large, ScrubLump, ScrubPlace};
use crate::format::record::{Decoded, Record};
use crate::format::sums::PayloadSums;
use crate::format::verify::Misfit;
use crate::lump::LumpId;
use crate::units::to_usize;

/// Verdict on the bytes of a lump.
#[derive(Debug)]
pub(super) enum Verdict {
    Verified,
    Unverified,
    /// A lump in the data region is not what was written.
    Misfit(Misfit),
    /// The record of an embedded lump is not what was written.
    Record(String),
}

/// Task for bytes that were read.
pub(super) enum Work {
    /// Whole lumps.
    Group(Vec<ScrubLump>),
    /// The end of a large lump.
    End(Box<Large>),
    /// The next piece of a large lump.
    Piece(Box<Large>),
}

/// Result of [`Work::verify`].
pub(super) enum Verified {
    Group(Vec<(ScrubLump, Verdict)>),
    /// More is to be read.
    Continue(Box<Large>),
    Large(Box<Large>, Verdict),
}

impl Work {
    pub(super) fn verify(self, buf: &[u8]) -> Verified {
        match self {
            Self::Group(parts) => {
                let verdicts = parts.into_iter().map(|part| {
                    let verdict = whole(&part, buf);
                    (part, verdict)
                });
                Verified::Group(verdicts.collect())
            }
            Self::End(mut large) => match large.subject.judge_end(buf) {
                Ok(end) => {
                    let sums = PayloadSums::new(end.0);
                    large.begun = Some((sums, end));
                    Verified::Continue(large)
                }
                Err(misfit) => Verified::Large(large, Verdict::Misfit(misfit)),
            },
            Self::Piece(large) => piece(large, buf),
        }
    }
}

/// The verdict about a lump all of whose bytes are there.
fn whole(part: &ScrubLump, buf: &[u8]) -> Verdict {
    let bytes = buf.get(part.at..part.at + part.len).unwrap_or_default();
    match part.place {
        ScrubPlace::Portion(_, subject) => match subject.judge(bytes) {
            Ok(judged) if judged.verified => Verdict::Verified,
            Ok(_) => Verdict::Unverified,
            Err(misfit) => Verdict::Misfit(misfit),
        },
        ScrubPlace::Record(_) => record(part.id, bytes),
    }
}

/// The record of an embedded lump; its own checksum covers the lump.
fn record(id: LumpId, bytes: &[u8]) -> Verdict {
    match Record::decode(bytes) {
        Ok(Decoded::Record {
            record: Record::Embed { id: found, .. },
            len,
        }) if found == id && len == bytes.len() => Verdict::Verified,
        Ok(_) => Verdict::Record("another record stands there".to_owned()),
        Err(error) => Verdict::Record(error.to_string()),
    }
}

fn piece(mut large: Box<Large>, buf: &[u8]) -> Verified {
    let Some((mut sums, end)) = large.begun.take() else {
        return Verified::Continue(large);
    };
    let payload = end.0.saturating_sub(large.done).min(buf.len() as u64);
    let payload = to_usize(payload);
    sums.update(buf.get(..payload).unwrap_or_default());
    large.done += buf.len() as u64;
    if large.done < large.len {
        large.begun = Some((sums, end));
        return Verified::Continue(large);
    }
    let verdict = match large.subject.judge_sums(sums, end) {
        Ok(true) => Verdict::Verified,
        Ok(false) => Verdict::Unverified,
        Err(misfit) => Verdict::Misfit(misfit),
    };
    Verified::Large(large, verdict)
}
