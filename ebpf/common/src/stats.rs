//! Counters of the kernel side: one array a disk and CPU.

use crate::op;

/// Completed requests by operation: `SEEN_REQUESTS + op`.
pub const SEEN_REQUESTS: usize = 0;
/// Completed bytes by operation: `SEEN_BYTES + op`.
pub const SEEN_BYTES: usize = SEEN_REQUESTS + OPS;
/// Completed requests without an event, not sampled or lost, by operation: `UNTOLD_REQUESTS + op`.
pub const UNTOLD_REQUESTS: usize = SEEN_BYTES + OPS;
/// Their bytes by operation: `UNTOLD_BYTES + op`.
pub const UNTOLD_BYTES: usize = UNTOLD_REQUESTS + OPS;
/// Of these: reads and writes with a seek distance.
pub const UNTOLD_PLACED: usize = UNTOLD_BYTES + OPS;
/// Of these: began where the one before ended.
pub const UNTOLD_SEQUENTIAL: usize = UNTOLD_PLACED + 1;
/// Sum of their |seek distance| in sectors.
pub const UNTOLD_TRAVEL: usize = UNTOLD_SEQUENTIAL + 1;
/// Bytes that the service's own process read and wrote in requests without an event.
pub const UNTOLD_OWN_BYTES: usize = UNTOLD_TRAVEL + 1;
/// Completed empty requests that asked for a flush.
pub const FLUSH_PARENTS: usize = UNTOLD_OWN_BYTES + 1;
/// Events offered to the ring.
pub const EVENTS: usize = FLUSH_PARENTS + 1;
/// Of these: not taken because the ring was full.
pub const RING_LOST: usize = EVENTS + 1;
/// Requests that the table of those in flight had no room for when they were made.
pub const IN_FLIGHT_FULL: usize = RING_LOST + 1;
/// Completions of requests whose start and issue were not seen, or not remembered.
pub const DONE_WITHOUT_START: usize = IN_FLIGHT_FULL + 1;
/// Data requests sent to the disk whose start was not seen.
pub const ISSUE_WITHOUT_START: usize = DONE_WITHOUT_START + 1;
/// Requests sent to the disk again because the driver was busy.
pub const REISSUES: usize = ISSUE_WITHOUT_START + 1;
/// Last completions of what the block layer had wrapped in flushes: of writes whose data was seen to
/// complete before, and of whatever began before the disk was watched.
pub const SEQUENCE_ENDS: usize = REISSUES + 1;
/// Requests that ended with an error.
pub const ERRORS: usize = SEQUENCE_ENDS + 1;
/// Partial completions.
pub const PARTIAL: usize = ERRORS + 1;
/// Requests that have completed although no program was shown it: found when the kernel used
/// their memory again. They are counted as seen, and are in no histogram.
pub const FOUND_LATE: usize = PARTIAL + 1;
/// Events that the event policy did not ask for.
pub const NOT_SAMPLED: usize = FOUND_LATE + 1;
/// Writes wrapped in flushes whose data has completed: the kernel counts them at the end of the
/// sequence, see [`SEQUENCE_ENDS`]. Of a disk that makes no requests: bytes behind a flush.
pub const WRAPPED: usize = NOT_SAMPLED + 1;
/// Completed requests that were not seen being sent to the disk: device time and distance are unknown.
pub const UNSENT: usize = WRAPPED + 1;
/// Number of counters.
pub const COUNT: usize = UNSENT + 1;

// Verifiers before 6.2 follow an operation as a number of three bits only.
const _: () = assert!(UNTOLD_BYTES + 8 <= COUNT);

const OPS: usize = op::COUNT as usize;

/// Names, by number: for metrics and messages.
pub const NAMES: [&str; COUNT] = [
    "seen_requests_read",
    "seen_requests_write",
    "seen_requests_flush",
    "seen_requests_discard",
    "seen_requests_other",
    "seen_bytes_read",
    "seen_bytes_write",
    "seen_bytes_flush",
    "seen_bytes_discard",
    "seen_bytes_other",
    "untold_requests_read",
    "untold_requests_write",
    "untold_requests_flush",
    "untold_requests_discard",
    "untold_requests_other",
    "untold_bytes_read",
    "untold_bytes_write",
    "untold_bytes_flush",
    "untold_bytes_discard",
    "untold_bytes_other",
    "untold_placed",
    "untold_sequential",
    "untold_travel",
    "untold_own_bytes",
    "flush_parents",
    "events",
    "ring_lost",
    "in_flight_full",
    "done_without_start",
    "issue_without_start",
    "reissues",
    "sequence_ends",
    "errors",
    "partial",
    "found_late",
    "not_sampled",
    "wrapped",
    "unsent",
];
