//! A scrubber's status, field by field.

use bytes::Bytes;
use lumpscope_engine::{Finding, ScrubPass, ScrubStatus};
use lumpscope_proto::v1;

use crate::grpc::convert;

const NANOS: u64 = 1_000_000_000;

pub(super) fn status(request_id: u64, status: ScrubStatus) -> v1::GetScrubResponse {
    v1::GetScrubResponse {
        request_id,
        running: status.running,
        bytes_per_second: status.rate,
        position_bytes: status.position,
        end_bytes: status.end,
        passes: status.passes,
        last_pass: status.last_pass.as_ref().map(pass),
        this_pass: Some(pass(&status.this_pass)),
        verified_lumps: status.verified_lumps,
        unverified_lumps: status.unverified_lumps,
        corrupt_lumps: status.corrupt_lumps,
        read_errors: status.read_errors,
        findings: status.findings.total,
        listed: status.findings.list.iter().map(finding).collect(),
    }
}

fn pass(pass: &ScrubPass) -> v1::ScrubPass {
    v1::ScrubPass {
        lumps: pass.lumps,
        bytes: pass.bytes,
        damaged: pass.damaged,
        ended_unix_seconds: pass.ended_ns / NANOS,
    }
}

fn finding(finding: &Finding) -> v1::ScrubFinding {
    let id = finding.lump.map(convert::raw);
    v1::ScrubFinding {
        id: id.map(|id| Bytes::copy_from_slice(&id)).unwrap_or_default(),
        message: finding.to_string(),
    }
}
