//! Copies a store that nobody uses to another device or file, lump by lump.
//!
//! Every lump is read with its checksum and put anew, so the copy has the size of its target, a
//! journal without garbage, free space in one piece and no list of bad places. Lumps that cannot be
//! read are told, and the rest goes on. Until the copy is whole and was checked, its header block
//! has a mark (FORMAT.md section 4.3) with which nobody opens it but a copy that goes on: a copy that
//! was interrupted, by whatever, is begun again by the same call and goes on where it was.
//!
//! Memory: at most 1 GiB for lumps, and the indexes of both stores. Any thread; threads of its own
//! until it returns.

mod error;
mod lumps;

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

pub use error::CopyError;
pub use lumps::{Copied, Unreadable, copy_lumps};

use crate::create::{CreateOptions, Prealloc, data_len_at, format_as};
use crate::device::{self, Device};
use crate::finding::FindingKind;
use crate::format::unfinished::Unfinished;
use crate::inspect::Inspector;
use crate::layout;
use crate::options::{StoreInfo, StoreOptions};
use crate::storage::finish;
use crate::store::Store;

/// Bytes of memory for the lumps of each of both stores: more than the largest lump, and a quarter.
const BUFFERS: u64 = 512 << 20;

/// How a store is copied.
#[derive(Clone, Copy, Default)]
pub struct CopyOptions<'a> {
    /// Bytes of the copy; `None`: the whole device, of an existing file its size, and of a new file that
    /// of the source.
    pub capacity: Option<u64>,
    /// Bytes of a block of the copy; `None`: as in the source.
    pub block_size: Option<u16>,
    /// Share of its journal, 0 to 1; `None`: as in the source.
    pub journal_ratio: Option<f64>,
    /// How the bytes of a file are had; of no meaning on a block device.
    pub prealloc: Prealloc,
    /// Overwrite whatever the target holds, also a copy that was begun. Never overrules "in use",
    /// "read-only" or "too small".
    pub force: bool,
    /// Read a damaged source as salvage mode does.
    pub salvage: bool,
    /// Called by any thread with the step, bytes done and bytes in all.
    pub progress: Option<&'a (dyn Fn(Step, u64, u64) + Sync)>,
}

/// Part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The target is made a store.
    Making,
    /// Lumps are copied.
    Copying,
    /// The copy is read and compared with its checksums.
    Checking,
}

/// Report of a copy that is whole, but for what could not be read.
#[derive(Clone, Debug)]
pub struct CopyReport {
    /// The source.
    pub source: StoreInfo,
    /// The copy.
    pub target: StoreInfo,
    /// True: a copy that was begun earlier was finished.
    pub resumed: bool,
    /// Lumps that were copied this time, and those that cannot be.
    pub copied: Copied,
    /// Lumps of the copy, all of which were read and compared with their checksums.
    pub checked: u64,
    /// Time from the call to the end.
    pub elapsed: Duration,
}

/// Copies the store at `from` to `to`, which becomes a store of its own with another instance UUID.
/// `from` is only read. A copy that was interrupted goes on where it was, if its source has not
/// changed since.
///
/// # Errors
/// [`CopyError`]. Unless it says otherwise, the same call goes on.
pub fn copy(from: &Path, to: &Path, options: &CopyOptions<'_>) -> Result<CopyReport, CopyError> {
    let begun = Instant::now();
    let source = Store::open(from, source_options(options)).map_err(CopyError::Source)?;
    let mark = source.inner.journal_end;
    let resumed = !options.force && is_begun(to, &mark)?;
    if !resumed {
        make(&source, to, options, mark)?;
    }
    let target = open_target(to, mark)?;
    let info = target.info().clone();
    let progress = |done, total| options.tell(Step::Copying, done, total);
    let copied = copy_lumps(&source, &target, &progress)?;
    target.close().map_err(CopyError::Target)?;
    let checked = check(to, options, copied.lumps + copied.there)?;
    finish_target(to)?;
    Ok(CopyReport {
        source: source.info().clone(),
        target: info,
        resumed,
        copied,
        checked,
        elapsed: begun.elapsed(),
    })
}

impl CopyOptions<'_> {
    fn tell(&self, step: Step, done: u64, total: u64) {
        if let Some(progress) = self.progress {
            progress(step, done, total);
        }
    }
}

fn source_options(options: &CopyOptions<'_>) -> StoreOptions {
    StoreOptions {
        read_only: true,
        salvage: options.salvage,
        buffer_budget: BUFFERS,
        ..StoreOptions::new("source")
    }
}

/// True: at `to` is a copy that was begun from this source.
fn is_begun(to: &Path, source: &Unfinished) -> Result<bool, CopyError> {
    let Ok(file) = std::fs::File::open(to) else {
        // Not there, or formatting says why it cannot be used.
        return Ok(false);
    };
    let head = layout::read_head(&file).unwrap_or_default();
    let Ok((_, base, _)) = layout::recognise(&head) else {
        return Ok(false);
    };
    let base = usize::try_from(base.0).unwrap_or(usize::MAX);
    let mark = Unfinished::decode(head.get(base..).unwrap_or_default());
    match mark {
        Some(mark) if mark == *source => Ok(true),
        Some(mark) if mark.source == source.source => Err(CopyError::SourceChanged {
            path: to.to_owned(),
        }),
        Some(mark) => Err(CopyError::OtherSource {
            path: to.to_owned(),
            of: uuid::Uuid::from_bytes(mark.source),
        }),
        None => Ok(false),
    }
}

/// Makes the target an empty store, if there is nothing on it and the source fits.
fn make(
    source: &Store,
    to: &Path,
    options: &CopyOptions<'_>,
    mark: Unfinished,
) -> Result<(), CopyError> {
    let info = source.info();
    let block = u64::from(info.block_size);
    let journal = info.journal_capacity + block;
    let available = journal + info.data_capacity;
    let is_device = std::fs::metadata(to).is_ok_and(|found| found.file_type().is_block_device());
    let is_sized = is_device || std::fs::metadata(to).is_ok_and(|found| found.len() > 0);
    let zeroed = |done, total| options.tell(Step::Making, done, total);
    let mut wanted = CreateOptions {
        capacity: options
            .capacity
            .or((!is_sized).then_some(available + block)),
        block_size: options.block_size.unwrap_or(info.block_size),
        // Half a block less, so that rounding up gives as many blocks.
        journal_ratio: options.journal_ratio.unwrap_or_else(|| {
            #[expect(clippy::cast_precision_loss, reason = "half a block is not lost")]
            let ratio = (journal - block / 2) as f64 / available as f64;
            ratio
        }),
        prealloc: options.prealloc,
        force: options.force,
        progress: Some(&zeroed),
        ..CreateOptions::default()
    };
    let needed = needed(source, wanted.block_size);
    let mut data = data_len_at(to, &wanted)?;
    if data < needed {
        // Room for checkpoints is what a copy can do without.
        wanted.checkpoint_area = false;
        data = data_len_at(to, &wanted)?;
    }
    if data < needed {
        return Err(CopyError::TooSmall {
            path: to.to_owned(),
            needed,
            data,
        });
    }
    format_as(to, &wanted, Some(mark))?;
    Ok(())
}

/// Bytes of the data region that the lumps of the source take in blocks of this size, at most.
fn needed(source: &Store, block_size: u16) -> u64 {
    let stats = source.stats();
    let used = stats.data_used_bytes.saturating_sub(stats.bad_bytes);
    if block_size == source.info().block_size {
        used
    } else {
        used.saturating_add(stats.lumps.saturating_mul(u64::from(block_size)))
    }
}

fn target_options() -> StoreOptions {
    StoreOptions {
        buffer_budget: BUFFERS,
        ..StoreOptions::new("copy")
    }
}

fn open_device(to: &Path) -> Result<Device, CopyError> {
    device::open(to, &target_options()).map_err(CopyError::Target)
}

fn open_target(to: &Path, mark: Unfinished) -> Result<Store, CopyError> {
    let device = open_device(to)?;
    Store::open_copy(device, target_options(), Some(mark)).map_err(CopyError::Target)
}

/// Reads the copy from the disk again, every lump; returns how many there are.
fn check(to: &Path, options: &CopyOptions<'_>, expected: u64) -> Result<u64, CopyError> {
    let inspector = Inspector::open(to).map_err(CopyError::Target)?;
    let report = inspector.check(|done, total| {
        options.tell(Step::Checking, done, total);
        true
    });
    let mut found = report.findings.list.into_iter();
    let wrong = found.find(|finding| finding.kind != FindingKind::Unfinished);
    let why = match wrong {
        Some(finding) => finding.to_string(),
        None if report.verified_lumps != expected => format!(
            "{} lumps were copied, and {} found",
            expected, report.verified_lumps
        ),
        None => return Ok(expected),
    };
    Err(CopyError::Damaged {
        path: to.to_owned(),
        why,
    })
}

/// Takes the mark away: from now on the copy is a store.
fn finish_target(to: &Path) -> Result<(), CopyError> {
    finish::take_mark(&mut open_device(to)?).map_err(CopyError::Target)
}
