//! The I/O that a thread is in the kernel for: the second way to find the owner of a block request.

use lumpscope_ebpf_common::{SUBMISSIONS as ENTRIES, control, submission};

use crate::maps::{CONTROL, SUBMISSIONS, add};
use crate::task::task;

const IORING_OP_FSYNC: u8 = 3;

/// The I/O of the thread that runs now, if it said so: index of its store, and its token.
#[inline(always)]
pub unsafe fn of(tid: u32) -> Option<(u32, u64)> {
    let entry = SUBMISSIONS.get_ptr(tid % ENTRIES)?.cast::<u64>();
    let store = submission::store_of(entry.read_volatile(), tid)?;
    Some((store, entry.add(1).read_volatile()))
}

/// An io_uring is about to do an I/O: when this thread drives one of ours, it is for this token.
#[inline(always)]
pub unsafe fn submitting(token: u64) {
    let task = task();
    if !task.own {
        return;
    }
    let Some(entry) = SUBMISSIONS.get_ptr_mut(task.tid % ENTRIES) else {
        return;
    };
    let entry = entry.cast::<u64>();
    let word = entry.read_volatile();
    if word as u32 == task.tid && word & submission::RING != 0 {
        entry.add(1).write_volatile(token);
        entry.write_volatile(word | submission::VALID);
    }
}

/// An io_uring hands an I/O to a worker. Whoever does so, the thread belongs to the ring's process.
#[inline(always)]
pub unsafe fn punted(opcode: Option<u8>) {
    if !task().own {
        return;
    }
    let word = match opcode {
        None => control::PUNTED_UNKNOWN,
        Some(IORING_OP_FSYNC) => control::PUNTED_FLUSHES,
        Some(_) => control::PUNTED_DATA,
    };
    if let Some(words) = CONTROL.get_ptr_mut(0) {
        add(words.cast::<u64>().add(word), 1);
    }
}
