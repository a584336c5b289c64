//! One run of the program on a new file system, recorded.

use std::path::{Path, PathBuf};

use lumpscope_platter::trace::{Op, Trace, Traced};

use super::program::{Program, cannot_write};
use crate::blocks::Recorded;
use crate::disks::{LabOptions, StoreKind};
use crate::process::Interrupt;
use crate::studies::seeds::recording::recorded;

/// Room of the file system besides the file: its own blocks, and the least an xfs needs.
const ROOM: u64 = 1 << 30;
/// Loop devices count in sectors.
const SECTOR: u64 = 512;

/// One run.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) kind: StoreKind,
    pub(super) program: Program,
    pub(super) run: usize,
    pub(super) recorded: Recorded,
}

impl Trial {
    /// Makes the file system, writes, and takes everything away again.
    pub(super) fn new(
        (kind, dir): (StoreKind, Option<PathBuf>),
        program: Program,
        run: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Trial> {
        let bytes = program.offset.saturating_add(program.payload());
        let lab = LabOptions {
            dir,
            expected_bytes: bytes,
            ext4_journal: false,
            kinds: vec![kind],
            ..LabOptions::new(bytes.saturating_add(bytes / 4).saturating_add(ROOM))
        };
        let work = |file: &Path| program.run(file).map_err(cannot_write(file));
        let recorded = recorded(&lab, |this| this, (|_: &Path| Ok(()), work), interrupt)?;
        Ok(Trial {
            kind,
            program,
            run,
            recorded,
        })
    }

    /// The part of the trace that belongs to the first `writes` writes.
    pub(super) fn first(&self, writes: u64) -> Trace {
        let wanted = self.program.block.saturating_mul(writes) / SECTOR;
        first_sectors(&self.recorded.trace, wanted)
    }
}

/// Requests up to the one with which so many sectors are written, none of them counted twice.
fn first_sectors(trace: &Trace, wanted: u64) -> Trace {
    let (mut new, mut end) = (0_u64, 0_u64);
    // What comes behind the program's last write, such as the log that a file system writes and
    // flushes later, is not waited for by the program.
    let is_write = |request: &Traced| request.own && request.op == Op::Write;
    let last = trace.requests.iter().rposition(is_write);
    let mut until = last.map_or(trace.requests.len(), |last| last + 1);
    for (index, request) in trace.requests.iter().enumerate() {
        if !is_write(request) {
            continue;
        }
        let again = end.saturating_sub(request.sector);
        let sectors = u64::from(request.sectors);
        // Far behind: another extent, not a tail that is written again.
        new += sectors.saturating_sub(if again <= 8 { again } else { 0 });
        end = request.end();
        if new >= wanted {
            until = index + 1;
            break;
        }
    }
    Trace {
        requests: trace.requests.iter().take(until).copied().collect(),
        missing: trace.missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_writes_are_counted_without_what_is_written_twice() {
        let write = |sector, sectors, own| Traced {
            op: Op::Write,
            fua: false,
            sector,
            sectors,
            queue_ns: 0,
            issue_ns: 0,
            done_ns: 0,
            own,
        };
        // Three writes of 16 sectors from sector 7 on: the tail is rewritten, the log written once.
        let requests = vec![
            write(0, 24, true),
            write(23, 1, true),
            write(24, 16, true),
            write(9000, 64, false),
            write(39, 1, true),
            write(40, 16, true),
            write(9064, 64, false),
        ];
        let trace = Trace {
            requests,
            missing: 0,
        };
        let requests = |sectors| first_sectors(&trace, sectors).requests.len();
        assert_eq!((requests(16), requests(32), requests(48)), (1, 3, 6));
        assert_eq!(requests(1 << 40), 6);
    }
}
