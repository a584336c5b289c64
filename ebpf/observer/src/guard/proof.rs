//! Does the guard do what it says? Only trying it tells: on kernels whose list of security modules
//! lacks `bpf`, the program loads and attaches without an error, and is never called.
//!
//! The trial opens a device number that no driver has, on a node in a file system of memory that is
//! mounted nowhere. The guard runs before the driver: so the open ends with EPERM when the guard
//! denies it, with ENXIO otherwise, and no disk and no udev notices. Only where such a node is not
//! available (no CAP_SYS_ADMIN or CAP_MKNOD, a container that allows its own devices only) the
//! store's device itself is opened, nothing is written, and it is closed at once.
//!
//! The trial needs another process. A fork of a process with many threads would copy its memory
//! behind the back of direct I/O that is under way, and kernels before 6.3 then read into the wrong
//! copy: so the child shares the memory, as posix_spawn's does, and does one system call.

#![expect(unsafe_code, reason = "clone and waitpid")]

use std::ffi::{CString, c_int, c_void};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lumpscope_ebpf_common::guard::OpenCounts;
use lumpscope_ebpf_common::kernel_dev;
use rustix::fs::{FileType, Mode, makedev, mknodat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::program::{GuardError, GuardProgram};
use crate::api::GuardPolicy;

/// Major numbers for local and experimental use: see the kernel's devices.txt.
const UNUSED_MAJORS: std::ops::RangeInclusive<u32> = 120..=127;
const NODE: &str = "guard-test";
/// For one system call.
const STACK_BYTES: usize = 64 << 10;

/// Outcome of an open for writing by another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The guard did what the policy says.
    Proved,
    /// It did not: nobody asked it, or nobody listened.
    Disproved,
    /// The open was refused before it came to the guard; the number is the error.
    Unknown(i32),
}

/// A device node for the trial, and the number on it.
#[derive(Debug)]
pub(super) struct TestNode {
    mount: OwnedFd,
    dev: u32,
}

impl TestNode {
    /// Makes one. It is nowhere to be seen, and gone with this process.
    pub(super) fn new() -> io::Result<TestNode> {
        let devices = fs::read_to_string("/proc/devices")?;
        let major = unused_major(&devices)
            .ok_or_else(|| io::Error::other("all majors for experiments are taken"))?;
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let mount = fsmount(&context, flags, MountAttrFlags::empty())?;
        // For everybody: the service may have become another user when it is tried again.
        let mode = Mode::from_raw_mode(0o666);
        mknodat(&mount, NODE, FileType::BlockDevice, mode, makedev(major, 0))?;
        rustix::fs::chmodat(&mount, NODE, mode, rustix::fs::AtFlags::empty())?;
        Ok(TestNode {
            mount,
            dev: kernel_dev(major, 0),
        })
    }

    /// Guards the node for a moment and lets another process open it.
    pub(super) fn prove(
        &self,
        program: &mut GuardProgram,
        policy: GuardPolicy,
    ) -> Result<Verdict, GuardError> {
        program.arm(self.dev, policy)?;
        let node = CString::new(NODE).unwrap_or_default();
        let ended = open_elsewhere(self.mount.as_raw_fd(), &node);
        let counts = program.counts(self.dev);
        program.disarm(self.dev)?;
        Ok(verdict(policy, ended, OpenCounts::default(), counts))
    }

    /// Its number: what the guard tells of it concerns nobody.
    pub(super) fn dev(&self) -> u32 {
        self.dev
    }
}

/// Lets another process open the store's own device, which is guarded already.
pub(super) fn prove_on(
    program: &GuardProgram,
    path: &Path,
    dev: u32,
    policy: GuardPolicy,
) -> Verdict {
    let before = program.counts(dev);
    let node = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let ended = open_elsewhere(libc::AT_FDCWD, &node);
    verdict(policy, ended, before, program.counts(dev))
}

fn verdict(
    policy: GuardPolicy,
    ended: io::Result<i32>,
    before: OpenCounts,
    after: OpenCounts,
) -> Verdict {
    let ended = match ended {
        Ok(code) => code,
        Err(error) => return Verdict::Unknown(error.raw_os_error().unwrap_or(0)),
    };
    let refused = ended == libc::EPERM;
    let asked = match policy {
        GuardPolicy::Deny => after.denied > before.denied,
        GuardPolicy::Audit | GuardPolicy::Off => after.allowed > before.allowed,
    };
    match (asked, refused == (policy == GuardPolicy::Deny)) {
        (true, true) => Verdict::Proved,
        (false, _) if refused || ended == libc::EACCES => Verdict::Unknown(ended),
        _ => Verdict::Disproved,
    }
}

/// The first major number for experiments that no driver has.
fn unused_major(proc_devices: &str) -> Option<u32> {
    let (_, block) = proc_devices.split_once("Block devices:")?;
    let taken = |major: u32| {
        let mut lines = block.lines();
        lines.any(|l| l.split_whitespace().next().and_then(|n| n.parse().ok()) == Some(major))
    };
    UNUSED_MAJORS.into_iter().find(|major| !taken(*major))
}

/// Body of the child.
struct Attempt<'a> {
    folder: c_int,
    path: &'a CString,
}

/// A new process opens this for writing, writes nothing, and ends; 0: it could, else the error.
fn open_elsewhere(folder: c_int, path: &CString) -> io::Result<i32> {
    let mut attempt = Attempt { folder, path };
    // The kernel's calls want the end of the stack, aligned.
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let signals = Blocked::all()?;
    // SAFETY: CLONE_VFORK: this thread, its stack and `attempt` stay as they are until the child
    // has ended. The child has a stack of its own, and does nothing but one system call.
    let child = unsafe {
        libc::clone(
            attempt_open,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK,
            (&raw mut attempt).cast(),
        )
    };
    let error = io::Error::last_os_error();
    let mut status = 0;
    if child > 0 {
        // __WCLONE: it sends no signal when it ends, and nobody else waits for it.
        // SAFETY: `status` is a valid place for the result.
        unsafe { libc::waitpid(child, &raw mut status, libc::__WCLONE) };
    }
    drop(signals);
    if child < 0 {
        return Err(error);
    }
    match libc::WIFEXITED(status) {
        true => Ok(libc::WEXITSTATUS(status)),
        false => Err(io::Error::other(
            "the process that was to open it was ended",
        )),
    }
}

extern "C" fn attempt_open(attempt: *mut c_void) -> c_int {
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: the parent waits, and keeps it.
    let attempt = unsafe { &*attempt.cast::<Attempt<'_>>() };
    // SAFETY: a folder and a text that the parent keeps. The end of the process closes it.
    let opened = unsafe { libc::openat(attempt.folder, attempt.path.as_ptr(), flags) };
    match opened {
        0.. => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

/// All signals are blocked in this thread, and so in its child: a handler must not run in there.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn all() -> io::Result<Blocked> {
        // SAFETY: a set of signals is plain numbers.
        let (mut all, mut before) = unsafe { std::mem::zeroed::<[libc::sigset_t; 2]>() }.into();
        // SAFETY: a valid place.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: two valid places.
        let code =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        match code {
            0 => Ok(Blocked { before }),
            _ => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let none = std::ptr::null_mut();
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, none) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_count_and_the_right_end_prove_it() {
        let none = OpenCounts::default();
        let moved = |policy| match policy {
            GuardPolicy::Deny => OpenCounts { denied: 1, ..none },
            _ => OpenCounts { allowed: 1, ..none },
        };
        let (deny, audit) = (GuardPolicy::Deny, GuardPolicy::Audit);
        for (policy, ended, asked, expected) in [
            (deny, libc::EPERM, true, Verdict::Proved),
            (deny, libc::ENXIO, true, Verdict::Disproved),
            (deny, libc::ENXIO, false, Verdict::Disproved),
            (deny, 0, false, Verdict::Disproved),
            (deny, libc::EPERM, false, Verdict::Unknown(libc::EPERM)),
            (audit, libc::ENXIO, true, Verdict::Proved),
            (audit, 0, true, Verdict::Proved),
            (audit, libc::ENXIO, false, Verdict::Disproved),
            (audit, libc::EACCES, false, Verdict::Unknown(libc::EACCES)),
        ] {
            let after = if asked { moved(policy) } else { none };
            let found = verdict(policy, Ok(ended), none, after);
            assert_eq!(found, expected, "{policy:?} {ended} {asked}");
        }
    }

    #[test]
    fn the_number_is_one_that_no_driver_has() {
        let text = "Character devices:\n120 x\n\nBlock devices:\n  7 loop\n120 exp\n121 exp\n";
        assert_eq!(unused_major(text), Some(122));
        assert_eq!(unused_major(""), None);
    }

    #[test]
    fn another_process_opens_for_writing_and_tells_how_it_went() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no zero");
        let open = |at: &Path| open_elsewhere(libc::AT_FDCWD, &path(at)).expect("a process");
        assert_eq!(open(file.path()), 0);
        assert_eq!(open(Path::new("/nowhere/x")), libc::ENOENT);
        assert_eq!(open(Path::new("/proc/self")), libc::EISDIR);
        if rustix::process::geteuid().is_root() {
            // Nobody guards it, and nobody drives it.
            match TestNode::new() {
                Ok(node) => {
                    let name = CString::new(NODE).expect("no zero");
                    let ended = open_elsewhere(node.mount.as_raw_fd(), &name).expect("a process");
                    assert_eq!(ended, libc::ENXIO);
                }
                Err(error) => {
                    lumpscope_needs::skipped(&format!("no node without a driver: {error}"))
                }
            }
        }
    }
}
