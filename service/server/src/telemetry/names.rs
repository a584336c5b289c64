//! Every metric the service exports: name, kind, unit, labels and meaning, in this one place.
//!
//! `METRICS.md` is made from this table and a test keeps them equal; another test compares both
//! with what `/metrics` really returns. Base units only: bytes and seconds.

use std::fmt::Write as _;

/// Kind of a metric, in the words of OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
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
    pub kind: MetricKind,
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
                kind: MetricKind::$kind,
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
    BUILD = "build" Info ["version", "service_instance_id"]
        "Running version, and the `service.instance.id` of its spans.";
    REQUESTS = "requests" Counter ["store", "method", "code"]
        "Finished requests of gRPC and S3 (methods `s3_...`) by gRPC code. The store is empty when the request named none.";
    REQUESTS_IN_PROGRESS = "requests_in_progress" Gauge []
        "gRPC requests in progress.";
    REQUEST_DURATION = "request_duration_seconds" Histogram ["store", "method"]
        "Time from arrival to the last byte of the reply.";
    REQUEST_STAGE = "request_stage_seconds" Counter ["store", "method", "stage"]
        "Time of all requests by stage: recv, sched, index, submit, queue, device, journal, wait, write, flush, reply. Stages add up to the whole, but for requests that ended before the engine had answered; the commit is journal, wait, write and flush. Without probes all data I/O is in submit.";
    REQUEST_BODY = "request_body_bytes" Counter ["store", "method"]
        "Bytes of bodies moved.";
    BODY_MEMORY = "body_memory_bytes" Gauge ["direction"]
        "Memory of lumps being put, or being read and sent (get).";
    SPANS_EXPORTED = "trace_spans_exported" Counter []
        "Spans delivered. Absent without a collector, like all trace_*.";
    SPANS_DROPPED = "trace_spans_dropped" Counter ["reason"]
        "Spans lost. Reasons: queue_full, export_failed, shutdown.";
    TRACED_LOST = "trace_requests_lost" Counter []
        "Requests without a span, because too many ended at once.";
    EXPORT_FAILURES = "trace_export_failures" Counter []
        "Batches that the collector refused.";
    EXPORTER_UP = "trace_exporter_up" Gauge []
        "1: the collector accepted the last batch; absent before the first.";

    CONNECTIONS = "connections" Gauge ["entrance"]
        "Open connections. Entrances: tcp, unix, metrics.";
    CONNECTIONS_ACCEPTED = "connections_accepted" Counter ["entrance"]
        "Connections accepted.";
    ACCEPT_ERRORS = "accept_errors" Counter ["entrance"]
        "Failed accepts: out of file descriptors or memory.";
    CONNECTIONS_REFUSED = "connections_refused" Counter ["entrance", "reason"]
        "Connections that failed their handshakes. Reasons: tls, certificate, preface (neither HTTP/2 nor POST), timeout, gone, address (too many open).";
    LOGIN_FAILURES = "login_failures" Counter ["reason"]
        "Requests refused for their login. Reasons: missing, malformed, unknown, certificate, scope.";
    RELOADS = "reloads" Counter ["result"]
        "Reloads of certificates and tokens: ok, or failed (the old ones stayed).";
    TOKENS = "tokens" Gauge []
        "Accepted tokens.";
    CERTIFICATE_NOT_AFTER = "certificate_not_after_timestamp_seconds" Gauge []
        "Expiry of the service's certificate, in seconds since 1970; absent without TLS.";

    STORE = "store" Info ["store", "path", "layout", "backend", "device", "block_size"]
        "Path, layout, I/O backend and disk of each store.";
    STORE_STATE = "store_state" Gauge ["store", "state"]
        "1: the store's state is serving, degraded, read-only, failed, gone, draining or unavailable. `lumpscope stores` says why.";
    STORE_FAILED = "store_failed" Gauge ["store"]
        "1: the store does not accept every request; `lumpscope stat` says why.";
    STORE_VOLATILE = "store_volatile" Gauge ["store"]
        "1: a reboot, or the end of a container, loses what the store holds (tmpfs, ramfs, zram, ramdisk, overlay).";
    STORE_DRAINING = "store_draining" Gauge ["store"]
        "1: the store accepts no new requests, because it drains or is being removed.";
    STORE_UNDER_WAY = "store_requests_in_progress" Gauge ["store"]
        "Data requests in progress.";
    STORE_LUMPS = "store_lumps" Gauge ["store"]
        "Lumps in the store.";
    DATA_CAPACITY = "store_data_capacity_bytes" Gauge ["store"]
        "Size of the data region.";
    DATA_USED = "store_data_used_bytes" Gauge ["store"]
        "Bytes of the data region in use.";
    BAD_BYTES = "store_bad_bytes" Gauge ["store"]
        "Bytes that the device refused to write; nothing is put there.";
    BAD_PLACES = "store_bad_places" Gauge ["store"]
        "Places of these bytes. With 16 the store is degraded: replace the disk.";
    LARGEST_FREE = "store_largest_free_bytes" Gauge ["store"]
        "Size of the largest free extent of the data region.";
    FREE_EXTENTS = "store_free_extents" Gauge ["store"]
        "Free extents of the data region.";
    JOURNAL_CAPACITY = "store_journal_capacity_bytes" Gauge ["store"]
        "Size of the journal's ring.";
    JOURNAL_USED = "store_journal_used_bytes" Gauge ["store"]
        "Bytes of the ring between head and tail.";
    JOURNAL_LIVE = "store_journal_live_bytes" Gauge ["store"]
        "Bytes of live records in the ring.";
    JOURNAL_COMMITS = "store_journal_commits" Counter ["store"]
        "Journal batches committed.";
    JOURNAL_RECORDS = "store_journal_records" Counter ["store"]
        "Journal records committed, relocated included.";
    JOURNAL_HEADER_WRITES = "store_journal_header_writes" Counter ["store"]
        "Moves of the ring's head.";
    GC_RELOCATED = "store_journal_gc_relocated_records" Counter ["store"]
        "Live records moved to the tail.";
    GC_DROPPED = "store_journal_gc_dropped_records" Counter ["store"]
        "Dead records passed over.";
    FLUSHES = "store_flushes" Counter ["store"]
        "Flushes of the device.";
    FLUSHES_SPARED = "store_flushes_spared" Counter ["store"]
        "Flushes that would have changed nothing, not sent.";
    WRITES = "store_writes" Counter ["store"]
        "Writes to the device.";
    PUTS_PASSED = "store_puts_passed" Counter ["store"]
        "Puts of large lumps written while they arrived.";
    WRITES_FORCED = "store_writes_forced" Counter ["store"]
        "Writes past the device's cache (FUA), each instead of a write and a flush.";
    QUEUE_LENGTH = "store_queue_length" Gauge ["store"]
        "Requests waiting for the store's owner thread.";
    PENDING = "store_pending_requests" Gauge ["store"]
        "Requests started and not finished.";
    IN_FLIGHT = "store_in_flight_ios" Gauge ["store"]
        "I/Os in flight.";
    IO_ERRORS = "store_io_errors" Counter ["store"]
        "I/Os that failed.";
    CHECKSUM_FAILURES = "store_checksum_failures" Counter ["store"]
        "Gets that failed their checksum; nothing was returned.";
    UNVERIFIED_GETS = "store_unverified_gets" Counter ["store"]
        "Gets of lumps that carry no checksum.";
    FRAGMENTATION = "store_fragmentation_ratio" Gauge ["store"]
        "Share of free bytes outside the largest free extent, 0 to 1.";
    INDEX_MEMORY = "store_index_memory_bytes" Gauge ["store"]
        "Memory of the index.";
    QUEUE_STARTED = "store_queue_started_requests" Counter ["store"]
        "Requests that left the queue.";
    QUEUE_WAIT = "store_queue_wait_seconds" Counter ["store"]
        "Time that these waited.";
    OVERTAKES = "store_queue_overtakes" Counter ["store"]
        "Requests started before an older one.";
    QUEUE_REFUSED = "store_queue_refused_requests" Counter ["store"]
        "Requests refused: queue full.";
    QUEUE_REFUSED_OWN = "store_queue_refused_own_limit_requests" Counter ["store"]
        "Requests refused: more waited than their own limit allows.";
    OVERLOAD_REFUSED = "store_overload_refused_requests" Counter ["store"]
        "Requests refused: overload.";
    OVERLOADS = "store_overloads" Counter ["store"]
        "Times that the store became overloaded.";
    OVERLOADED = "store_overloaded" Gauge ["store"]
        "1: overloaded; requests without priority are refused.";
    DEADLINE_MISSED = "store_deadline_missed_requests" Counter ["store"]
        "Requests started after their deadline.";
    DEADLINE_DROPPED = "store_deadline_dropped_requests" Counter ["store"]
        "Requests dropped before they touched the disk: deadline passed.";
    BUFFER_USED = "store_buffer_used_bytes" Gauge ["store"]
        "Memory of lumps in the engine.";
    BUFFER_GETS = "store_buffer_get_bytes" Gauge ["store"]
        "Of these, lumps being read, or read and still held.";
    BUFFER_BUDGET = "store_buffer_budget_bytes" Gauge ["store"]
        "Limit of that memory.";
    BUFFER_REFUSED = "store_buffer_refused_puts" Counter ["store"]
        "Puts refused: that memory was used up.";
    BUFFER_WAITS = "store_buffer_waits" Counter ["store"]
        "Gets that waited for that memory.";
    SCRUB_LUMPS = "store_scrub_lumps" Counter ["store"]
        "Lumps scrubbed.";
    SCRUB_BYTES = "store_scrub_read_bytes" Counter ["store"]
        "Bytes scrubbed.";
    SCRUB_UNVERIFIED = "store_scrub_unverified_lumps" Counter ["store"]
        "Scrubbed lumps without a checksum.";
    SCRUB_CORRUPT = "store_scrub_corrupt_lumps" Counter ["store"]
        "Scrubbed lumps with wrong bytes; the log names them.";
    SCRUB_READ_ERRORS = "store_scrub_unreadable_lumps" Counter ["store"]
        "Lumps the scrubber could not read; the log names them.";
    SCRUB_PASSES = "store_scrub_passes" Counter ["store"]
        "Completed passes of the scrubber.";
    SCRUB_POSITION = "store_scrub_position_bytes" Gauge ["store"]
        "Bytes covered by the present pass.";
    SCRUB_LAST_PASS = "store_scrub_last_pass_timestamp_seconds" Gauge ["store"]
        "End of the last pass, in seconds since 1970; 0: none since the store was opened.";
    GC_READ = "store_journal_gc_read_bytes" Counter ["store"]
        "Bytes of the journal read by garbage collection.";
    GC_RUNS = "store_journal_gc_runs" Counter ["store"]
        "Runs of garbage collection.";
    CHECKPOINTS = "store_checkpoints" Counter ["store"]
        "Checkpoints of the index completed.";
    CHECKPOINTS_FAILED = "store_checkpoints_failed" Counter ["store"]
        "Checkpoints given up: no room, or a failed write. The next open takes longer.";
    CHECKPOINT_LAG_RECORDS = "store_checkpoint_lag_records" Gauge ["store"]
        "Journal records since the newest checkpoint, which the next open replays.";
    CHECKPOINT_LAG_BYTES = "store_checkpoint_lag_bytes" Gauge ["store"]
        "Bytes of these records.";

    PROGRAM_ATTACHED = "probe_program_attached" Gauge ["program", "hook"]
        "1: the eBPF program is attached; `lumpscope admin observer` says why not.";
    PROGRAM_RUNS = "probe_program_runs" Counter ["program", "hook"]
        "Runs of the program, with `program-statistics`.";
    PROGRAM_TIME = "probe_program_run_seconds" Counter ["program", "hook"]
        "Time of these runs.";
    PROGRAM_MISSES = "probe_program_recursion_misses" Counter ["program", "hook"]
        "Runs skipped by the kernel because the program was already running.";
    EVENTS_ONE_IN = "event_policy_one_in" Gauge []
        "One in this many completed block requests is an event; 1: each; 0: none. All are counted.";
    EVENTS_SLOWER = "event_policy_slower_than_seconds" Gauge []
        "Block requests of at least this duration are events, too; 0: off.";
    WATCHES = "watches" Gauge ["kind"]
        "Live watchers: calls (trace, record) and open pages (page).";
    WATCHES_DROPPED = "watch_dropped" Counter ["kind"]
        "Items that slow watchers missed: block requests (trace), lines (record), frames (page).";
    PROBE_ATTACHED = "probe_attached" Gauge ["store", "device", "mode"]
        "1: the disk below the store is observed.";
    BLOCK_REQUESTS = "block_requests" Counter ["store", "owner", "operation"]
        "Block requests of the disk. Owners: request, store, fs-journal, fs-metadata, writeback, other; unknown: made by Lumpscope in a place that it had not declared, or completed without an event, so the others are lower bounds and the sum is exact.";
    BLOCK_BYTES = "block_bytes" Counter ["store", "owner", "operation"]
        "Bytes of these block requests.";
    BLOCK_DATA_REQUESTS = "block_data_requests" Counter ["store"]
        "Block requests that read or write.";
    BLOCK_SEQUENTIAL = "block_sequential_requests" Counter ["store"]
        "Of these, those that began where the previous one ended.";
    SEEK_DISTANCE = "block_seek_distance_bytes" Histogram ["store", "owner", "operation"]
        "Distance from the end of the previous block request, without its sign.";
    SIGNED_SEEK = "block_signed_seek_bytes" Histogram ["store", "operation"]
        "This distance with its sign, in powers of two; below 0 towards sector 0. The sum is NaN.";
    DEVICE_TIME = "block_device_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from issue to completion, of block requests with a seek distance.";
    SEEK_DEVICE_TIME = "block_seek_device_time_seconds" Histogram ["store", "operation", "seek"]
        "Device time by interval of the signed seek distance; negative: towards sector 0. Each operation has all intervals.";
    FLUSH_TIME = "block_flush_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from issue to completion of a flush.";
    DISCARD_TIME = "block_discard_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from issue to completion of a discard.";
    FLAGGED_TIME = "block_flagged_device_time_seconds" Histogram ["store", "flag"]
        "Device time of block requests with a flag, whoever made them: fua (written past the cache), meta (file-system metadata), ahead (read ahead; not with classic probes). One with two flags is in both.";
    QUEUE_TIME = "block_queue_time_seconds" Histogram ["store", "owner", "operation"]
        "Time from the making of a block request until the driver got it (Q2D).";
    BLOCK_SIZE = "block_size_bytes" Histogram ["store", "owner", "operation"]
        "Length of reads and writes.";
    BLOCK_IN_FLIGHT = "block_in_flight_requests" Gauge ["store"]
        "Block requests of the disk in flight, whoever made them.";
    BLOCK_OLDEST = "block_in_flight_oldest_seconds" Gauge ["store"]
        "Age of the oldest of them; 0: none. `lumpscope top` names it.";
    BLOCK_BUSY = "block_busy_seconds" Counter ["store"]
        "Time in which the disk had block requests in flight, by the kernel's count: its rate is the utilisation (%util of iostat). Absent where the kernel does not count.";
    BLOCK_UNDER_WAY = "block_under_way_seconds" Counter ["store"]
        "Time in flight of all block requests, summed, by the kernel's count: its rate is the mean queue (aqu-sz of iostat).";
    BLOCK_FAILED = "block_failed_requests" Counter ["store"]
        "Failed block requests, whoever made them.";
    BLOCK_FAILURES = "block_failures" Counter ["store", "operation", "failure"]
        "These by reason, in the kernel's words (medium: a bad place; offline, transport: the disk or the path to it), as far as events were handed out.";
    BLOCK_MERGED = "block_merged_bios" Counter ["store", "operation"]
        "Bios that the kernel merged into waiting block requests, by its own count.";
    HEAD_MOVES = "block_head_moves" Counter ["store", "owner", "moved_by"]
        "Block requests before which the head travelled, by owner and by the owner of the request that had moved it away (moved_by). Unknown: not certain, or without an event; then the others are lower bounds.";
    HEAD_TRAVEL = "block_head_travel_bytes" Counter ["store", "owner", "moved_by"]
        "Distance of these moves, without signs.";
    INTERFERENCE = "interference_seconds" Counter ["store", "owner"]
        "Time in which the disk served others while the store's requests waited, by owner class of the others. A lower bound while interference_gaps grows.";
    INTERFERENCE_GAPS = "interference_gaps" Counter ["store"]
        "Block requests without an event, and requests whose delays are not all known.";
    KEPT_SLOW = "kept_slow_requests" Gauge ["store"]
        "Slow requests kept for `lumpscope explain`.";
    ATTRIBUTION_BYTES = "attribution_bytes" Counter ["store", "result"]
        "Bytes of data I/O by attribution: attributed, shared, unattributed; unknown: in block requests without an event, so the others are lower bounds.";
    ATTRIBUTION_RATIO = "attribution_ratio" Gauge ["store", "result"]
        "Share of the known of these bytes since the start, 0 to 1; absent before the first.";
    AUDIT_REQUESTS = "audit_requests" Counter ["store", "source"]
        "Completed block requests, counted by the probes and by the kernel's disk statistics.";
    AUDIT_BYTES = "audit_bytes" Counter ["store", "source"]
        "Bytes of these, by both.";
    AUDIT_COMPLETE = "audit_complete" Gauge ["store"]
        "1: nothing was lost and the two counters agree.";
    LOST_EVENTS = "lost_events" Counter ["store"]
        "Probe events lost between kernel and service.";
    AUDIT_FOUND_LATE = "audit_found_late_requests" Counter ["store"]
        "Completions that no probe was shown, found later; their device time is unknown.";
    AUDIT_IN_FLIGHT_FULL = "audit_in_flight_full_requests" Counter ["store"]
        "Block requests that did not fit into the probes' table.";
    AUDIT_REISSUES = "audit_reissued_requests" Counter ["store"]
        "Block requests sent again because the driver was busy.";
    AUDIT_NOT_SAMPLED = "audit_not_sampled_requests" Counter ["store"]
        "Completed block requests that the event policy left out.";
    AUDIT_AGREEMENTS = "audit_attribution_agreements" Counter ["store"]
        "Block requests whose submission and place name one I/O.";
    AUDIT_CONFLICTS = "audit_attribution_conflicts" Counter ["store"]
        "Block requests whose submission and place name different I/Os.";
    AUDIT_UNKNOWN = "audit_submission_unknown_requests" Counter ["store"]
        "Block requests of this service without a seen submission, e.g. of kernel workers.";
    AUDIT_AMBIGUOUS = "audit_ambiguous_requests" Counter ["store"]
        "Block requests whose owner is not certain.";
    PUNTED_IOS = "io_uring_punted_ios" Counter ["operation"]
        "I/Os that the service's io_urings handed to kernel workers: flush (every flush is), data, unknown (classic probes before 5.19). Absent where the program punt is not attached.";
    SUBMISSIONS_UNCHECKED = "submissions_unchecked_ios" Counter []
        "I/Os that could not be announced to the probes: attributed by their sectors alone.";
    GUARD_POLICY = "guard_policy" Gauge ["store", "policy"]
        "1: the guard's policy is off, audit or deny.";
    GUARD_EFFECTIVE = "guard_effective" Gauge ["store"]
        "1: a trial proved the guard; absent when it is off.";
    GUARD_DENIED = "guard_denied_opens" Counter ["store"]
        "Opens of the device for writing by other processes, denied.";
    GUARD_ALLOWED = "guard_allowed_opens" Counter ["store"]
        "Such opens, allowed.";
    UNMATCHED = "unmatched_block_requests" Counter ["store"]
        "Block requests whose start was not seen.";
    RECURSION_MISSES = "probe_recursion_misses" Counter ["store"]
        "Probes skipped by the kernel because they were already running.";
    OBSERVER_CPU = "observer_cpu_seconds" Counter []
        "CPU time of the observer's thread; the probes' is in probe_program_run_seconds. Absent while it does not run.";
    PRESSURE = "pressure_seconds" Counter ["resource", "waiting"]
        "Time in which some or all tasks of the machine waited for cpu, io or memory (PSI). Absent where the kernel does not say.";

    => "process_";
    PROCESS_CPU = "cpu_seconds" Counter []
        "CPU time of the service, user and system.";
    PROCESS_START = "start_time_seconds" Gauge []
        "Start of the service, in seconds since 1970. This and the following are absent when the kernel hides them.";
    PROCESS_RESIDENT = "resident_memory_bytes" Gauge []
        "Memory of the service in RAM.";
    PROCESS_VIRTUAL = "virtual_memory_bytes" Gauge []
        "Reserved addresses.";
    PROCESS_THREADS = "threads" Gauge []
        "Threads of the service.";
    PROCESS_OPEN_FILES = "open_fds" Gauge []
        "Open files, sockets and maps.";
    PROCESS_MAX_FILES = "max_fds" Gauge []
        "Limit of these.";
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
            MetricKind::Counter => format!("{}_total", self.name),
            MetricKind::Info => format!("{}_info", self.name),
            MetricKind::Gauge | MetricKind::Histogram => self.name.to_owned(),
        }
    }
}

impl MetricKind {
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
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in ALL {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            metric.exposed(),
            metric.kind.word(),
            labels.join(", "),
            metric.help,
        )
        .expect("writing to a String does not fail");
    }
    table
}
