//! Deterministic crash simulation: whole histories of a store on a simulated disk, with several
//! requests in flight, each a pure function of its seed; the power is cut around every I/O.
//!
//! [`scenario`] says what kind of store and load a seed stands for, [`history`] runs it, [`cuts`]
//! looks at the disks that a cut leaves, [`model`] knows what may be on them, [`faults`] runs
//! histories on failing disks.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the tests and the soak use different parts of it"
)]

pub mod cuts;
pub mod faults;
pub mod history;
pub mod model;
pub mod scenario;
pub mod session;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use history::History;
use lumpscope_engine::{CommitMode, Error};
use scenario::Scenario;

/// Where a history is, so that a failure can be repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryPlace {
    /// Number of the event in the history.
    pub event: u64,
    /// Number of the cut after that event; `None`: the history itself.
    pub choice: Option<u64>,
}

thread_local! {
    static PLACE: Cell<HistoryPlace> = const { Cell::new(HistoryPlace { event: 0, choice: None }) };
}

/// A failure and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryFailure {
    pub seed: u64,
    pub place: HistoryPlace,
    pub why: String,
}

/// Which cuts of a history are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    All,
    /// None but this one.
    Cut(HistoryPlace),
}

/// Events that histories have gone through: a check that was never reached proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub histories: u64,
    pub requests: u64,
    pub cuts: u64,
    pub process_deaths: u64,
    /// Cuts of a store that had been cut before.
    pub nested_cuts: u64,
    pub interrupted_recoveries: u64,
    /// Cuts with writes that no flush had covered.
    pub uncertain_cuts: u64,
    pub gets: u64,
    pub deletes: u64,
    pub range_deletes: u64,
    pub many_deletes: u64,
    /// Puts that were to be the first ones, and were not.
    pub already_there: u64,
    /// Puts that were written while they came in, and those whose client went away meanwhile.
    pub in_pieces: u64,
    pub lost_clients: u64,
    pub syncs: u64,
    pub journaled: u64,
    pub store_full: u64,
    pub journal_full: u64,
    pub header_writes: u64,
    pub gc_relocated: u64,
    pub flushes: u64,
    pub flushes_spared: u64,
    pub writes_forced: u64,
    /// Openings that found the last batch not settled: all of it there, dropped, kept with damage.
    pub whole_tails: u64,
    pub dropped_tails: u64,
    pub damaged_tails: u64,
    /// Puts that were found in a run, without a record.
    pub run_puts: u64,
    pub faults: FaultCoverage,
    /// Depends on every answer and every byte of every disk at the end of its history.
    pub digest: u64,
}

/// Events that histories on failing disks have gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCoverage {
    pub errors: u64,
    pub shorts: u64,
    pub rotten_lumps: u64,
    pub rotten_journals: u64,
    pub unreadable: u64,
    pub lost: u64,
    pub misdirected: u64,
    pub lost_of_journal: u64,
    /// I/Os that were hit.
    pub hits: u64,
    /// Stores that take no changes any more.
    pub failed_stores: u64,
    /// Requests and lumps that got an error instead of bytes.
    pub typed_errors: u64,
    /// Stores that could not be opened, and said why.
    pub unopenable: u64,
}

impl Coverage {
    /// Mixes something that must be the same in every run of the seed into the digest.
    pub fn note(&mut self, value: u64) {
        self.digest = (self.digest ^ value)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29);
    }

    /// Mixes bytes into the digest.
    pub fn note_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.note(u64::from_le_bytes(word));
        }
    }
}

/// Runs the history of a scenario and its cuts.
pub fn run(scenario: &Scenario, only: Only, coverage: &mut Coverage) -> Result<(), HistoryFailure> {
    guarded(scenario.seed, || {
        History::start(scenario)?.run(only, coverage)
    })
}

/// Runs the history of a seed on a failing disk.
pub fn run_faulty(
    seed: u64,
    commit: CommitMode,
    coverage: &mut Coverage,
) -> Result<(), HistoryFailure> {
    guarded(seed, || faults::run(seed, commit, coverage))
}

/// Runs the history of a seed on a disk that loses one write of the journal.
pub fn run_lost_write(
    seed: u64,
    commit: CommitMode,
    coverage: &mut Coverage,
) -> Result<(), HistoryFailure> {
    guarded(seed, || faults::run_lost_write(seed, commit, coverage))
}

fn guarded(seed: u64, work: impl FnOnce() -> Result<(), String>) -> Result<(), HistoryFailure> {
    PLACE.set(HistoryPlace::default());
    let why = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => why,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("of unknown kind"))
        }
    };
    Err(HistoryFailure {
        seed,
        place: PLACE.get(),
        why,
    })
}

/// The request was refused before anything was written.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::StoreFull { .. }
            | Error::JournalFull { .. }
            | Error::LumpTooLarge { .. }
            | Error::Busy { .. }
    )
}

/// The disk said, or the bytes show, that something is damaged.
fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. }
            | Error::Unreadable { .. }
            | Error::NoSpace { .. }
            | Error::ChecksumMismatch { .. }
            | Error::Corrupt { .. }
            | Error::PlaceRefused { .. }
            | Error::CorruptJournal { .. }
            | Error::Failed { .. }
            | Error::OutOfService { .. }
    )
}
