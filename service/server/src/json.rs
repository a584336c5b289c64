//! What is shown, as JSON: the names of the protocol. The commands and the page show the same.

use lumpscope_proto::v1;
use serde_json::{Map, Value, json};

fn stages(stages: &[v1::StageTime]) -> Value {
    let pair = |s: &v1::StageTime| (s.stage.clone(), Value::from(s.total_ns));
    stages.iter().map(pair).collect::<Map<_, _>>().into()
}

fn lost(lost: &[v1::LostTime]) -> Value {
    let pair = |l: &v1::LostTime| (l.owner.clone(), Value::from(l.ns));
    lost.iter().map(pair).collect::<Map<_, _>>().into()
}

/// An explained request. Times of its block requests are relative to its begin.
pub(crate) fn request(r: &v1::SlowRequest) -> Value {
    let step = |s: &v1::Step| json!({"from_ns": s.from_ns, "took_ns": s.took_ns, "stage": s.stage, "text": s.text});
    json!({
        "request_id": r.request_id,
        "store": r.store,
        "device": r.device,
        "method": r.method,
        "bytes": r.bytes,
        "ok": r.ok,
        "begin_unix_ns": r.begin_unix_ns,
        "total_ns": r.total_ns,
        "trace_id": r.trace_id,
        "sentence": r.sentence,
        "stages": stages(&r.stages),
        "steps": r.steps.iter().map(step).collect::<Vec<_>>(),
        "block_requests": r.block_requests,
        "blocks": r.blocks.iter().map(block_io).collect::<Vec<_>>(),
        "lost_ns": lost(&r.lost),
        "incomplete": r.incomplete,
    })
}

fn block_io(b: &v1::BlockIo) -> Value {
    json!({
        "operation": b.operation,
        "purpose": b.purpose,
        "sector": b.sector,
        "sectors": b.sectors,
        "own_bytes": b.own_bytes,
        "shared": b.shared,
        "seek_bytes": b.seek_bytes,
        "previous_owner": b.previous_owner,
        "queued_at_ns": b.queued_at_ns,
        "issued_at_ns": b.issued_at_ns,
        "done_at_ns": b.done_at_ns,
        "queue_ns": b.queue_ns,
        "device_ns": b.device_ns,
        "failed": b.failed,
    })
}

/// One block request.
pub(crate) fn line(b: &v1::BlockLine) -> Value {
    json!({
        "done_unix_ns": b.done_unix_ns,
        "device": b.device,
        "stores": b.stores,
        "operation": b.operation,
        "owner": b.owner,
        "request_ids": b.request_ids,
        "process": b.process,
        "sector": b.sector,
        "sectors": b.sectors,
        "seek_bytes": b.seek_bytes,
        "previous_owner": b.previous_owner,
        "queue_ns": b.queue_ns,
        "device_ns": b.device_ns,
        "failed": b.failed,
    })
}

/// Which events are handed out.
pub(crate) fn events(policy: &v1::EventPolicy) -> Value {
    json!({"one_in": policy.one_in, "slower_than_ns": policy.slower_than_ns})
}

/// What the observer is made of, and what it costs.
pub(crate) fn observer(reply: &v1::DescribeObserverResponse) -> Value {
    let program = |p: &v1::ProbeProgram| {
        json!({
            "name": p.name,
            "hook": p.hook,
            "attached": p.attached,
            "not_attached_because": p.not_attached_because,
            "needed": p.needed,
            "runs": p.runs,
            "run_ns": p.run_ns,
            "recursion_misses": p.recursion_misses,
        })
    };
    let store = |s: &v1::ObservedStore| {
        json!({
            "store": s.store,
            "device": s.device,
            "observed": s.observed,
            "not_observed_because": s.not_observed_because,
            "mode": s.mode,
            "guard": {
                "policy": s.guard_policy,
                "effective": s.guard_effective,
                "not_effective_because": s.guard_not_effective_because,
                "denied": s.guard_denied,
                "allowed": s.guard_allowed,
                "recent": s.guard_recent.iter().map(open_json).collect::<Vec<_>>(),
            },
        })
    };
    json!({
        "programs": reply.programs.iter().map(program).collect::<Vec<_>>(),
        "events": events(&reply.events.unwrap_or_default()),
        "stores": reply.stores.iter().map(store).collect::<Vec<_>>(),
        "request_id": reply.request_id,
    })
}

fn open_json(o: &v1::GuardedOpen) -> Value {
    json!({
        "unix_ms": o.unix_ms,
        "device": o.device,
        "process": o.process,
        "pid": o.pid,
        "uid": o.uid,
        "denied": o.denied,
    })
}
