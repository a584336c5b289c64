//! Bios: of disks that make no requests, and of those whose requests begin as bios (before 6.5).

use aya_ebpf::{
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use lumpscope_ebpf_common::{flag, op};

use crate::maker::REQ_IDLE;
use crate::maps::{self, Layer};
use crate::read::{Memory, Probed, Typed, decode, key, number, watched};
use crate::settings::{
    BDEV_DISK, BIO_BYTES, BIO_DISK, BIO_FLAGS, BIO_GROUP, BIO_NEXT, BIO_SECTOR, BIO_STATUS,
    BLKCG_CGROUP, CGROUP_NODE, CGROUP_ROOT, GROUP_BLKCG, NODE_ID, ROOT_HIERARCHY,
};
use crate::task::is_kernel_thread;
use crate::track::{self, Keys, Request};

/// `BLK_STS_AGAIN`.
const STATUS_AGAIN: u8 = 12;

#[btf_tracepoint(function = "block_bio_queue")]
pub fn bio_queue_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { queued::<Typed>(ctx.arg(0)) }
}

/// Before 5.11: the queue comes first.
#[btf_tracepoint(function = "block_bio_queue")]
pub fn bio_queue_q_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { queued::<Typed>(ctx.arg(1)) }
}

#[btf_tracepoint(function = "block_bio_complete")]
pub fn bio_done_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { done::<Typed>(ctx.arg(1)) }
}

#[raw_tracepoint(tracepoint = "block_bio_queue")]
pub fn bio_queue_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails on
    // a bad address, and values of maps outlive the program's run.
    unsafe { queued::<Probed>(ctx.arg(0)) }
}

#[raw_tracepoint(tracepoint = "block_bio_queue")]
pub fn bio_queue_q_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails on
    // a bad address, and values of maps outlive the program's run.
    unsafe { queued::<Probed>(ctx.arg(1)) }
}

#[raw_tracepoint(tracepoint = "block_bio_complete")]
pub fn bio_done_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails on
    // a bad address, and values of maps outlive the program's run.
    unsafe { done::<Probed>(ctx.arg(1)) }
}

#[inline(always)]
unsafe fn queued<M: Memory>(bio: u64) -> i32 {
    if let Some(request) = read_bio::<M>(bio, Layer::Bios) {
        track::bio_queued(&key(bio), &request, Keys::Exact);
    }
    0
}

/// The driver may have moved bio and disk on: only the address still names it.
#[inline(always)]
unsafe fn done<M: Memory>(bio: u64) -> i32 {
    if track::overlooks() {
        return 0;
    }
    let status: u8 = M::read(bio, BIO_STATUS.load()).unwrap_or(0);
    let refused = status == STATUS_AGAIN;
    track::bio_done(&key(bio), status as i32, flag::RAW_STATUS, refused);
    0
}

/// Reads a bio of a disk that is watched by this; `None`: another disk's, or a driver's command.
#[inline(always)]
pub unsafe fn read_bio<M: Memory>(bio: u64, layer: Layer) -> Option<Request> {
    let [slot, dev] = watched::<M>(disk_of::<M>(bio)?, layer)?;
    let request_flags: u32 = M::read(bio, BIO_FLAGS.load())?;
    let (op, flags) = decode(request_flags)?;
    let bytes: u32 = M::read(bio, BIO_BYTES.load())?;
    let sector = M::read(bio, BIO_SECTOR.load())?;
    let mut request = Request {
        slot,
        dev,
        sector,
        sectors: bytes >> 9,
        request_flags,
        hardware_queue: 0,
        whose: 0,
        born: 0,
        op,
        flags,
    };
    if is_written_back(&request) {
        request.whose = account::<M>(bio).unwrap_or(0);
    }
    Some(request)
}

#[inline(always)]
unsafe fn disk_of<M: Memory>(bio: u64) -> Option<u64> {
    let disk = M::read(bio, BIO_DISK.load())?;
    if BDEV_DISK.load() == 0 {
        return Some(disk);
    }
    M::read(disk, BDEV_DISK.load())
}

/// A bio of one disk goes on to another. Only of one that is watched by its requests is this a path to
/// it, whose requests are then watched in its name.
#[inline(always)]
unsafe fn goes_on<M: Memory>(bio: u64, from: u32) -> i32 {
    if maps::watched(from, Layer::Requests).is_some()
        && let Some(disk) = disk_of::<M>(bio)
        && let Some(to) = number::<M>(disk)
    {
        maps::add_path(from, to);
    }
    0
}

#[btf_tracepoint(function = "block_bio_remap")]
pub fn path_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { goes_on::<Typed>(ctx.arg(0), ctx.arg(1)) }
}

/// Before 5.11: the queue comes first.
#[btf_tracepoint(function = "block_bio_remap")]
pub fn path_q_btf(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument and allows loads of its members only, and
    // values of maps outlive the program's run.
    unsafe { goes_on::<Typed>(ctx.arg(1), ctx.arg(2)) }
}

/// Before 5.11: the queue comes first.
#[raw_tracepoint(tracepoint = "block_bio_remap")]
pub fn path_q_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails on
    // a bad address, and values of maps outlive the program's run.
    unsafe { goes_on::<Probed>(ctx.arg(1), ctx.arg(2)) }
}

#[raw_tracepoint(tracepoint = "block_bio_remap")]
pub fn path_raw(ctx: RawTracePointContext) -> i32 {
    // SAFETY: the kernel hands over a bio in this argument; it is read only by a helper that fails on
    // a bad address, and values of maps outlive the program's run.
    unsafe { goes_on::<Probed>(ctx.arg(0), ctx.arg(1)) }
}

/// True: a kernel thread writes what others have written to memory.
#[inline(always)]
pub unsafe fn is_written_back(request: &Request) -> bool {
    let direct = request.request_flags & REQ_IDLE != 0;
    request.op == op::WRITE && !direct && is_kernel_thread() == Some(true)
}

/// The cgroup that the kernel charges a bio to; `None`: it is none of version 2.
#[inline(always)]
pub unsafe fn account<M: Memory>(bio: u64) -> Option<u64> {
    if BIO_GROUP.load() == 0 {
        return None;
    }
    let mut at = bio;
    for member in [&BIO_GROUP, &GROUP_BLKCG, &BLKCG_CGROUP] {
        at = M::read(at, member.load()).filter(|next| *next != 0)?;
    }
    let root: u64 = M::read(at, CGROUP_ROOT.load())?;
    let hierarchy: u32 = M::read(root, ROOT_HIERARCHY.load())?;
    if hierarchy != 0 {
        return None;
    }
    let node: u64 = M::read(at, CGROUP_NODE.load())?;
    M::read(node, NODE_ID.load())
}

/// The bio behind this one in the same request.
#[inline(always)]
pub unsafe fn next<M: Memory>(bio: u64) -> Option<u64> {
    M::read(bio, BIO_NEXT.load()).filter(|next| *next != 0)
}
