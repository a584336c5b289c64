//! System calls that no thread may make any more once the service serves (seccomp).
//!
//! A list of what is forbidden, not of what is allowed: the C library, the runtime and io_uring use
//! others on every kernel, and a call that is missing on a list of allowed ones stops a store. What
//! stands here starts programs, looks into other processes, changes mounts, namespaces, modules,
//! clocks, keys, or owners and permissions of files: code that gets into the service needs these to
//! get further, the service does not. They fail with EPERM. What io_uring does is not seen here: of
//! these it has links, which Landlock refuses, and extended attributes.

use std::collections::BTreeMap;

use seccompiler::{SeccompAction, SeccompFilter};

use super::error::PrivilegeError;

/// Name and number of each call.
const FORBIDDEN: &[(&str, i64)] = &[
    // Programs.
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("personality", libc::SYS_personality),
    // Other processes.
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("process_madvise", libc::SYS_process_madvise),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("kcmp", libc::SYS_kcmp),
    ("migrate_pages", libc::SYS_migrate_pages),
    ("move_pages", libc::SYS_move_pages),
    // Mounts and namespaces.
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree),
    ("fsopen", libc::SYS_fsopen),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("setns", libc::SYS_setns),
    ("unshare", libc::SYS_unshare),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    // The machine.
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("quotactl", libc::SYS_quotactl),
    ("acct", libc::SYS_acct),
    ("syslog", libc::SYS_syslog),
    ("sethostname", libc::SYS_sethostname),
    ("setdomainname", libc::SYS_setdomainname),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    // Keys and page faults.
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("keyctl", libc::SYS_keyctl),
    ("userfaultfd", libc::SYS_userfaultfd),
    // Owners, permissions, times, attributes and links of files, for which Landlock has no right.
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchmodat2", 452),
    ("fchown", libc::SYS_fchown),
    ("fchownat", libc::SYS_fchownat),
    ("linkat", libc::SYS_linkat),
    ("symlinkat", libc::SYS_symlinkat),
    ("mknodat", libc::SYS_mknodat),
    ("utimensat", libc::SYS_utimensat),
    ("setxattr", libc::SYS_setxattr),
    ("lsetxattr", libc::SYS_lsetxattr),
    ("fsetxattr", libc::SYS_fsetxattr),
    ("setxattrat", 463),
    ("removexattr", libc::SYS_removexattr),
    ("lremovexattr", libc::SYS_lremovexattr),
    ("fremovexattr", libc::SYS_fremovexattr),
    ("removexattrat", 466),
    ("file_setattr", 469),
];

/// Older forms that only x86 has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(&str, i64)] = &[
    ("uselib", libc::SYS_uselib),
    ("chmod", libc::SYS_chmod),
    ("chown", libc::SYS_chown),
    ("lchown", libc::SYS_lchown),
    ("link", libc::SYS_link),
    ("symlink", libc::SYS_symlink),
    ("mknod", libc::SYS_mknod),
    ("utime", libc::SYS_utime),
    ("utimes", libc::SYS_utimes),
    ("futimesat", libc::SYS_futimesat),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(&str, i64)] = &[];

/// The same calls by other numbers: of x32, where the kernel has it. Calls of 32 bits end the process.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// Calls whose number differs there.
#[cfg(target_arch = "x86_64")]
const X32_OWN: [i64; 6] = [520, 521, 528, 539, 540, 545];

/// Names of the calls that [`forbid`] forbids.
pub fn names() -> impl Iterator<Item = &'static str> {
    calls().map(|(name, _)| *name)
}

fn calls() -> impl Iterator<Item = &'static (&'static str, i64)> {
    FORBIDDEN.iter().chain(OLDER)
}

fn numbers() -> impl Iterator<Item = i64> {
    let all = calls().map(|(_, number)| *number);
    #[cfg(target_arch = "x86_64")]
    let all = all
        .flat_map(|number| [number, number | X32])
        .chain(X32_OWN.map(|number| number | X32));
    all
}

/// Forbids these calls for all threads and for good.
///
/// # Errors
/// [`PrivilegeError::Filter`]: a kernel without seccomp, or a thread with another filter.
pub fn forbid() -> Result<(), PrivilegeError> {
    let failed = |why: seccompiler::Error| PrivilegeError::Filter(why.to_string());
    let rules: BTreeMap<i64, Vec<_>> = numbers().map(|number| (number, Vec::new())).collect();
    let errno = u32::try_from(libc::EPERM).unwrap_or(1);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        std::env::consts::ARCH
            .try_into()
            .map_err(|error| failed(seccompiler::Error::Backend(error)))?,
    );
    let program = filter
        .and_then(seccompiler::BpfProgram::try_from)
        .map_err(|error| failed(seccompiler::Error::Backend(error)))?;
    seccompiler::apply_filter_all_threads(&program).map_err(failed)
}
