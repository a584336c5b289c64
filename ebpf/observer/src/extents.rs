//! From byte ranges of a store to sector ranges of its disk. Pure.

use lumpscope_ebpf_common::Ranges;
use serde::{Deserialize, Serialize};

/// A run of a store's bytes that lies in one piece on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Byte offset in the device or file.
    pub offset: u64,
    /// First 512-byte sector on the whole disk.
    pub sector: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Where a store lies on its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Whole disk: see [`lumpscope_ebpf_common::kernel_dev`].
    pub dev: u32,
    /// File system between the store and the disk, e.g. `ext4`; empty: none.
    pub file_system: String,
    /// Extents by ascending offset, not overlapping.
    pub extents: Vec<Extent>,
    /// First sectors of the disk's access ranges, ascending: each has an actuator of its own. Empty:
    /// it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<u64>,
}

/// A run of sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectorRun {
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
}

impl Placement {
    /// The access ranges of the disk, as far as they are told apart.
    pub(crate) fn ranges(&self) -> Ranges {
        Ranges::of(&self.ranges)
    }

    /// The sectors that hold `len` bytes at `offset`; places that are not on the disk are left
    /// out.
    pub(crate) fn runs(&self, offset: u64, len: u64) -> Vec<SectorRun> {
        let end = offset.saturating_add(len);
        let first = self
            .extents
            .partition_point(|e| e.offset.saturating_add(e.len) <= offset);
        let mut runs = Vec::new();
        for extent in self.extents[first..].iter().take_while(|e| e.offset < end) {
            let from = extent.offset.max(offset);
            let to = extent.offset.saturating_add(extent.len).min(end);
            if to <= from {
                // Out of order: no file system says so, but a recording may.
                continue;
            }
            let sector = extent.sector.saturating_add((from - extent.offset) / 512);
            runs.push(SectorRun {
                sector,
                sectors: (to - from).div_ceil(512),
            });
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_extents_and_skips_holes() {
        let placement = Placement {
            dev: 0,
            file_system: String::new(),
            ranges: Vec::new(),
            extents: vec![
                Extent {
                    offset: 0,
                    sector: 1000,
                    len: 4096,
                },
                Extent {
                    offset: 4096,
                    sector: 5000,
                    len: 4096,
                },
                Extent {
                    offset: 16384,
                    sector: 9000,
                    len: 4096,
                },
            ],
        };
        let run = |sector, sectors| SectorRun { sector, sectors };
        assert_eq!(placement.runs(512, 1024), [run(1001, 2)]);
        assert_eq!(placement.runs(2048, 4096), [run(1004, 4), run(5000, 4)]);
        assert_eq!(placement.runs(4096, 16384), [run(5000, 8), run(9000, 8)]);
        assert_eq!(placement.runs(8192, 4096), []);
        assert_eq!(placement.runs(40960, 4096), []);
    }
}
