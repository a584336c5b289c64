//! The kernel's histogram as cells with edges.

use lumpscope_ebpf_common::{class, histogram, op};

use crate::report::HeatCell;

/// Sectors to bytes, kept within `i64` at the outermost edges.
fn to_bytes(sectors: i64) -> i64 {
    sectors.saturating_mul(512)
}

/// Index of a device's first cell among all devices' cells.
pub(crate) fn first_cell(slot: u32) -> usize {
    usize::try_from(slot * histogram::CELLS_PER_DEVICE).unwrap_or(usize::MAX)
}

/// Number of a device's cells.
pub(crate) const CELLS: usize = histogram::CELLS_PER_DEVICE as usize;

/// The non-empty cells of a device's reads and writes that have a seek distance. `value` gives
/// the count of a cell by its index among all devices' cells.
pub(crate) fn cells(slot: u32, value: impl Fn(usize) -> u64) -> Vec<HeatCell> {
    let mut found = Vec::new();
    let mut index = slot * histogram::CELLS_PER_DEVICE;
    for op in 0..op::COUNT {
        for class in 0..class::COUNT {
            for seek in 0..histogram::SEEK_BUCKETS {
                for time in 0..histogram::TIME_BUCKETS {
                    let count = usize::try_from(index).map_or(0, &value);
                    index += 1;
                    if count > 0 {
                        found.extend(cell(op, class, seek, time, count));
                    }
                }
            }
        }
    }
    found
}

fn cell(op: u32, class: u32, seek: u32, time: u32, count: u64) -> Option<HeatCell> {
    let (seek_from, seek_to) = histogram::seek_edges(seek)?;
    let (device_from_ns, device_to_ns) = histogram::time_edges(time)?;
    Some(HeatCell {
        owner: class::NAMES.get(usize::try_from(class).ok()?)?.to_string(),
        operation: op::NAMES.get(usize::try_from(op).ok()?)?.to_string(),
        seek_from_bytes: to_bytes(seek_from),
        seek_to_bytes: to_bytes(seek_to),
        device_from_ns,
        device_to_ns,
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_comes_back_with_the_edges_of_its_cell() {
        let index = histogram::cell(1, op::WRITE, class::FS_JOURNAL, -9, 5000);
        let hit = usize::try_from(index).expect("small");
        let found = cells(1, |at| if at == hit { 7 } else { 0 });
        assert_eq!(found.len(), 1);
        let cell = &found[0];
        assert_eq!(
            (cell.owner.as_str(), cell.operation.as_str()),
            ("fs-journal", "write")
        );
        assert!(cell.seek_from_bytes <= -9 * 512 && -9 * 512 < cell.seek_to_bytes);
        assert!(cell.device_from_ns <= 5000 && 5000 < cell.device_to_ns);
        assert_eq!(cell.count, 7);
        assert_eq!(cells(0, |at| if at == hit { 7 } else { 0 }), []);
    }
}
