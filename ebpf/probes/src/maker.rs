//! Who makes a request, and what class that suggests.

use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_comm};
use lumpscope_ebpf_common::{InFlight, class, flag, flag2, op};

use crate::submission;
use crate::task::{is_kernel_thread, task};

/// Set for direct I/O and the like, never for what is written back.
pub const REQ_IDLE: u32 = 1 << 15;
/// A request that was made so long ago and was never sent was merged into another.
const MERGED_AWAY_NS: u64 = 1_000_000_000;
/// So were most of so many.
const MERGED_AWAY: u32 = 1024;

/// Who makes this request, and what class that suggests.
#[inline(always)]
pub unsafe fn owner(entry: &mut InFlight) {
    let task = task();
    (entry.tgid, entry.tid) = (task.tgid, task.tid);
    if entry.cgroup == 0 {
        entry.cgroup = bpf_get_current_cgroup_id();
    }
    if let Ok(comm) = bpf_get_current_comm() {
        entry.comm = comm;
    }
    if task.own {
        entry.flags |= flag::OWN;
        if let Some((store, token)) = submission::of(task.tid) {
            (entry.store, entry.token) = (store, token);
            entry.flags2 |= flag2::SUBMITTED;
        }
    }
    let kernel = !task.own && is_kernel_thread().unwrap_or_else(|| is_named_as_kernel(entry));
    if kernel {
        entry.flags2 |= flag2::KERNEL_THREAD;
    }
    entry.class = classify(entry, task.own);
}

/// True: no request that is remembered with it is in flight.
#[inline(always)]
pub fn was_merged_away(old: &InFlight, now: u64) -> bool {
    let long_ago = now.saturating_sub(old.queue_ns) > MERGED_AWAY_NS;
    !old.completes() && (long_ago || old.waiting() > MERGED_AWAY)
}

/// With a key that several requests share, their completions do not tell them apart: who made
/// which is known as far as all were made alike.
#[inline(always)]
pub unsafe fn doubt_maker(shared: &mut InFlight, entry: &InFlight) {
    if shared.cgroup != entry.cgroup {
        shared.cgroup = 0;
    }
    let other = shared.tgid != entry.tgid;
    if other || shared.token != entry.token || shared.store != entry.store {
        // The flag alone: another processor may be telling of it.
        shared.flags2 &= !flag2::SUBMITTED;
    }
    if other {
        (shared.tgid, shared.tid) = (0, 0);
        shared.comm = [0; 16];
        shared.flags &= !flag::OWN;
        shared.flags2 &= !flag2::KERNEL_THREAD;
        shared.class = flagged(shared.flags).unwrap_or(class::OTHER);
    }
}

/// Where the kernel does not say of a thread whether it is its own.
#[inline(always)]
fn is_named_as_kernel(entry: &InFlight) -> bool {
    is_jbd2(entry) || is_kworker(entry) || is_xfsaild(entry) || is_ext4lazyinit(entry)
}

#[inline(always)]
fn is_jbd2(entry: &InFlight) -> bool {
    let c = &entry.comm;
    c[0] == b'j' && c[1] == b'b' && c[2] == b'd' && c[3] == b'2' && c[4] == b'/'
}

#[inline(always)]
fn is_kworker(entry: &InFlight) -> bool {
    let c = &entry.comm;
    c[0] == b'k' && c[1] == b'w' && c[2] == b'o' && c[6] == b'r' && c[7] == b'/'
}

#[inline(always)]
fn is_xfsaild(entry: &InFlight) -> bool {
    let c = &entry.comm;
    c[0] == b'x' && c[1] == b'f' && c[2] == b's' && c[3] == b'a' && c[7] == b'/'
}

/// It writes empty inode tables without saying that they are metadata.
#[inline(always)]
fn is_ext4lazyinit(entry: &InFlight) -> bool {
    let c = &entry.comm;
    c[0] == b'e' && c[1] == b'x' && c[2] == b't' && c[3] == b'4' && c[4] == b'l' && c[12] == 0
}

/// The class of a request that says of itself that it is metadata, whoever made it.
#[inline(always)]
fn flagged(flags: u8) -> Option<u8> {
    if flags & flag::META == 0 {
        return None;
    }
    // ext4's journal is written by jbd2; an xfs log write asks for a flush or FUA.
    let ordered = flags & (flag::FUA | flag::PREFLUSH) != 0;
    Some(if ordered {
        class::FS_JOURNAL
    } else {
        class::FS_METADATA
    })
}

/// The flags of the request decide; the name only tells kernel threads from each other.
#[inline(always)]
pub fn classify(entry: &InFlight, own: bool) -> u8 {
    let kernel = entry.flags2 & flag2::KERNEL_THREAD != 0;
    if kernel && is_jbd2(entry) {
        return class::FS_JOURNAL;
    }
    if let Some(class) = flagged(entry.flags) {
        return class;
    }
    if own {
        return class::OWN;
    }
    if kernel && (is_xfsaild(entry) || is_ext4lazyinit(entry)) {
        return class::FS_METADATA;
    }
    // A loop device's worker writes directly, too; that is no writing back.
    let direct = entry.request_flags & REQ_IDLE != 0;
    if kernel && entry.op == op::WRITE && !direct && is_kworker(entry) {
        class::WRITEBACK
    } else {
        class::OTHER
    }
}
