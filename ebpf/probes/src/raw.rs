//! BTF and raw tracepoints: the arguments are pointers into the kernel.

use aya_ebpf::{
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use lumpscope_ebpf_common::{flag, op};

use crate::bio::{self, read_bio};
use crate::maps::Layer;
use crate::read::{Memory, Probed, Typed, decode, key, watched};
use crate::settings::{
    BY_BIO, DONE_ERRNO, HCTX_NUMBER, IO_OPCODE, IO_USER_DATA, PUNTED_ARGUMENT, QUEUE_DISK, RQ_BIO,
    RQ_BORN, RQ_DISK, RQ_FLAGS, RQ_HCTX, RQ_LEN, RQ_QUEUE, RQ_SECTOR,
};
use crate::submission;
use crate::track::{self, After, Keys, Request};

#[btf_tracepoint(function = "block_io_start")]
pub fn start_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { start::<Typed>(ctx.arg(0)) }
}

/// Before 6.5.
#[btf_tracepoint(function = "block_getrq")]
pub fn start_bio_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { start_bio::<Typed>(ctx.arg(0)) }
}

/// Before 5.11: the queue comes first.
#[btf_tracepoint(function = "block_getrq")]
pub fn start_bio_q_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { start_bio::<Typed>(ctx.arg(1)) }
}

#[btf_tracepoint(function = "block_rq_issue")]
pub fn issue_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { issue::<Typed>(ctx.arg(0)) }
}

/// Before 5.10.137: the queue comes first.
#[btf_tracepoint(function = "block_rq_issue")]
pub fn issue_q_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { issue::<Typed>(ctx.arg(1)) }
}

#[btf_tracepoint(function = "block_rq_complete")]
pub fn done_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { done::<Typed>(ctx.arg(0), ctx.arg(1), ctx.arg(2)) }
}

#[raw_tracepoint(tracepoint = "block_io_start")]
pub fn start_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { start::<Probed>(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "block_getrq")]
pub fn start_bio_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { start_bio::<Probed>(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "block_getrq")]
pub fn start_bio_q_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { start_bio::<Probed>(ctx.arg(1)) }
}

#[raw_tracepoint(tracepoint = "block_rq_issue")]
pub fn issue_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { issue::<Probed>(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "block_rq_issue")]
pub fn issue_q_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { issue::<Probed>(ctx.arg(1)) }
}

#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn done_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a request in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { done::<Probed>(ctx.arg(0), ctx.arg(1), ctx.arg(2)) }
}

#[btf_tracepoint(function = "io_uring_submit_req")]
pub fn submit_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over an io_kiocb in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { submit(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "io_uring_submit_req")]
pub fn submit_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over an io_kiocb in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe { submit(ctx.arg(0)) }
}

#[btf_tracepoint(function = "io_uring_queue_async_work")]
pub fn punt_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over an io_kiocb in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe {
        punt(match PUNTED_ARGUMENT.load() {
            0 => ctx.arg(0),
            1 => ctx.arg(1),
            _ => ctx.arg(2),
        })
    }
}

#[raw_tracepoint(tracepoint = "io_uring_queue_async_work")]
pub fn punt_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over an io_kiocb in this argument; it is read only by a helper that fails
    // on a bad address, and values of maps outlive the program's run.
    unsafe {
        punt(match PUNTED_ARGUMENT.load() {
            0 => ctx.arg(0),
            1 => ctx.arg(1),
            _ => ctx.arg(2),
        })
    }
}

/// Some kernels say of these arguments only that they are addresses.
#[inline(always)]
unsafe fn punt(io: u64) -> i32 {
    submission::punted(Probed::read(io, IO_OPCODE.load()));
    0
}

#[inline(always)]
unsafe fn submit(io: u64) -> i32 {
    if let Some(token) = Probed::read(io, IO_USER_DATA.load()) {
        submission::submitting(token);
    }
    0
}

#[inline(always)]
unsafe fn start<M: Memory>(rq: u64) -> i32 {
    if let Some(mut request) = read_request::<M>(rq) {
        if bio::is_written_back(&request)
            && let Some(first) = M::read(rq, RQ_BIO.load())
        {
            request.whose = bio::account::<M>(first).unwrap_or(0);
        }
        track::start(&key(rq), &request, Keys::Exact);
    }
    0
}

#[inline(always)]
unsafe fn start_bio<M: Memory>(bio: u64) -> i32 {
    if let Some(request) = read_bio::<M>(bio, Layer::Requests) {
        track::start(&key(bio), &request, Keys::Exact);
    }
    0
}

/// The bios that may have been the first of a request: the one that is, and the one behind it,
/// before which a later one may have been merged.
#[inline(always)]
unsafe fn adopt<M: Memory>(rq: u64, request: &Request) {
    let Some(first) = M::read::<u64>(rq, RQ_BIO.load()) else {
        return;
    };
    if first == 0 {
        return;
    }
    // Where the kernel does not say when the request was made, any time is late enough.
    let born = match RQ_BORN.load() {
        0 => 0,
        at => M::read(rq, at).unwrap_or(0),
    };
    if !track::adopt(&key(first), &key(rq), request, born)
        && let Some(second) = bio::next::<M>(first)
    {
        track::adopt(&key(second), &key(rq), request, born);
    }
}

#[inline(always)]
unsafe fn issue<M: Memory>(rq: u64) -> i32 {
    if let Some(mut request) = read_request::<M>(rq) {
        if BY_BIO.load() != 0 {
            adopt::<M>(rq, &request);
        }
        // Only flushes begin here: the block layer makes them in memory of its own.
        if request.op == op::FLUSH && RQ_BORN.load() != 0 {
            request.born = M::read(rq, RQ_BORN.load()).unwrap_or(0);
        }
        request.hardware_queue = hardware_queue::<M>(rq).unwrap_or(0);
        track::issue(&key(rq), &request, Keys::Exact);
    }
    0
}

#[inline(always)]
unsafe fn done<M: Memory>(rq: u64, status: u32, bytes: u32) -> i32 {
    if track::overlooks() {
        return 0;
    }
    let (error, error_flag) = if DONE_ERRNO.load() != 0 {
        (status as i32, 0)
    } else {
        // blk_status_t is one byte; the rest of the register is not.
        ((status & 0xff) as i32, flag::RAW_STATUS)
    };
    let left = || M::read(rq, RQ_LEN.load()).unwrap_or(0);
    if track::done(&key(rq), bytes, error, error_flag, After::Keep, left) {
        return 0;
    }
    if BY_BIO.load() != 0
        && let Some(first) = M::read::<u64>(rq, RQ_BIO.load())
        && first != 0
        && track::done(&key(first), bytes, error, error_flag, After::Remove, || 0)
    {
        // It asked for a flush and was never sent itself.
        return 0;
    }
    if let Some(request) = read_request::<M>(rq) {
        track::done_unknown(&request, bytes, error, error_flag);
    }
    0
}

/// The hardware queue of a request, counted from 1; `None`: not known.
#[inline(always)]
unsafe fn hardware_queue<M: Memory>(rq: u64) -> Option<u16> {
    if RQ_HCTX.load() == 0 {
        return None;
    }
    let queue = M::read(rq, RQ_HCTX.load()).filter(|queue| *queue != 0)?;
    let number: u32 = M::read(queue, HCTX_NUMBER.load())?;
    Some(number as u16 + 1)
}

/// Reads a request of a watched disk; `None`: another disk's, or a driver's own command.
#[inline(always)]
unsafe fn read_request<M: Memory>(rq: u64) -> Option<Request> {
    let disk: u64 = if RQ_DISK.load() != 0 {
        M::read(rq, RQ_DISK.load())?
    } else {
        let queue: u64 = M::read(rq, RQ_QUEUE.load())?;
        M::read(queue, QUEUE_DISK.load())?
    };
    let [slot, dev] = watched::<M>(disk, Layer::Requests)?;
    let request_flags: u32 = M::read(rq, RQ_FLAGS.load())?;
    let (op, flags) = decode(request_flags)?;
    let len: u32 = M::read(rq, RQ_LEN.load())?;
    let sector = M::read(rq, RQ_SECTOR.load())?;
    Some(Request {
        slot,
        dev,
        sector,
        sectors: len >> 9,
        request_flags,
        hardware_queue: 0,
        whose: 0,
        born: 0,
        op,
        flags,
    })
}
