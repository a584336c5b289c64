//! Numbers about a store that any thread reads without asking the owner thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::options::StoreStats;

/// Declares the counters once, as atomics and as their snapshot.
macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// The live values of [`StoreStats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            /// The values now; each is right, together they may be of slightly different times.
            pub(crate) fn snapshot(&self) -> StoreStats {
                StoreStats { $($name: self.$name.get(),)* }
            }
        }

        impl StoreStats {
            /// Every number with the name of its field, for whoever shows them all.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters!(
    lumps,
    data_capacity_bytes,
    data_used_bytes,
    largest_free_bytes,
    free_extents,
    fragmentation_ppm,
    index_memory_bytes,
    checkpoint_lag_records,
    checkpoint_lag_bytes,
    checkpoints_written,
    checkpoints_failed,
    journal_capacity_bytes,
    journal_used_bytes,
    journal_live_bytes,
    commits,
    commit_records,
    flushes,
    gc_relocated,
    gc_dropped,
    header_writes,
    queue_length,
    pending,
    in_flight_ios,
    io_errors,
    unverified_gets,
    checksum_failures,
    queue_started,
    queue_wait_ns,
    overtakes,
    queue_refused,
    queue_refused_own_limit,
    overload_refused,
    overloads,
    overloaded,
    deadline_missed,
    deadline_dropped,
    buffer_used_bytes,
    buffer_get_bytes,
    buffer_budget_bytes,
    buffer_refused,
    buffer_waits,
    scrub_lumps,
    scrub_bytes,
    scrub_unverified,
    scrub_corrupt,
    scrub_read_errors,
    scrub_passes,
    scrub_position_bytes,
    scrub_last_pass_ns,
    gc_read_bytes,
    gc_runs,
);

/// One number.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
}
