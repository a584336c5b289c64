//! Which metric shows which number of the engine.

use lumpscope_engine::StoreStats;

use super::heat::{float, seconds};
use super::names::{self, Metric};
use crate::stores::{Mode, NamedStore};

/// Field of [`StoreStats`], which ends with its unit where that is none of metrics, and its metric.
const TABLE: &[(&str, &Metric)] = &[
    ("lumps", &names::STORE_LUMPS),
    ("data_capacity_bytes", &names::DATA_CAPACITY),
    ("data_used_bytes", &names::DATA_USED),
    ("bad_bytes", &names::BAD_BYTES),
    ("bad_places", &names::BAD_PLACES),
    ("largest_free_bytes", &names::LARGEST_FREE),
    ("free_extents", &names::FREE_EXTENTS),
    ("journal_capacity_bytes", &names::JOURNAL_CAPACITY),
    ("journal_used_bytes", &names::JOURNAL_USED),
    ("journal_live_bytes", &names::JOURNAL_LIVE),
    ("commits", &names::JOURNAL_COMMITS),
    ("commit_records", &names::JOURNAL_RECORDS),
    ("header_writes", &names::JOURNAL_HEADER_WRITES),
    ("gc_relocated", &names::GC_RELOCATED),
    ("gc_dropped", &names::GC_DROPPED),
    ("puts_passed", &names::PUTS_PASSED),
    ("flushes", &names::FLUSHES),
    ("flushes_spared", &names::FLUSHES_SPARED),
    ("writes", &names::WRITES),
    ("writes_forced", &names::WRITES_FORCED),
    ("queue_length", &names::QUEUE_LENGTH),
    ("pending", &names::PENDING),
    ("in_flight_ios", &names::IN_FLIGHT),
    ("io_errors", &names::IO_ERRORS),
    ("checksum_failures", &names::CHECKSUM_FAILURES),
    ("unverified_gets", &names::UNVERIFIED_GETS),
    ("fragmentation_ppm", &names::FRAGMENTATION),
    ("index_memory_bytes", &names::INDEX_MEMORY),
    ("queue_started", &names::QUEUE_STARTED),
    ("queue_wait_ns", &names::QUEUE_WAIT),
    ("overtakes", &names::OVERTAKES),
    ("queue_refused", &names::QUEUE_REFUSED),
    ("queue_refused_own_limit", &names::QUEUE_REFUSED_OWN),
    ("overload_refused", &names::OVERLOAD_REFUSED),
    ("overloads", &names::OVERLOADS),
    ("overloaded", &names::OVERLOADED),
    ("deadline_missed", &names::DEADLINE_MISSED),
    ("deadline_dropped", &names::DEADLINE_DROPPED),
    ("buffer_used_bytes", &names::BUFFER_USED),
    ("buffer_get_bytes", &names::BUFFER_GETS),
    ("buffer_budget_bytes", &names::BUFFER_BUDGET),
    ("buffer_refused", &names::BUFFER_REFUSED),
    ("buffer_waits", &names::BUFFER_WAITS),
    ("scrub_lumps", &names::SCRUB_LUMPS),
    ("scrub_bytes", &names::SCRUB_BYTES),
    ("scrub_unverified", &names::SCRUB_UNVERIFIED),
    ("scrub_corrupt", &names::SCRUB_CORRUPT),
    ("scrub_read_errors", &names::SCRUB_READ_ERRORS),
    ("scrub_passes", &names::SCRUB_PASSES),
    ("scrub_position_bytes", &names::SCRUB_POSITION),
    ("scrub_last_pass_ns", &names::SCRUB_LAST_PASS),
    ("gc_read_bytes", &names::GC_READ),
    ("gc_runs", &names::GC_RUNS),
    ("checkpoints_written", &names::CHECKPOINTS),
    ("checkpoints_failed", &names::CHECKPOINTS_FAILED),
    ("checkpoint_lag_records", &names::CHECKPOINT_LAG_RECORDS),
    ("checkpoint_lag_bytes", &names::CHECKPOINT_LAG_BYTES),
];

/// Numbers that the service itself has of a store.
const SERVICE: [&Metric; 4] = [
    &names::STORE_FAILED,
    &names::STORE_VOLATILE,
    &names::STORE_DRAINING,
    &names::STORE_UNDER_WAY,
];

/// Times as seconds, and parts per million as a ratio.
fn in_base_units(field: &str, number: u64) -> f64 {
    match field.rsplit('_').next() {
        Some("ns") => seconds(number),
        Some("ppm") => float(number) / 1e6,
        _ => float(number),
    }
}

/// Prefix of the metrics of one store.
pub const PREFIX: &str = "lumpscope_store_";

/// Values of a store's metrics, each in the metric's unit.
pub fn numbers(named: &NamedStore) -> impl Iterator<Item = (&'static Metric, f64)> {
    let stats = named.store.stats();
    let engine = TABLE.iter().filter_map(move |(field, metric)| {
        let value = value(&stats, field)?;
        Some((*metric, in_base_units(field, value)))
    });
    let service = [
        u64::from(!named.failed().is_empty()),
        u64::from(named.store.info().volatile.is_some()),
        u64::from(named.mode() != Mode::Serving),
        named.under_way(),
    ];
    let service = SERVICE.into_iter().zip(service.map(float));
    service.chain(engine)
}

/// The metrics of one store that are plain numbers, in the order of [`numbers`].
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    let engine = TABLE.iter().map(|(_, metric)| *metric);
    SERVICE.into_iter().chain(engine)
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
        let mut shown: Vec<&str> = TABLE.iter().map(|(field, _)| *field).collect();
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
        assert!((in_base_units("queue_wait_ns", 2_500_000_000) - 2.5).abs() < 1e-9);
        assert!((in_base_units("fragmentation_ppm", 250_000) - 0.25).abs() < 1e-9);
        assert_eq!(value(&StoreStats::default(), "lumps"), Some(0));
        assert_eq!(value(&StoreStats::default(), "pumps"), None);
    }
}
