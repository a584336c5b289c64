//! Counts of a trace: requests and sectors by kind.

use std::collections::BTreeMap;

use lumpscope_platter::trace::{Op, Trace, Traced};
use serde::Serialize;

use super::rewrites::SectorSet;
use super::seeks::Seeks;

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

/// Reads and writes of one magnitude of length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// Shortest length in sectors, a power of two; the longest is one less than twice this.
    pub from_sectors: u32,
    pub reads: Tally,
    pub writes: Tally,
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
    /// Writes that are durable when they complete.
    pub fua: u64,
    /// Discards, whoever made them.
    pub discards: Tally,
    /// Reads and writes by length, ascending; empty ones are left out.
    pub sizes: Vec<SizeClass>,
    /// Reads and writes of the program of less than 8 sectors (4 KiB).
    pub small: u64,
    /// Writes of the program that begin 1 to 8 sectors before the end of its write before: the tail
    /// of that is written again.
    pub overlaps: u64,
    /// Sectors written twice by these.
    pub overlapped_sectors: u64,
    /// Blocks of 4 KiB that a write of the program covers only in part and of which something was
    /// written before: what a 512e disk has to read, change and write again, if it keeps nothing.
    pub sub_block_rewrites: u64,
    /// Blocks of 4 KiB that a write of the program covers only in part.
    pub partial_blocks: u64,
    /// Requests that were known to be missing when it was recorded; 0: the counts are exact.
    pub missing: u64,
    /// Between one read or write and the next, whoever made them.
    pub seeks: Seeks,
}

impl TraceCounts {
    /// Of the requests of a trace, in its order.
    #[must_use]
    pub fn of(trace: &Trace) -> TraceCounts {
        let mut counting = Counting::default();
        for request in &trace.requests {
            counting.take(request);
        }
        TraceCounts {
            missing: trace.missing,
            seeks: Seeks::of(&trace.requests),
            sizes: counting.sizes.into_values().collect(),
            ..counting.counted
        }
    }

    /// All reads and writes.
    #[must_use]
    pub fn data_requests(&self) -> u64 {
        [
            self.own_reads,
            self.own_writes,
            self.other_reads,
            self.other_writes,
        ]
        .iter()
        .map(|tally| tally.requests)
        .sum()
    }

    /// Reads and writes that are not the program's.
    #[must_use]
    pub fn other_requests(&self) -> u64 {
        self.other_reads.requests + self.other_writes.requests
    }

    /// Share of the reads and writes that begin where the one before ended; `None`: there are not
    /// two.
    #[must_use]
    pub fn sequential_share(&self) -> Option<f64> {
        crate::human::ratio(self.seeks.sequential, self.seeks.total)
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
    sizes: BTreeMap<u32, SizeClass>,
    written: SectorSet,
    /// Where the program's write before ended.
    end: Option<u64>,
}

impl Counting {
    fn take(&mut self, request: &Traced) {
        let counted = &mut self.counted;
        match (request.op, request.own) {
            (Op::Flush, _) => counted.flushes += 1,
            (Op::Discard, _) => counted.discards.add(request),
            (Op::Read, true) => counted.own_reads.add(request),
            (Op::Read, false) => counted.other_reads.add(request),
            (Op::Write, true) => counted.own_writes.add(request),
            (Op::Write, false) => counted.other_writes.add(request),
        }
        if matches!(request.op, Op::Read | Op::Write) {
            self.size(request);
        }
        if request.op == Op::Write {
            self.counted.fua += u64::from(request.fua);
            if request.own {
                self.write(request);
            }
            self.written.add(request.sector, request.end());
        }
    }

    fn size(&mut self, request: &Traced) {
        self.counted.small +=
            u64::from(request.own && request.sectors > 0 && u64::from(request.sectors) < BLOCK);
        let Some(magnitude) = request.sectors.checked_ilog2() else {
            return;
        };
        let class = self.sizes.entry(magnitude).or_default();
        class.from_sectors = 1 << magnitude;
        match request.op {
            Op::Read => class.reads.add(request),
            _ => class.writes.add(request),
        }
    }

    fn write(&mut self, request: &Traced) {
        let (begin, end) = (request.sector, request.end());
        let again = self.end.map_or(0, |before| before.saturating_sub(begin));
        if (1..=BLOCK).contains(&again) {
            self.counted.overlaps += 1;
            self.counted.overlapped_sectors += again.min(end - begin);
        }
        self.end = Some(end);
        for block in partly(begin, end).into_iter().flatten() {
            self.counted.partial_blocks += 1;
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
        // Requests, overlaps, sectors of them, sub-block rewrites, partial blocks.
        let cases: [(&str, Vec<Traced>, [u64; 4]); 9] = [
            ("nothing", vec![], [0; 4]),
            ("aligned", vec![write(0, 8), write(8, 8)], [0; 4]),
            ("one sector", vec![write(0, 8), write(7, 1)], [1, 1, 1, 1]),
            ("seven", vec![write(0, 16), write(9, 15)], [1, 7, 1, 1]),
            (
                "a whole block",
                vec![write(0, 16), write(8, 8)],
                [1, 8, 0, 0],
            ),
            (
                "nine: no tail",
                vec![write(0, 32), write(23, 9)],
                [0, 0, 1, 1],
            ),
            (
                "a foreign write between changes nothing",
                vec![write(0, 8), foreign(write(800, 8)), write(7, 9)],
                [1, 1, 1, 1],
            ),
            (
                "a foreign write has no overlap",
                vec![write(0, 8), foreign(write(7, 1))],
                [0; 4],
            ),
            (
                "appends without padding share a block",
                vec![write(0, 13), write(13, 13)],
                [0, 0, 1, 3],
            ),
        ];
        for (name, requests, expected) in cases {
            let it = counted(&requests);
            let found = [
                it.overlaps,
                it.overlapped_sectors,
                it.sub_block_rewrites,
                it.partial_blocks,
            ];
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
        assert_eq!((it.flushes, it.fua, it.discards), (1, 1, tally(1, 64)));
        // Only the program's own: the foreign ones of 4 and 3 sectors do not count.
        assert_eq!(it.small, 1);
        assert_eq!((it.data_requests(), it.other_requests()), (5, 2));
        let sizes: Vec<_> = it
            .sizes
            .iter()
            .map(|c| (c.from_sectors, c.writes.requests, c.reads.requests))
            .collect();
        assert_eq!(sizes, [(1, 1, 0), (2, 0, 1), (4, 1, 0), (8, 1, 1)]);
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
    fn what_is_missing_is_handed_on() {
        let it = TraceCounts::of(&Trace {
            requests: vec![read(0, 1), read(1, 1), read(9, 1)],
            missing: 4,
        });
        assert_eq!(it.missing, 4);
        assert_eq!(it.sequential_share(), Some(0.5));
        assert_eq!(counted(&[]).sequential_share(), None);
    }
}
