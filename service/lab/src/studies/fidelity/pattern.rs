//! Request patterns.

use lumpscope_platter::disk::{Policy, Request};
use lumpscope_platter::drive::SECTOR;
use lumpscope_platter::live::LiveOptions;

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
/// A loop device takes 128 pieces of memory in one request, and a page may be a piece of its own.
/// A request up to this size reaches the disk undivided, and can be compared one by one.
const LARGEST: u64 = 512 * KIB;
/// Memory for the data of one disk: more than any pattern writes.
pub(super) const MEMORY: u64 = 512 << 20;

/// Requests of one size, each sent when the one before is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    /// How it is called, on the command line as well.
    pub(super) name: &'static str,
    /// Description in words.
    pub(super) title: &'static str,
    writes: bool,
    /// Each write is followed by a flush.
    flushes: bool,
    /// Bytes of a request.
    pub(super) length: u64,
    /// Reads or writes.
    count: usize,
    place: DiskZone,
    disk: DriveMode,
}

#[derive(Debug, Clone, Copy)]
enum DiskZone {
    /// From the first sector on; each begins so many bytes behind the begin of the one before.
    Outer { step: u64 },
    /// In a row up to the last sector.
    Inner,
    /// Anywhere in so many first bytes, and on the disk.
    Within(u64),
}

/// How the drive is set.
#[derive(Debug, Clone, Copy)]
enum DriveMode {
    WriteBack,
    WriteThrough,
    Overlap,
}

const READ: Pattern = Pattern {
    name: "",
    title: "",
    writes: false,
    flushes: false,
    length: LARGEST,
    count: 256,
    place: DiskZone::Outer { step: LARGEST },
    disk: DriveMode::WriteBack,
};
const WRITE: Pattern = Pattern {
    writes: true,
    length: 256 * KIB,
    place: DiskZone::Outer { step: 256 * KIB },
    ..READ
};

/// All of them. Each takes the drives of 7200 rpm about a second.
pub(super) const PATTERNS: [Pattern; 9] = [
    Pattern {
        name: "read-outside",
        title: "512 KiB reads in a row from the first sector on",
        count: 400,
        ..READ
    },
    Pattern {
        name: "read-inside",
        title: "512 KiB reads in a row up to the last sector",
        count: 250,
        place: DiskZone::Inner,
        ..READ
    },
    Pattern {
        name: "read-4k-anywhere",
        title: "4 KiB reads anywhere",
        length: 4 * KIB,
        count: 150,
        place: DiskZone::Within(u64::MAX),
        ..READ
    },
    Pattern {
        name: "read-512k-near",
        title: "512 KiB reads anywhere in 25 GiB",
        count: 150,
        place: DiskZone::Within(25 * GIB),
        ..READ
    },
    Pattern {
        name: "write-row",
        title: "256 KiB writes in a row, into the cache",
        count: 800,
        ..WRITE
    },
    Pattern {
        name: "write-4k-anywhere",
        title: "4 KiB writes anywhere, into the cache",
        length: 4 * KIB,
        count: 1000,
        place: DiskZone::Within(u64::MAX),
        ..WRITE
    },
    Pattern {
        name: "write-through",
        title: "256 KiB writes in a row, written through",
        count: 120,
        disk: DriveMode::WriteThrough,
        ..WRITE
    },
    Pattern {
        name: "append-overlap",
        title: "260 KiB writes that rewrite 3.5 KiB of the one before, with the overlap rule",
        length: 520 * SECTOR,
        count: 600,
        place: DiskZone::Outer { step: 513 * SECTOR },
        disk: DriveMode::Overlap,
        ..WRITE
    },
    Pattern {
        name: "write-flush",
        title: "4 KiB writes anywhere, each flushed",
        length: 4 * KIB,
        count: 240,
        flushes: true,
        place: DiskZone::Within(u64::MAX),
        ..WRITE
    },
];

impl Pattern {
    /// The disk that it runs on.
    pub(super) fn options(&self, drive: &str) -> LiveOptions {
        let policy = Policy::default();
        LiveOptions {
            policy: match self.disk {
                DriveMode::WriteBack => policy,
                DriveMode::WriteThrough => policy.write_through(),
                DriveMode::Overlap => policy.with_overlap(),
            },
            memory_bytes: Some(MEMORY),
            ..LiveOptions::new(drive)
        }
    }

    /// Requests for a disk of this size, in order; no more than `most`. Equal each time.
    pub(super) fn requests(&self, bytes: u64, most: Option<usize>) -> Vec<Request> {
        let count = self.count.min(most.unwrap_or(usize::MAX));
        let places = (bytes / self.length).max(1);
        let mut random = fastrand::Rng::with_seed(1);
        let offset = |number: u64| match self.place {
            DiskZone::Outer { step } => number * step,
            DiskZone::Inner => (places.saturating_sub(count as u64) + number) * self.length,
            DiskZone::Within(within) => {
                random.u64(0..(within / self.length).clamp(1, places)) * self.length
            }
        };
        let sectors = u32::try_from(self.length / SECTOR).unwrap_or(u32::MAX);
        let request = |offset: u64| match self.writes {
            true => Request::write(offset / SECTOR, sectors),
            false => Request::read(offset / SECTOR, sectors),
        };
        let with_flush = |request| [Some(request), self.flushes.then(Request::flush)];
        let all = (0..count as u64).map(offset).map(request);
        all.flat_map(with_flush).flatten().take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::drive::DRIVES;
    use lumpscope_platter::trace::Op;

    use super::*;

    #[test]
    fn requests_stay_on_every_drive_and_in_memory() {
        for drive in DRIVES.iter() {
            for pattern in PATTERNS {
                let requests = pattern.requests(drive.sectors * SECTOR, None);
                assert_eq!(requests.len(), pattern.count, "{}", pattern.name);
                assert_eq!(requests, pattern.requests(drive.sectors * SECTOR, None));
                assert!(
                    requests
                        .iter()
                        .all(|request| request.end() <= drive.sectors)
                );
                let written = requests.iter().filter(|request| request.op == Op::Write);
                let written: u64 = written.map(|request| u64::from(request.sectors)).sum();
                assert!(written * SECTOR < MEMORY);
                assert!(pattern.length <= LARGEST && pattern.length.is_multiple_of(4096));
            }
        }
    }

    #[test]
    fn few_requests_are_the_first_ones() {
        let flushed = PATTERNS[8].requests(1 << 40, Some(4));
        let ops: Vec<Op> = flushed.iter().map(|request| request.op).collect();
        assert_eq!(ops, [Op::Write, Op::Flush, Op::Write, Op::Flush]);
        assert_eq!(flushed, PATTERNS[8].requests(1 << 40, None)[..4]);
    }
}
