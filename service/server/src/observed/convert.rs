//! From the observer's words to those of the protocol, field by field.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use lumpscope_engine::clock::monotonic_ns;
use lumpscope_observer as obs;
use lumpscope_proto::v1;

/// Offset from the monotonic clock to the time since 1970.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    offset_ns: i64,
}

impl WallClock {
    /// As the two clocks stand to each other now.
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = since_1970.map_or(0, |time| time.as_nanos());
        let wall = i64::try_from(wall).unwrap_or(i64::MAX);
        Self {
            offset_ns: wall.saturating_sub(signed(monotonic_ns())),
        }
    }

    /// Of a recording that says the time of day at a time of its clock.
    pub fn recorded(monotonic_ns: u64, unix_ns: u64) -> Self {
        Self {
            offset_ns: signed(unix_ns).saturating_sub(signed(monotonic_ns)),
        }
    }

    /// Of an old recording, which knows its own clock only: its times are handed on as they are.
    pub fn of_a_recording() -> Self {
        Self { offset_ns: 0 }
    }

    /// Nanoseconds since 1970 at a time of the monotonic clock.
    pub fn unix_ns(self, monotonic_ns: u64) -> i64 {
        signed(monotonic_ns).saturating_add(self.offset_ns)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `with_heat`: the cells of the histogram too.
pub fn store_report(r: obs::StoreReport, with_heat: bool, clock: WallClock) -> v1::StoreReport {
    let seeks = seeks(&r.heat);
    let heat = if with_heat { r.heat } else { Vec::new() };
    v1::StoreReport {
        store: r.store,
        device: r.device,
        observed: r.observed,
        not_observed_because: r.not_observed_because,
        operations: r.operations.into_iter().map(operation).collect(),
        block: Some(block(r.block, seeks, r.in_flight)),
        audit: Some(audit(r.audit)),
        heat: heat.into_iter().map(heat_cell).collect(),
        slowest: r.slowest.into_iter().map(|s| slow(s, clock)).collect(),
    }
}

fn operation(o: obs::OperationReport) -> v1::OperationReport {
    v1::OperationReport {
        method: o.method,
        count: o.count,
        errors: o.errors,
        bytes: o.bytes,
        total_ns: o.total_ns,
        p50_ns: o.p50_ns,
        p90_ns: o.p90_ns,
        p95_ns: o.p95_ns,
        p99_ns: o.p99_ns,
        stages: o.stages.into_iter().map(stage).collect(),
        block_requests: o.block_requests,
        latency: o.latency.into_iter().map(latency).collect(),
    }
}

fn latency(b: obs::LatencyBucket) -> v1::Bucket {
    v1::Bucket {
        from: b.from_ns,
        to: b.to_ns,
        count: b.count,
    }
}

fn stage(s: obs::StageTime) -> v1::StageTime {
    v1::StageTime {
        stage: s.stage,
        total_ns: s.total_ns,
    }
}

fn lost(l: obs::LostTime) -> v1::LostTime {
    v1::LostTime {
        owner: l.owner,
        ns: l.ns,
    }
}

fn block(
    b: obs::BlockReport,
    seeks: Vec<v1::Bucket>,
    in_flight: obs::InFlightReport,
) -> v1::BlockReport {
    let owner = |o: obs::OwnerTotal| v1::OwnerTotal {
        owner: o.owner,
        operation: o.operation,
        requests: o.requests,
        bytes: o.bytes,
    };
    let head_move = |m: obs::HeadMove| v1::HeadMove {
        owner: m.owner,
        moved_by: m.moved_by,
        requests: m.requests,
        seeks: m.seeks,
        travel_bytes: m.travel_bytes,
    };
    v1::BlockReport {
        owners: b.owners.into_iter().map(owner).collect(),
        data_requests: b.data_requests,
        sequential: b.sequential,
        seek_median_bytes: b.seek_median_bytes,
        seek_p99_bytes: b.seek_p99_bytes,
        own_bytes: b.own_bytes,
        attributed_bytes: b.attributed_bytes,
        shared_bytes: b.shared_bytes,
        unattributed_bytes: b.unattributed_bytes,
        moves: b.moves.into_iter().map(head_move).collect(),
        lost: b.lost.into_iter().map(lost).collect(),
        seeks,
        in_flight: in_flight.requests,
        oldest_in_flight_ns: in_flight.oldest_ns,
        oldest_in_flight: in_flight.oldest,
        processes: b.processes.into_iter().map(process).collect(),
        unknown_bytes: b.unknown_bytes,
        lost_gaps: b.lost_gaps,
        failures: b.failures.into_iter().map(failure).collect(),
        busy_ns: in_flight.time.map(|time| time.busy_ns),
        under_way_ns: in_flight.time.map(|time| time.under_way_ns),
    }
}

fn failure(f: obs::FailureTotal) -> v1::FailureTotal {
    v1::FailureTotal {
        operation: f.operation,
        failure: f.failure,
        requests: f.requests,
    }
}

fn process(p: obs::ProcessTotal) -> v1::ProcessTotal {
    v1::ProcessTotal {
        process: p.process,
        pid: p.pid,
        cgroup_id: p.cgroup.id,
        container: container(&p.cgroup),
        cgroup: p.cgroup.path,
        requests: p.requests,
        read_bytes: p.read_bytes,
        written_bytes: p.written_bytes,
        flushes: p.flushes,
        device_ns: p.device_ns,
    }
}

fn container(cgroup: &obs::Cgroup) -> String {
    obs::container(&cgroup.path).unwrap_or_default().to_owned()
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

fn audit(a: obs::AuditReport) -> v1::AuditReport {
    v1::AuditReport {
        seen_requests: a.seen_requests,
        kernel_requests: a.kernel_requests,
        seen_bytes: a.seen_bytes,
        kernel_bytes: a.kernel_bytes,
        lost_events: a.lost_events,
        unmatched: a.unmatched,
        recursion_misses: a.recursion_misses,
        complete: a.complete,
        finding: a.finding,
        found_late: a.found_late,
        in_flight_full: a.in_flight_full,
        reissues: a.reissues,
        not_sampled: a.not_sampled,
        agreements: a.agreements,
        conflicts: a.conflicts,
        submission_unknown: a.submission_unknown,
        ambiguous: a.ambiguous,
    }
}

fn heat_cell(h: obs::HeatCell) -> v1::HeatCell {
    v1::HeatCell {
        owner: h.owner,
        operation: h.operation,
        seek_from_bytes: h.seek_from_bytes,
        seek_to_bytes: h.seek_to_bytes,
        device_from_ns: h.device_from_ns,
        device_to_ns: h.device_to_ns,
        count: h.count,
    }
}

/// An explained request.
pub fn slow(s: obs::SlowRequest, clock: WallClock) -> v1::SlowRequest {
    let step = |s: obs::Step| v1::Step {
        from_ns: s.from_ns,
        took_ns: s.took_ns,
        stage: s.stage,
        text: s.text,
    };
    let trace_id = s.trace.map(|trace| format!("{:032x}", trace.trace_id));
    v1::SlowRequest {
        request_id: s.request_id,
        method: s.method,
        total_ns: s.total_ns,
        stages: s.stages.into_iter().map(stage).collect(),
        block_requests: s.block_requests,
        sentence: s.sentence,
        blocks: s.blocks.into_iter().map(block_io).collect(),
        store: s.store,
        device: s.device,
        bytes: s.bytes,
        ok: s.ok,
        begin_unix_ns: clock.unix_ns(s.begin_ns),
        trace_id: trace_id.unwrap_or_default(),
        steps: s.steps.into_iter().map(step).collect(),
        lost: s.lost.into_iter().map(lost).collect(),
        incomplete: s.incomplete,
        lost_in_all_ns: Some(s.lost_in_all_ns),
        waited_for_request_id: s.waited_for,
    }
}

fn block_io(b: obs::BlockIo) -> v1::BlockIo {
    v1::BlockIo {
        operation: b.operation,
        purpose: b.purpose,
        sector: b.sector,
        sectors: b.sectors,
        own_bytes: b.own_bytes,
        shared: b.shared,
        seek_bytes: b.seek_bytes,
        previous_owner: b.previous_owner,
        queue_ns: b.queue_ns,
        device_ns: b.device_ns,
        queued_at_ns: b.queued_at_ns,
        issued_at_ns: b.issued_at_ns,
        done_at_ns: b.done_at_ns,
        failed: b.failed,
        failure: b.failure,
        flags: b.flags,
        hardware_queue: b.hardware_queue,
        uncertain: b.uncertain,
        process: b.process,
        pid: b.pid,
        cgroup_id: b.cgroup.id,
        container: container(&b.cgroup),
        cgroup: b.cgroup.path,
        previous_cgroup: b.previous_cgroup,
    }
}

/// A block request, live.
pub fn block_line(b: obs::BlockLine, clock: WallClock) -> v1::BlockLine {
    v1::BlockLine {
        done_unix_ns: clock.unix_ns(b.done_ns),
        device: b.device,
        stores: b.stores,
        operation: b.operation,
        owner: b.owner,
        request_ids: b.requests,
        process: b.process,
        pid: b.pid,
        cgroup_id: b.cgroup.id,
        container: container(&b.cgroup),
        cgroup: b.cgroup.path,
        sector: b.sector,
        sectors: b.sectors,
        seek_bytes: b.seek_bytes,
        previous_owner: b.previous_owner,
        queue_ns: b.queue_ns,
        device_ns: b.device_ns,
        failed: b.failed,
        failure: b.failure,
        flags: b.flags,
        hardware_queue: b.hardware_queue,
        uncertain: b.uncertain,
    }
}

/// A program of the observer.
pub fn program(p: obs::ProgramReport) -> v1::ProbeProgram {
    v1::ProbeProgram {
        name: p.name,
        hook: p.hook,
        attached: p.attached,
        not_attached_because: p.why_not,
        needed: p.needed,
        runs: p.runs,
        run_ns: p.run_ns,
        recursion_misses: p.recursion_misses,
    }
}

/// Which events are handed out.
pub fn events(policy: obs::EventPolicy) -> v1::EventPolicy {
    v1::EventPolicy {
        one_in: policy.one_in,
        slower_than_ns: policy.slower_than_ns,
    }
}

/// How a store is observed and guarded.
pub fn observed_store(
    store: String,
    status: obs::StoreObservation,
    guard: obs::GuardReport,
) -> v1::ObservedStore {
    let policy = match guard.policy {
        obs::GuardPolicy::Off => "off",
        obs::GuardPolicy::Audit => "audit",
        obs::GuardPolicy::Deny => "deny",
    };
    v1::ObservedStore {
        store,
        device: status.device.unwrap_or_default(),
        observed: status.observed,
        not_observed_because: status.why_not,
        mode: status.mode,
        guard_policy: policy.to_owned(),
        guard_effective: guard.effective,
        guard_not_effective_because: guard.why_not,
        guard_denied: guard.denied,
        guard_allowed: guard.allowed,
        guard_recent: guard.recent.into_iter().map(guarded_open).collect(),
    }
}

fn guarded_open(o: obs::GuardedOpen) -> v1::GuardedOpen {
    v1::GuardedOpen {
        unix_ms: o.unix_ms,
        device: o.device,
        process: o.process,
        pid: o.pid,
        uid: o.uid,
        denied: o.denied,
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

    #[test]
    fn the_wall_clock_shows_this_year() {
        let now = WallClock::now().unix_ns(monotonic_ns());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let wall = i64::try_from(since_1970.as_nanos()).unwrap();
        assert!((wall - now).abs() < 60_000_000_000, "{now} {wall}");
        assert_eq!(WallClock::of_a_recording().unix_ns(5), 5);
        assert_eq!(WallClock::recorded(100, 1_000_000).unix_ns(105), 1_000_005);
    }
}
