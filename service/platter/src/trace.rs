//! The block requests that a disk was asked for, in the order in which they were issued.
//!
//! A trace comes from the probes of the service, from a recording of it, or from a test. The model
//! replays it; the lab counts in it.

use serde::{Deserialize, Serialize};

/// Operation of a block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// From the disk.
    Read,
    /// To the disk, or into its cache.
    Write,
    /// Makes everything written before durable.
    Flush,
    /// Says that sectors hold nothing of worth. A disk of platters does not know it.
    Discard,
}

/// One block request as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Operation.
    pub op: Op,
    /// A write that is durable when it completes (`REQ_FUA`).
    pub fua: bool,
    /// First sector of 512 bytes on the whole disk; 0 for a flush.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
    /// When it was made, in nanoseconds of any clock that all requests of the trace share.
    pub queue_ns: u64,
    /// When the driver was given it.
    pub issue_ns: u64,
    /// When it completed.
    pub done_ns: u64,
    /// True: made by the program under test itself or in its name; false: by the file system or
    /// somebody else.
    pub own: bool,
}

impl Traced {
    /// The sector behind its last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }

    /// What the requests of a [`Trace`] are sorted by; those with equal keys keep their order.
    #[must_use]
    pub fn order(&self) -> (u64, u64, u64) {
        (self.issue_ns, self.queue_ns, self.sector)
    }
}

/// A trace of one whole disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// In the order of `issue_ns`.
    pub requests: Vec<Traced>,
    /// Requests that were known to be missing when it was recorded; 0: it is complete.
    pub missing: u64,
}

impl Trace {
    /// Sorts requests that were recorded in any order, as those of several processors are.
    #[must_use]
    pub fn new(mut requests: Vec<Traced>, missing: u64) -> Trace {
        requests.sort_by_key(Traced::order);
        Trace { requests, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_in_the_order_of_issue() {
        let at = |issue_ns| Traced {
            op: Op::Write,
            fua: false,
            sector: 8,
            sectors: 8,
            queue_ns: 0,
            issue_ns,
            done_ns: issue_ns + 1,
            own: true,
        };
        let trace = Trace::new(vec![at(3), at(1), at(2)], 0);
        let issued: Vec<u64> = trace.requests.iter().map(|one| one.issue_ns).collect();
        assert_eq!(issued, [1, 2, 3]);
        assert_eq!(trace.requests[0].end(), 16);
    }
}
