//! The thread that runs now, and whether it is the service's.

use aya_ebpf::{
    bindings::bpf_pidns_info,
    helpers::{bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_ns_current_pid_tgid},
};

use crate::read::{Memory, Probed};
use crate::settings::{NS_DEV, NS_INO, OWN_TGID, TASK_FLAGS};

const PF_KTHREAD: u32 = 0x0020_0000;

/// A thread, in the service's pid namespace if it is in it.
pub struct Task {
    pub tgid: u32,
    pub tid: u32,
    /// It is the service's.
    pub own: bool,
}

#[inline(always)]
pub unsafe fn task() -> Task {
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
    let own = in_namespace && tgid != 0 && tgid == OWN_TGID.load();
    Task { tgid, tid, own }
}

/// Whether the thread that runs now is the kernel's own; `None`: this kernel does not say.
#[inline(always)]
pub unsafe fn is_kernel_thread() -> Option<bool> {
    if TASK_FLAGS.load() == 0 {
        return None;
    }
    let flags: u32 = Probed::read(bpf_get_current_task(), TASK_FLAGS.load())?;
    Some(flags & PF_KTHREAD != 0)
}
