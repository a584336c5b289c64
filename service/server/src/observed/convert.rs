//! From the observer's reports to the messages that are made of them.

use std::collections::BTreeMap;

use lumpscope_observer as obs;
use lumpscope_proto::v1;

/// `with_heat`: the cells of the histogram too.
pub fn store_report(r: obs::StoreReport, with_heat: bool) -> v1::StoreReport {
    let time = r.in_flight.time;
    let block = v1::BlockReport {
        seeks: seeks(&r.heat),
        in_flight: r.in_flight.requests,
        oldest_in_flight_ns: r.in_flight.oldest_ns,
        oldest_in_flight: r.in_flight.oldest,
        busy_ns: time.map(|time| time.busy_ns),
        under_way_ns: time.map(|time| time.under_way_ns),
        ..r.block
    };
    v1::StoreReport {
        store: r.store,
        device: r.device,
        observed: r.observed,
        not_observed_because: r.not_observed_because,
        operations: r.operations,
        block: Some(block),
        audit: Some(r.audit.told),
        heat: if with_heat { r.heat } else { Vec::new() },
        slowest: r.slowest,
    }
}

/// The histogram of |seek distance|, whoever it was and however long it took.
fn seeks(heat: &[obs::HeatCell]) -> Vec<v1::Bucket> {
    let mut all = BTreeMap::new();
    for cell in heat {
        *all.entry(distance(cell)).or_insert(0_u64) += cell.count;
    }
    let bucket = |((from, to), count)| v1::Bucket { from, to, count };
    all.into_iter().map(bucket).collect()
}

/// Least |seek distance| of a cell, and the first byte beyond the greatest: distances are whole sectors.
fn distance(cell: &obs::HeatCell) -> (u64, u64) {
    let (first, last) = (cell.seek_from_bytes, cell.seek_to_bytes.saturating_sub(512));
    let (one, other) = (first.unsigned_abs(), last.unsigned_abs());
    (one.min(other), one.max(other).saturating_add(1))
}

/// How a store is observed and guarded.
pub fn observed_store(
    store: String,
    status: obs::StoreObservation,
    guard: obs::GuardReport,
) -> v1::ObservedStore {
    v1::ObservedStore {
        store,
        device: status.device.unwrap_or_default(),
        observed: status.observed,
        not_observed_because: status.why_not,
        mode: status.mode,
        guard_policy: guard.policy.word().to_owned(),
        guard_effective: guard.effective,
        guard_not_effective_because: guard.why_not,
        guard_denied: guard.denied,
        guard_allowed: guard.allowed,
        guard_recent: guard.recent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_one_distance() {
        let cell = |from, to, count| obs::HeatCell {
            seek_from_bytes: from,
            seek_to_bytes: to,
            count,
            ..obs::HeatCell::default()
        };
        // As the kernel side has them: none, one sector, 8 to 15 sectors.
        let heat = [
            cell(0, 512, 7),
            cell(-512, 0, 1),
            cell(4096, 8192, 2),
            cell(-7680, -3584, 3),
            cell(4096, 8192, 1),
        ];
        let bucket = |from, to, count| v1::Bucket { from, to, count };
        let expected = [bucket(0, 1, 7), bucket(512, 513, 1), bucket(4096, 7681, 6)];
        assert_eq!(seeks(&heat), expected);
    }
}
