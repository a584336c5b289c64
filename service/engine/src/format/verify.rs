//! The verdict on bytes that were read for a lump (FORMAT.md section 7.2). Pure functions: gets,
//! range reads and scrubs judge alike.

use std::ops::Range;

use super::error::DecodeError;
use super::portion::Portion;
use super::sums::{Chunks, PayloadSums};
use super::trailer::{LumpEnd, Trailer, TrailerState};
use crate::crc32c;
use crate::lump::LumpId;
use crate::units::{BlockCount, BlockSize};

/// Writer of a lump, as far as the journal tells (FORMAT.md section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// This engine: the trailer must be there and fit.
    Own,
    /// Perhaps another engine: the lump is verified if there is a trailer that fits, and else
    /// cannot be.
    Foreign,
}

/// Why bytes that were read are not the lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The portion is shorter than its padding.
    #[error("its padding length of {padding} bytes is larger than its portion allows ({room})")]
    Padding {
        /// Bytes of padding that are stored.
        padding: u64,
        /// Bytes there is room for.
        room: u64,
    },
    /// Fewer bytes were read than the portion has.
    #[error("only {got} bytes of it were read")]
    Short {
        /// Bytes there are.
        got: u64,
    },
    /// The lump has no checksum trailer, but the engine that writes one put it there: its last
    /// block was lost or overwritten.
    #[error("its checksum trailer is missing")]
    TrailerMissing,
    /// The trailer has a version that this engine never writes.
    #[error("its checksum trailer has the unknown format {format}")]
    TrailerFormat {
        /// The version.
        format: u16,
    },
    /// The trailer is damaged, or names another lump or another length: an older lump shows.
    #[error(
        "its checksum trailer is damaged or belongs to another lump or length \
         (CRC32C {stored:08x}, {computed:08x} for this one)"
    )]
    TrailerMisfit {
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of what was read, for this lump.
        computed: u32,
    },
    /// The size is not the one that was put.
    #[error("it has {found} bytes where {expected} were put")]
    Length {
        /// Bytes that were put.
        expected: u64,
        /// Bytes that the portion tells.
        found: u64,
    },
    /// The payload was changed.
    #[error("its payload has the checksum {computed:08x} where {stored:08x} is stored")]
    Payload {
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of what was read.
        computed: u32,
    },
    /// One chunk of the payload was changed.
    #[error(
        "chunk {number} of its payload has the checksum {computed:08x} where {stored:08x} is stored"
    )]
    Chunk {
        /// Number of the chunk, from 0.
        number: u64,
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of what was read.
        computed: u32,
    },
    /// The journal record of an embedded lump was changed.
    #[error("its journal record is not the one that was written")]
    Record,
}

/// Damage, and where in the portion it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The damage.
    pub damage: Damage,
    /// The bytes of the portion that are meant; all of it when they cannot be told.
    pub bytes: Range<u64>,
}

/// Bytes that may be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The bytes that were asked for, in the buffer that was judged.
    pub bytes: Range<usize>,
    /// True: they fit the checksums stored with the lump. False: it has none that fit, and another
    /// engine may have written it.
    pub verified: bool,
    /// CRC32C of exactly these bytes.
    pub crc32c: u32,
    /// Bytes of the whole lump.
    pub payload_len: u64,
}

/// A portion that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The lump that the journal says is there.
    pub id: LumpId,
    /// Blocks of the portion.
    pub blocks: BlockCount,
    /// The store's block size.
    pub block_size: BlockSize,
    /// Writer of the lump.
    pub provenance: Provenance,
    /// Bytes of the lump, if it was put since the store was opened.
    pub expected_len: Option<u64>,
}

impl Subject {
    /// A lump of this engine, of any length.
    #[must_use]
    pub fn own(id: LumpId, portion: Portion, block_size: BlockSize) -> Self {
        Self {
            id,
            blocks: portion.len(),
            block_size,
            provenance: Provenance::Own,
            expected_len: None,
        }
    }

    fn portion_len(self) -> u64 {
        u64::from(self.blocks.0) * self.block_size.bytes()
    }

    fn misfit(self, damage: Damage) -> Misfit {
        let len = self.portion_len();
        let bytes = match damage {
            Damage::Padding { .. }
            | Damage::TrailerMissing
            | Damage::TrailerFormat { .. }
            | Damage::TrailerMisfit { .. }
            | Damage::Length { .. } => len.saturating_sub(self.block_size.bytes())..len,
            _ => 0..len,
        };
        Misfit { damage, bytes }
    }

    /// Judges the last block of the portion: `last` ends where the portion ends and holds at
    /// least that. Returns the length of the payload, and the trailer if it may be relied on.
    ///
    /// # Errors
    /// A [`Misfit`]: what is there cannot be the lump.
    pub fn judge_end(self, last: &[u8]) -> Result<(u64, Option<Trailer>), Misfit> {
        let end = LumpEnd::decode(last, self.id, self.blocks, self.block_size)
            .map_err(|error| self.misfit(undecodable(&error, last.len())))?;
        let LumpEnd {
            payload_len,
            trailer,
        } = end;
        let damage = match trailer {
            TrailerState::Fits(trailer) => {
                let expected = self.expected_len.unwrap_or(payload_len);
                if expected == payload_len || self.provenance == Provenance::Foreign {
                    return Ok((payload_len, Some(trailer)));
                }
                Damage::Length {
                    expected,
                    found: payload_len,
                }
            }
            TrailerState::Missing => Damage::TrailerMissing,
            TrailerState::OtherFormat { format } => Damage::TrailerFormat { format },
            TrailerState::Misfit { stored, computed } => Damage::TrailerMisfit { stored, computed },
        };
        match self.provenance {
            Provenance::Own => Err(self.misfit(damage)),
            Provenance::Foreign => Ok((payload_len, None)),
        }
    }

    /// Judges a whole portion.
    ///
    /// # Errors
    /// A [`Misfit`]: what is there cannot be the lump, or cannot be all of it.
    pub fn judge(self, portion: &[u8]) -> Result<Judged, Misfit> {
        if portion.len() as u64 != self.portion_len() {
            let got = portion.len() as u64;
            return Err(self.misfit(Damage::Short { got }));
        }
        let (payload_len, trailer) = self.judge_end(portion)?;
        self.judge_part(portion, 0, 0..payload_len, (payload_len, trailer))
    }

    /// Judges the bytes `wanted` of the payload. `bytes` begins at byte `start` of the payload and
    /// holds at least [`Chunks::cover`] of what is wanted; `end` is what [`Self::judge_end`] said.
    ///
    /// # Errors
    /// A [`Misfit`]: a chunk that holds some of them is damaged.
    pub fn judge_part(
        self,
        bytes: &[u8],
        start: u64,
        wanted: Range<u64>,
        (payload_len, trailer): (u64, Option<Trailer>),
    ) -> Result<Judged, Misfit> {
        let within = |range: &Range<u64>| {
            let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
            let to = usize::try_from(range.end.checked_sub(start)?).ok()?;
            bytes.get(from..to).map(|slice| (from..to, slice))
        };
        let short = || {
            let got = bytes.len() as u64;
            self.misfit(Damage::Short { got })
        };
        let (place, slice) = within(&wanted).ok_or_else(short)?;
        let mut judged = Judged {
            bytes: place,
            verified: false,
            crc32c: 0,
            payload_len,
        };
        if let Some(trailer) = trailer {
            let chunks = Chunks::of(payload_len);
            let cover = chunks.cover(wanted.clone());
            let (_, covering) = within(&cover).ok_or_else(short)?;
            let mut sums = PayloadSums::new(payload_len);
            sums.update(covering);
            match compare(chunks, &cover, sums, &trailer) {
                Ok(crc) => {
                    judged.verified = true;
                    judged.crc32c = if wanted == cover {
                        crc
                    } else {
                        crc32c::of(slice)
                    };
                    return Ok(judged);
                }
                Err(misfit) if self.provenance == Provenance::Own => return Err(misfit),
                // Another engine has overwritten the lump and left our trailer in its padding.
                Err(_) => {}
            }
        }
        judged.crc32c = crc32c::of(slice);
        Ok(judged)
    }

    /// Judges the sums of a whole payload that was read piece by piece; `end` is what
    /// [`Self::judge_end`] said. True: it is verified.
    ///
    /// # Errors
    /// A [`Misfit`]: what was read cannot be the lump.
    pub fn judge_sums(
        self,
        sums: PayloadSums,
        (payload_len, trailer): (u64, Option<Trailer>),
    ) -> Result<bool, Misfit> {
        let Some(trailer) = trailer else {
            return Ok(false);
        };
        let compared = compare(Chunks::of(payload_len), &(0..payload_len), sums, &trailer);
        match (compared, self.provenance) {
            (Ok(_), _) => Ok(true),
            (Err(misfit), Provenance::Own) => Err(misfit),
            (Err(_), Provenance::Foreign) => Ok(false),
        }
    }
}

/// Compares the sums of whole chunks with the trailer; returns the CRC32C of all of them together.
fn compare(
    chunks: Chunks,
    cover: &Range<u64>,
    sums: PayloadSums,
    trailer: &Trailer,
) -> Result<u32, Misfit> {
    let (crc, table) = sums.finish();
    let first = cover.start / chunks.chunk_len();
    let stored = usize::try_from(first)
        .ok()
        .and_then(|first| trailer.chunk_crcs.get(first..))
        .unwrap_or_default();
    for ((number, computed), stored) in (first..).zip(table).zip(stored.iter().copied()) {
        if computed != stored {
            let from = number * chunks.chunk_len();
            let to = (from + chunks.chunk_len()).min(chunks.payload_len());
            return Err(Misfit {
                damage: Damage::Chunk {
                    number,
                    stored,
                    computed,
                },
                bytes: from..to,
            });
        }
    }
    let stored = trailer.payload_crc;
    if *cover == (0..chunks.payload_len()) && crc != stored {
        let damage = Damage::Payload {
            stored,
            computed: crc,
        };
        return Err(Misfit {
            damage,
            bytes: cover.clone(),
        });
    }
    Ok(crc)
}

fn undecodable(error: &DecodeError, got: usize) -> Damage {
    match error.kind {
        super::error::DecodeErrorKind::TooLarge { max, found } => Damage::Padding {
            padding: found,
            room: max,
        },
        _ => Damage::Short { got: got as u64 },
    }
}
