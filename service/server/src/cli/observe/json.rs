//! What is shown, as JSON: the names of the protocol.

use lumpscope_client::v1;
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
pub(super) fn request(r: &v1::SlowRequest) -> Value {
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
pub(super) fn line(b: &v1::BlockLine) -> Value {
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
