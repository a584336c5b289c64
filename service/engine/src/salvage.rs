//! What salvage mode makes of a damaged store (FORMAT.md section 13).
//!
//! The report of an open store is in [`StoreInfo::salvage`](crate::StoreInfo::salvage); [`examine`]
//! and [`check`] find out the same about a store that nobody uses, without writing.

use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::finding::{Blocks, Finding};
use crate::lump::LumpId;
use crate::options::StoreOptions;
use crate::request::{LumpRange, RequestCtx};
use crate::store::Store;

/// Findings that a report lists; more are counted only.
pub const SALVAGE_FINDINGS_LISTED: usize = 1000;
/// Lumps asked for at a time.
const PAGE: usize = 4096;
/// What an error adds when salvage mode would open the store.
const HINT: &str = "salvage mode opens the store without what is lost (`lumpscope inspect \
                    --salvage` says what that is, `lumpscope serve --salvage` repairs it)";

/// What salvage mode did about something that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SalvageAction {
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
    /// What was wrong, and where.
    #[serde(flatten)]
    pub finding: Finding,
    /// What was done.
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

/// What salvage mode found and did. Without damage it holds nothing but counts.
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
    /// Set when the log does not end properly.
    pub cut: Option<LogCut>,
    /// What is wrong, in the order of the log; the first of them.
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

/// The lumps that salvage mode would serve, read and compared with their checksums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SalvageCheck {
    /// What salvage mode would do.
    pub salvage: SalvageReport,
    /// False: the check was ended before it had read every lump.
    pub complete: bool,
    /// Lumps whose bytes were compared with a checksum and fit.
    pub verified_lumps: u64,
    /// Lumps without a checksum: of an engine that stores none.
    pub unverified_lumps: u64,
    /// Lumps that cannot be read or do not fit their checksum.
    pub damaged_lumps: u64,
    /// Why, for the first of them.
    pub damage: Vec<String>,
}

/// Finds out what salvage mode would do with the store `path`. Nothing is written.
///
/// # Errors
/// As [`Store::open`].
pub fn examine(path: &Path) -> Result<SalvageReport, Error> {
    let store = open(path)?;
    let report = report_of(&store);
    store.close()?;
    Ok(report)
}

/// The same, and reads every lump that would be served. `progress` is called with the lumps read
/// and the lumps there are; when it returns false, the check ends early. Nothing is written.
///
/// # Errors
/// As [`Store::open`].
pub fn check(
    path: &Path,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<SalvageCheck, Error> {
    let store = open(path)?;
    let mut check = SalvageCheck {
        salvage: report_of(&store),
        complete: false,
        verified_lumps: 0,
        unverified_lumps: 0,
        damaged_lumps: 0,
        damage: Vec::new(),
    };
    let (mut range, mut read) = (LumpRange::ALL, 0);
    'pages: loop {
        let ids = store.list(range, PAGE)?.ids;
        for &id in &ids {
            if !progress(read, check.salvage.lumps) {
                break 'pages;
            }
            match store.get(RequestCtx::default(), id) {
                Ok(lump) if lump.verified => check.verified_lumps += 1,
                Ok(_) => check.unverified_lumps += 1,
                Err(error) => {
                    check.damaged_lumps += 1;
                    if check.damage.len() < SALVAGE_FINDINGS_LISTED {
                        check.damage.push(error.to_string());
                    }
                }
            }
            read += 1;
        }
        match ids.last().and_then(|last| last.0.checked_add(1)) {
            Some(next) if ids.len() == PAGE => range.start = LumpId(next),
            _ => {
                check.complete = progress(read, check.salvage.lumps);
                break;
            }
        }
    }
    store.close()?;
    Ok(check)
}

fn open(path: &Path) -> Result<Store, Error> {
    let mut options = StoreOptions::new("salvage");
    options.read_only = true;
    options.salvage = true;
    Store::open(path, options)
}

fn report_of(store: &Store) -> SalvageReport {
    store.info().salvage.clone().unwrap_or_default()
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
