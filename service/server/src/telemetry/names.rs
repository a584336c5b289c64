//! Every metric the service exports: name, kind, unit, labels and meaning, in this one place.
//!
//! `METRICS.md` is made from this table and a test keeps them equal; another test compares both
//! with what `/metrics` really returns. Base units only: bytes and seconds.

use std::fmt::Write as _;

/// Kind of a metric, in the words of OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; exposed with the suffix `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets; exposed as `_bucket`, `_sum` and `_count`.
    Histogram,
    /// A constant 1 whose labels are the information; exposed with the suffix `_info`.
    Info,
}

/// A row of METRICS.md.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name without the suffix of its kind.
    pub name: &'static str,
    /// Decides on the suffix of the exposed name.
    pub kind: Kind,
    /// Labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// Meaning, one sentence or more; the text of METRICS.md.
    pub help: &'static str,
}

macro_rules! metrics {
    ($(=> $prefix:literal;
        $($id:ident = $name:literal $kind:ident [$($label:literal),*] $help:literal;)+)+) => {
        $($(
            #[doc = $help]
            pub const $id: Metric = Metric {
                name: concat!($prefix, $name),
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )+)+
        /// All metrics, in the order in which they are exposed.
        pub const ALL: &[Metric] = &[$($($id),+),+];
    };
}

metrics! {
    => "lumpscope_";
    BUILD = "build" Info ["version"]
        "The version that runs.";
    REQUESTS = "requests" Counter ["store", "method", "code"]
        "Requests of gRPC and S3 (methods `s3_...`) that ended, by the code they ended with; the status of S3 is mapped to the codes of gRPC. The store is empty when the request named none.";
    REQUESTS_IN_PROGRESS = "requests_in_progress" Gauge []
        "gRPC requests that have begun and not ended.";
    REQUEST_DURATION = "request_duration_seconds" Histogram ["store", "method"]
        "Time from the arrival of a request to the last byte of its reply.";
    REQUEST_STAGE = "request_stage_seconds" Counter ["store", "method", "stage"]
        "Time of all requests by stage: recv, sched, index, submit, queue, device, journal, wait, write, flush, reply. The stages add up to the whole; the commit is journal, wait, write and flush. Without probes all data I/O is in submit, as are block requests without an event.";
    REQUEST_BODY = "request_body_bytes" Counter ["store", "method"]
        "Bytes of bodies moved.";
    BODY_MEMORY = "body_memory_bytes" Gauge ["direction"]
        "Memory of lumps that are being put, or being read and sent (get).";
    SPANS_EXPORTED = "trace_spans_exported" Counter []
        "Spans that the collector has taken. Absent without a collector, like all trace_*.";
    SPANS_DROPPED = "trace_spans_dropped" Counter ["reason"]
        "Spans that never reached the collector. Reasons: queue_full, export_failed (the collector did not take their batch), shutdown.";
    TRACED_LOST = "trace_requests_lost" Counter []
        "Requests to be exported for which no span was made, because too many ended at once.";
    EXPORT_FAILURES = "trace_export_failures" Counter []
        "Batches that the collector did not take.";
    EXPORTER_UP = "trace_exporter_up" Gauge []
        "1: the collector took the last batch; absent before the first.";

    CONNECTIONS = "connections" Gauge ["entrance"]
        "Connections open now. Entrances: tcp, unix, metrics.";
    CONNECTIONS_ACCEPTED = "connections_accepted" Counter ["entrance"]
        "Connections accepted.";
    ACCEPT_ERRORS = "accept_errors" Counter ["entrance"]
        "Times that no connection could be accepted, for want of file descriptors or memory.";
    CONNECTIONS_REFUSED = "connections_refused" Counter ["entrance", "reason"]
        "Connections that did not get through their handshakes. Reasons: tls, certificate (the client's), preface (neither HTTP/2 nor POST), timeout, gone, address (it has too many open).";
    LOGIN_FAILURES = "login_failures" Counter ["reason"]
        "Requests of an unknown caller, or of one without the right. Reasons: missing, malformed, unknown, certificate, scope.";
    RELOADS = "reloads" Counter ["result"]
        "Times that certificates and tokens were read again: ok, or failed and the old ones stayed.";
    TOKENS = "tokens" Gauge []
        "Tokens that are accepted.";
    CERTIFICATE_NOT_AFTER = "certificate_not_after_timestamp_seconds" Gauge []
        "End of the validity of the service's certificate, in seconds since 1970; absent without TLS.";

    STORE = "store" Info ["store", "path", "layout", "backend", "device", "block_size"]
        "The stores: path, layout, backend of the I/O, and the disk below.";
    STORE_STATE = "store_state" Gauge ["store", "state"]
        "1: the store is in this state: serving, degraded, read-only, failed, gone, draining or unavailable; the others are 0. `lumpscope stores` says why.";
    STORE_FAILED = "store_failed" Gauge ["store"]
        "1: the store does not take every request, because its disk fails, does not answer, is gone or is read-only, or it could not be opened; `lumpscope stat` says why.";
    STORE_DRAINING = "store_draining" Gauge ["store"]
        "1: the store takes no new requests, because it drains or is being taken out.";
    STORE_UNDER_WAY = "store_requests_in_progress" Gauge ["store"]
        "Requests on data that have entered the store and not ended.";
    STORE_LUMPS = "store_lumps" Gauge ["store"]
        "Lumps in the store.";
    DATA_CAPACITY = "store_data_capacity_bytes" Gauge ["store"]
        "Size of the data region.";
    DATA_USED = "store_data_used_bytes" Gauge ["store"]
        "Bytes of the data region in use, whole blocks.";
    BAD_BYTES = "store_bad_bytes" Gauge ["store"]
        "Bytes of the data region that the device has refused to write; nothing is put there.";
    BAD_PLACES = "store_bad_places" Gauge ["store"]
        "Places that these bytes belong to. With 16 or more the store is degraded: replace the disk.";
    LARGEST_FREE = "store_largest_free_bytes" Gauge ["store"]
        "Size of the largest free extent of the data region.";
    FREE_EXTENTS = "store_free_extents" Gauge ["store"]
        "Free extents of the data region.";
    JOURNAL_CAPACITY = "store_journal_capacity_bytes" Gauge ["store"]
        "Size of the journal's ring.";
    JOURNAL_USED = "store_journal_used_bytes" Gauge ["store"]
        "Bytes of the ring between its head and its tail.";
    JOURNAL_LIVE = "store_journal_live_bytes" Gauge ["store"]
        "Bytes of the ring that hold live records.";
    JOURNAL_COMMITS = "store_journal_commits" Counter ["store"]
        "Journal batches committed.";
    JOURNAL_RECORDS = "store_journal_records" Counter ["store"]
        "Journal records committed, relocated ones included.";
    JOURNAL_HEADER_WRITES = "store_journal_header_writes" Counter ["store"]
        "Times that the head of the ring was moved.";
    GC_RELOCATED = "store_journal_gc_relocated_records" Counter ["store"]
        "Live records that garbage collection moved to the tail.";
    GC_DROPPED = "store_journal_gc_dropped_records" Counter ["store"]
        "Dead records that garbage collection passed over.";
    FLUSHES = "store_flushes" Counter ["store"]
        "Flushes of the device.";
    FLUSHES_SPARED = "store_flushes_spared" Counter ["store"]
        "Flushes that were not sent: the device writes through, or nothing was written since the last one.";
    WRITES = "store_writes" Counter ["store"]
        "Writes to the device.";
    PUTS_PASSED = "store_puts_passed" Counter ["store"]
        "Puts of lumps that were written while they came in, rather than once they were complete.";
    WRITES_FORCED = "store_writes_forced" Counter ["store"]
        "Journal writes past the device's cache (FUA), each instead of a write and a flush.";
    QUEUE_LENGTH = "store_queue_length" Gauge ["store"]
        "Requests waiting for the store's owner thread.";
    PENDING = "store_pending_requests" Gauge ["store"]
        "Requests the owner thread has started and not finished.";
    IN_FLIGHT = "store_in_flight_ios" Gauge ["store"]
        "I/Os handed to the kernel and not completed.";
    IO_ERRORS = "store_io_errors" Counter ["store"]
        "I/Os that failed.";
    CHECKSUM_FAILURES = "store_checksum_failures" Counter ["store"]
        "Gets whose bytes did not match their checksum; nothing was returned.";
    UNVERIFIED_GETS = "store_unverified_gets" Counter ["store"]
        "Gets of lumps that carry no checksum.";
    FRAGMENTATION = "store_fragmentation_ratio" Gauge ["store"]
        "Share of the free bytes that lies outside the largest free extent, 0 to 1.";
    INDEX_MEMORY = "store_index_memory_bytes" Gauge ["store"]
        "Memory that the index of the lumps takes.";
    QUEUE_STARTED = "store_queue_started_requests" Counter ["store"]
        "Requests taken from the store's queue: started, or answered at once.";
    QUEUE_WAIT = "store_queue_wait_seconds" Counter ["store"]
        "Time that these requests waited, summed.";
    OVERTAKES = "store_queue_overtakes" Counter ["store"]
        "Requests that were started before an older one that waited.";
    QUEUE_REFUSED = "store_queue_refused_requests" Counter ["store"]
        "Requests refused because the queue was full.";
    QUEUE_REFUSED_OWN = "store_queue_refused_own_limit_requests" Counter ["store"]
        "Requests refused because more waited than their own limit allows.";
    OVERLOAD_REFUSED = "store_overload_refused_requests" Counter ["store"]
        "Requests refused because the store was overloaded.";
    OVERLOADS = "store_overloads" Counter ["store"]
        "Times that the store became overloaded.";
    OVERLOADED = "store_overloaded" Gauge ["store"]
        "1: the store is overloaded and refuses requests that are not prioritized.";
    DEADLINE_MISSED = "store_deadline_missed_requests" Counter ["store"]
        "Requests started after their deadline.";
    DEADLINE_DROPPED = "store_deadline_dropped_requests" Counter ["store"]
        "Requests dropped because their deadline had passed, before they touched the disk.";
    BUFFER_USED = "store_buffer_used_bytes" Gauge ["store"]
        "Memory that lumps hold in the engine: being put, being read, or read and still held.";
    BUFFER_GETS = "store_buffer_get_bytes" Gauge ["store"]
        "Bytes of these that belong to lumps being read, or read and still held.";
    BUFFER_BUDGET = "store_buffer_budget_bytes" Gauge ["store"]
        "Most memory that lumps may hold in the engine.";
    BUFFER_REFUSED = "store_buffer_refused_puts" Counter ["store"]
        "Puts refused because that memory was used up.";
    BUFFER_WAITS = "store_buffer_waits" Counter ["store"]
        "Times that gets began to wait because that memory was used up.";
    SCRUB_LUMPS = "store_scrub_lumps" Counter ["store"]
        "Lumps the scrubber has looked at.";
    SCRUB_BYTES = "store_scrub_read_bytes" Counter ["store"]
        "Bytes the scrubber has read.";
    SCRUB_UNVERIFIED = "store_scrub_unverified_lumps" Counter ["store"]
        "Lumps without a checksum the scrubber has read.";
    SCRUB_CORRUPT = "store_scrub_corrupt_lumps" Counter ["store"]
        "Lumps found by the scrubber whose bytes differ from those written. Each is named in the log.";
    SCRUB_READ_ERRORS = "store_scrub_unreadable_lumps" Counter ["store"]
        "Lumps the scrubber could not read. Each is named in the log.";
    SCRUB_PASSES = "store_scrub_passes" Counter ["store"]
        "Passes over the whole store the scrubber has completed.";
    SCRUB_POSITION = "store_scrub_position_bytes" Gauge ["store"]
        "Bytes of the store covered by the present pass of the scrubber.";
    SCRUB_LAST_PASS = "store_scrub_last_pass_timestamp_seconds" Gauge ["store"]
        "When the last pass of the scrubber ended, in seconds since 1970; 0: none has since the store was opened.";
    GC_READ = "store_journal_gc_read_bytes" Counter ["store"]
        "Bytes of the journal that garbage collection has read.";
    GC_RUNS = "store_journal_gc_runs" Counter ["store"]
        "Times that garbage collection has begun to work.";
    CHECKPOINTS = "store_checkpoints" Counter ["store"]
        "Checkpoints of the index completed.";
    CHECKPOINTS_FAILED = "store_checkpoints_failed" Counter ["store"]
        "Checkpoints of the index given up, for lack of room or because a write failed. The store works on; its next open takes longer.";
    CHECKPOINT_LAG_RECORDS = "store_checkpoint_lag_records" Gauge ["store"]
        "Journal records that the next open would replay beyond the newest checkpoint.";
    CHECKPOINT_LAG_BYTES = "store_checkpoint_lag_bytes" Gauge ["store"]
        "Bytes of the journal that the next open would replay beyond the newest checkpoint.";

    PROGRAM_ATTACHED = "probe_program_attached" Gauge ["program", "hook"]
        "1: the eBPF program is attached. `lumpscope admin observer` says why one is not.";
    PROGRAM_RUNS = "probe_program_runs" Counter ["program", "hook"]
        "Times the program ran while the kernel's BPF statistics were on.";
    PROGRAM_TIME = "probe_program_run_seconds" Counter ["program", "hook"]
        "Time the program ran while they were on.";
    PROGRAM_MISSES = "probe_program_recursion_misses" Counter ["program", "hook"]
        "Times the kernel skipped the program because it was already running.";
    EVENTS_ONE_IN = "event_policy_one_in" Gauge []
        "One in this many completed block requests is handed out as an event; 1: each; 0: none by chance. All are counted in any case.";
    EVENTS_SLOWER = "event_policy_slower_than_seconds" Gauge []
        "Also each block request that took at least this long from queued to completed; 0: no such rule.";
    WATCHES = "watches" Gauge ["kind"]
        "Live watchers: calls (trace, record) and open pages (page).";
    WATCHES_DROPPED = "watch_dropped" Counter ["kind"]
        "Items that slow watchers missed: block requests (trace), lines (record), frames of a second each (page).";
    PROBE_ATTACHED = "probe_attached" Gauge ["store", "device", "mode"]
        "1: every block request of the disk below the store is observed.";
    BLOCK_REQUESTS = "block_requests" Counter ["store", "owner", "operation"]
        "Block requests of the disk below the store. Owners: request, store, fs-journal, fs-metadata, writeback, other; unknown: completed without an event (not sampled, or lost), so that the others are lower bounds and the sum is exact.";
    BLOCK_BYTES = "block_bytes" Counter ["store", "owner", "operation"]
        "Bytes of these block requests.";
    BLOCK_DATA_REQUESTS = "block_data_requests" Counter ["store"]
        "Block requests that read or write.";
    BLOCK_SEQUENTIAL = "block_sequential_requests" Counter ["store"]
        "Block requests that began exactly where the previous one ended.";
    SEEK_DISTANCE = "block_seek_distance_bytes" Histogram ["store", "owner", "operation"]
        "Distance between the end of a block request and the start of the next, without its sign.";
    SIGNED_SEEK = "block_signed_seek_bytes" Histogram ["store", "operation"]
        "This distance with its sign, in powers of two: below 0 the seek was towards sector 0. Distances with signs are not added up: the sum is NaN.";
    DEVICE_TIME = "block_device_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from issue to completion of a block request that has a seek distance.";
    SEEK_DEVICE_TIME = "block_seek_device_time_seconds" Histogram ["store", "operation", "seek"]
        "Device time by seek distance: the label is the interval of the signed distance, a negative one is a seek towards sector 0. Each operation has all intervals.";
    FLUSH_TIME = "block_flush_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from issue to completion of a flush of the disk's cache.";
    DISCARD_TIME = "block_discard_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from issue to completion of a discard, by which a disk is told that blocks are free.";
    FLAGGED_TIME = "block_flagged_device_time_seconds" Histogram ["store", "flag"]
        "Time from issue to completion of the block requests that have a flag, whoever made them: fua (written past the cache of a disk that can; where one cannot, the kernel sends a flush instead, which is among the flushes), meta (file-system metadata), ahead (read ahead; not with the classic probes). One with two flags is in both.";
    QUEUE_TIME = "block_queue_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from the making of a block request until the driver was given it (Q2D).";
    BLOCK_SIZE = "block_size_bytes" Histogram ["store", "owner", "operation"]
        "Length of a block request that reads or writes.";
    BLOCK_IN_FLIGHT = "block_in_flight_requests" Gauge ["store"]
        "Block requests of the disk below the store that are under way now, whoever made them.";
    BLOCK_OLDEST = "block_in_flight_oldest_seconds" Gauge ["store"]
        "How long the oldest of them has been under way; 0: there is none. `lumpscope top` says what it is.";
    BLOCK_BUSY = "block_busy_seconds" Counter ["store"]
        "Time in which the disk below the store had block requests under way, as the kernel's own statistics count: its rate is the utilisation (%util of iostat). Absent where the kernel does not count.";
    BLOCK_UNDER_WAY = "block_under_way_seconds" Counter ["store"]
        "Time that all block requests were under way, summed, as the kernel counts: its rate is the mean queue (aqu-sz of iostat).";
    BLOCK_FAILED = "block_failed_requests" Counter ["store"]
        "Block requests that ended with an error, whoever made them.";
    BLOCK_FAILURES = "block_failures" Counter ["store", "operation", "failure"]
        "These by why, in the kernel's words (medium: a bad spot; offline, transport: the disk or the way to it), as far as events were handed out.";
    BLOCK_MERGED = "block_merged_bios" Counter ["store", "operation"]
        "What the kernel merged into block requests that were waiting, as its own statistics count.";
    HEAD_MOVES = "block_head_moves" Counter ["store", "owner", "moved_by"]
        "Block requests before which the head had to travel, by their owner (owner) and by the owner of the request that had sent the head away (moved_by, unknown when not certain). Both are unknown for block requests without an event: while these grow, the others are lower bounds and the sum is exact.";
    HEAD_TRAVEL = "block_head_travel_bytes" Counter ["store", "owner", "moved_by"]
        "Distance of these moves, summed without signs.";
    INTERFERENCE = "interference_seconds" Counter ["store", "owner"]
        "Time in which the disk served others while block requests of the store's own requests waited, by the owner class of the others. At least that while interference_gaps grows.";
    INTERFERENCE_GAPS = "interference_gaps" Counter ["store"]
        "Block requests without an event (not sampled, or lost), and requests of which not all that held them up is known. While it grows, interference_seconds is a lower bound.";
    KEPT_SLOW = "kept_slow_requests" Gauge ["store"]
        "Slow requests of the last minutes that `lumpscope explain` can explain.";
    ATTRIBUTION_BYTES = "attribution_bytes" Counter ["store", "result"]
        "Bytes of data I/O of this service by how they were tied to requests: attributed, shared, unattributed; unknown: in block requests without an event, so that the others are lower bounds and the sum is exact, but for what kernel workers did in such block requests.";
    ATTRIBUTION_RATIO = "attribution_ratio" Gauge ["store", "result"]
        "Share of those of these bytes that are not unknown, since the start, 0 to 1; absent before the first.";
    AUDIT_REQUESTS = "audit_requests" Counter ["store", "source"]
        "Block requests completed, as counted by the probes and by the kernel's own disk statistics.";
    AUDIT_BYTES = "audit_bytes" Counter ["store", "source"]
        "Bytes of these block requests, by the same two counters.";
    AUDIT_COMPLETE = "audit_complete" Gauge ["store"]
        "1: nothing was lost and the two counters agree.";
    LOST_EVENTS = "lost_events" Counter ["store"]
        "Probe events lost between kernel and service, exactly.";
    AUDIT_FOUND_LATE = "audit_found_late_requests" Counter ["store"]
        "Completed block requests that no probe was shown and that were found later: counted, their device time is unknown.";
    AUDIT_IN_FLIGHT_FULL = "audit_in_flight_full_requests" Counter ["store"]
        "Block requests that did not fit into the probes' table of those in flight.";
    AUDIT_REISSUES = "audit_reissued_requests" Counter ["store"]
        "Block requests sent to the disk again because its driver was busy.";
    AUDIT_NOT_SAMPLED = "audit_not_sampled_requests" Counter ["store"]
        "Completed block requests not handed out as events because the event policy did not ask for them.";
    AUDIT_AGREEMENTS = "audit_attribution_agreements" Counter ["store"]
        "Block requests whose submission (thread or io_uring) and place on the disk name one I/O.";
    AUDIT_CONFLICTS = "audit_attribution_conflicts" Counter ["store"]
        "Block requests whose submission and place name different I/Os.";
    AUDIT_UNKNOWN = "audit_submission_unknown_requests" Counter ["store"]
        "Block requests of this service whose submission was not seen, such as those of kernel workers.";
    AUDIT_AMBIGUOUS = "audit_ambiguous_requests" Counter ["store"]
        "Block requests of which the owner is not certain: place and time suit another I/O, or somebody else, as well.";
    PUNTED_IOS = "io_uring_punted_ios" Counter ["operation"]
        "I/Os that the service's io_urings handed to workers of the kernel, because the thread would have had to wait: flush (every flush is), data (reads and writes), unknown (classic probes before 5.19 do not tell them apart). Absent where the program punt is not attached.";
    SUBMISSIONS_UNCHECKED = "submissions_unchecked_ios" Counter []
        "I/Os that a thread could not announce to the probes because another thread had its place: they are attributed by their sectors alone.";
    GUARD_POLICY = "guard_policy" Gauge ["store", "policy"]
        "1: the policy requested of the guard of the store's device: off, audit, deny.";
    GUARD_EFFECTIVE = "guard_effective" Gauge ["store"]
        "1: a trial proved that the guard follows its policy; absent when it is off.";
    GUARD_DENIED = "guard_denied_opens" Counter ["store"]
        "Opens of the store's device for writing by other processes that were denied.";
    GUARD_ALLOWED = "guard_allowed_opens" Counter ["store"]
        "Such opens that were seen and allowed.";
    UNMATCHED = "unmatched_block_requests" Counter ["store"]
        "Block requests whose start was not seen, or whose table was full.";
    RECURSION_MISSES = "probe_recursion_misses" Counter ["store"]
        "Times the kernel skipped a probe because it was already running.";
    OBSERVER_CPU = "observer_cpu_seconds" Counter []
        "CPU time of the thread that ties block requests to requests; the probes' own is in probe_program_run_seconds. Absent while it does not run.";
    PRESSURE = "pressure_seconds" Counter ["resource", "waiting"]
        "Time in which tasks of this machine waited for cpu, io or memory, whoever they are: some of them, or all. Absent where the kernel does not say (pressure stall information).";

    => "process_";
    PROCESS_CPU = "cpu_seconds" Counter []
        "CPU time of the service, user and system.";
    PROCESS_START = "start_time_seconds" Gauge []
        "When the service was started, in seconds since 1970. This and all that follow are absent when the kernel does not let the service look at itself.";
    PROCESS_RESIDENT = "resident_memory_bytes" Gauge []
        "Memory of the service that is in RAM.";
    PROCESS_VIRTUAL = "virtual_memory_bytes" Gauge []
        "Addresses the service has reserved, whether or not there is memory behind them.";
    PROCESS_THREADS = "threads" Gauge []
        "Threads of the service.";
    PROCESS_OPEN_FILES = "open_fds" Gauge []
        "Files, sockets and maps the service has open.";
    PROCESS_MAX_FILES = "max_fds" Gauge []
        "Most it may have open.";
}

impl Metric {
    /// The name without the unit that the exposition adds by itself, and that unit.
    #[must_use]
    pub fn split_unit(&self) -> (&'static str, Option<&'static str>) {
        for unit in ["bytes", "seconds"] {
            let stem = self.name.strip_suffix(unit);
            if let Some(stem) = stem.and_then(|stem| stem.strip_suffix('_')) {
                return (stem, Some(unit));
            }
        }
        (self.name, None)
    }

    /// The name a query uses (of a histogram: without `_bucket`, `_sum`, `_count`).
    #[must_use]
    pub fn exposed(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Info => format!("{}_info", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }
}

impl Kind {
    /// Lower-case word of OpenMetrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// The table of `METRICS.md`.
#[must_use]
pub fn markdown() -> String {
    let mut table =
        String::from("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for metric in ALL {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            metric.exposed(),
            metric.kind.word(),
            metric.split_unit().1.unwrap_or(""),
            labels.join(", "),
            metric.help,
        )
        .expect("writing to a String does not fail");
    }
    table
}
