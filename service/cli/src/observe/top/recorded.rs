//! A recording as one interval.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use lumpscope_client::v1;
use lumpscope_server::observed::convert;

use crate::observe::replay;

/// The distances of one disk, by the power of two below which they lie.
type Seeks = BTreeMap<u64, u64>;

/// The stores before a recording, of which nothing is known, and at its end, and the time between.
pub(super) async fn whole(
    file: &Path,
    store: Option<&str>,
) -> Result<(Vec<v1::StoreReport>, Vec<v1::StoreReport>, Duration)> {
    // A recording has no histogram, but every block request.
    let seeks: Arc<Mutex<BTreeMap<String, Seeks>>> = Arc::default();
    let counted = Arc::clone(&seeks);
    let read = replay::read(file, v1::TraceRequest::default(), move |block| {
        if let Some(bytes) = block.seek_bytes {
            let mut seeks = counted.lock().unwrap_or_else(PoisonError::into_inner);
            let disk = seeks.entry(block.device).or_default();
            *disk.entry(bucket_end(bytes.unsigned_abs())).or_insert(0) += 1;
        }
    });
    let replay = read.await?;
    replay::known(&replay, store)?;
    let names = replay.stores();
    let wanted = names
        .iter()
        .filter(|name| store.is_none_or(|one| one == *name));
    let reports = wanted.filter_map(|name| replay.report(name));
    let mut after: Vec<v1::StoreReport> = reports
        .map(|report| convert::store_report(report, false))
        .collect();
    let seeks = seeks.lock().unwrap_or_else(PoisonError::into_inner);
    for report in &mut after {
        if let (Some(block), Some(seeks)) = (&mut report.block, seeks.get(&report.device)) {
            block.seeks = seeks.iter().map(bucket).collect();
        }
    }
    let nothing = |is: &v1::StoreReport| v1::StoreReport {
        store: is.store.clone(),
        ..Default::default()
    };
    let before = after.iter().map(nothing).collect();
    Ok((before, after, replay.covers()))
}

/// First distance behind the bucket of this one.
fn bucket_end(distance: u64) -> u64 {
    let behind = distance
        .checked_add(1)
        .and_then(u64::checked_next_power_of_two);
    behind.unwrap_or(u64::MAX)
}

fn bucket((to, count): (&u64, &u64)) -> v1::Bucket {
    v1::Bucket {
        from: to / 2,
        to: *to,
        count: *count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distance_is_in_its_bucket() {
        for (distance, from, to) in [(0, 0, 1), (1, 1, 2), (4096, 4096, 8192), (8191, 4096, 8192)] {
            let found = bucket((&bucket_end(distance), &1));
            assert_eq!((found.from, found.to), (from, to), "{distance}");
        }
    }
}
