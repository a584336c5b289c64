//! Something that is wrong on the disk, said precisely: which lump, which blocks, which sectors.
//!
//! The scrubber of an open store and the offline check report the same type.

pub(crate) mod salvage;

use serde::Serialize;

use crate::format::verify::{Damage, Misfit};
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::units::{RingPosition, SECTOR_LEN};

/// Kind of damage of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The minfs around the image is damaged. The image may be intact.
    Minfs,
    /// A field of the lusf header is not what the format allows.
    Header,
    /// The journal header names no place of the ring.
    JournalHeader,
    /// A journal record cannot be read; what follows it is unknown.
    Record,
    /// Two lumps claim the same blocks.
    Overlap,
    /// A lump, or the image, ends after the end of its device or file.
    Truncated,
    /// The last bytes of a portion are not the end of a lump.
    LumpEnd,
    /// The bytes of a lump are not those that were written for it.
    Checksum,
    /// The device could not read the bytes: a latent sector error.
    Read,
    /// The device refused to write the bytes: nothing is put there any more.
    Write,
    /// The index checkpoint is damaged. The journal still says everything.
    Checkpoint,
    /// The store is an unfinished copy, made by an earlier version.
    Unfinished,
}

/// Blocks of the data region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocks {
    /// First block, counted from the start of the data region.
    pub first: u64,
    /// Number of blocks, at least 1.
    pub count: u64,
}

impl From<Portion> for Blocks {
    fn from(portion: Portion) -> Self {
        Self {
            first: portion.start().0,
            count: u64::from(portion.len().0),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kind of damage.
    pub kind: FindingKind,
    /// The lump it concerns, if one is known.
    pub lump: Option<LumpId>,
    /// Its blocks, when it lives in the data region.
    pub portion: Option<Blocks>,
    /// Byte position in the journal's ring, when a record is concerned.
    pub ring_position: Option<u64>,
    /// First damaged byte, as far as it is known, in the device or file.
    pub offset: u64,
    /// Bytes from there on that may be damaged.
    pub len: u64,
    /// First sector of 512 bytes, counted from the start of the device or file.
    pub first_sector: u64,
    /// Sectors touched.
    pub sectors: u64,
    /// Expected and actual state, in words.
    pub why: String,
}

impl Finding {
    /// Damage somewhere in bytes `offset..offset + len` of the device or file.
    pub(crate) fn new(kind: FindingKind, offset: u64, len: u64, why: impl Into<String>) -> Self {
        let first_sector = offset / SECTOR_LEN;
        let end_sector = offset.saturating_add(len).div_ceil(SECTOR_LEN);
        Self {
            kind,
            lump: None,
            portion: None,
            ring_position: None,
            offset,
            len,
            first_sector,
            sectors: end_sector.saturating_sub(first_sector),
            why: why.into(),
        }
    }

    /// Damage in a whole portion.
    pub(crate) fn of_portion(
        kind: FindingKind,
        geometry: &Geometry,
        id: LumpId,
        portion: Portion,
        why: impl Into<String>,
    ) -> Self {
        let len = portion.byte_len(geometry.block_size()).0;
        Self {
            lump: Some(id),
            portion: Some(portion.into()),
            ..Self::new(kind, geometry.portion_offset(portion).0, len, why)
        }
    }

    /// Finding for a misfit of a portion, narrowed to the bytes concerned.
    pub(crate) fn of_misfit(
        geometry: &Geometry,
        id: LumpId,
        portion: Portion,
        misfit: &Misfit,
    ) -> Self {
        let kind = match misfit.damage {
            Damage::Padding { .. } | Damage::TrailerMissing => FindingKind::LumpEnd,
            _ => FindingKind::Checksum,
        };
        let why = format!("{}: restore the lump from a copy", misfit.damage);
        let start = geometry.portion_offset(portion).0;
        let bytes = misfit.bytes.clone();
        Self::of_portion(kind, geometry, id, portion, why)
            .narrowed(start + bytes.start, bytes.end - bytes.start)
    }

    /// Damage in a journal record.
    pub(crate) fn of_record(
        kind: FindingKind,
        geometry: &Geometry,
        position: RingPosition,
        len: u64,
        why: impl Into<String>,
    ) -> Self {
        Self {
            ring_position: Some(position.0),
            ..Self::new(kind, geometry.ring_byte(position).0, len, why)
        }
    }

    /// Adds the lump `id`.
    pub(crate) fn about(self, id: LumpId) -> Self {
        Self {
            lump: Some(id),
            ..self
        }
    }

    /// Narrows the finding to bytes `offset..offset + len`.
    pub(crate) fn narrowed(self, offset: u64, len: u64) -> Self {
        let Self {
            first_sector,
            sectors,
            ..
        } = Self::new(self.kind, offset, len, String::new());
        Self {
            offset,
            len,
            first_sector,
            sectors,
            ..self
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(id) = self.lump {
            write!(f, "lump {id}, ")?;
        }
        if let Some(Blocks { first, count }) = self.portion {
            write!(f, "blocks {first}..{}, ", first + count)?;
        }
        if let Some(position) = self.ring_position {
            write!(f, "ring position {position}, ")?;
        }
        write!(
            f,
            "bytes {}..{} (sectors {}..{}): {}",
            self.offset,
            self.offset.saturating_add(self.len),
            self.first_sector,
            self.first_sector + self.sectors,
            self.why
        )
    }
}

/// Findings, the first of them in full and all of them counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// The first ones.
    pub list: Vec<Finding>,
    /// How many there were; more than the list is long when it is full.
    pub total: u64,
}

impl Findings {
    /// Keeps at most `limit` of them.
    pub(crate) fn add(&mut self, finding: Finding, limit: usize) {
        self.total += 1;
        if self.list.len() < limit {
            self.list.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_cover_every_byte_and_no_more() {
        let finding = |offset, len| Finding::new(FindingKind::Read, offset, len, "x");
        let sectors = |offset, len| {
            let found = finding(offset, len);
            (found.first_sector, found.sectors)
        };
        assert_eq!(sectors(0, 512), (0, 1));
        assert_eq!(sectors(511, 2), (0, 2));
        assert_eq!(sectors(1024, 1), (2, 1));
        assert_eq!(finding(0, 4096).narrowed(1024, 512).first_sector, 2);
        let expected = "lump 00000000000000000000000000000007, bytes 512..1024 (sectors 1..2): x";
        assert_eq!(finding(512, 512).about(LumpId(7)).to_string(), expected);
    }

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let mut findings = Findings::default();
        for at in 0..5 {
            findings.add(Finding::new(FindingKind::Read, at, 1, ""), 2);
        }
        assert_eq!((findings.list.len(), findings.total), (2, 5));
    }
}
