//! Counts of a trace: requests and sectors by kind.

use lumpscope_platter::trace::{Op, Trace, Traced};
use serde::Serialize;

use super::rewrites::SectorSet;

/// Sectors of a physical block of a 512e disk, and of a block of ext4 and xfs.
const BLOCK: u64 = 8;

/// Requests and what they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub requests: u64,
    /// Sectors of 512 bytes.
    pub sectors: u64,
}

impl Tally {
    fn add(&mut self, request: &Traced) {
        self.requests += 1;
        self.sectors += u64::from(request.sectors);
    }
}

/// Counts of a trace. "Own" requests come from the program under test; the rest from the file
/// system, or from others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TraceCounts {
    /// Reads of the program.
    pub own_reads: Tally,
    /// Writes of the program, what its file system added to them included.
    pub own_writes: Tally,
    /// Reads of others: the file system's metadata.
    pub other_reads: Tally,
    /// Writes of others: the file system's log and metadata, write-back.
    pub other_writes: Tally,
    /// Flushes sent to the disk.
    pub flushes: u64,
    /// Reads and writes of the program of less than 8 sectors (4 KiB).
    pub small: u64,
    /// Writes of the program that begin 1 to 8 sectors before the end of its write before: the tail
    /// of that is written again.
    pub overlaps: u64,
    /// Blocks of 4 KiB that a write of the program covers only in part and of which something was
    /// written before: what a 512e disk has to read, change and write again, if it keeps nothing.
    pub sub_block_rewrites: u64,
    /// Reads and writes that begin more than 4 KiB from the end of the one before, whoever made them.
    pub far_seeks: u64,
}

impl TraceCounts {
    /// Of the requests of a trace, in its order.
    #[must_use]
    pub fn of(trace: &Trace) -> TraceCounts {
        let mut counting = Counting::default();
        for request in &trace.requests {
            counting.take(request);
        }
        counting.counted
    }

    /// Reads and writes that are not the program's.
    #[must_use]
    pub fn other_requests(&self) -> u64 {
        self.other_reads.requests + self.other_writes.requests
    }

    /// Sectors that the program's writes hold beyond what it asked to be written: zeroes that its
    /// file system put before and behind, and sectors that it split off and wrote twice. Negative:
    /// not all of the payload is in the trace.
    #[must_use]
    pub fn padding(&self, payload_bytes: u64) -> i64 {
        let payload = payload_bytes.div_ceil(512);
        let more = i64::try_from(self.own_writes.sectors.abs_diff(payload)).unwrap_or(i64::MAX);
        if self.own_writes.sectors < payload {
            -more
        } else {
            more
        }
    }
}

#[derive(Default)]
struct Counting {
    counted: TraceCounts,
    written: SectorSet,
    /// Where the program's write before ended.
    end: Option<u64>,
    /// Where the read or write before ended.
    head: Option<u64>,
}

impl Counting {
    fn take(&mut self, request: &Traced) {
        let counted = &mut self.counted;
        match (request.op, request.own) {
            (Op::Flush, _) => {
                counted.flushes += 1;
                return;
            }
            (Op::Discard, _) => return,
            (Op::Read, true) => counted.own_reads.add(request),
            (Op::Read, false) => counted.other_reads.add(request),
            (Op::Write, true) => counted.own_writes.add(request),
            (Op::Write, false) => counted.other_writes.add(request),
        }
        let sectors = u64::from(request.sectors);
        counted.small += u64::from(request.own && (1..BLOCK).contains(&sectors));
        let head = self.head.replace(request.end());
        let is_far = head.is_some_and(|head| head.abs_diff(request.sector) > BLOCK);
        counted.far_seeks += u64::from(is_far);
        if request.op == Op::Write {
            if request.own {
                self.write(request);
            }
            self.written.add(request.sector, request.end());
        }
    }

    fn write(&mut self, request: &Traced) {
        let (begin, end) = (request.sector, request.end());
        let again = self.end.map_or(0, |before| before.saturating_sub(begin));
        if (1..=BLOCK).contains(&again) {
            self.counted.overlaps += 1;
        }
        self.end = Some(end);
        for block in partly(begin, end).into_iter().flatten() {
            let before = self.written.within(block * BLOCK, (block + 1) * BLOCK);
            self.counted.sub_block_rewrites += u64::from(before > 0);
        }
    }
}

/// The first and the last block of a range, where the range does not fill them.
fn partly(begin: u64, end: u64) -> [Option<u64>; 2] {
    let first = (!begin.is_multiple_of(BLOCK)).then_some(begin / BLOCK);
    let last = (!end.is_multiple_of(BLOCK)).then_some(end / BLOCK);
    [first, last.filter(|last| first != Some(*last))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, sectors: u32) -> Traced {
        Traced {
            op: Op::Write,
            fua: false,
            sector,
            sectors,
            queue_ns: 0,
            issue_ns: 0,
            done_ns: 1,
            own: true,
        }
    }

    fn read(sector: u64, sectors: u32) -> Traced {
        Traced {
            op: Op::Read,
            ..write(sector, sectors)
        }
    }

    fn foreign(request: Traced) -> Traced {
        Traced {
            own: false,
            ..request
        }
    }

    fn flush() -> Traced {
        Traced {
            op: Op::Flush,
            ..write(0, 0)
        }
    }

    fn counted(requests: &[Traced]) -> TraceCounts {
        TraceCounts::of(&Trace {
            requests: requests.to_vec(),
            missing: 0,
        })
    }

    #[test]
    fn overlaps_are_writes_that_begin_in_the_tail_of_the_write_before() {
        // Requests, overlaps, sub-block rewrites.
        let cases: [(&str, Vec<Traced>, [u64; 2]); 9] = [
            ("nothing", vec![], [0; 2]),
            ("aligned", vec![write(0, 8), write(8, 8)], [0; 2]),
            ("one sector", vec![write(0, 8), write(7, 1)], [1, 1]),
            ("seven", vec![write(0, 16), write(9, 15)], [1, 1]),
            ("a whole block", vec![write(0, 16), write(8, 8)], [1, 0]),
            ("nine: no tail", vec![write(0, 32), write(23, 9)], [0, 1]),
            (
                "a foreign write between changes nothing",
                vec![write(0, 8), foreign(write(800, 8)), write(7, 9)],
                [1, 1],
            ),
            (
                "a foreign write has no overlap",
                vec![write(0, 8), foreign(write(7, 1))],
                [0; 2],
            ),
            (
                "appends without padding share a block",
                vec![write(0, 13), write(13, 13)],
                [0, 1],
            ),
        ];
        for (name, requests, expected) in cases {
            let it = counted(&requests);
            let found = [it.overlaps, it.sub_block_rewrites];
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let it = counted(&[
            write(0, 8),
            foreign(write(100, 4)),
            read(0, 8),
            foreign(read(64, 3)),
            flush(),
            Traced {
                fua: true,
                ..write(8, 1)
            },
            Traced {
                op: Op::Discard,
                ..write(0, 64)
            },
        ]);
        let tally = |requests, sectors| Tally { requests, sectors };
        assert_eq!(it.own_writes, tally(2, 9));
        assert_eq!(it.other_writes, tally(1, 4));
        assert_eq!((it.own_reads, it.other_reads), (tally(1, 8), tally(1, 3)));
        assert_eq!(it.flushes, 1);
        // Only the program's own: the foreign ones of 4 and 3 sectors do not count.
        assert_eq!(it.small, 1);
        assert_eq!(it.other_requests(), 2);
    }

    #[test]
    fn padding_is_what_was_written_beyond_the_payload() {
        let it = counted(&[write(0, 8), write(7, 9)]);
        assert_eq!(it.padding(16 * 512), 1);
        assert_eq!(it.padding(17 * 512), 0);
        assert_eq!(it.padding(20 * 512), -3);
        // A payload that ends within a sector.
        assert_eq!(it.padding(16 * 512 + 1), 0);
    }

    #[test]
    fn far_seeks_are_from_end_to_begin_either_way() {
        let near = [write(100, 8), flush(), write(115, 1), foreign(read(124, 8))];
        assert_eq!(counted(&near).far_seeks, 0);
        let far = [write(100, 8), write(117, 1), foreign(read(0, 4))];
        assert_eq!(counted(&far).far_seeks, 2);
    }
}
