//! Report of salvage mode about a damaged store (FORMAT.md section 13).
//!
//! The report of an open store is in [`StoreInfo::salvage`](crate::StoreInfo::salvage);
//! [`inspect::salvage`](crate::inspect::salvage) makes one of a store that nobody uses.

use serde::Serialize;

use super::{Blocks, Finding};
use crate::error::Error;
use crate::lump::LumpId;

/// Findings that a report lists; more are counted only.
pub(crate) const SALVAGE_FINDINGS_LISTED: usize = 1000;
/// Addition to an error when salvage mode would open the store.
const HINT: &str = "salvage mode opens the store without what is lost (`lumpscope check --quick \
                    --salvage` says what that is, `lumpscope serve --salvage` repairs it)";

/// Action of salvage mode on damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SalvageAction {
    /// Damaged records were passed over: the log goes on behind them.
    LogResumed,
    /// The log was taken to end here; see [`LogCut`].
    LogCut,
    /// The lump is not served, and a repair deletes it.
    LumpDropped,
}

impl SalvageAction {
    /// Short lower-case name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LogResumed => "log_resumed",
            Self::LogCut => "log_cut",
            Self::LumpDropped => "lump_dropped",
        }
    }
}

/// A lump that keeps the blocks which another lump lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Winner {
    /// The lump.
    pub lump: LumpId,
    /// Its blocks.
    pub portion: Blocks,
    /// Ring position of its record.
    pub ring_position: u64,
}

/// One thing that was wrong, and what was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SalvageFinding {
    /// The damage and its place.
    #[serde(flatten)]
    pub finding: Finding,
    /// The action.
    pub action: SalvageAction,
    /// With overlapping portions: the newest lump that has blocks of this one. It may have been
    /// dropped itself, because of a still newer one.
    pub winner: Option<Winner>,
}

/// Where the log was cut, and what that leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogCut {
    /// Ring position of the first record that was not replayed: the new end of the log.
    pub ring_position: u64,
    /// Records before it, which were replayed.
    pub records_kept: u64,
    /// Bytes of them.
    pub bytes_kept: u64,
    /// Bytes of the ring from there round to its head. What stands there cannot be told from what
    /// older rounds of the ring have left.
    pub bytes_behind: u64,
    /// Bytes of those that were searched for intact records.
    pub bytes_searched: u64,
    /// Intact records found in them: an upper bound of what the cut has lost there, because those
    /// of older rounds are among them.
    pub records_behind: u64,
}

/// Findings and actions of salvage mode. Without damage it holds only counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SalvageReport {
    /// True: the store on the disk was repaired, so that it opens without salvage mode.
    pub repaired: bool,
    /// Lumps that are served.
    pub lumps: u64,
    /// Lumps that are not.
    pub dropped_lumps: u64,
    /// Puts in the journal whose lump was put again or deleted later. They are normal: the newest
    /// record of a lump decides.
    pub superseded_records: u64,
    /// Damaged stretches of the log that were passed over.
    pub gaps: u64,
    /// Set when the log does not end properly.
    pub cut: Option<LogCut>,
    /// The first findings, in the order of the log.
    pub findings: Vec<SalvageFinding>,
    /// How many there were.
    pub total: u64,
}

impl SalvageReport {
    /// True: nothing is wrong, and the store opens without salvage mode.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.total == 0
    }

    pub(crate) fn add(&mut self, finding: SalvageFinding) {
        self.total += 1;
        if self.findings.len() < SALVAGE_FINDINGS_LISTED {
            self.findings.push(finding);
        }
    }
}

/// An error of the replay that says what helps.
pub(crate) fn with_hint(error: Error) -> Error {
    match error {
        Error::Corrupt { what, offset, why } => Error::Corrupt {
            what,
            offset,
            why: format!("{why}; {HINT}"),
        },
        Error::CorruptJournal { ring_position, why } => Error::CorruptJournal {
            ring_position,
            why: format!("{why}; {HINT}"),
        },
        other => other,
    }
}
