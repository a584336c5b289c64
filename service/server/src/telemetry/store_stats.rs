//! Which metric shows which number of the engine.

use lumpscope_engine::StoreStats;

use super::heat::{float, seconds};
use super::names::{self, Metric};
use crate::stores::{Mode, NamedStore};

/// How the engine counts what the metric shows in base units.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// In the unit of the metric.
    One,
    /// In nanoseconds, shown as seconds.
    Nanoseconds,
    /// In parts per million, shown as a ratio.
    Millionths,
}

impl Scale {
    fn apply(self, number: u64) -> f64 {
        match self {
            Self::One => float(number),
            Self::Nanoseconds => seconds(number),
            Self::Millionths => float(number) / 1e6,
        }
    }
}

/// Field of [`StoreStats`], its metric, and the factor between them.
const TABLE: &[(&str, &Metric, Scale)] = &[
    ("lumps", &names::STORE_LUMPS, Scale::One),
    ("data_capacity_bytes", &names::DATA_CAPACITY, Scale::One),
    ("data_used_bytes", &names::DATA_USED, Scale::One),
    ("bad_bytes", &names::BAD_BYTES, Scale::One),
    ("bad_places", &names::BAD_PLACES, Scale::One),
    ("largest_free_bytes", &names::LARGEST_FREE, Scale::One),
    ("free_extents", &names::FREE_EXTENTS, Scale::One),
    (
        "journal_capacity_bytes",
        &names::JOURNAL_CAPACITY,
        Scale::One,
    ),
    ("journal_used_bytes", &names::JOURNAL_USED, Scale::One),
    ("journal_live_bytes", &names::JOURNAL_LIVE, Scale::One),
    ("commits", &names::JOURNAL_COMMITS, Scale::One),
    ("commit_records", &names::JOURNAL_RECORDS, Scale::One),
    ("header_writes", &names::JOURNAL_HEADER_WRITES, Scale::One),
    ("gc_relocated", &names::GC_RELOCATED, Scale::One),
    ("gc_dropped", &names::GC_DROPPED, Scale::One),
    ("puts_passed", &names::PUTS_PASSED, Scale::One),
    ("flushes", &names::FLUSHES, Scale::One),
    ("flushes_spared", &names::FLUSHES_SPARED, Scale::One),
    ("writes", &names::WRITES, Scale::One),
    ("writes_forced", &names::WRITES_FORCED, Scale::One),
    ("queue_length", &names::QUEUE_LENGTH, Scale::One),
    ("pending", &names::PENDING, Scale::One),
    ("in_flight_ios", &names::IN_FLIGHT, Scale::One),
    ("io_errors", &names::IO_ERRORS, Scale::One),
    ("checksum_failures", &names::CHECKSUM_FAILURES, Scale::One),
    ("unverified_gets", &names::UNVERIFIED_GETS, Scale::One),
    (
        "fragmentation_ppm",
        &names::FRAGMENTATION,
        Scale::Millionths,
    ),
    ("index_memory_bytes", &names::INDEX_MEMORY, Scale::One),
    ("queue_started", &names::QUEUE_STARTED, Scale::One),
    ("queue_wait_ns", &names::QUEUE_WAIT, Scale::Nanoseconds),
    ("overtakes", &names::OVERTAKES, Scale::One),
    ("queue_refused", &names::QUEUE_REFUSED, Scale::One),
    (
        "queue_refused_own_limit",
        &names::QUEUE_REFUSED_OWN,
        Scale::One,
    ),
    ("overload_refused", &names::OVERLOAD_REFUSED, Scale::One),
    ("overloads", &names::OVERLOADS, Scale::One),
    ("overloaded", &names::OVERLOADED, Scale::One),
    ("deadline_missed", &names::DEADLINE_MISSED, Scale::One),
    ("deadline_dropped", &names::DEADLINE_DROPPED, Scale::One),
    ("buffer_used_bytes", &names::BUFFER_USED, Scale::One),
    ("buffer_get_bytes", &names::BUFFER_GETS, Scale::One),
    ("buffer_budget_bytes", &names::BUFFER_BUDGET, Scale::One),
    ("buffer_refused", &names::BUFFER_REFUSED, Scale::One),
    ("buffer_waits", &names::BUFFER_WAITS, Scale::One),
    ("scrub_lumps", &names::SCRUB_LUMPS, Scale::One),
    ("scrub_bytes", &names::SCRUB_BYTES, Scale::One),
    ("scrub_unverified", &names::SCRUB_UNVERIFIED, Scale::One),
    ("scrub_corrupt", &names::SCRUB_CORRUPT, Scale::One),
    ("scrub_read_errors", &names::SCRUB_READ_ERRORS, Scale::One),
    ("scrub_passes", &names::SCRUB_PASSES, Scale::One),
    ("scrub_position_bytes", &names::SCRUB_POSITION, Scale::One),
    (
        "scrub_last_pass_ns",
        &names::SCRUB_LAST_PASS,
        Scale::Nanoseconds,
    ),
    ("gc_read_bytes", &names::GC_READ, Scale::One),
    ("gc_runs", &names::GC_RUNS, Scale::One),
    ("checkpoints_written", &names::CHECKPOINTS, Scale::One),
    ("checkpoints_failed", &names::CHECKPOINTS_FAILED, Scale::One),
    (
        "checkpoint_lag_records",
        &names::CHECKPOINT_LAG_RECORDS,
        Scale::One,
    ),
    (
        "checkpoint_lag_bytes",
        &names::CHECKPOINT_LAG_BYTES,
        Scale::One,
    ),
];

/// Prefix of the metrics of one store.
pub const PREFIX: &str = "lumpscope_store_";

/// Values of a store's metrics, each in the metric's unit.
pub fn numbers(named: &NamedStore) -> impl Iterator<Item = (&'static Metric, f64)> {
    let stats = named.store.stats();
    let engine = TABLE.iter().filter_map(move |(field, metric, scale)| {
        let value = value(&stats, field)?;
        Some((*metric, scale.apply(value)))
    });
    let draining = u64::from(named.mode() != Mode::Serving);
    let failed = u64::from(!named.failed().is_empty());
    let volatile = u64::from(named.store.info().volatile.is_some());
    let service = [
        (&names::STORE_FAILED, failed),
        (&names::STORE_VOLATILE, volatile),
        (&names::STORE_DRAINING, draining),
        (&names::STORE_UNDER_WAY, named.under_way()),
    ];
    let service = service.map(|(metric, value)| (metric, float(value)));
    service.into_iter().chain(engine)
}

/// The metrics of one store that are plain numbers, in the order of [`numbers`].
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    let service = [
        &names::STORE_FAILED,
        &names::STORE_VOLATILE,
        &names::STORE_DRAINING,
        &names::STORE_UNDER_WAY,
    ];
    let engine = TABLE.iter().map(|(_, metric, _)| *metric);
    service.into_iter().chain(engine)
}

/// The number of a field; `None`: there is no such field.
fn value(stats: &StoreStats, field: &str) -> Option<u64> {
    let mut fields = stats.fields();
    fields
        .find(|(name, _)| *name == field)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_engine_has_one_metric() {
        let mut fields: Vec<&str> = StoreStats::default()
            .fields()
            .map(|(name, _)| name)
            .collect();
        let mut shown: Vec<&str> = TABLE.iter().map(|(field, ..)| *field).collect();
        fields.sort_unstable();
        shown.sort_unstable();
        assert_eq!(fields, shown);
    }

    #[test]
    fn every_number_of_one_store_is_among_its_metrics() {
        let of_store =
            |metric: &&Metric| metric.name.starts_with(PREFIX) && metric.labels == ["store"];
        let mut named: Vec<&str> = names::ALL.iter().filter(of_store).map(|m| m.name).collect();
        let mut shown: Vec<&str> = metrics().map(|metric| metric.name).collect();
        named.sort_unstable();
        shown.sort_unstable();
        assert_eq!(named, shown);
    }

    #[test]
    fn numbers_are_shown_in_base_units() {
        assert!((Scale::Nanoseconds.apply(2_500_000_000) - 2.5).abs() < 1e-9);
        assert!((Scale::Millionths.apply(250_000) - 0.25).abs() < 1e-9);
        assert_eq!(value(&StoreStats::default(), "lumps"), Some(0));
        assert_eq!(value(&StoreStats::default(), "pumps"), None);
    }
}
