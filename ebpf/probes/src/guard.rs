//! The guard: sees every open of a block device for writing, and denies it to everybody but the
//! service where it is told to.
//!
//! An object of its own: it is loaded only where a store asks for it, and what the kernel thinks
//! of it must not matter to the probes. All offsets come from the loader. What it cannot read, it
//! allows: it fails open.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(
    internal_features,
    reason = "an atomic add without a result needs the intrinsic"
)]
#![allow(unsafe_op_in_unsafe_fn, reason = "the whole program is helper calls")]

use aya_ebpf::{
    Global,
    bindings::bpf_pidns_info,
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_uid_gid,
        bpf_get_ns_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_kernel,
    },
    macros::{lsm, map},
    maps::{HashMap, RingBuf},
    programs::LsmContext,
};
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use lumpscope_ebpf_common::guard::{
    ForeignOpen, MAX_GUARDED, OPENS_RING_BYTES, OpenCounts, policy,
};

/// The kernel lets only GPL-compatible programs attach to its security hooks.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// The service's process id in its own pid namespace.
#[unsafe(no_mangle)]
pub static OWN_TGID: Global<u32> = Global::new(0);
/// Device of the service's pid namespace, as the kernel encodes it.
#[unsafe(no_mangle)]
pub static NS_DEV: Global<u64> = Global::new(0);
/// Inode of the service's pid namespace; 0: use the global process ids.
#[unsafe(no_mangle)]
pub static NS_INO: Global<u64> = Global::new(0);
/// `file.f_inode`.
#[unsafe(no_mangle)]
pub static FILE_INODE: Global<u32> = Global::new(0);
/// `file.f_mode`.
#[unsafe(no_mangle)]
pub static FILE_MODE: Global<u32> = Global::new(0);
/// `inode.i_mode`.
#[unsafe(no_mangle)]
pub static INODE_MODE: Global<u32> = Global::new(0);
/// `inode.i_rdev`.
#[unsafe(no_mangle)]
pub static INODE_RDEV: Global<u32> = Global::new(0);

/// Guarded devices: kernel device number -> policy.
#[map]
pub static GUARDED: HashMap<u32, u32> = HashMap::with_max_entries(MAX_GUARDED, NO_PREALLOC);
/// How often others opened them for writing. Apart from the policy, so that a change of that loses
/// no count.
#[map]
pub static COUNTS: HashMap<u32, OpenCounts> = HashMap::with_max_entries(MAX_GUARDED, NO_PREALLOC);
/// Those opens. What does not fit is counted all the same.
#[map]
pub static OPENS: RingBuf = RingBuf::with_byte_size(OPENS_RING_BYTES, 0);

/// `BPF_F_NO_PREALLOC`: memory only for what is guarded.
const NO_PREALLOC: u32 = 1;
/// `BPF_RB_NO_WAKEUP`: the reader polls.
const NO_WAKEUP: u64 = 1;
const FMODE_WRITE: u32 = 2;
const S_IFMT: u16 = 0o170_000;
const S_IFBLK: u16 = 0o060_000;
const EPERM: i32 = 1;

/// After the rights on the file were checked, before the driver sees the open.
#[lsm(hook = "file_open")]
pub fn guard_file_open(ctx: LsmContext) -> i32 {
    // The verdict of the program before; a denial stays one.
    let before: i32 = ctx.arg(1);
    if before != 0 {
        return before;
    }
    // SAFETY: the kernel hands over a file in this argument; it is read only by a helper that fails on
    // a bad address, and values of maps outlive the program's run.
    match unsafe { is_denied(ctx.arg(0)) } {
        true => -EPERM,
        false => 0,
    }
}

#[inline(always)]
unsafe fn is_denied(file: u64) -> bool {
    let Some(dev) = device_to_write(file) else {
        return false;
    };
    let Some(&policy) = GUARDED.get(dev) else {
        return false;
    };
    let (tgid, own) = process();
    if own {
        return false;
    }
    let denied = policy == policy::DENY;
    if let Some(counts) = COUNTS.get_ptr_mut(dev) {
        let count = match denied {
            true => &raw mut (*counts).denied,
            false => &raw mut (*counts).allowed,
        };
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(count, 1);
    }
    if let Some(mut open) = OPENS.reserve::<ForeignOpen>(0) {
        open.write(ForeignOpen {
            time_ns: bpf_ktime_get_ns(),
            dev,
            tgid,
            uid: bpf_get_current_uid_gid() as u32,
            denied: denied as u32,
            comm: bpf_get_current_comm().unwrap_or_default(),
        });
        open.submit(NO_WAKEUP);
    }
    denied
}

/// Number of the block device that is being opened for writing; `None`: it is something else.
#[inline(always)]
unsafe fn device_to_write(file: u64) -> Option<u32> {
    let mode: u32 = read(file, FILE_MODE.load())?;
    if mode & FMODE_WRITE == 0 {
        return None;
    }
    let inode: u64 = read(file, FILE_INODE.load())?;
    let kind: u16 = read(inode, INODE_MODE.load())?;
    if kind & S_IFMT != S_IFBLK {
        return None;
    }
    read(inode, INODE_RDEV.load())
}

/// Process id of who opens, and whether that is the service. In another pid namespace than the
/// service's its own id may stand for somebody else: such a process is always another one.
#[inline(always)]
unsafe fn process() -> (u32, bool) {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    if NS_INO.load() == 0 {
        return (tgid, tgid == OWN_TGID.load());
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    let size = core::mem::size_of::<bpf_pidns_info>() as u32;
    if bpf_get_ns_current_pid_tgid(NS_DEV.load(), NS_INO.load(), &mut ids, size) != 0 {
        return (tgid, false);
    }
    (ids.tgid, ids.tgid == OWN_TGID.load())
}

#[inline(always)]
unsafe fn read<T>(base: u64, offset: u32) -> Option<T> {
    bpf_probe_read_kernel((base + offset as u64) as *const T).ok()
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
