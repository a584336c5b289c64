//! How lumps and free space are spread.

use std::collections::BTreeMap;

use super::report::{FreeInfo, SizeClass};

/// Sizes, counted by powers of two.
#[derive(Default)]
pub(super) struct SizeClasses(BTreeMap<u32, (u64, u64)>);

impl SizeClasses {
    pub(super) fn add(&mut self, bytes: u64) {
        let power = u64::BITS - bytes.saturating_sub(1).leading_zeros();
        let (count, sum) = self.0.entry(power).or_default();
        *count += 1;
        *sum += bytes;
    }

    pub(super) fn into_classes(self) -> Vec<SizeClass> {
        self.0
            .into_iter()
            .map(|(power, (count, bytes))| SizeClass {
                up_to_bytes: 1_u64.checked_shl(power).unwrap_or(u64::MAX),
                count,
                bytes,
            })
            .collect()
    }
}

/// Free space among `blocks` blocks between extents given in ascending order of their start.
/// Extents may overlap.
pub(super) fn free_space(
    blocks: u64,
    block_bytes: u64,
    used: impl IntoIterator<Item = (u64, u64)>,
) -> FreeInfo {
    let mut free = FreeInfo::default();
    let mut classes = SizeClasses::default();
    let mut gap = |from: u64, to: u64| {
        let bytes = to.saturating_sub(from) * block_bytes;
        if bytes > 0 {
            free.bytes += bytes;
            free.extents += 1;
            free.largest_bytes = free.largest_bytes.max(bytes);
            classes.add(bytes);
        }
    };
    let mut next = 0;
    for (start, count) in used {
        gap(next, start);
        next = next.max(start + count);
    }
    gap(next, blocks);
    free.sizes = classes.into_classes();
    free.fragmentation = fragmentation(free.largest_bytes, free.bytes);
    free
}

/// 1 - largest / all, to four digits: enough to compare, and the same in every print.
fn fragmentation(largest: u64, all: u64) -> f64 {
    let scattered = all.saturating_sub(largest);
    let Some(parts) = (u128::from(scattered) * 10_000).checked_div(u128::from(all)) else {
        return 0.0;
    };
    f64::from(u32::try_from(parts).unwrap_or(10_000)) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_sizes_up_to_their_power_of_two() {
        let mut classes = SizeClasses::default();
        for bytes in [0, 1, 2, 3, 4, 5, 4096, 4097, u64::MAX] {
            classes.add(bytes.min(1 << 40));
        }
        let found: Vec<(u64, u64)> = classes
            .into_classes()
            .iter()
            .map(|class| (class.up_to_bytes, class.count))
            .collect();
        let want = [
            (1, 2),
            (2, 1),
            (4, 2),
            (8, 1),
            (4096, 1),
            (8192, 1),
            (1 << 40, 1),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn free_space_is_what_extents_leave_even_when_they_overlap() {
        let free = free_space(100, 512, [(10, 10), (15, 3), (19, 6), (50, 1)]);
        assert_eq!((free.bytes, free.extents), (512 * 84, 3));
        assert_eq!(free.largest_bytes, 512 * 49);
        assert!((free.fragmentation - 0.4166).abs() < 1e-9);
        let full = free_space(4, 512, [(0, 4)]);
        assert_eq!((full.bytes, full.extents), (0, 0));
        assert!(full.fragmentation.abs() < 1e-9);
    }
}
