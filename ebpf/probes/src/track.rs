//! What the three programs do, whatever the flavour.

use aya_ebpf::{
    bindings::bpf_pidns_info,
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_ns_current_pid_tgid,
        bpf_ktime_get_ns,
    },
};
use lumpscope_ebpf_common::{BlockEvent, NO_SEEK, class, flag, histogram, op, stats};

use crate::maps::{EVENTS, HISTOGRAM, IN_FLIGHT, InFlight, Key, LAST, add, count};
use crate::settings::{NS_DEV, NS_INO, OWN_TGID};

/// `BPF_RB_NO_WAKEUP`: the reader polls; a wake-up costs more than all the rest.
const NO_WAKEUP: u64 = 1;
const BPF_ANY: u64 = 0;

/// A request as one of the hooks describes it.
#[derive(Clone, Copy)]
pub struct Request {
    pub slot: u32,
    pub dev: u32,
    pub sector: u64,
    pub sectors: u32,
    pub request_flags: u32,
    pub op: u8,
    /// FUA, PREFLUSH and META.
    pub flags: u8,
}

/// A request was made: remember when and by whom.
#[inline(always)]
pub unsafe fn start(key: &Key, request: &Request) {
    let mut entry = blank(request);
    entry.queue_ns = bpf_ktime_get_ns();
    owner(&mut entry);
    if request.flags & (flag::PREFLUSH | flag::FUA) != 0 {
        if request.sectors == 0 {
            entry.op = op::FLUSH;
            entry.flags |= flag::FLUSH_PARENT;
            entry.sector = 0;
        }
        if let Some(last) = LAST.get_ptr_mut(request.slot) {
            (*last).flush_class = entry.class as u32;
        }
    }
    remember(key, &entry);
}

/// A request is given to the driver. Merges may have changed its place and length.
#[inline(always)]
pub unsafe fn issue(key: &Key, request: &Request) {
    let now = bpf_ktime_get_ns();
    if let Some(entry) = IN_FLIGHT.get_ptr_mut(*key) {
        if (*entry).issue_ns != 0 && (*entry).op == request.op {
            (*entry).flags |= flag::REISSUED;
            count((*entry).slot, stats::REISSUES, 1);
            return;
        }
        if (*entry).op == request.op {
            (*entry).issue_ns = now;
            (*entry).sector = request.sector;
            (*entry).sectors = request.sectors;
            (*entry).seek = seek(request);
            return;
        }
    }
    let mut entry = blank(request);
    entry.issue_ns = now;
    entry.seek = seek(request);
    entry.flags |= flag::NO_START;
    entry.class = class::OTHER;
    if request.op == op::FLUSH {
        // The block layer makes these itself, in no particular context.
        entry.sector = 0;
        entry.sectors = 0;
        if let Some(last) = LAST.get(request.slot) {
            entry.class = last.flush_class as u8;
        }
    } else {
        count(request.slot, stats::ISSUE_WITHOUT_START, 1);
    }
    remember(key, &entry);
}

/// A request, or a part of it, has completed.
#[inline(always)]
pub unsafe fn done(key: &Key, bytes: u32, error: i32, error_flag: u8) -> bool {
    let now = bpf_ktime_get_ns();
    let Some(entry) = IN_FLIGHT.get_ptr_mut(*key) else {
        return false;
    };
    let slot = (*entry).slot;
    let total = (*entry).bytes_done.wrapping_add(bytes);
    (*entry).bytes_done = total;
    if error == 0 && (total as u64) < ((*entry).sectors as u64) << 9 {
        count(slot, stats::PARTIAL, 1);
        return true;
    }
    if error != 0 {
        count(slot, stats::ERRORS, 1);
        (*entry).flags |= error_flag;
    }
    finish(&*entry, now, error);
    let _ = IN_FLIGHT.remove(*key);
    true
}

/// A completion of a request that is not remembered.
#[inline(always)]
pub unsafe fn done_unknown(request: &Request, bytes: u32, error: i32, error_flag: u8) {
    if bytes == 0 && error == 0 && request.op == op::WRITE {
        // The block layer wrapped a write in flushes: its data part completed before.
        count(request.slot, stats::SEQUENCE_ENDS, 1);
        return;
    }
    count(request.slot, stats::DONE_WITHOUT_START, 1);
    let mut entry = blank(request);
    entry.flags |= flag::NO_START;
    entry.class = class::OTHER;
    entry.bytes_done = bytes;
    entry.sectors = bytes >> 9;
    if request.op == op::FLUSH {
        entry.sector = 0;
    }
    if error != 0 {
        count(request.slot, stats::ERRORS, 1);
        entry.flags |= error_flag;
    }
    finish(&entry, bpf_ktime_get_ns(), error);
}

/// Counts a completed request and offers its event to the ring.
#[inline(always)]
unsafe fn finish(entry: &InFlight, now: u64, error: i32) {
    let slot = entry.slot;
    // Volatile: the compiler knows the range and would drop the check that the verifier needs.
    let op = core::ptr::read_volatile(&entry.op);
    let op = if op < op::OTHER { op } else { op::OTHER };
    if entry.flags & flag::FLUSH_PARENT != 0 {
        count(slot, stats::FLUSH_PARENTS, 1);
    } else {
        count(slot, stats::SEEN_REQUESTS + op as usize, 1);
        count(
            slot,
            stats::SEEN_BYTES + op as usize,
            entry.bytes_done as u64,
        );
        let device_ns = if entry.issue_ns == 0 {
            0
        } else {
            now.wrapping_sub(entry.issue_ns)
        };
        let cell = histogram::cell(slot, op, entry.class, entry.seek, device_ns);
        if let Some(cell) = HISTOGRAM.get_ptr_mut(cell) {
            add(cell, 1);
        }
    }
    count(slot, stats::EVENTS, 1);
    let Some(mut event) = EVENTS.reserve::<BlockEvent>(0) else {
        count(slot, stats::RING_LOST, 1);
        return;
    };
    event.write(BlockEvent {
        queue_ns: entry.queue_ns,
        issue_ns: entry.issue_ns,
        done_ns: now,
        sector: entry.sector,
        seek: entry.seek,
        sectors: entry.sectors,
        bytes_done: entry.bytes_done,
        dev: entry.dev,
        tgid: entry.tgid,
        tid: entry.tid,
        error,
        request_flags: entry.request_flags,
        op,
        class: entry.class,
        flags: entry.flags,
        reserved: 0,
        comm: entry.comm,
    });
    event.submit(NO_WAKEUP);
}

#[inline(always)]
unsafe fn remember(key: &Key, entry: &InFlight) {
    if IN_FLIGHT.insert(*key, *entry, BPF_ANY).is_err() {
        count(entry.slot, stats::IN_FLIGHT_FULL, 1);
    }
}

#[inline(always)]
fn blank(request: &Request) -> InFlight {
    InFlight {
        queue_ns: 0,
        issue_ns: 0,
        sector: request.sector,
        seek: NO_SEEK,
        sectors: request.sectors,
        bytes_done: 0,
        slot: request.slot,
        dev: request.dev,
        tgid: 0,
        tid: 0,
        request_flags: request.request_flags,
        op: request.op,
        class: class::OTHER,
        flags: request.flags,
        reserved: 0,
        comm: [0; 16],
    }
}

/// Signed distance from the end of the data request issued before, which this one becomes.
///
/// Two requests issued at the same instant on two CPUs may both be measured from the one before
/// them; user space notices, because it checks the chain.
#[inline(always)]
unsafe fn seek(request: &Request) -> i64 {
    if request.op > op::WRITE || request.sectors == 0 {
        return NO_SEEK;
    }
    let Some(last) = LAST.get_ptr_mut(request.slot) else {
        return NO_SEEK;
    };
    let seek = if (*last).valid == 0 {
        NO_SEEK
    } else {
        request.sector.wrapping_sub((*last).end) as i64
    };
    (*last).end = request.sector.wrapping_add(request.sectors as u64);
    (*last).valid = 1;
    seek
}

/// Who makes this request, and what class that suggests.
#[inline(always)]
unsafe fn owner(entry: &mut InFlight) {
    let both = bpf_get_current_pid_tgid();
    let (mut tgid, mut tid) = ((both >> 32) as u32, both as u32);
    let mut in_namespace = true;
    if NS_INO.load() != 0 {
        let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
        let size = core::mem::size_of::<bpf_pidns_info>() as u32;
        let failed = bpf_get_ns_current_pid_tgid(NS_DEV.load(), NS_INO.load(), &mut ids, size);
        in_namespace = failed == 0;
        if in_namespace {
            (tgid, tid) = (ids.tgid, ids.pid);
        }
    }
    (entry.tgid, entry.tid) = (tgid, tid);
    if let Ok(comm) = bpf_get_current_comm() {
        entry.comm = comm;
    }
    let own = in_namespace && tgid != 0 && tgid == OWN_TGID.load();
    if own {
        entry.flags |= flag::OWN;
    }
    entry.class = classify(entry, own);
}

#[inline(always)]
fn classify(entry: &InFlight, own: bool) -> u8 {
    let comm = &entry.comm;
    if comm[0] == b'j' && comm[1] == b'b' && comm[2] == b'd' && comm[3] == b'2' {
        return class::FS_JOURNAL;
    }
    if entry.flags & flag::META != 0 {
        // ext4's journal is written by jbd2; an xfs log write asks for a flush or FUA.
        let ordered = entry.flags & (flag::FUA | flag::PREFLUSH) != 0;
        return if ordered {
            class::FS_JOURNAL
        } else {
            class::FS_METADATA
        };
    }
    if comm[0] == b'x' && comm[1] == b'f' && comm[2] == b's' && comm[3] == b'a' {
        return class::FS_METADATA;
    }
    if own {
        return class::OWN;
    }
    let kworker = comm[0] == b'k' && comm[1] == b'w' && comm[2] == b'o' && comm[3] == b'r';
    if kworker && entry.op == op::WRITE {
        class::WRITEBACK
    } else {
        class::OTHER
    }
}
