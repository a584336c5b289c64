//! One sentence that the figures support.

use super::report::{Comparison, StoreView};
use super::table::unique;
use crate::disks::StoreKind;
use crate::human;

/// Ratios no further from 1 say nothing: so much depends on where a store happens to begin under the
/// head.
const NOISE: f64 = 0.03;

/// Of the first modelled drive.
pub(super) fn of(comparison: &Comparison) -> String {
    let sizes = unique(comparison.stores.iter().map(|store| store.block_size));
    let mut said: Vec<(String, String)> = Vec::new();
    for size in &sizes {
        let Some(told) = file_systems(comparison, *size) else {
            continue;
        };
        match said.iter_mut().find(|(_, other)| *other == told) {
            Some((of, _)) => of.push_str(&format!(" and {size}")),
            None => said.push((format!("with blocks of {size}"), told)),
        }
    }
    let mut said: Vec<String> = said
        .iter()
        .map(|(of, told)| format!("{of}, {told}"))
        .collect();
    if let (Some(small), Some(large)) = (sizes.iter().min(), sizes.iter().max())
        && small < large
    {
        said.extend(block_sizes(comparison, *small, *large));
    }
    match comparison.models.first() {
        Some(model) if !said.is_empty() => format!("On {}, {}.", model.name, said.join("; ")),
        _ => "Nothing follows: there are no modelled times to compare.".to_owned(),
    }
}

fn elapsed_ns(store: &StoreView) -> Option<u64> {
    store.modelled.first().map(|view| view.elapsed_ns)
}

/// The cost of the file systems with blocks of one size.
fn file_systems(comparison: &Comparison, size: u16) -> Option<String> {
    let of_size = |store: &&StoreView| store.block_size == size;
    let raw = comparison.of_kind(StoreKind::Raw).find(of_size);
    let raw_ns = elapsed_ns(raw?)?;
    let mut told = Vec::new();
    let others = comparison.stores.iter().filter(of_size);
    for store in others.filter(|store| store.kind != StoreKind::Raw) {
        let Some(view) = store.modelled.first() else {
            continue;
        };
        let ratio = view.ratio_to_raw?;
        let name = store.kind.name();
        if (ratio - 1.0).abs() < NOISE {
            told.push(format!("{name} takes as long as raw"));
            continue;
        }
        let more_ns = i64::try_from(view.elapsed_ns.saturating_sub(raw_ns)).unwrap_or(i64::MAX);
        let causes = [
            (view.lost_to_fs_metadata_ns, "its metadata"),
            (view.lost_to_fs_journal_ns, "its journal"),
        ];
        let cause = causes.iter().find(|(lost_ns, _)| *lost_ns > more_ns / 2);
        let why = cause.filter(|_| ratio > 1.0);
        let why = why.map_or_else(String::new, |(_, what)| format!(", because of {what},"));
        told.push(format!("{name} takes {ratio:.2} times as long as raw{why}"));
    }
    (!told.is_empty()).then(|| told.join(" and "))
}

/// The cost of small blocks beside large ones on each store.
fn block_sizes(comparison: &Comparison, small: u16, large: u16) -> Option<String> {
    let mut told = Vec::new();
    for kind in StoreKind::ALL {
        let of = |size| {
            let store = comparison
                .of_kind(kind)
                .find(|store| store.block_size == size);
            store.and_then(elapsed_ns)
        };
        let Some(ratio) = human::ratio(of(small)?, of(large)?) else {
            continue;
        };
        told.push((kind.name(), ratio));
    }
    let far = |(_, ratio): &&(&str, f64)| (ratio - 1.0).abs() >= NOISE;
    if told.iter().filter(far).count() == 0 {
        return Some(format!(
            "blocks of {small} take as long as blocks of {large}"
        ));
    }
    let told: Vec<String> = told
        .iter()
        .map(|(name, ratio)| format!("{ratio:.2} on {name}"))
        .collect();
    Some(format!(
        "blocks of {small} take this many times as long as blocks of {large}: {}",
        told.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::compare::shown::tests::comparison;

    /// Elapsed milliseconds by store, raw, ext4, xfs of 512, then of 4096.
    fn concluded(elapsed_ms: [u64; 6], metadata_ms: i64) -> String {
        let mut comparison = comparison();
        for (store, ms) in comparison.stores.iter_mut().zip(elapsed_ms) {
            for view in &mut store.modelled {
                view.elapsed_ns = ms * 1_000_000;
                view.lost_to_fs_metadata_ns = metadata_ms * 1_000_000;
                view.lost_to_fs_journal_ns = 0;
            }
        }
        comparison.set_ratios();
        of(&comparison)
    }

    #[test]
    fn only_differences_above_the_noise_are_told() {
        let all_alike = concluded([1000, 1010, 1000, 1005, 1000, 990], 0);
        assert_eq!(
            all_alike,
            "On a-drive, with blocks of 512 and 4096, ext4 takes as long as raw and xfs takes as \
             long as raw; blocks of 512 take as long as blocks of 4096."
        );
        let mixed = concluded([1500, 1950, 1500, 1000, 1400, 1000], 290);
        assert_eq!(
            mixed,
            "On a-drive, with blocks of 512, ext4 takes 1.30 times as long as raw, because of its \
             metadata, and xfs takes as long as raw; with blocks of 4096, ext4 takes 1.40 times as \
             long as raw, because of its metadata, and xfs takes as long as raw; blocks of 512 take \
             this many times as long as blocks of 4096: 1.50 on raw, 1.39 on ext4, 1.50 on xfs."
        );
        // Less than half of what is more: the reason is another.
        let other = concluded([1000, 1300, 1000, 1000, 1300, 1000], 100);
        assert!(!other.contains("because"), "{other}");
    }

    #[test]
    fn nothing_follows_from_nothing() {
        let mut comparison = comparison();
        for store in &mut comparison.stores {
            store.modelled.clear();
        }
        assert!(of(&comparison).starts_with("Nothing follows"));
    }
}
