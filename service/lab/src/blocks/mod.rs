//! The block requests that a piece of work makes: recorded, then counted.
//!
//! [`Recorder`] watches whole disks with the probes of the service, in this process, and gives a
//! [`Trace`] of each. [`TraceCounts`] says what is in a trace; it is pure.

mod counted;
mod rewrites;
mod seeks;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lumpscope_observer::TappedRequest;
use lumpscope_observer::{AuditReport, BlockOp, BlockTap, Class, TapError, TappedDisk};
use lumpscope_platter::trace::{Op, Trace, Traced};
use serde::Serialize;

pub use counted::TraceCounts;

/// Watches whole disks until [`Recorder::finish`].
#[derive(Debug)]
pub struct Recorder {
    tap: BlockTap,
    own: Own,
}

/// Processes that count as the program, beside this one.
#[derive(Debug, Clone, Default)]
struct Own {
    children: BTreeSet<u32>,
    everybody: bool,
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
    /// Requests whose time of completion is not known: in the trace they end when they begin.
    pub without_end: u64,
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
            own: Own::default(),
        })
    }

    /// Counts the requests of this child process as the program's own, like those of this process.
    pub fn own_process(&mut self, pid: u32) {
        self.own.children.insert(pid);
    }

    /// Counts the requests of all processes, but not of the kernel, as the program's own: for a
    /// disk that no other program uses.
    #[must_use]
    pub fn own_everybody(mut self) -> Recorder {
        self.own.everybody = true;
        self
    }

    /// Ends: what each disk was asked for, in the order in which they were first named. Waits a
    /// moment for the disks to be idle.
    #[must_use]
    pub fn finish(self) -> Vec<Recorded> {
        let own = self.own;
        let disks = self.tap.finish().into_iter();
        disks.map(|disk| recorded(disk, &own).0).collect()
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
    recorded(disk, &Own::default())
}

fn recorded(disk: TappedDisk, own: &Own) -> (Recorded, Vec<TappedRequest>) {
    let takes_fua = takes_fua(&disk.disk);
    let missing = disk.missing();
    let sent = disk.requests.iter().filter(|request| is_at_disk(request));
    let mut both: Vec<(TappedRequest, Traced)> = sent
        .filter_map(|request| Some((*request, traced(request, own, takes_fua)?)))
        .collect();
    both.sort_by_key(|(_, traced)| traced.order());
    let (seen, requests): (Vec<TappedRequest>, Vec<Traced>) = both.into_iter().unzip();
    let without_end = seen.iter().filter(|request| request.done_unknown).count();
    let recorded = Recorded {
        trace: Trace::new(requests, missing),
        without_end: u64::try_from(without_end).unwrap_or(u64::MAX),
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
fn traced(request: &TappedRequest, own: &Own, takes_fua: bool) -> Option<Traced> {
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
        Class::Other if own.everybody => true,
        _ => own.children.contains(&request.tgid),
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

/// Whether the disk is sent FUA. Otherwise the block layer sends a flush after the write.
fn takes_fua(disk: &str) -> bool {
    let text = fs::read_to_string(format!("/sys/block/{disk}/queue/fua"));
    text.is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: BlockOp, class: Class, tgid: u32) -> TappedRequest {
        TappedRequest {
            op,
            class,
            fua: true,
            metadata: false,
            flush_parent: false,
            failed: false,
            done_unknown: false,
            tgid,
            sector: 64,
            sectors: 8,
            queue_ns: Some(1),
            issue_ns: Some(2),
            done_ns: 3,
        }
    }

    #[test]
    fn what_the_program_and_its_children_made_is_their_own() {
        let own = Own {
            children: BTreeSet::from([77]),
            everybody: false,
        };
        let cases = [
            (Class::Own, 5, true),
            (Class::Other, 77, true),
            (Class::Other, 78, false),
            // The file system, in the program's name.
            (Class::FsMetadata, 77, false),
            (Class::FsJournal, 5, false),
            (Class::Writeback, 0, false),
        ];
        for (class, tgid, expected) in cases {
            let traced = traced(&request(BlockOp::Write, class, tgid), &own, true);
            let traced = traced.expect("a write");
            assert_eq!(traced.own, expected, "{class:?} of {tgid}");
            assert!(traced.fua);
        }
        let everybody = Own {
            everybody: true,
            ..Own::default()
        };
        let own = |class| traced(&request(BlockOp::Write, class, 9), &everybody, true);
        assert!(own(Class::Other).is_some_and(|traced| traced.own));
        assert!(own(Class::Writeback).is_some_and(|traced| !traced.own));
        assert!(own(Class::FsMetadata).is_some_and(|traced| !traced.own));
    }

    #[test]
    fn a_flush_has_no_place_and_a_disk_without_fua_gets_none() {
        let own = Own::default();
        let flush = traced(&request(BlockOp::Flush, Class::Other, 0), &own, false);
        let flush = flush.expect("a flush");
        assert_eq!((flush.sector, flush.sectors, flush.fua), (0, 0, false));
        assert_eq!(
            traced(&request(BlockOp::Other, Class::Other, 0), &own, false),
            None
        );
        let unseen = TappedRequest {
            queue_ns: None,
            issue_ns: None,
            ..request(BlockOp::Read, Class::Own, 1)
        };
        let unseen = traced(&unseen, &own, false).expect("a read");
        assert_eq!(
            (unseen.queue_ns, unseen.issue_ns, unseen.done_ns),
            (3, 3, 3)
        );
    }
}
