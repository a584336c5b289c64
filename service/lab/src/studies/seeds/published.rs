//! The published tables: what was measured elsewhere, and what ours is laid beside.

use serde::Serialize;

/// Writes of 2 MiB, and seconds from the begin of the file and from byte 3584, on an xfs on a 7200
/// rpm disk of 1 TB (ST1000DM003-1ER162, firmware HP51), Linux 5.0.
pub(super) const DISKBENCHI: [(u64, f64, f64); 3] = [
    (2000, 18.216, 21.299),
    (3000, 27.311, 32.029),
    (4000, 36.392, 52.200),
];

/// A row of the published comparison of minfs, ext4 without a journal and xfs, on the same disk and
/// kernel.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CannylsRow {
    /// Name of the workload here.
    pub(super) workload: &'static str,
    /// Puts that the published table counts.
    pub(super) puts: u64,
    /// Gets.
    pub(super) gets: u64,
    /// Seconds on minfs, ext4 and xfs.
    pub(super) seconds: [f64; 3],
    /// Seconds over those on minfs, as printed there.
    pub(super) ratios: [f64; 3],
}

/// The four rows. Of `rand2` the listing has 20,000 iterations, but the counts are those of 10,000.
pub(super) static CANNYLS: [CannylsRow; 4] = [
    CannylsRow {
        workload: "seq1",
        puts: 100_000,
        gets: 0,
        seconds: [117.627, 194.820, 185.938],
        ratios: [1.0, 1.65, 1.58],
    },
    CannylsRow {
        workload: "seq2",
        puts: 5_000,
        gets: 0,
        seconds: [121.095, 166.027, 157.553],
        ratios: [1.0, 1.37, 1.30],
    },
    CannylsRow {
        workload: "rand1",
        puts: 25_000,
        gets: 20_000,
        seconds: [474.931, 537.578, 558.952],
        ratios: [1.0, 1.13, 1.17],
    },
    CannylsRow {
        workload: "rand2",
        puts: 15_000,
        gets: 10_000,
        seconds: [271.684, 360.208, 361.218],
        ratios: [1.0, 1.32, 1.32],
    },
];

/// A row of the published table of what observing a file server costs: name, without, with, and the
/// cost in percent as printed there.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct OverheadRow {
    /// The measured quantity.
    pub(super) name: &'static str,
    /// Without.
    pub(super) without: f64,
    /// With.
    pub(super) with: f64,
    /// Cost in percent.
    pub(super) cost: f64,
}

/// The three sums: 50 threads, 10,000 files of 128 KiB on average, 10 runs of 60 s each.
pub(super) const OVERHEAD_SUMMARY: [OverheadRow; 3] = [
    overhead("mean response time (ms/op)", 5.69, 6.00, 5.48),
    overhead("mean I/O bandwidth (MB/s)", 775.55, 736.74, 5.01),
    overhead(
        "operations a second (ops/s)",
        37_595.505_1,
        35_711.379_8,
        5.01,
    ),
];

/// Operations a second, by kind.
pub(super) const OVERHEAD_FLOWOPS: [OverheadRow; 10] = [
    overhead("deletefile", 2891.6, 2746.1, 5.03),
    overhead("listdir", 2891.6, 2746.1, 5.03),
    overhead("statfile", 2891.6, 2746.2, 5.02),
    overhead("fsyncfile", 2891.6, 2746.3, 5.02),
    overhead("appendfilerand", 2891.9, 2746.8, 5.01),
    overhead("openfile", 2892.0, 2746.8, 5.02),
    overhead("closefile", 2892.0, 2746.8, 5.02),
    overhead("readfile", 2892.0, 2746.8, 5.02),
    overhead("writefile", 2892.1, 2746.8, 5.02),
    overhead("createfile", 2892.3, 2747.0, 5.02),
];

const fn overhead(name: &'static str, without: f64, with: f64, cost: f64) -> OverheadRow {
    OverheadRow {
        name,
        without,
        with,
        cost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_ratios_are_those_of_the_printed_seconds() {
        for row in CANNYLS {
            for (seconds, ratio) in row.seconds.iter().zip(row.ratios) {
                let exact = seconds / row.seconds[0];
                // Some were rounded, some cut off.
                assert!((exact - ratio).abs() < 0.011, "{}: {exact}", row.workload);
            }
        }
        for row in OVERHEAD_FLOWOPS {
            let exact = 100.0 * (1.0 - row.with / row.without);
            assert!((exact - row.cost).abs() < 0.02, "{}: {exact}", row.name);
        }
    }
}
