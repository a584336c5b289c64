//! Static tracepoints (USDT) of provider `lumpscope`, for bpftrace, perf and SystemTap.
//!
//! Each is one instruction that does nothing until somebody attaches to it. Names and arguments
//! are promised to scripts: ebpf/bpftrace/README.md documents them, and a test compares both.
//! Texts are C strings that are made once: of methods, stages and operations in this program, of
//! stores when they open. Nothing is allocated for a request.
//!
//! No function here is inlined, so that each probe is at one place.

use std::ffi::CStr;

use lumpscope_engine::{IoDeclaration, IoOp, IoPurpose, LumpId};

/// Operation of a request on one lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LumpOp {
    /// Stores it.
    Put,
    /// Reads it, or a part of it.
    Get,
    /// Asks whether it is there.
    Head,
    /// Deletes it, whether it is there or not.
    Delete,
}

/// Stages as the service knows them. `submit` is all data I/O: only the observer can take queue and
/// device out of it.
pub const STAGES: [&CStr; 9] = [
    c"recv", c"sched", c"index", c"submit", c"journal", c"wait", c"write", c"flush", c"reply",
];

/// A request has entered its store. `begin_ns`: when it arrived, `CLOCK_MONOTONIC`.
#[inline(never)]
pub fn request_start(request: u64, method: &'static CStr, store: &CStr, begin_ns: u64) {
    probe::probe!(
        lumpscope,
        request_start,
        request,
        method.as_ptr(),
        store.as_ptr(),
        begin_ns
    );
}

/// A request that ends has spent `ns` nanoseconds in a stage. Of stage `wait`, `behind` is the
/// request whose batch it waited for the longest; else 0.
#[inline(never)]
pub fn request_stage(request: u64, stage: &'static CStr, ns: u64, behind: u64) {
    probe::probe!(
        lumpscope,
        request_stage,
        request,
        stage.as_ptr(),
        ns,
        behind
    );
}

/// A request has ended, after `ns` nanoseconds in all. `store` is empty when it named none that
/// exists.
#[inline(never)]
pub fn request_done(
    request: u64,
    method: &'static CStr,
    store: &CStr,
    bytes: u64,
    ns: u64,
    ok: bool,
) {
    probe::probe!(
        lumpscope,
        request_done,
        request,
        method.as_ptr(),
        store.as_ptr(),
        bytes,
        ns,
        u64::from(ok)
    );
}

/// A request is about this lump.
#[inline(never)]
pub fn lump(request: u64, lump: LumpId, op: LumpOp) {
    let [high, low] = halves(lump);
    let op = match op {
        LumpOp::Put => c"put",
        LumpOp::Get => c"get",
        LumpOp::Head => c"head",
        LumpOp::Delete => c"delete",
    };
    probe::probe!(lumpscope, lump, request, high, low, op.as_ptr());
}

/// The engine is about to do an I/O; once for each request that it is done for, or once with
/// request 0 for the store itself.
pub fn io(declared: &IoDeclaration<'_>) {
    let op = match declared.op {
        IoOp::Read => c"read",
        IoOp::Write => c"write",
        IoOp::Flush => c"flush",
    };
    let purpose = match declared.purpose {
        IoPurpose::LumpData => c"data",
        IoPurpose::Journal => c"journal",
        IoPurpose::JournalHeader => c"header",
        IoPurpose::Flush => c"flush",
        IoPurpose::Recovery => c"recovery",
        IoPurpose::Scrub => c"scrub",
        IoPurpose::Checkpoint => c"checkpoint",
    };
    for request in declared.requests {
        io_of(request.0, op, purpose, declared.offset, declared.len);
    }
    if declared.requests.is_empty() {
        io_of(0, op, purpose, declared.offset, declared.len);
    }
}

#[inline(never)]
fn io_of(request: u64, op: &'static CStr, purpose: &'static CStr, offset: u64, len: u64) {
    probe::probe!(
        lumpscope,
        io,
        request,
        op.as_ptr(),
        purpose.as_ptr(),
        offset,
        len
    );
}

/// Bits 127 to 64 of an id, and the others.
fn halves(lump: LumpId) -> [u64; 2] {
    let bytes = lump.0.to_be_bytes();
    let half = |from: usize| {
        bytes[from..from + 8]
            .iter()
            .fold(0, |n, b| n << 8 | u64::from(*b))
    };
    [half(0), half(8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_two_halves() {
        let id = LumpId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(halves(id), [0x0011_2233_4455_6677, 0x8899_aabb_ccdd_eeff]);
    }

    #[test]
    fn the_probes_may_be_passed_by() {
        request_start(1, c"put", c"s", 5);
        request_stage(1, STAGES[0], 5, 0);
        lump(1, LumpId(7), LumpOp::Head);
        request_done(1, c"put", c"s", 0, 5, true);
    }
}
