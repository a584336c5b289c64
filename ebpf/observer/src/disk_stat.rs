//! The kernel's own statistics of a disk, from sysfs.

use std::fs;

use crate::device::paths_of;
use crate::report::DiskTime;

const MILLISECOND_NS: u64 = 1_000_000;
const SECTOR_BYTES: u64 = 512;
/// No request is larger, for the bounds of a comparison on a busy disk.
pub(crate) const LARGEST_REQUEST: u64 = 4 << 20;

/// The kernel's own counts of one disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskStat {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Of these: read, written, discarded.
    pub(crate) by_kind: [u64; 3],
    /// Bios that were merged into requests which waited: read, written, discarded.
    pub(crate) merged: [u64; 3],
    /// Requests made and not yet counted above. Before 6.16 only those that the driver has.
    pub(crate) under_way: u64,
    /// Since boot.
    pub(crate) time: DiskTime,
}

impl DiskStat {
    /// With so many requests more, of any length.
    pub(crate) fn and(self, requests: u64) -> DiskStat {
        DiskStat {
            requests: self.requests + requests,
            bytes: self.bytes + requests * LARGEST_REQUEST,
            ..self
        }
    }

    fn plus(self, other: DiskStat) -> DiskStat {
        let plus = |one: [u64; 3], other: [u64; 3]| std::array::from_fn(|i| one[i] + other[i]);
        DiskStat {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            by_kind: plus(self.by_kind, other.by_kind),
            merged: plus(self.merged, other.merged),
            under_way: self.under_way + other.under_way,
            time: DiskTime {
                busy_ns: self.time.busy_ns + other.time.busy_ns,
                under_way_ns: self.time.under_way_ns + other.time.under_way_ns,
            },
        }
    }

    pub(crate) fn since(self, before: DiskStat) -> DiskStat {
        let since = |now: [u64; 3], before: [u64; 3]| {
            std::array::from_fn(|i| now[i].saturating_sub(before[i]))
        };
        DiskStat {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            by_kind: since(self.by_kind, before.by_kind),
            merged: since(self.merged, before.merged),
            ..self
        }
    }
}

/// Of a disk with paths, their sum: whether the kernel counts the disk itself depends on its version.
pub(crate) fn read_stat(disk: &str) -> Option<DiskStat> {
    let stat =
        |disk: &str| parse_stat(&fs::read_to_string(format!("/sys/block/{disk}/stat")).ok()?);
    match &paths_of(disk)[..] {
        [] => stat(disk),
        paths => (paths.iter().map(|path| stat(path))).sum(),
    }
}

impl std::iter::Sum for DiskStat {
    fn sum<I: Iterator<Item = DiskStat>>(all: I) -> DiskStat {
        all.fold(DiskStat::default(), DiskStat::plus)
    }
}

/// Fields as in Documentation/block/stat.rst: for each of read, write, discard: completed,
/// merged, sectors, ticks; behind the writes how many are under way and for how long; flushes come last. Old kernels
/// lack the later ones.
fn parse_stat(text: &str) -> Option<DiskStat> {
    let fields: Vec<u64> = text
        .split_whitespace()
        .map_while(|f| f.parse().ok())
        .collect();
    if fields.len() < 11 {
        return None;
    }
    let at = |index: usize| fields.get(index).copied().unwrap_or(0);
    let by_kind = [at(2), at(6), at(13)].map(|sectors| sectors * SECTOR_BYTES);
    Some(DiskStat {
        requests: at(0) + at(4) + at(11) + at(15),
        bytes: by_kind.iter().sum(),
        by_kind,
        merged: [at(1), at(5), at(12)],
        under_way: at(8),
        time: DiskTime {
            busy_ns: at(9) * MILLISECOND_NS,
            under_way_ns: at(10) * MILLISECOND_NS,
        },
    })
}

pub(crate) fn in_flight(disk: &str) -> Option<u64> {
    let count = |disk: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/block/{disk}/inflight")).ok()?;
        let fields = text.split_whitespace();
        fields.map(|field| field.parse::<u64>().ok()).sum()
    };
    match &paths_of(disk)[..] {
        [] => count(disk),
        paths => paths.iter().map(|path| count(path)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernel_s_line() {
        let line = "  1  7  16  0  4  9  32  0  6  1  7  2  5  8  0  3  0\n";
        assert_eq!(
            parse_stat(line),
            Some(DiskStat {
                requests: 10,
                bytes: 56 * 512,
                by_kind: [16 * 512, 32 * 512, 8 * 512],
                merged: [7, 9, 5],
                under_way: 6,
                time: DiskTime {
                    busy_ns: 1_000_000,
                    under_way_ns: 7_000_000,
                },
            })
        );
        assert_eq!(parse_stat("1 2 3"), None);
        assert_eq!(parse_stat(""), None);
    }
}
