//! How long a recorded trace would have taken on another disk.
//!
//! The replay is a closed loop: a request waits for every request that had completed before it was
//! issued, and then for as long as the program took from the last of these completions until it
//! issued the request. So a program that waits for its disk waits for the modelled one, and one that
//! does not, does not.
//!
//! Unknown to a replay: whether the program would have issued other requests on a slower disk
//! (larger batches, other merges). Requests issued by a timer keep their place among the others.
//!
//! ```
//! use lumpscope_platter::disk::Policy;
//! use lumpscope_platter::drive;
//! use lumpscope_platter::replay::{WhatIf, replay};
//! use lumpscope_platter::trace::{Op, Trace, Traced};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let read = |at, sector| Traced {
//!     op: Op::Read,
//!     fua: false,
//!     sector,
//!     sectors: 8,
//!     queue_ns: at,
//!     issue_ns: at,
//!     done_ns: at + 50_000,
//!     own: true,
//! };
//! // A fast device answered in 50 us, and each read waited for the one before.
//! let trace = Trace::new(vec![read(0, 0), read(60_000, 1_000_000_000)], 0);
//! let drive = drive::by_name("st1000dm003").ok_or("no such drive")?;
//! let predicted = replay(&trace, &WhatIf::new("as it is", drive, Policy::default()))?;
//! assert_eq!(predicted.recorded_ns, 110_000);
//! assert!(predicted.elapsed_ns > 10_000_000);
//! # Ok(())
//! # }
//! ```

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk::{Counts, Disk, Move, Policy, Request, RequestError, Served};
use crate::drive::{Drive, DriveError, SECTOR};
use crate::queue::{Queueing, Station};
use crate::trace::{Op, Trace, Traced};

/// A disk to replay on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// Name in a table.
    pub name: String,
    /// Parameters of the modelled drive.
    pub drive: Drive,
    /// How it is set.
    pub policy: Policy,
    /// Its queue.
    pub queueing: Queueing,
}

impl WhatIf {
    /// A drive that serves requests as they come.
    #[must_use]
    pub fn new(name: &str, drive: Drive, policy: Policy) -> WhatIf {
        WhatIf {
            name: name.to_owned(),
            drive,
            policy,
            queueing: Queueing::default(),
        }
    }
}

/// One request of the trace on the modelled disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// When it was issued; the first request is at 0.
    pub issue_ns: u64,
    /// When it was done, and what it waited for.
    pub served: Served,
}

/// Requests of one kind, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Kind of the requests in this sum.
    pub op: Op,
    /// Whether the program under test made them, or somebody else.
    pub own: bool,
    /// How many.
    pub requests: u64,
    /// Bytes that they moved; 0 for flushes.
    pub bytes: u64,
    /// Of these requests, those for which nothing had to turn.
    pub cached: u64,
    /// Of these requests, those for which the arm moved.
    pub seeks: u64,
    /// From issue to completion.
    pub latency_ns: u64,
    /// The drive's electronics.
    pub overhead_ns: u64,
    /// The arm moved.
    pub seek_ns: u64,
    /// The platters turned.
    pub rotation_ns: u64,
    /// Sectors passed under the head, or over the interface.
    pub transfer_ns: u64,
    /// Something else was served, or written out.
    pub wait_ns: u64,
    /// Time on the device of the recording, in nanoseconds.
    pub recorded_ns: u64,
}

impl Sum {
    fn new(op: Op, own: bool) -> Sum {
        Sum {
            op,
            own,
            requests: 0,
            bytes: 0,
            cached: 0,
            seeks: 0,
            latency_ns: 0,
            overhead_ns: 0,
            seek_ns: 0,
            rotation_ns: 0,
            transfer_ns: 0,
            wait_ns: 0,
            recorded_ns: 0,
        }
    }

    fn add(&mut self, traced: &Traced, served: &Served) {
        self.requests += 1;
        self.bytes += u64::from(traced.sectors) * SECTOR;
        self.cached += u64::from(served.cached);
        self.seeks += u64::from(served.cylinders > 0);
        let recorded_ns = traced.done_ns.saturating_sub(traced.issue_ns);
        for (sum, part) in [
            (&mut self.latency_ns, served.latency_ns()),
            (&mut self.overhead_ns, served.overhead_ns),
            (&mut self.seek_ns, served.seek_ns),
            (&mut self.rotation_ns, served.rotation_ns),
            (&mut self.transfer_ns, served.transfer_ns),
            (&mut self.wait_ns, served.wait_ns),
            (&mut self.recorded_ns, recorded_ns),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// The model's prediction for a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Name of the [`WhatIf`].
    pub name: String,
    /// From the first issue to the last completion, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time as recorded, in nanoseconds.
    pub recorded_ns: u64,
    /// In the order of the trace.
    pub requests: Vec<Replayed>,
    /// By operation, and own and other; only those that there are.
    pub sums: Vec<Sum>,
    /// Counts of the disk's work, its own included.
    pub counts: Counts,
    /// Every movement of the arm, in their order, those to write out the cache included.
    #[serde(skip)]
    pub moves: Vec<Move>,
    /// Requests that the trace is known to lack: the prediction is too low by them.
    pub missing: u64,
}

/// Why a trace cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The drive makes no sense.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The drive cannot serve a request of the trace.
    #[error("request {index} of the trace: {source}")]
    Request {
        /// Its place in the trace, from 0.
        index: usize,
        /// Reason.
        source: RequestError,
    },
}

/// Replays a trace.
///
/// # Errors
/// The drive makes no sense, or the trace is of a larger one.
pub fn replay(trace: &Trace, what_if: &WhatIf) -> Result<Prediction, ReplayError> {
    let mut disk = Disk::new(&what_if.drive, what_if.policy)?;
    disk.keep_moves();
    let requests = &trace.requests;
    let mut replay = Replay {
        station: Station::new(disk, what_if.queueing),
        ends: vec![None; requests.len()],
        error_at: 0,
    };
    let mut issued = vec![0_u64; requests.len()];
    let by_end = by_end(requests);
    let mut before = by_end.iter().peekable();
    // When the latest of those was done that a request waits for: as recorded, and as modelled.
    let (mut recorded_ns, mut modelled_ns) = (None, 0_u64);
    let mut last_ns = 0;
    for (index, request) in requests.iter().enumerate() {
        while let Some(&&(done_ns, other)) = before.peek() {
            if (done_ns, other) >= (request.issue_ns, index) || other >= index {
                break;
            }
            before.next();
            modelled_ns = modelled_ns.max(replay.end_of(other)?);
            recorded_ns = Some(done_ns);
        }
        let since = match recorded_ns {
            Some(done_ns) => request.issue_ns.saturating_sub(done_ns),
            None => request.issue_ns.saturating_sub(first_issue(requests)),
        };
        let issue_ns = modelled_ns.saturating_add(since).max(last_ns);
        replay.submit(index, issue_ns, request)?;
        issued[index] = issue_ns;
        last_ns = issue_ns;
    }
    for index in 0..requests.len() {
        replay.end_of(index)?;
    }
    Ok(replay.prediction(trace, what_if, &issued))
}

/// When each request was done, not before it was issued, with its place in the trace; by time.
fn by_end(requests: &[Traced]) -> Vec<(u64, usize)> {
    let end = |(index, request): (usize, &Traced)| (request.done_ns.max(request.issue_ns), index);
    let mut ends: Vec<(u64, usize)> = requests.iter().enumerate().map(end).collect();
    ends.sort_unstable();
    ends
}

fn first_issue(requests: &[Traced]) -> u64 {
    requests.first().map_or(0, |request| request.issue_ns)
}

struct Replay {
    station: Station,
    ends: Vec<Option<Served>>,
    /// Which request to name when time comes to its end.
    error_at: usize,
}

impl Replay {
    fn advance(&mut self, to_ns: u64) -> Result<(), ReplayError> {
        let ends = &mut self.ends;
        let result = self.station.advance(to_ns, |done| {
            let index = usize::try_from(done.id).unwrap_or(usize::MAX);
            if let Some(end) = ends.get_mut(index) {
                *end = Some(done.served);
            }
        });
        result.map_err(|source| ReplayError::Request {
            index: self.error_at,
            source,
        })
    }

    fn submit(&mut self, index: usize, at_ns: u64, request: &Traced) -> Result<(), ReplayError> {
        self.error_at = index;
        self.advance(at_ns)?;
        let submitted = self
            .station
            .submit(at_ns, index as u64, &Request::from(request));
        submitted.map_err(|source| ReplayError::Request { index, source })
    }

    /// Lets time pass until this request is done; when it was.
    fn end_of(&mut self, index: usize) -> Result<u64, ReplayError> {
        loop {
            if let Some(served) = self.ends[index] {
                return Ok(served.done_ns);
            }
            match self.station.next_ns() {
                Some(next_ns) => self.advance(next_ns)?,
                // Every request that was submitted ends.
                None => return Ok(self.station.now_ns()),
            }
        }
    }

    fn prediction(self, trace: &Trace, what_if: &WhatIf, issued: &[u64]) -> Prediction {
        let served = self.ends.iter().map(|end| end.unwrap_or_default());
        let requests: Vec<Replayed> = issued
            .iter()
            .zip(served)
            .map(|(&issue_ns, served)| Replayed { issue_ns, served })
            .collect();
        let mut sums: Vec<Sum> = Vec::new();
        for op in [Op::Read, Op::Write, Op::Flush, Op::Discard] {
            for own in [true, false] {
                let mut sum = Sum::new(op, own);
                let all = trace.requests.iter().zip(&requests);
                for (traced, replayed) in all.filter(|(one, _)| one.op == op && one.own == own) {
                    sum.add(traced, &replayed.served);
                }
                sums.extend((sum.requests > 0).then_some(sum));
            }
        }
        let ends = requests.iter().map(|one| one.served.done_ns);
        let recorded = trace.requests.iter().map(|one| one.done_ns);
        Prediction {
            name: what_if.name.clone(),
            elapsed_ns: ends.max().unwrap_or(0),
            recorded_ns: recorded
                .max()
                .unwrap_or(0)
                .saturating_sub(first_issue(&trace.requests)),
            requests,
            sums,
            counts: self.station.disk().counts(),
            moves: self.station.disk().moves().to_vec(),
            missing: trace.missing,
        }
    }
}

#[cfg(test)]
mod tests;
