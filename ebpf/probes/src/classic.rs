//! Classic tracepoints: the kernel hands out a record; requests have no address in it.
//!
//! A request is named by disk, operation and first sector. Flushes have no place: the parent (the empty
//! write that asked for a flush) and the flush that the block layer sends get keys of their own.
//! So several requests in flight can have the same key: they share its entry.

use aya_ebpf::{macros::tracepoint, programs::TracePointContext};
use lumpscope_ebpf_common::{flag, op, row};

use crate::maps::{self, Key, Layer};
use crate::settings::{
    BIO_DONE_ERROR, BIO_DONE_RWBS, BIO_QUEUE_RWBS, DONE_ERROR, DONE_RWBS, ISSUE_RWBS, START_RWBS,
    TP_DEV, TP_OLD_DEV, TP_OPCODE, TP_SECTOR, TP_SECTORS, TP_USER_DATA,
};
use crate::submission;
use crate::track::{self, After, Keys, Request};

/// Kinds of keys, above the device number. Requests with data also carry what they do.
const DATA: u64 = 0;
const PARENT: u64 = 1 << 32;
const FLUSH: u64 = 2 << 32;
const OP_SHIFT: u64 = 48;

const EAGAIN: i32 = 11;

#[tracepoint(category = "block", name = "block_io_start")]
pub fn start_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if let Some(request) = read_request(&ctx, START_RWBS.load(), Layer::Requests) {
            track::start(&key(&request), &request, Keys::Reused);
        }
    }
    0
}

#[tracepoint(category = "block", name = "block_rq_issue")]
pub fn issue_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if let Some(request) = read_request(&ctx, ISSUE_RWBS.load(), Layer::Requests) {
            track::issue(&key(&request), &request, Keys::Reused);
        }
    }
    0
}

#[tracepoint(category = "block", name = "block_rq_complete")]
pub fn done_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if track::overlooks() {
            return 0;
        }
        let Some(request) = read_request(&ctx, DONE_RWBS.load(), Layer::Requests) else {
            return 0;
        };
        let error: i32 = ctx.read_at(DONE_ERROR.load() as usize).unwrap_or(0);
        let bytes = request.sectors << 9;
        let known = track::done(&key(&request), bytes, error, 0, After::Remove, || 0)
            || bytes == 0 && error == 0 && track::nothing_done(&data_key(&request));
        if !known {
            track::done_unknown(&request, bytes, error, 0);
        }
    }
    0
}

#[tracepoint(category = "io_uring", name = "io_uring_submit_req")]
pub fn submit_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if let Ok(token) = ctx.read_at(TP_USER_DATA.load() as usize) {
            submission::submitting(token);
        }
    }
    0
}

#[tracepoint(category = "io_uring", name = "io_uring_queue_async_work")]
pub fn punt_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        let opcode = match TP_OPCODE.load() {
            0 => None,
            at => ctx.read_at(at as usize).ok(),
        };
        submission::punted(opcode);
    }
    0
}

#[tracepoint(category = "block", name = "block_bio_queue")]
pub fn bio_queue_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if let Some(request) = read_request(&ctx, BIO_QUEUE_RWBS.load(), Layer::Bios) {
            track::bio_queued(&key(&request), &request, Keys::Reused);
        }
    }
    0
}

#[tracepoint(category = "block", name = "block_bio_complete")]
pub fn bio_done_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if track::overlooks() {
            return 0;
        }
        if let Some(request) = read_request(&ctx, BIO_DONE_RWBS.load(), Layer::Bios) {
            let error: i32 = ctx.read_at(BIO_DONE_ERROR.load() as usize).unwrap_or(0);
            track::bio_done(&key(&request), error, 0, error == -EAGAIN);
        }
    }
    0
}

#[tracepoint(category = "block", name = "block_bio_remap")]
pub fn path_tp(ctx: TracePointContext) -> u32 {
    // SAFETY: the record is read only by a helper that fails on a bad address, and values of maps
    // outlive the program's run.
    unsafe {
        if let Ok(disk) = ctx.read_at(TP_OLD_DEV.load() as usize)
            && let Ok(path) = ctx.read_at(TP_DEV.load() as usize)
        {
            maps::add_path(disk, path);
        }
    }
    0
}

#[inline(always)]
fn key(request: &Request) -> Key {
    let (kind, sector) = if request.op == op::FLUSH {
        (FLUSH, 0)
    } else if request.sectors == 0 {
        (PARENT, request.sector)
    } else {
        return data_key(request);
    };
    Key {
        id: kind | request.dev as u64,
        sector,
    }
}

/// Of a request with data.
#[inline(always)]
fn data_key(request: &Request) -> Key {
    Key {
        id: DATA | (request.op as u64) << OP_SHIFT | request.dev as u64,
        sector: request.sector,
    }
}

#[inline(always)]
unsafe fn read_request(ctx: &TracePointContext, rwbs_at: u32, layer: Layer) -> Option<Request> {
    let dev: u32 = ctx.read_at(TP_DEV.load() as usize).ok()?;
    let [slot, dev] = maps::watched(dev, layer)?;
    let sector: u64 = ctx.read_at(TP_SECTOR.load() as usize).ok()?;
    let sectors: u32 = ctx.read_at(TP_SECTORS.load() as usize).ok()?;
    let rwbs: [u8; 8] = ctx.read_at(rwbs_at as usize).ok()?;
    let (op, flags) = decode(&rwbs);
    // Flush requests carry sector 0 at issue and 2^64-1 at completion.
    let sector = if op == op::FLUSH { 0 } else { sector };
    Some(Request {
        slot,
        dev,
        sector,
        sectors,
        request_flags: request_flags(flags),
        hardware_queue: 0,
        whose: 0,
        born: 0,
        op,
        flags,
    })
}

/// Reads the letters that the kernel writes for a request: `[F]OP[F][A][S][M]`. What follows the
/// zero is rubbish.
#[inline(always)]
fn decode(rwbs: &[u8; 8]) -> (u8, u8) {
    let mut flags = 0;
    let mut letter = rwbs[0];
    if letter == b'F' && rwbs[1] != 0 && rwbs[1] != b'S' {
        flags |= flag::PREFLUSH;
        letter = rwbs[1];
    }
    let op = match letter {
        b'R' => op::READ,
        // It writes zeroes, since 7.0; before, the letter is N.
        b'W' if rwbs[1] == b'Z' => op::OTHER,
        b'W' => op::WRITE,
        b'F' => op::FLUSH,
        b'D' => op::DISCARD,
        _ => op::OTHER,
    };
    let mut ended = false;
    let mut i = 1;
    while i < 8 {
        let at = rwbs[i];
        ended |= at == 0;
        let is_op = i == 1 && flags & flag::PREFLUSH != 0;
        if !ended && !is_op {
            if at == b'F' {
                flags |= flag::FUA;
            }
            if at == b'M' {
                flags |= flag::META;
            }
        }
        i += 1;
    }
    (op, flags)
}

/// FUA and META as the kernel has them. Without a branch, and without the letter of reading ahead: each
/// would have the verifier of 5.10 follow the program many times more.
#[inline(always)]
fn request_flags(flags: u8) -> u32 {
    let [fua, meta, _] = row::FLAGS;
    let at =
        |bit: u8, to: u32| ((flags & bit) as u32) << (to.trailing_zeros() - bit.trailing_zeros());
    at(flag::FUA, fua.0) | at(flag::META, meta.0)
}
