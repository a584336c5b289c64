//! Salvage mode tried on a store that nobody uses (FORMAT.md section 13). Nothing is written.

use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::finding::salvage::{SALVAGE_FINDINGS_LISTED, SalvageReport};
use crate::lump::LumpId;
use crate::options::StoreOptions;
use crate::request::{LumpRange, RequestCtx};
use crate::store::Store;

/// Lumps asked for at a time.
const PAGE: usize = 4096;

/// The lumps that salvage mode would serve, read and compared with their checksums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SalvageCheck {
    /// Plan of salvage mode.
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

/// Examines the store and reads every lump that would be served. `progress` is called with the
/// lumps read and the lumps there are; when it returns false, the check ends early. Nothing is
/// written.
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
