//! Numbers about a store that any thread reads without asking the owner thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares each number once, as an atomic and as a field of the snapshot.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers about a running store, read without asking its owner thread.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StoreStats {
            $($(#[$doc])* pub $name: u64,)*
        }

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

counters! {
    /// Lumps in the store.
    lumps,
    /// Bytes of the data region.
    data_capacity_bytes,
    /// Bytes of it in use (whole blocks), those about to be freed included.
    data_used_bytes,
    /// Bytes of it that the device has refused to write: nothing is put there any more.
    bad_bytes,
    /// Places that these bytes belong to.
    bad_places,
    /// Bytes of the largest free extent.
    largest_free_bytes,
    /// Free extents.
    free_extents,
    /// Share of the free bytes that lies outside the largest free extent, in parts per million: 0
    /// is one extent, near a million are many small ones.
    fragmentation_ppm,
    /// Bytes of memory that the index of the lumps takes.
    index_memory_bytes,
    /// Records in the journal behind the last checkpoint of the index: what a replay would read
    /// now, more or less.
    checkpoint_lag_records,
    /// Bytes of the journal behind it.
    checkpoint_lag_bytes,
    /// Checkpoints of the index written since open.
    checkpoints_written,
    /// Checkpoints given up since open: no space, an I/O error, too many lumps, or the journal's
    /// garbage collection was faster.
    checkpoints_failed,
    /// Bytes of the journal's ring.
    journal_capacity_bytes,
    /// Bytes of it between head and tail.
    journal_used_bytes,
    /// Bytes of it that hold live records.
    journal_live_bytes,
    /// Journal batches committed since open.
    commits,
    /// Records in these batches, relocated ones included.
    commit_records,
    /// Puts since open of lumps that were written while they came in.
    puts_passed,
    /// Flushes of the device completed since open.
    flushes,
    /// Flushes since open that were not sent, because they would have changed nothing: the device
    /// writes through, or nothing was written since the last one.
    flushes_spared,
    /// Writes completed since open.
    writes,
    /// How many of them were forced past the device's cache, which saves a flush.
    writes_forced,
    /// Records the garbage collection moved to the tail since open.
    gc_relocated,
    /// Records the garbage collection dropped since open.
    gc_dropped,
    /// Times the journal's head was moved since open.
    header_writes,
    /// Requests that wait to be started.
    queue_length,
    /// Requests the owner thread has started and not finished.
    pending,
    /// I/Os at the backend.
    in_flight_ios,
    /// I/Os that failed since open.
    io_errors,
    /// Gets since open of lumps that carry no checksum.
    unverified_gets,
    /// Gets since open whose checksum did not match.
    checksum_failures,
    /// Requests taken from the queue since open: started, or answered at once.
    queue_started,
    /// Nanoseconds these have waited, all together.
    queue_wait_ns,
    /// Requests since open that were started before an older one that waited.
    overtakes,
    /// Requests refused since open because `queue_limit` others waited.
    queue_refused,
    /// Requests refused since open because more waited than their own limit allows.
    queue_refused_own_limit,
    /// Requests refused since open because the store was overloaded.
    overload_refused,
    /// Times since open that the store became overloaded.
    overloads,
    /// 1 while the store is overloaded, else 0.
    overloaded,
    /// Requests started since open after their deadline.
    deadline_missed,
    /// Requests dropped since open because their deadline had passed, before they touched the
    /// disk.
    deadline_dropped,
    /// Bytes of memory that lumps hold: being put, being read, or read and held by callers.
    buffer_used_bytes,
    /// How many of these belong to lumps that are being read, or were read and are held.
    buffer_get_bytes,
    /// Most bytes of memory that lumps may hold.
    buffer_budget_bytes,
    /// Times since open that a buffer for a put was refused because the memory was used up.
    buffer_refused,
    /// Times since open that gets began to wait because the memory was used up.
    buffer_waits,
    /// Lumps the scrubber has looked at since open.
    scrub_lumps,
    /// Bytes the scrubber has read since open.
    scrub_bytes,
    /// Lumps without a checksum the scrubber has read since open.
    scrub_unverified,
    /// Lumps the scrubber has found since open whose bytes are not those that were written.
    scrub_corrupt,
    /// Lumps the scrubber could not read since open.
    scrub_read_errors,
    /// Passes the scrubber has completed since open.
    scrub_passes,
    /// Bytes of the image the present pass of the scrubber has behind it.
    scrub_position_bytes,
    /// When the last complete pass since open ended, in nanoseconds since 1970; 0: none has.
    scrub_last_pass_ns,
    /// Bytes of the journal the garbage collection has read since open.
    gc_read_bytes,
    /// Times the garbage collection has begun to work since open.
    gc_runs,
}

/// A number that any thread may read and the engine's threads change.
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
