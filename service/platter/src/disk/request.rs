//! Requests to a disk, and its answers.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::trace::{Op, Traced};

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Operation.
    pub op: Op,
    /// A write that is done when it is on the platters, whatever the policy.
    pub fua: bool,
    /// First sector of 512 bytes; without meaning for a flush.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
}

impl Request {
    /// A read of `sectors` from `sector` on.
    #[must_use]
    pub fn read(sector: u64, sectors: u32) -> Request {
        Request {
            op: Op::Read,
            fua: false,
            sector,
            sectors,
        }
    }

    /// A write without FUA.
    #[must_use]
    pub fn write(sector: u64, sectors: u32) -> Request {
        Request {
            op: Op::Write,
            ..Request::read(sector, sectors)
        }
    }

    /// A flush, which has no sectors.
    #[must_use]
    pub fn flush() -> Request {
        Request {
            op: Op::Flush,
            ..Request::read(0, 0)
        }
    }

    /// The sector behind its last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }

    pub(crate) fn check(&self, capacity: u64) -> Result<(), RequestError> {
        let end = self.sector.checked_add(u64::from(self.sectors));
        if self.op == Op::Flush || end.is_some_and(|end| end <= capacity) {
            return Ok(());
        }
        Err(RequestError::BeyondEnd {
            sector: self.sector,
            sectors: self.sectors,
            capacity,
        })
    }
}

impl From<&Traced> for Request {
    fn from(traced: &Traced) -> Request {
        Request {
            op: traced.op,
            fua: traced.fua,
            sector: traced.sector,
            sectors: traced.sectors,
        }
    }
}

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum RequestError {
    /// It goes beyond the end of the drive.
    #[error(
        "{sectors} sectors from sector {sector} on are not on a drive of {capacity} sectors: take a \
         larger drive"
    )]
    BeyondEnd {
        sector: u64,
        sectors: u32,
        capacity: u64,
    },
    /// It would be served after the end of time.
    #[error(
        "virtual time {at_ns} ns is beyond {} ns: begin a new disk",
        super::LATEST_NS
    )]
    TooLate { at_ns: u64 },
}

/// When a request was served, and what it waited for. The parts add up: `arrived_ns` plus all of
/// them is `done_ns`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// When it came.
    pub arrived_ns: u64,
    /// When the drive took it up.
    pub begin_ns: u64,
    /// When it was done.
    pub done_ns: u64,
    /// The drive's electronics.
    pub overhead_ns: u64,
    /// The arm moved, for it.
    pub seek_ns: u64,
    /// The platters turned until its first sector came, lost revolutions included.
    pub rotation_ns: u64,
    /// Its sectors passed under the head or over the interface, switches of the head included.
    pub transfer_ns: u64,
    /// The interface or the head was busy with something else, or the cache was full; of a flush:
    /// all of the writing.
    pub wait_ns: u64,
    /// Cylinders that the arm crossed for it.
    pub cylinders: u64,
    /// True: the host did not wait for the platters to turn to it.
    pub cached: bool,
}

impl Served {
    /// From when it came until it was done.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        self.done_ns - self.arrived_ns
    }

    /// When it came, plus all that it waited for: when it was done.
    #[must_use]
    pub fn parts_ns(&self) -> u64 {
        self.arrived_ns
            + self.wait_ns
            + self.overhead_ns
            + self.seek_ns
            + self.rotation_ns
            + self.transfer_ns
    }
}
