//! The kernel's histogram as cells with edges, its rows as exact sums and small histograms.

use lumpscope_ebpf_common::{InFlight, class, histogram, op, row};

use crate::report::{BlockShape, Bucket, FlaggedTime, HeatCell, SeekTime};

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

/// Index of the first word of a device's rows among all devices' rows.
pub(crate) fn first_word(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX) * ROW_WORDS
}

/// Words of a device's rows.
pub(crate) const ROW_WORDS: usize = row::ROWS_PER_DEVICE as usize * row::WORDS;

/// When a request in flight was made, as far as is known.
pub(crate) fn began_ns(entry: &InFlight) -> u64 {
    if entry.queue_ns == 0 {
        entry.issue_ns
    } else {
        entry.queue_ns
    }
}

/// Counts of one device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cells {
    /// Of the histogram; empty: all 0.
    pub(crate) heat: Vec<u64>,
    /// Of the rows; empty: all 0.
    pub(crate) rows: Vec<u64>,
}

impl Cells {
    /// What was added since other counts.
    pub(crate) fn since(mut self, before: &Cells) -> Cells {
        let subtract = |now: &mut [u64], before: &[u64]| {
            for (now, before) in now.iter_mut().zip(before) {
                *now = now.saturating_sub(*before);
            }
        };
        subtract(&mut self.heat, &before.heat);
        subtract(&mut self.rows, &before.rows);
        self
    }

    /// The non-empty cells of reads and writes that have a seek distance.
    pub(crate) fn heat(&self) -> Vec<HeatCell> {
        let mut found = Vec::new();
        let mut counts = self.heat.iter();
        for op in 0..op::COUNT {
            for class in 0..class::COUNT {
                for seek in 0..histogram::SEEK_BUCKETS {
                    for time in 0..histogram::TIME_BUCKETS {
                        let count = counts.next().copied().unwrap_or(0);
                        if count > 0 {
                            found.extend(cell(op, class, seek, time, count));
                        }
                    }
                }
            }
        }
        found
    }

    /// The rows of the owner classes and operations that occurred.
    pub(crate) fn shapes(&self) -> Vec<BlockShape> {
        let of = |op: &str, op_number: u8, class: &str, class_number: u8| {
            let words = row::WORDS;
            let row = usize::try_from(row::row(0, op_number, class_number)).ok()?;
            let words = self.rows.get(row * words..(row + 1) * words)?;
            words[row::SIZE..row::DEVICE_NS]
                .iter()
                .any(|count| *count > 0)
                .then(|| BlockShape {
                    owner: class.to_owned(),
                    operation: op.to_owned(),
                    unplaced: self.unplaced(op_number, class_number),
                    ..shape(words)
                })
        };
        (0_u8..)
            .zip(op::NAMES)
            .flat_map(|(o, op)| {
                let classes = (0_u8..).zip(class::NAMES);
                classes.filter_map(move |(c, class)| of(op, o, class, c))
            })
            .collect()
    }

    /// Device times of those that have a flag.
    pub(crate) fn flagged(&self) -> Vec<FlaggedTime> {
        let of = |(at, (_, flag)): (u32, (u32, &str))| {
            let first = usize::try_from(row::flagged(0, at)).ok()? * row::WORDS;
            let words = self.rows.get(first..first + row::WORDS)?;
            let device = times(&words[row::QUEUE..row::SIZE]);
            (!device.is_empty()).then(|| FlaggedTime {
                flag: flag.to_owned(),
                device,
                device_ns: words[row::QUEUE_NS],
            })
        };
        (0..).zip(row::FLAGS).filter_map(of).collect()
    }

    /// Device times of those without a seek distance.
    fn unplaced(&self, op: u8, class: u8) -> Vec<Bucket> {
        let first = histogram::cell(0, op, class, lumpscope_ebpf_common::NO_SEEK, 0);
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        times(self.heat.get(first..).unwrap_or_default())
    }
}

/// The non-empty buckets of the times that these counts begin with.
fn times(counts: &[u64]) -> Vec<Bucket> {
    let counts = (0..histogram::TIME_BUCKETS).zip(counts);
    let filled = counts.filter(|(_, count)| **count > 0);
    filled
        .filter_map(|(bucket, count)| {
            let (from, to) = histogram::time_edges(bucket)?;
            let count = *count;
            Some(Bucket { from, to, count })
        })
        .collect()
}

fn shape(words: &[u64]) -> BlockShape {
    let seeks = (0..histogram::SEEK_BUCKETS).zip(&words[row::DEVICE_NS..]);
    let sizes = (0..row::SIZE_BUCKETS).zip(&words[row::SIZE..]);
    BlockShape {
        seeks: seeks
            .filter(|(_, ns)| **ns > 0)
            .filter_map(|(bucket, ns)| {
                let (from, to) = histogram::seek_edges(bucket)?;
                Some(SeekTime {
                    seek_from_bytes: to_bytes(from),
                    seek_to_bytes: to_bytes(to),
                    device_ns: *ns,
                })
            })
            .collect(),
        travel_bytes: words[row::TRAVEL].saturating_mul(512),
        unplaced_ns: words[row::DEVICE_NS],
        queue: times(&words[row::QUEUE..row::SIZE]),
        queue_ns: words[row::QUEUE_NS],
        sizes: sizes
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| {
                let (from, to) = row::size_edges(bucket);
                Bucket {
                    from: from.saturating_mul(512),
                    to: to.saturating_mul(512),
                    count: *count,
                }
            })
            .collect(),
        bytes: words[row::SECTORS].saturating_mul(512),
        ..BlockShape::default()
    }
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

    fn counts() -> Cells {
        Cells {
            heat: vec![0; CELLS],
            rows: vec![0; ROW_WORDS],
        }
    }

    #[test]
    fn a_count_comes_back_with_the_edges_of_its_cell() {
        let index = histogram::cell(0, op::WRITE, class::FS_JOURNAL, -9, 5000);
        let hit = usize::try_from(index).expect("small");
        let mut now = counts();
        now.heat[hit] = 7;
        let found = now.heat();
        assert_eq!(found.len(), 1);
        let cell = &found[0];
        assert_eq!(cell.owner.as_str(), "fs-journal");
        assert_eq!(cell.operation.as_str(), "write");
        assert!(cell.seek_from_bytes <= -9 * 512 && -9 * 512 < cell.seek_to_bytes);
        assert!(cell.device_from_ns <= 5000 && 5000 < cell.device_to_ns);
        assert_eq!(cell.count, 7);
        let before = now.clone();
        assert_eq!(now.since(&before).heat(), []);
    }

    #[test]
    fn a_row_comes_back_as_sums_and_histograms() {
        let mut now = counts();
        let row = usize::try_from(row::row(0, op::FLUSH, class::OWN)).expect("small");
        let words = &mut now.rows[row * row::WORDS..][..row::WORDS];
        words[row::QUEUE_NS] = 3000;
        words[row::QUEUE + 1] = 2;
        words[row::SIZE] = 2;
        words[row::DEVICE_NS] = 9000;
        let cell = histogram::cell(
            0,
            op::FLUSH,
            class::OWN,
            lumpscope_ebpf_common::NO_SEEK,
            4500,
        );
        now.heat[usize::try_from(cell).expect("small")] = 2;
        let fua = usize::try_from(row::flagged(0, 0)).expect("small");
        now.rows[fua * row::WORDS + row::QUEUE_NS] = 5000;
        now.rows[fua * row::WORDS + row::QUEUE + 3] = 1;
        let flagged = now.flagged();
        assert_eq!(flagged.len(), 1);
        assert_eq!((&*flagged[0].flag, flagged[0].device_ns), ("fua", 5000));
        assert_eq!(flagged[0].device[0].from, 4096);
        let shapes = now.shapes();
        assert_eq!(shapes.len(), 1);
        let bucket = |from, to| Bucket { from, to, count: 2 };
        assert_eq!(
            shapes[0],
            BlockShape {
                owner: "request".to_owned(),
                operation: "flush".to_owned(),
                unplaced: vec![bucket(4096, 8192)],
                unplaced_ns: 9000,
                queue: vec![bucket(1024, 2048)],
                queue_ns: 3000,
                sizes: vec![bucket(0, 512)],
                ..BlockShape::default()
            }
        );
    }
}
