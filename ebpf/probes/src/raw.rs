//! BTF and raw tracepoints: the arguments are pointers into the kernel.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel,
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use lumpscope_ebpf_common::{flag, kernel_dev, op};

use crate::maps::{Key, slot_of};
use crate::settings::{
    DISK_MAJOR, IO_USER_DATA, QUEUE_DISK, RQ_BORN, RQ_FLAGS, RQ_LEN, RQ_QUEUE, RQ_SECTOR,
};
use crate::submission;
use crate::track::{self, Keys, Request};

const REQ_OP_MASK: u32 = 0xff;
const REQ_OP_DRV_IN: u32 = 34;
const REQ_META: u32 = 1 << 12;
const REQ_FUA: u32 = 1 << 17;
const REQ_PREFLUSH: u32 = 1 << 18;

#[btf_tracepoint(function = "block_io_start")]
pub fn start_btf(ctx: BtfTracePointContext) -> i32 {
    unsafe { start(ctx.arg(0)) }
}

#[btf_tracepoint(function = "block_rq_issue")]
pub fn issue_btf(ctx: BtfTracePointContext) -> i32 {
    unsafe { issue(ctx.arg(0)) }
}

#[btf_tracepoint(function = "block_rq_complete")]
pub fn done_btf(ctx: BtfTracePointContext) -> i32 {
    unsafe { done(ctx.arg(0), ctx.arg(1), ctx.arg(2)) }
}

#[raw_tracepoint(tracepoint = "block_io_start")]
pub fn start_raw(ctx: RawTracePointContext) -> i32 {
    unsafe { start(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "block_rq_issue")]
pub fn issue_raw(ctx: RawTracePointContext) -> i32 {
    unsafe { issue(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn done_raw(ctx: RawTracePointContext) -> i32 {
    unsafe { done(ctx.arg(0), ctx.arg(1), ctx.arg(2)) }
}

#[btf_tracepoint(function = "io_uring_submit_req")]
pub fn submit_btf(ctx: BtfTracePointContext) -> i32 {
    unsafe { submit(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "io_uring_submit_req")]
pub fn submit_raw(ctx: RawTracePointContext) -> i32 {
    unsafe { submit(ctx.arg(0)) }
}

#[inline(always)]
unsafe fn submit(io: u64) -> i32 {
    if let Some(token) = read(io, IO_USER_DATA.load()) {
        submission::submitting(token);
    }
    0
}

#[inline(always)]
unsafe fn start(rq: u64) -> i32 {
    if let Some(request) = read_request(rq) {
        track::start(&key(rq), &request, Keys::Exact);
    }
    0
}

#[inline(always)]
unsafe fn issue(rq: u64) -> i32 {
    if let Some(mut request) = read_request(rq) {
        // Only flushes begin here: the block layer makes them in memory of its own.
        if request.op == op::FLUSH && RQ_BORN.load() != 0 {
            request.born = read(rq, RQ_BORN.load()).unwrap_or(0);
        }
        track::issue(&key(rq), &request, Keys::Exact);
    }
    0
}

#[inline(always)]
unsafe fn done(rq: u64, status: u32, bytes: u32) -> i32 {
    if track::overlooks() {
        return 0;
    }
    // blk_status_t is one byte; the rest of the register is not.
    let status = (status & 0xff) as i32;
    if track::done(&key(rq), bytes, status, flag::RAW_STATUS) {
        return 0;
    }
    if let Some(request) = read_request(rq) {
        track::done_unknown(&request, bytes, status, flag::RAW_STATUS);
    }
    0
}

#[inline(always)]
fn key(rq: u64) -> Key {
    Key { id: rq, sector: 0 }
}

/// Reads a request of a watched disk; `None`: another disk's, or a driver's own command.
#[inline(always)]
unsafe fn read_request(rq: u64) -> Option<Request> {
    let queue: u64 = read(rq, RQ_QUEUE.load())?;
    let disk: u64 = read(queue, QUEUE_DISK.load())?;
    let numbers: u64 = read(disk, DISK_MAJOR.load())?;
    let dev = kernel_dev(numbers as u32, (numbers >> 32) as u32);
    let slot = slot_of(dev)?;
    let request_flags: u32 = read(rq, RQ_FLAGS.load())?;
    let code = request_flags & REQ_OP_MASK;
    if code >= REQ_OP_DRV_IN {
        return None;
    }
    let mut flags = 0;
    if request_flags & REQ_META != 0 {
        flags |= flag::META;
    }
    if request_flags & REQ_FUA != 0 {
        flags |= flag::FUA;
    }
    if request_flags & REQ_PREFLUSH != 0 {
        flags |= flag::PREFLUSH;
    }
    let len: u32 = read(rq, RQ_LEN.load())?;
    let op = match code {
        0 => op::READ,
        1 => op::WRITE,
        2 => op::FLUSH,
        3 | 5 => op::DISCARD,
        _ => op::OTHER,
    };
    let sector = read(rq, RQ_SECTOR.load())?;
    Some(Request {
        slot,
        dev,
        sector,
        sectors: len >> 9,
        request_flags,
        born: 0,
        op,
        flags,
    })
}

#[inline(always)]
unsafe fn read<T>(base: u64, offset: u32) -> Option<T> {
    bpf_probe_read_kernel((base + offset as u64) as *const T).ok()
}
