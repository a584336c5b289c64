//! Correlation of a recording: no root, no kernel, no clock.
//!
//! A recording is what [`crate::Observer::watch_inputs`] gives, or what
//! [`crate::Tuning::record`] writes: one [`Input`] a line, as JSON. The same lines give the same
//! result anywhere and at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read};
use std::time::Duration;

use lumpscope_ebpf_common::split_dev;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::api::TraceRequest;
use crate::clock::WallClock;
use crate::correlate::{Correlator, Input, KINDS};
use crate::live::Watch;
use crate::report::{BlockLine, SlowRequest, StoreReport};

/// No line is longer, in bytes: the place of a file of a million extents fits.
pub const MAX_LINE: usize = 64 << 20;
/// Stores that a recording may speak of.
const MAX_STORES: usize = 4096;
/// Lines between two looks for block requests.
const BETWEEN: u64 = 4096;

/// Why a recording cannot be replayed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ReplayError {
    /// It cannot be read.
    #[error("line {line} cannot be read: {source}")]
    Read {
        /// Number of the line, from 1.
        line: u64,
        source: std::io::Error,
    },
    /// A line is too long.
    #[error("not a Lumpscope recording (line {line} is longer than {MAX_LINE} bytes)")]
    TooLong {
        /// Number of the line, from 1.
        line: u64,
    },
    /// A kind of input that this version does not know.
    #[error(
        "line {line}: this version does not know `{kind}`; replay it with the version that recorded \
         it"
    )]
    UnknownKind {
        /// Number of the line, from 1.
        line: u64,
        kind: String,
    },
    /// A line is no input.
    #[error("not a Lumpscope recording (line {line}: {source})")]
    Malformed {
        /// Number of the line, from 1.
        line: u64,
        source: serde_json::Error,
    },
    /// The last line has no end.
    #[error("line {line} is cut off; only the lines before it are used")]
    CutOff {
        /// Number of the line, from 1.
        line: u64,
    },
    /// More stores than there can be.
    #[error("not a Lumpscope recording (line {line}: more than {MAX_STORES} stores)")]
    TooManyStores {
        /// Number of the line, from 1.
        line: u64,
    },
}

/// A recording, correlated again.
#[derive(Debug)]
pub struct Replay {
    correlator: Correlator,
    blocks: Watch<BlockLine>,
    /// Indices of stores that were spoken of.
    seen: BTreeSet<usize>,
    written_for: Option<u64>,
    /// Numbers of the disks, by name.
    disks: BTreeMap<String, (u32, u32)>,
    /// The first and the last mark of time.
    marks: Option<(u64, u64)>,
    line: u64,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay::new()
    }
}

impl Replay {
    /// Nothing was recorded yet; all block requests are handed out.
    #[must_use]
    pub fn new() -> Replay {
        Replay::filtered(TraceRequest::default())
    }

    /// Nothing was recorded yet; the block requests of this filter are handed out.
    #[must_use]
    pub fn filtered(filter: TraceRequest) -> Replay {
        let mut correlator = Correlator::new(0);
        // As many as the correlator can have waiting: none is dropped between two looks.
        let blocks = correlator.watch_blocks(filter, usize::MAX);
        Replay {
            correlator,
            blocks,
            seen: BTreeSet::new(),
            written_for: None,
            disks: BTreeMap::new(),
            marks: None,
            line: 0,
        }
    }

    /// Takes a whole recording; every completed block request of the filter is handed to `on_block`, in the
    /// order of the recording. Empty lines are skipped.
    ///
    /// # Errors
    /// The line and its defect. All lines before it were taken, and can be asked for.
    pub fn read(
        &mut self,
        mut from: impl BufRead,
        mut on_block: impl FnMut(BlockLine),
    ) -> Result<(), ReplayError> {
        let taken = self.read_lines(&mut from, &mut on_block);
        self.correlator.finish();
        self.blocks.take().into_iter().for_each(on_block);
        taken
    }

    fn read_lines(
        &mut self,
        from: &mut impl BufRead,
        on_block: &mut impl FnMut(BlockLine),
    ) -> Result<(), ReplayError> {
        let mut text = Vec::new();
        let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        loop {
            text.clear();
            let line = self.line + 1;
            let read = from.take(most + 1).read_until(b'\n', &mut text);
            let length = read.map_err(|source| ReplayError::Read { line, source })?;
            if length == 0 {
                return Ok(());
            }
            self.line = line;
            let ended = text.last() == Some(&b'\n');
            if text.len() > MAX_LINE {
                return Err(ReplayError::TooLong { line });
            }
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let drained = match parse(&text, line) {
                Ok(input) => self.take(input)?,
                Err(_) if !ended && line > 1 => return Err(ReplayError::CutOff { line }),
                Err(error) => return Err(error),
            };
            if drained || line.is_multiple_of(BETWEEN) {
                self.blocks.take().into_iter().for_each(&mut *on_block);
            }
        }
    }

    /// Applies an input; true: it settles block requests.
    fn take(&mut self, input: Input) -> Result<bool, ReplayError> {
        let (store, is_new) = match &input {
            Input::Added { store, .. } => (Some(*store), true),
            Input::Placed { store, .. } => (Some(*store), false),
            Input::Ended(ended) => (Some(ended.store), false),
            _ => (None, false),
        };
        if let Some(store) = store
            && self.seen.insert(store)
        {
            if self.seen.len() > MAX_STORES {
                return Err(ReplayError::TooManyStores { line: self.line });
            }
            if !is_new {
                // Old recordings do not tell of the first stores.
                let name = format!("store {store}");
                self.correlator.apply(Input::Added { store, name });
            }
        }
        let mut settles = false;
        match &input {
            Input::Clock { request, .. } => self.written_for = *request,
            Input::Placed {
                placement, disk, ..
            } if self.disks.len() < MAX_STORES => {
                let numbers = split_dev(placement.dev);
                self.disks.insert(disk.clone(), numbers);
            }
            Input::Drained { until_ns } => {
                let (first, _) = self.marks.unwrap_or((*until_ns, 0));
                self.marks = Some((first, *until_ns));
                settles = true;
            }
            _ => {}
        }
        self.correlator.apply(input);
        Ok(settles)
    }

    /// The time of day in the recording; old ones do not say it, and count from where their clock begins.
    #[must_use]
    pub fn clock(&self) -> WallClock {
        self.correlator.clock()
    }

    /// Lines taken so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// Names of the stores that were there at the end, in the order of their indices.
    #[must_use]
    pub fn stores(&self) -> Vec<String> {
        let stores = self.correlator.stores();
        stores.map(|(_, name)| name.to_owned()).collect()
    }

    /// Major and minor numbers of the disks, by name; old recordings name none.
    #[must_use]
    pub fn disks(&self) -> &BTreeMap<String, (u32, u32)> {
        &self.disks
    }

    /// How much time it covers: between the first and the last mark of time in it.
    #[must_use]
    pub fn covers(&self) -> Duration {
        let (first, last) = self.marks.unwrap_or_default();
        Duration::from_nanos(last.saturating_sub(first))
    }

    /// Report of a store; `None`: no such store at the end. The histogram is not in a recording:
    /// `heat` is empty. The audit is the last one recorded.
    #[must_use]
    pub fn report(&self, store: &str) -> Option<StoreReport> {
        let index = self.index_of(store)?;
        let device = self.correlator.disk_name(index);
        let mut report = StoreReport {
            store: store.to_owned(),
            observed: device.is_some(),
            device: device.unwrap_or_default().to_owned(),
            ..StoreReport::default()
        };
        if !report.observed {
            report.not_observed_because =
                "the recording does not say where the store lies".to_owned();
        }
        match self.correlator.audit_of(index) {
            Some(audit) => report.audit = audit.clone(),
            None => report.audit.finding = "replayed: the recording holds no audit".to_owned(),
        }
        self.correlator.fill(index, &mut report);
        Some(report)
    }

    /// A request of the recording, explained; `None`: it is not, or no longer, kept. The same
    /// requests are kept as while it was recorded.
    #[must_use]
    pub fn explain(&self, request: u64) -> Option<SlowRequest> {
        self.correlator.explain(request)
    }

    /// The request that the flight recorder wrote the recording for; `None`: for none.
    #[must_use]
    pub fn written_for(&self) -> Option<u64> {
        self.written_for
    }

    /// The slowest requests of the last quarter of an hour of the recording, slowest first, at
    /// most `limit`; `store`: of this one only; `failed`: only those that failed.
    #[must_use]
    pub fn slowest(&self, store: Option<&str>, failed: bool, limit: usize) -> Vec<SlowRequest> {
        let index = match store {
            None => None,
            Some(name) => match self.index_of(name) {
                None => return Vec::new(),
                some => some,
            },
        };
        self.correlator.slowest(index, failed, 0, limit)
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        let mut stores = self.correlator.stores();
        stores.find_map(|(index, known)| (known == name).then_some(index))
    }
}

fn parse(text: &[u8], line: u64) -> Result<Input, ReplayError> {
    serde_json::from_slice(text).map_err(|source| match kind_of(text) {
        Some(kind) if !KINDS.contains(&kind.as_str()) => ReplayError::UnknownKind {
            line,
            kind: kind.chars().take(80).collect(),
        },
        _ => ReplayError::Malformed { line, source },
    })
}

/// The name of an input, if it is an object with one member.
fn kind_of(text: &[u8]) -> Option<String> {
    let members: BTreeMap<String, IgnoredAny> = serde_json::from_slice(text).ok()?;
    let mut names = members.into_keys();
    let kind = names.next()?;
    names.next().is_none().then_some(kind)
}
