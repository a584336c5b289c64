//! Histograms that only grow: what came in between two looks, and what lies where in it.

use std::collections::BTreeMap;

/// At least this, less than that, and how many.
pub type Bucket = (u64, u64, u64);

/// Counts added between two states, by bucket, ascending; buckets without any are left out.
pub fn difference(
    was: impl Iterator<Item = Bucket>,
    is: impl Iterator<Item = Bucket>,
) -> Vec<Bucket> {
    let before: BTreeMap<(u64, u64), u64> =
        was.map(|(from, to, count)| ((from, to), count)).collect();
    let more = |(from, to, count): Bucket| {
        let was = before.get(&(from, to)).copied().unwrap_or(0);
        (from, to, count.saturating_sub(was))
    };
    let mut all: Vec<_> = is.map(more).filter(|b| b.2 > 0 && b.1 > b.0).collect();
    all.sort_unstable();
    all
}

/// The value below which `part / whole` of all lie, as if those in a bucket were spread evenly;
/// `None`: there are none.
pub fn quantile(buckets: &[Bucket], part: u64, whole: u64) -> Option<u64> {
    let all: u64 = buckets.iter().map(|b| b.2).sum();
    let wanted = all.saturating_mul(part).div_ceil(whole).max(1);
    let mut seen = 0;
    buckets.iter().find_map(|(from, to, count)| {
        let before = seen;
        seen += count;
        (seen >= wanted).then(|| {
            // In 128 bits: the last bucket may end at the largest number there is.
            let width = u128::from(to - from - 1);
            let into = width * u128::from(wanted - before) / u128::from(*count);
            from + u64::try_from(into).unwrap_or(0)
        })
    })
}
