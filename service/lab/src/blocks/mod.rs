//! The block requests that a piece of work makes: recorded, then counted.
//!
//! [`Recorder`] watches whole disks with the probes of the service, in this process, and gives a
//! [`Trace`] of each. [`TraceCounts`] says what is in a trace; it is pure.

mod counted;
mod rewrites;

use std::fs;
use std::path::Path;

use lumpscope_observer::{
    AuditReport, BlockLine, BlockOp, BlockTap, Class, TapError, TappedDisk, TappedRequest,
};
use lumpscope_platter::trace::{Op, Trace, Traced};
use serde::Serialize;

pub use counted::TraceCounts;

/// Watches whole disks until [`Recorder::finish`].
#[derive(Debug)]
pub struct Recorder {
    tap: BlockTap,
    own: Own,
}

/// Processes that count as the program under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    This,
    /// All, but not the kernel.
    Everybody,
}

/// Requests of a disk.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Name in /sys/block.
    pub disk: String,
    /// Its requests, sorted by issue; `missing` is exact.
    pub trace: Trace,
    /// Counts of the probes against the kernel's.
    pub audit: AuditReport,
}

/// Whether a recording can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Trust {
    /// Requests that are known to be missing.
    pub missing: u64,
    /// Completions counted by the kernel's disk statistics.
    pub kernel_requests: u64,
    /// True: nothing is missing.
    pub complete: bool,
}

impl Recorder {
    /// Begins to record what these disks are asked for (block devices; a file stands for the disk
    /// below it). Returns when they are watched.
    ///
    /// # Errors
    /// No privileges, no probes, or no disk: the message says what to do.
    pub fn start(disks: &[&Path]) -> Result<Recorder, TapError> {
        Ok(Recorder {
            tap: BlockTap::start(disks)?,
            own: Own::This,
        })
    }

    /// Counts the requests of all processes, but not of the kernel, as the program's own: for a
    /// disk that no other program uses.
    #[must_use]
    pub fn own_everybody(mut self) -> Recorder {
        self.own = Own::Everybody;
        self
    }

    /// Ends: what each disk was asked for, in the order in which they were first named. Waits a
    /// moment for the disks to be idle.
    #[must_use]
    pub fn finish(self) -> Vec<Recorded> {
        let own = self.own;
        let disks = self.tap.finish().into_iter();
        disks.map(|disk| recorded(disk, own).0).collect()
    }
}

impl Recorded {
    /// Whether it can be believed.
    #[must_use]
    pub fn trust(&self) -> Trust {
        Trust {
            missing: self.trace.missing,
            kernel_requests: self.audit.kernel_requests,
            complete: self.trace.missing == 0 && self.audit.complete,
        }
    }
}

/// What the disk itself was asked for, and beside the trace, in its order, the requests as they were
/// seen. None counts as a program's own.
pub(crate) fn with_requests(disk: TappedDisk) -> (Recorded, Vec<TappedRequest>) {
    recorded(disk, Own::This)
}

fn recorded(disk: TappedDisk, own: Own) -> (Recorded, Vec<TappedRequest>) {
    let takes_fua = takes_fua(&disk.disk);
    let missing = disk.missing();
    let sent = disk.requests.iter().filter(|request| is_at_disk(request));
    let mut both: Vec<(TappedRequest, Traced)> = sent
        .filter_map(|request| Some((*request, traced(request, own, takes_fua)?)))
        .collect();
    both.sort_by_key(|(_, traced)| traced.order());
    let (seen, requests): (Vec<TappedRequest>, Vec<Traced>) = both.into_iter().unzip();
    let recorded = Recorded {
        trace: Trace::new(requests, missing),
        disk: disk.disk,
        audit: disk.audit,
    };
    (recorded, seen)
}

/// False: it asked for a flush, and what the disk got is a request of its own.
fn is_at_disk(request: &TappedRequest) -> bool {
    !request.flush_parent
}

/// `None`: nothing that a disk of platters does.
fn traced(request: &TappedRequest, own: Own, takes_fua: bool) -> Option<Traced> {
    let op = match request.op {
        BlockOp::Read => Op::Read,
        BlockOp::Write => Op::Write,
        BlockOp::Flush => Op::Flush,
        BlockOp::Discard => Op::Discard,
        BlockOp::Other => return None,
    };
    let issue_ns = request
        .issue_ns
        .or(request.queue_ns)
        .unwrap_or(request.done_ns);
    let of_file_system = matches!(request.class, Class::FsJournal | Class::FsMetadata);
    let by_program = match request.class {
        Class::Own => true,
        Class::Other => own == Own::Everybody,
        _ => false,
    };
    Some(Traced {
        op,
        fua: request.fua && takes_fua,
        sector: if op == Op::Flush { 0 } else { request.sector },
        sectors: if op == Op::Flush { 0 } else { request.sectors },
        queue_ns: request.queue_ns.unwrap_or(issue_ns),
        issue_ns,
        done_ns: request.done_ns.max(issue_ns),
        own: by_program && !of_file_system,
    })
}

/// A block request as the observer tells it, that completed then. `None`: nothing that a disk of
/// platters does. When its issue was not seen it is that of its completion; FUA is not told.
#[must_use]
pub fn traced_line(line: &BlockLine, done_ns: u64) -> Option<Traced> {
    let op = match line.operation.as_str() {
        "read" => Op::Read,
        "write" => Op::Write,
        "flush" => Op::Flush,
        "discard" => Op::Discard,
        _ => return None,
    };
    let issue_ns = done_ns.saturating_sub(line.device_ns.unwrap_or(0));
    Some(Traced {
        op,
        fua: false,
        sector: line.sector,
        sectors: line.sectors,
        queue_ns: issue_ns.saturating_sub(line.queue_ns.unwrap_or(0)),
        issue_ns,
        done_ns,
        own: matches!(line.owner.as_str(), "request" | "store"),
    })
}

/// Whether the disk is sent FUA. Otherwise the block layer sends a flush after the write.
fn takes_fua(disk: &str) -> bool {
    let text = fs::read_to_string(format!("/sys/block/{disk}/queue/fua"));
    text.is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: BlockOp, class: Class) -> TappedRequest {
        TappedRequest {
            op,
            class,
            fua: true,
            metadata: false,
            flush_parent: false,
            failed: false,
            done_unknown: false,
            tgid: 7,
            sector: 64,
            sectors: 8,
            queue_ns: Some(1),
            issue_ns: Some(2),
            done_ns: 3,
        }
    }

    #[test]
    fn what_the_program_made_is_its_own() {
        let cases = [
            (Class::Own, [true, true]),
            (Class::Other, [false, true]),
            // The file system, in the program's name.
            (Class::FsMetadata, [false, false]),
            (Class::FsJournal, [false, false]),
            (Class::Writeback, [false, false]),
        ];
        for (class, expected) in cases {
            let found = [Own::This, Own::Everybody].map(|own| {
                let traced = traced(&request(BlockOp::Write, class), own, true);
                traced.expect("a write")
            });
            assert_eq!(found.map(|traced| traced.own), expected, "{class:?}");
            assert!(found.iter().all(|traced| traced.fua));
        }
    }

    #[test]
    fn a_flush_has_no_place_and_a_disk_without_fua_gets_none() {
        let own = Own::This;
        let flush = traced(&request(BlockOp::Flush, Class::Other), own, false);
        let flush = flush.expect("a flush");
        assert_eq!((flush.sector, flush.sectors, flush.fua), (0, 0, false));
        assert_eq!(
            traced(&request(BlockOp::Other, Class::Other), own, false),
            None
        );
        let unseen = TappedRequest {
            queue_ns: None,
            issue_ns: None,
            ..request(BlockOp::Read, Class::Own)
        };
        let unseen = traced(&unseen, own, false).expect("a read");
        assert_eq!(
            (unseen.queue_ns, unseen.issue_ns, unseen.done_ns),
            (3, 3, 3)
        );
    }
}
